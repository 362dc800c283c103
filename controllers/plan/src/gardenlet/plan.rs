//! The tables of a migration by gardenlet, and their version.

use std::time::Duration;

use super::{
    classic::{CLASSIC_FORWARD, CLASSIC_ROLLBACK},
    flow::GardenletMigration,
    forward::FORWARD,
    rollback::ROLLBACK,
    step::Step,
};
use crate::flow::{Plan, Plans};

/// How long a side may record nothing before rows that wait for it fail. Before a restore is requested, that changes nothing.
const SIDE_LIMIT: Duration = Duration::from_secs(600);
/// The same afterwards: gardenlet restores, and a person has a day to repair the other side.
const COMMITTED_SIDE_LIMIT: Duration = Duration::from_secs(24 * 3600);
/// Version of the tables. A change that an unfinished migration would not survive makes a new version, beside this one.
pub const PLAN_VERSION: u32 = 1;

/// The forced migration, version 1.
pub static PLAN: Plan<GardenletMigration> = Plan {
    kind: "ControlPlaneMigration",
    version: PLAN_VERSION,
    forward: FORWARD,
    rollback: ROLLBACK,
    point_of_no_return: Some(Step::RestoreRequested),
    needs_rollback: |notes| notes.changed,
    fields: &["changed", "formerSeeds", "loss"],
    unpausable_from: Some(Step::SeedBound),
    side_limit: SIDE_LIMIT,
    committed_side_limit: COMMITTED_SIDE_LIMIT,
};

/// The classic migration, version 1.
pub static CLASSIC_PLAN: Plan<GardenletMigration> = Plan {
    forward: CLASSIC_FORWARD,
    rollback: CLASSIC_ROLLBACK,
    point_of_no_return: Some(Step::SeedBound),
    fields: &["changed"],
    ..PLAN
};

/// All versions of the forced migration.
pub static PLANS: Plans<GardenletMigration> = Plans { versions: &[&PLAN] };
/// All versions of the classic migration.
pub static CLASSIC_PLANS: Plans<GardenletMigration> = Plans { versions: &[&CLASSIC_PLAN] };
