//! The tables of a classic migration, and their version.

use std::time::Duration;

use super::{forward::FORWARD, rollback::ROLLBACK};
use crate::{
    flow::{Plan, Plans},
    migration::{MigrationFlow, Step},
};

/// How long a side may record nothing before rows that wait for it fail.
const SIDE_LIMIT: Duration = Duration::from_secs(600);
/// The same past the point of no return: the destination serves, and a person has a day to repair the other side.
const COMMITTED_SIDE_LIMIT: Duration = Duration::from_secs(24 * 3600);
/// Version of the tables. A change that an unfinished migration would not survive makes a new version, beside this one.
pub const PLAN_VERSION: u32 = 1;

/// The migration, version 1.
pub static PLAN: Plan<MigrationFlow> = Plan {
    kind: "ControlPlaneMigration",
    version: PLAN_VERSION,
    forward: FORWARD,
    rollback: ROLLBACK,
    point_of_no_return: Some(Step::MoveCommitted),
    needs_rollback: |notes| notes.changed,
    fields: &[
        "apiAnsweredTime",
        "apiDnsWrittenTime",
        "apiServers",
        "apiTtlSeconds",
        "changed",
        "controllers",
        "dnsRecordsMigrated",
        "etcdReplicas",
        "finalSnapshot",
        "formerOperation",
        "hibernated",
        "loss",
        "members",
        "ownerEpoch",
        "ownershipEnded",
        "shrunk",
        "tunnelServers",
        "volumes",
        "workerless",
    ],
    unpausable_from: Some(Step::SourceControllersStopped),
    side_limit: SIDE_LIMIT,
    committed_side_limit: COMMITTED_SIDE_LIMIT,
};

/// All versions of the migration.
pub static PLANS: Plans<MigrationFlow> = Plans { versions: &[&PLAN] };
