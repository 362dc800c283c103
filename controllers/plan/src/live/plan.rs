//! The tables of a live migration, and their version.

use std::time::Duration;

use super::{forward::FORWARD, rollback::ROLLBACK, shrunk::SHRUNK, withdrawn};
use crate::{
    classic,
    flow::{self, Decision, Input, Plan, Plans},
    ledger::State,
    migration::{
        MigrationFlow, Side, Step,
        observed::{Facts, Joining, MigrationMode},
    },
};

/// How long a side may record nothing before rows that wait for it fail.
const SIDE_LIMIT: Duration = Duration::from_secs(600);
/// The same past the point of no return: the destination serves, and a person has a day to repair the other side.
const COMMITTED_SIDE_LIMIT: Duration = Duration::from_secs(24 * 3600);
/// Version of the tables. A change that an unfinished migration would not survive makes a new version, beside this one.
pub const PLAN_VERSION: u32 = 1;

/// The migration, version 1.
pub static PLAN: Plan<MigrationFlow> = Plan {
    kind: classic::PLAN.kind,
    version: PLAN_VERSION,
    forward: FORWARD,
    rollback: ROLLBACK,
    point_of_no_return: Some(Step::MoveCommitted),
    needs_rollback: |notes| notes.changed,
    fields: classic::PLAN.fields,
    unpausable_from: Some(Step::SourceControllersStopped),
    side_limit: SIDE_LIMIT,
    committed_side_limit: COMMITTED_SIDE_LIMIT,
};

/// All versions of the migration.
pub static PLANS: Plans<MigrationFlow> = Plans { versions: &[&PLAN] };

/// The same where members of the source leave before the destination serves.
pub static SHRUNK_PLAN: Plan<MigrationFlow> = Plan { forward: SHRUNK, ..PLAN };

static SHRUNK_PLANS: Plans<MigrationFlow> = Plans { versions: &[&SHRUNK_PLAN] };

/// Decides by these plans of the mode of the migration, or by those that give the source up. The destination alone chooses, and records
/// its choice when it passes the point of no return: until then both tables ask the same of the other sides.
#[must_use]
pub fn decide(
    plans: &'static Plans<MigrationFlow>,
    input: &Input<'_, MigrationFlow>,
) -> Decision<MigrationFlow> {
    let by_table = || flow::decide(if is_shrunk(input) { &SHRUNK_PLANS } else { plans }, input);
    withdrawn::decide(input).unwrap_or_else(by_table)
}

/// Whether the source is given up: somebody has asked for that while the destination did not serve, and it stays so.
fn is_shrunk(input: &Input<'_, MigrationFlow>) -> bool {
    let others = || input.others.iter().filter(|(side, _)| *side == Side::Destination);
    if input.ledger.notes.shrunk || others().any(|(_, ledger)| ledger.notes.shrunk) {
        return true;
    }
    let request = &input.observed.request;
    let is_asked = request.mode == MigrationMode::Live && request.force_shrink;
    is_asked && input.ledger.state(Step::ApiServes) == State::Running && is_etcd_well(&input.observed.facts)
}

/// Whether members of the destination answer reads. Nothing rolls back once those of the source are to leave, and no member leaves an
/// etcd without a quorum.
fn is_etcd_well(facts: &Facts) -> bool {
    match facts {
        Facts::Destination(facts) => {
            facts.etcd.joining == Joining::Joined && facts.etcd.ready + 1 >= facts.etcd.members
        }
        Facts::Garden(_) | Facts::Source(_) => false,
    }
}
