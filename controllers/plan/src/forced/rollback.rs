//! The rollback table: nothing was done to the source, so only the destination is removed.

use crate::{
    flow::{Proof, Row},
    migration::{
        MigrationFlow, Side, Step, destination as to,
        garden::{is_seed_name_restored, restore_seed_name},
        rows::day_long,
    },
};

/// Rows that are worked on when the owner record was not written.
pub(super) static ROLLBACK: &[Row<MigrationFlow>] = &[
    Row {
        does: "kube-apiservers, members and standby of the destination are stopped, by their Pods.",
        proof: Proof::HeldUntil(Step::DestinationRemoved),
        advice: "delete Pods on nodes of the destination that do not answer, once these nodes are surely off",
        effects: to::stop,
        ..day_long(Side::Destination, Step::DestinationStopped, to::is_stopped)
    },
    Row {
        after: &[Step::DestinationStopped],
        does: "Nothing of the Shoot is left at the destination, and no infrastructure was touched.",
        advice: "see which finalizers hold the objects that are left",
        effects: to::remove,
        ..day_long(Side::Destination, Step::DestinationRemoved, to::is_removed)
    },
    Row {
        after: &[Step::DestinationRemoved],
        does: "`spec.seedName` of the Shoot is the source again, and its last operation says so.",
        advice: "see why the Shoot cannot be written",
        effects: restore_seed_name,
        ..day_long(Side::Garden, Step::SeedNameRestored, is_seed_name_restored)
    },
];
