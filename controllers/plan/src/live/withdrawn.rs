//! When the destination takes the point of no return back: nothing has happened beyond it, and nothing can.
//!
//! When the source dies between `MoveCommitted` and the removal of its first member, the etcd has lost its quorum for good: no member can
//! be removed from it any more. Only snapshots are left, and a forced migration begins from these. It waits as long as this migration
//! is past its point of no return, since clients may have written to a destination that serves alone. So where somebody has created it,
//! the destination records that it rolls back; then the forced migration supersedes this one, and the destination is removed.

use crate::{
    flow::{Decision, Input, SOON},
    ledger::Phase,
    migration::{
        MigrationFlow, Step,
        observed::{EtcdFacts, Facts, Joining},
    },
};

const LOST: &str = "QuorumLost";

/// The decision to go back, where the destination has to; or to go on after all, where nobody asks for that any more.
pub(super) fn decide(input: &Input<'_, MigrationFlow>) -> Option<Decision<MigrationFlow>> {
    let request = &input.observed.request;
    let (phase, reason, message) = match &request.forced_instead {
        Some(name) if is_held_by_lost_members(input) => {
            let why = format!(
                "the etcd has lost its quorum with the members of the source, and {name} goes on from snapshots"
            );
            (Phase::RollingBack, LOST, why)
        }
        // Nothing was done on the way back yet: its first row is up to the source, which goes forward.
        None if has_withdrawn(input) && request.superseded.is_none() => {
            (Phase::Running, "Started", String::new())
        }
        _ => return None,
    };
    let mut next = input.ledger.clone();
    (next.phase, next.message, next.paused, next.observed) = (phase, message, None, Some(input.now));
    reason.clone_into(&mut next.reason);
    Some(Decision { effects: Vec::new(), records: Some(next), requeue: Some(SOON) })
}

fn has_withdrawn(input: &Input<'_, MigrationFlow>) -> bool {
    let ledger = input.ledger;
    matches!(input.observed.facts, Facts::Destination(_))
        && ledger.phase == Phase::RollingBack
        && ledger.reason == LOST
        && ledger.is_started(Step::MoveCommitted)
}

/// Whether the destination waits for members of the source to leave an etcd that cannot be changed. Its other rows past the point of no
/// return come after that one.
fn is_held_by_lost_members(input: &Input<'_, MigrationFlow>) -> bool {
    let ledger = input.ledger;
    let is_past_return = ledger.is_started(Step::MoveCommitted);
    let is_held = !ledger.is_settled(Step::SourceMembersRemoved);
    ledger.phase == Phase::Running && is_past_return && is_held && has_lost_quorum(&input.observed.facts)
}

fn has_lost_quorum(facts: &Facts) -> bool {
    let is_lost =
        |etcd: &EtcdFacts| etcd.joining != Joining::Released && etcd.ready == 0 && etcd.has_lost_quorum;
    matches!(facts, Facts::Destination(facts) if is_lost(&facts.etcd))
}
