//! The table of an isolation, and its version.

use std::time::Duration;

use super::{
    context::{Context, ZoneIsolationFlow},
    garden, seed,
    step::{IsolationSide, Step},
};
use crate::{
    flow::{Plan, Plans, Row, Timeout},
    ledger::Check,
};

type IsolationRow = Row<ZoneIsolationFlow>;

/// Version of the table. A change that an unfinished isolation would not survive makes a new version, beside this one.
pub const PLAN_VERSION: u32 = 1;

/// Longer than any isolation lasts: nothing follows from time alone.
const NEVER: Duration = Duration::from_secs(1 << 40);

/// The isolation, version 1. No row fails, and nothing rolls back.
pub static PLAN: Plan<ZoneIsolationFlow> = Plan {
    kind: "ZoneIsolation",
    version: PLAN_VERSION,
    forward: TABLE,
    rollback: &[],
    point_of_no_return: None,
    needs_rollback: |_| false,
    fields: &["begun", "isolated", "machines", "subnetSeed", "workerChanged", "zoneCode"],
    unpausable_from: None,
    side_limit: NEVER,
    committed_side_limit: NEVER,
};

/// All versions of the isolation.
pub static PLANS: Plans<ZoneIsolationFlow> = Plans { versions: &[&PLAN] };

/// A row that is worked on until it is reached. None is held: a row that is lost too often would fail.
const fn endless(side: IsolationSide, step: Step, check: fn(&Context<'_>) -> Check) -> IsolationRow {
    Row { timeout: Timeout::Computed { text: "none", limit: |_| NEVER }, ..Row::new(side, step, check) }
}

static TABLE: &[IsolationRow] = &[
    Row {
        does: "The finalizer is on the ZoneIsolation, the annotation on the Shoot, and no other isolation or migration is in the way.",
        advice: "wait for the other isolation or migration of this Shoot",
        effects: garden::record,
        on_done: garden::note_begun,
        ..endless(IsolationSide::Garden, Step::IsolationRecorded, garden::is_recorded)
    },
    Row {
        after: &[Step::IsolationRecorded],
        does: "Infrastructure, Worker or CloudProfile tell which zone of the Shoot has this ID; it is never guessed.",
        advice: "list the zone in annotation `migration.gardener.cloud/zone-ids` of the CloudProfile, or call the isolation off",
        on_done: seed::note_zone,
        ..endless(IsolationSide::Seed, Step::ZoneKnown, seed::is_zone_known)
    },
    Row {
        after: &[Step::ZoneKnown],
        does: "The kinds of GEP-21 are served, each pool that uses the zone has another one, and its maximum allows that. Nothing was changed before.",
        advice: "make room, or call the isolation off",
        on_done: seed::note_machines,
        ..endless(IsolationSide::Seed, Step::CapacitySuffices, seed::has_capacity)
    },
    Row {
        after: &[Step::CapacitySuffices],
        does: "No node of the zone takes new Pods.",
        advice: "see whether the API of the Shoot answers",
        effects: seed::cordon,
        ..endless(IsolationSide::Seed, Step::NodesCordoned, seed::are_cordoned)
    },
    Row {
        // An API that suffers with the zone holds nothing up.
        after: &[Step::CapacitySuffices],
        does: "deployWorker, waitUntilWorkerReady: the Worker names the zone as isolated, and other zones have as many machines as all had.",
        advice: "see in the Worker what its controller reports",
        effects: seed::update_worker,
        on_start: seed::note_worker,
        ..endless(IsolationSide::Seed, Step::WorkerUpdated, seed::is_worker_updated)
    },
    Row {
        after: &[Step::WorkerUpdated],
        does: "No machine is left in the zone. Those that are not drained in time are deleted without waiting for their Pods.",
        advice: "see which PodDisruptionBudgets hold the nodes up",
        effects: seed::end_machines,
        ..endless(IsolationSide::Seed, Step::MachinesGone, seed::are_machines_gone)
    },
    Row {
        after: &[Step::MachinesGone],
        does: "deploySubnetIsolation, waitUntilSubnetIsolationReady: the provider has cut the networks of the zone off.",
        advice: "see in the SubnetIsolation what its controller reports",
        effects: seed::isolate_subnet,
        on_start: seed::note_subnet,
        on_done: seed::note_isolated,
        ..endless(IsolationSide::Seed, Step::SubnetIsolated, seed::is_subnet_isolated)
    },
    Row {
        after: &[Step::NodesCordoned, Step::SubnetIsolated],
        does: "Nothing comes back to the zone, and its networks stay cut off, as long as it is isolated. A machine that does ends as before.",
        advice: "remove the annotation of the Shoot to use the zone again",
        effects: seed::keep_empty,
        ..endless(IsolationSide::Seed, Step::ZoneKeptEmpty, seed::is_kept_empty)
    },
    Row {
        after: &[Step::IsolationRecorded],
        does: "The annotation was removed, `spec.expiresAt` has passed, or the Shoot or the ZoneIsolation is deleted.",
        advice: "remove the annotation of the Shoot to use the zone again",
        effects: garden::end,
        ..endless(IsolationSide::Garden, Step::IsolationEnds, garden::has_ended)
    },
    Row {
        after: &[Step::IsolationEnds, Step::ZoneKeptEmpty],
        guard: seed::was_isolated_elsewhere,
        does: "Where the control plane has moved since, the SubnetIsolation is made again: the provider finds by the Shoot what it has cut off.",
        advice: "see in the SubnetIsolation what its controller reports",
        effects: seed::find_subnet,
        ..endless(IsolationSide::Seed, Step::SubnetFound, seed::is_subnet_found)
    },
    Row {
        after: &[Step::SubnetFound],
        does: "destroyStaleSubnetIsolation, waitUntilStaleSubnetIsolationDeleted: the networks of the zone are as before.",
        advice: "see in the SubnetIsolation what its controller reports",
        effects: seed::release_subnet,
        ..endless(IsolationSide::Seed, Step::SubnetReleased, seed::is_subnet_released)
    },
    Row {
        after: &[Step::SubnetReleased],
        guard: seed::is_shoot_kept,
        does: "The Worker uses all zones again, and its controller reports success. In other zones, machines that came meanwhile end first.",
        advice: "see in the Worker what its controller reports",
        effects: seed::restore_worker,
        ..endless(IsolationSide::Seed, Step::WorkerRestored, seed::is_worker_restored)
    },
    Row {
        after: &[Step::SubnetReleased],
        guard: seed::is_shoot_kept,
        does: "Nodes that were cordoned for the zone take Pods again.",
        advice: "see whether the API of the Shoot answers",
        effects: seed::uncordon,
        ..endless(IsolationSide::Seed, Step::NodesUncordoned, seed::are_uncordoned)
    },
    Row {
        after: &[Step::WorkerRestored, Step::NodesUncordoned],
        does: "The failback is done.",
        advice: "nothing is left to do",
        ..endless(IsolationSide::Garden, Step::IsolationClosed, garden::is_closed)
    },
];
