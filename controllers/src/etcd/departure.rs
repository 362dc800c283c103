//! The finalizer of an Etcd whose members share an etcd with those of another: members that stop without being removed from it would
//! leave the others with a quorum that is harder to reach, or with none.
//!
//! The Etcd that joins another one has its members removed before it goes. The one that was joined knows the others only as
//! members that are not its own, and cannot have its members removed: that is up to the one that joined. So it goes on until the
//! others have a quorum without it, or have left.

use repot_etcd_core::members::{Role, Side, quorum};

use super::{
    membership::MembershipStatus,
    observe::Observed,
    status::{UnknownMember, UnknownMembers},
};

/// Whether the Etcd has to stay until its members have left, or are not needed any more.
#[must_use]
pub fn is_bound(observed: &Observed, known: Option<&MembershipStatus>) -> bool {
    if observed.is_abandoned() {
        return false;
    }
    if observed.existing().is_none() {
        // Members of another seed need further URLs, so none have joined unseen before the finalizer was there.
        let may_be_joined = !observed.etcd.spec.etcd.additional_peer_urls.is_empty();
        return is_needed(observed, known) || (may_be_joined && !observed.is_ending());
    }
    if observed.wanted() > 0 {
        return true;
    }
    // The others are asked again before anything is given up.
    let Some(known) = known else { return observed.is_held() };
    pods(observed, known) != Some(0) && !known.are_alone()
}

/// Pods that the members of this Etcd need; nothing where that is not known.
#[must_use]
pub fn pods(observed: &Observed, known: &MembershipStatus) -> Option<u32> {
    let listed = known.pods(observed.side());
    listed.or_else(|| agents_report_removal(observed, known).then_some(0))
}

/// Whether the agents of all members that run report that their member was removed from the etcd that it had joined. That etcd may end
/// as soon as the last of these members has left it, and then no member is left that could list the others. Members that are still
/// wanted are not stopped by this.
fn agents_report_removal(observed: &Observed, known: &MembershipStatus) -> bool {
    let leaves = observed.existing().is_some() && observed.wanted() == 0;
    let running = usize::try_from(observed.running().unwrap_or_default()).unwrap_or(usize::MAX);
    let said = known.said.iter().take(running).flatten();
    leaves && known.seen.is_none() && running > 0 && said.filter(|said| said.removed).count() == running
}

/// Whether members of another Etcd have no quorum without those of this one. With neither StatefulSet nor volumes nothing is left that
/// they could need, as where the whole namespace goes.
#[must_use]
pub fn is_needed(observed: &Observed, known: Option<&MembershipStatus>) -> bool {
    observed.places() > 0 && unknown(observed, known).is_some_and(|unknown| unknown.depend_on_own)
}

/// Whether that has to be asked before an Etcd that is being deleted is stopped.
#[must_use]
pub fn may_be_needed(observed: &Observed) -> bool {
    !observed.is_abandoned()
        && observed.is_ending()
        && observed.is_held()
        && observed.existing().is_none()
        && observed.places() > 0
}

