//! The rollback table: nothing was done to the source. A ShootState that was written for gardenlet stays, as does what was copied.

use super::{destination as to, flow::GardenletMigration, forward::day_long, garden, step::Step};
use crate::{flow::Row, migration::Side};

/// Rows that are worked on when no restore was requested.
pub(super) static ROLLBACK: &[Row<GardenletMigration>] = &[
    Row {
        does: "The namespace of the copy is deleted.",
        advice: "delete the namespace by hand",
        effects: to::remove_copy,
        ..day_long(Side::Destination, Step::DestinationCleaned, to::is_copy_removed)
    },
    Row {
        does: "The BackupEntry names the seeds that it named before.",
        advice: "see why the BackupEntry cannot be written",
        effects: garden::restore_backup_entry,
        ..day_long(Side::Garden, Step::BackupEntryRestored, garden::is_backup_entry_restored)
    },
    Row {
        after: &[Step::BackupEntryRestored],
        does: "`spec.seedName` of the Shoot is what it was before.",
        advice: "see why the Shoot cannot be bound",
        effects: garden::restore_seed_name,
        ..day_long(Side::Garden, Step::SeedNameRestored, garden::is_seed_name_restored)
    },
];
