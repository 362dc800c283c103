//! A leader that refuses every change although all voters follow it.
//!
//! etcd allows changes of members only while the member that is asked takes itself to be connected to the others ("unhealthy cluster").
//! That can be wrong for good: when a member has restarted, a message that was on its way to its former address may fail after new streams
//! to it are up. The peer counts as inactive from then on, until a stream ends (`rafthttp`, `peer_status.go`). Another leader has a view of
//! its own, so the lead is moved.

use std::{collections::BTreeMap, time::Duration};

use repot_etcd_core::members::{MemberId, Role};
use tokio::time::Instant;

use super::{Outcome, Seen, SeenMember};

/// The reason of an outcome where etcd has refused a change.
pub(super) const REFUSED: &str = "RefusedByEtcd";
/// What etcd says when it refuses a change for that.
pub(super) const UNHEALTHY: &str = "unhealthy cluster";
/// Longer than etcd's own wait for connections that are new, of five seconds.
const PATIENCE: Duration = Duration::from_secs(15);

/// Leaders that have refused since a time. Each of them is tried once, so the lead does not go round.
#[derive(Debug, Default)]
pub(super) struct Refusals(BTreeMap<MemberId, Instant>);

impl Refusals {
    /// Notes what a pass came to. Gives the voter that is to lead instead, where this leader has refused in each pass for long. `leaving` is
    /// to be removed, and leads no more.
    pub(super) fn note(
        &mut self,
        seen: &Seen,
        outcome: &Outcome,
        leaving: Option<MemberId>,
        now: Instant,
    ) -> Option<MemberId> {
        let is_refused = matches!(
            outcome,
            Outcome::Waiting(why) if why.reason == REFUSED && why.message.contains(UNHEALTHY)
        );
        let voters = || seen.members.iter().filter(|member| member.role == Role::Voter);
        if !is_refused || !voters().all(|member| member.healthy) {
            self.0.clear();
            return None;
        }
        let leader = voters().find(|member| Some(member.id) == seen.leader)?;
        let since = *self.0.entry(leader.id).or_insert(now);
        if now.duration_since(since) < PATIENCE {
            return None;
        }
        let is_tried = |one: &SeenMember| self.0.contains_key(&one.id);
        let is_heir =
            |one: &&SeenMember| one.side == leader.side && !is_tried(one) && Some(one.id) != leaving;
        let heir = voters().find(is_heir)?.id;
        // One that does not come to lead is not asked again.
        self.0.insert(heir, now);
        Some(heir)
    }
}

#[cfg(test)]
mod tests {
    use repot_api::conditions::Reason;
    use repot_etcd_core::members::Side;

    use super::*;

    fn seen(leader: u64, healthy: bool) -> Seen {
        let member = |id: u64| SeenMember {
            id: MemberId(id),
            slot: format!("etcd-main-{id}"),
            side: Side::Source,
            ordinal: 0,
            role: Role::Voter,
            started: true,
            healthy: healthy || id == leader,
            moved: false,
            lost: false,
            version: String::new(),
            client_url: String::new(),
            connected: None,
        };
        Seen {
            cluster: 1,
            leader: Some(MemberId(leader)),
            members: [1, 2, 3].map(member).into(),
            unknown_members: Vec::new(),
            settled: true,
            obstacle: None,
        }
    }

    fn refused() -> Outcome {
        Outcome::Waiting(Reason::new(REFUSED, format!("failed to add a: etcdserver: {UNHEALTHY}")))
    }

    #[test]
    fn lead_moves_from_a_leader_that_refuses_for_long_and_to_each_voter_once() {
        let (mut refusals, began) = (Refusals::default(), Instant::now());
        assert_eq!(refusals.note(&seen(1, true), &refused(), None, began), None);
        assert_eq!(refusals.note(&seen(1, true), &refused(), None, began + PATIENCE), Some(MemberId(2)));
        let mut now = began + PATIENCE;
        for (leader, heir) in [(2, Some(MemberId(3))), (3, None)] {
            assert_eq!(refusals.note(&seen(leader, true), &refused(), None, now), None);
            now += PATIENCE;
            assert_eq!(refusals.note(&seen(leader, true), &refused(), None, now), heir);
        }
    }

    #[test]
    fn lead_stays_where_etcd_is_right_or_has_done_something() {
        let (mut refusals, began) = (Refusals::default(), Instant::now());
        let other = Outcome::Waiting(Reason::new(REFUSED, "failed to add a: too many learners"));
        let waits = Outcome::Waiting(Reason::new("VoterUnsteady", "a voter has just connected"));
        for outcome in [Outcome::Done, other, waits] {
            assert_eq!(refusals.note(&seen(1, true), &refused(), None, began), None);
            assert_eq!(refusals.note(&seen(1, true), &outcome, None, began), None);
            assert_eq!(refusals.note(&seen(1, true), &refused(), None, began + PATIENCE), None);
            refusals = Refusals::default();
        }
        assert_eq!(refusals.note(&seen(1, false), &refused(), None, began), None);
        assert_eq!(refusals.note(&seen(1, false), &refused(), None, began + PATIENCE), None);
    }

    #[test]
    fn voter_that_does_not_come_to_lead_or_that_leaves_is_not_asked_again() {
        let (mut refusals, began) = (Refusals::default(), Instant::now());
        let mut note = |leaving, at| refusals.note(&seen(1, true), &refused(), leaving, at);
        assert_eq!(note(None, began), None);
        assert_eq!(note(Some(MemberId(2)), began + PATIENCE), Some(MemberId(3)));
        assert_eq!(note(Some(MemberId(2)), began + PATIENCE), None);
    }
}