/// Members that are not those of this Etcd: as they are seen, else as they were seen the last time.
#[must_use]
pub fn unknown(observed: &Observed, known: Option<&MembershipStatus>) -> Option<UnknownMembers> {
    let before = observed.status();
    let Some(seen) = known.and_then(|known| known.seen.as_ref()) else { return before.unknown_members };
    // Of an etcd that is joined all members have slots.
    if observed.existing().is_some() {
        return None;
    }
    let is_own = |id: &str| before.members.iter().any(|member| member.id.as_deref() == Some(id));
    // One of ours may have no slot for a while, as while it gets other peer URLs.
    let others = seen.unknown_members.iter().filter(|one| !is_own(&format!("{:x}", one.id.0)));
    let mut members: Vec<UnknownMember> = others
        .clone()
        .map(|one| UnknownMember {
            name: one.name.clone(),
            id: format!("{:x}", one.id.0),
            role: if one.votes { "Member" } else { "Learner" }.to_owned(),
            peer_urls: one.peer_urls.clone(),
        })
        .collect();
    // Those that never come back have slots, by which they are removed.
    let lost = || seen.members.iter().filter(|one| one.side == Side::Destination);
    let is_left = |id: &str| lost().any(|one| format!("{:x}", one.id.0) == id);
    let known = before.unknown_members.iter().flat_map(|before| &before.members);
    members.extend(known.filter(|one| is_left(&one.id)).cloned());
    if members.is_empty() {
        // A list that was not read behind every change may be old.
        return before.unknown_members.filter(|_| !seen.settled);
    }
    let with_slots = seen.members.iter().filter(|member| member.role == Role::Voter).count();
    let voters = with_slots + seen.unknown_members.iter().filter(|one| one.votes).count();
    let is_waited_for = others.clone().next().is_some();
    let depend_on_own = is_waited_for && others.filter(|one| one.votes).count() < quorum(voters);
    Some(UnknownMembers { voters, depend_on_own, members })
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::apps::v1::StatefulSet;
    use serde_json::{Value, json};

    use super::*;
    use repot_etcd_core::{
        agent::http::AgentStatus,
        operator::{Next, Source, decide},
    };

    /// An Etcd with this spec, whose StatefulSet has so many Pods.
    fn mk_observed(spec: &Value, running: u32) -> Observed {
        let etcd = json!({
            "apiVersion": "druid.gardener.cloud/v1alpha1", "kind": "Etcd", "metadata": {"name": "main"}, "spec": spec,
        });
        let claims = json!([{"metadata": {"name": "main"}, "spec": {}}]);
        let set = json!({"metadata": {"name": "main"}, "spec": {
            "replicas": running, "selector": {}, "serviceName": "main", "template": {}, "volumeClaimTemplates": claims,
        }});
        let set: StatefulSet = serde_json::from_value(set).expect("a StatefulSet");
        let etcd = serde_json::from_value(etcd).expect("an Etcd");
        Observed {
            etcd,
            set: Some(set),
            pods: vec![],
            claims: vec![],
            copy: None,
            stale_copies: vec![],
            progress: None,
        }
    }

    /// An Etcd that joined another one, with so many members wanted.
    fn mk_joined(wanted: u32, running: u32) -> Observed {
        let existing = json!({"members": [], "clientEndpoints": []});
        let spec = json!({"replicas": wanted, "etcd": {"bootstrapWithExistingCluster": existing}});
        mk_observed(&spec, running)
    }

    /// What agents say while no member answers: whether the member was removed; nothing where the agent does not answer.
    fn mk_known(removed: &[Option<bool>]) -> MembershipStatus {
        let said = removed
            .iter()
            .map(|removed| removed.map(|removed| AgentStatus { removed, ..AgentStatus::default() }));
        MembershipStatus { seen: None, outcome: None, said: said.collect() }
    }

    #[test]
    fn agents_are_believed_where_all_that_run_report_the_removal_and_no_member_is_wanted() {
        for (wanted, running, said, expected) in [
            (0, 1, &[Some(true), None, None][..], Some(0)),
            (0, 2, &[Some(true), Some(true), None], Some(0)),
            (0, 2, &[Some(true), Some(false), None], None),
            (0, 2, &[Some(true), None, Some(true)], None),
            (0, 2, &[Some(true)], None),
            (0, 1, &[], None),
            (0, 0, &[Some(true)], None),
            // Members that are wanted are not stopped, whatever was removed.
            (3, 1, &[Some(true), None, None], None),
            (1, 1, &[Some(true)], None),
        ] {
            let found = pods(&mk_joined(wanted, running), &mk_known(said));
            assert_eq!(found, expected, "{wanted} wanted, {running} running, {said:?}");
        }
    }

    #[test]
    fn members_that_give_up_the_etcd_they_have_joined_stop_without_leaving_it() {
        let existing = |abandoned| json!({"members": [], "clientEndpoints": [], "abandoned": abandoned});
        let spec =
            |abandoned| json!({"replicas": 0, "etcd": {"bootstrapWithExistingCluster": existing(abandoned)}});
        let next = |abandoned| {
            let observed = mk_observed(&spec(abandoned), 3);
            let bound = is_bound(&observed, Some(&mk_known(&[None; 3])));
            (decide(&observed.seen(None, Source::Ready, false)), bound)
        };
        let (next_of_abandoned, bound) = next(true);
        assert!(matches!(next_of_abandoned, Next::Stop(_)), "{next_of_abandoned:?}");
        assert!(!bound);
        // The others may need them, as long as nobody says that they do not.
        let (next_of_joined, bound) = next(false);
        assert!(matches!(next_of_joined, Next::Wait(_)), "{next_of_joined:?}");
        assert!(bound);
    }

    #[test]
    fn agents_of_an_etcd_that_joined_no_other_do_not_end_it() {
        let observed = mk_observed(&json!({"replicas": 0, "etcd": {}}), 1);
        assert_eq!(pods(&observed, &mk_known(&[Some(true)])), None);
    }
}
