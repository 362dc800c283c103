//! The forward table of a forced migration.

use super::{
    destination as to,
    flow::{Context, GardenletMigration},
    garden,
    step::Step,
};
use crate::{
    flow::{OnFailure, Proof, Row, Timeout},
    ledger::Check,
    migration::Side,
};

pub(super) type MigrationRow = Row<GardenletMigration>;

/// A day, for what waits for a person, or for what a person can help.
pub(super) const A_DAY: Timeout<GardenletMigration> = Timeout::Hours(24);

/// A row that has a day, and fails then: nothing rolls back any more.
pub(super) const fn day_long(side: Side, step: Step, check: fn(&Context<'_>) -> Check) -> MigrationRow {
    Row { on_failure: OnFailure::Fail, timeout: A_DAY, ..Row::new(side, step, check) }
}

/// Rows of a forced migration by gardenlet.
pub(super) static FORWARD: &[MigrationRow] = &[
    Row {
        does: "The finalizer is on the ControlPlaneMigration, and no other migration is in the way.",
        advice: "wait for the other migration of this Shoot, or abort it",
        effects: garden::record,
        ..Row::new(Side::Garden, Step::MigrationRecorded, garden::is_recorded)
    },
    Row {
        after: &[Step::MigrationRecorded],
        does: "The destination is ready, the gardenlet of the source does not answer, and Repot has the rights that it needs.",
        proof: Proof::HeldUntil(Step::SeedBound),
        advice: "repair what is named; where the source answers, let gardenlet migrate the Shoot",
        ..Row::new(Side::Garden, Step::DestinationReady, garden::is_destination_ready)
    },
    Row {
        after: &[Step::DestinationReady],
        does: "A person has confirmed that nothing of the Shoot runs at the source. Nobody else fences it.",
        timeout: A_DAY,
        advice: "switch the nodes of the source off, and confirm it, or abort the migration",
        ..Row::new(Side::Garden, Step::SourceOff, garden::is_source_off)
    },
    Row {
        after: &[Step::DestinationReady],
        does: "A namespace for the copy exists at the destination, with access to both buckets, and the bucket of the source answers.",
        advice: "see whether credentials and networks of the destination reach the bucket of the source",
        on_start: to::note_change,
        effects: to::ensure_copy_namespace,
        ..Row::new(Side::Destination, Step::SourceBucketReadable, to::is_bucket_readable)
    },
    Row {
        after: &[Step::SourceOff, Step::SourceBucketReadable],
        does: "A person has confirmed that what the source stored after its newest snapshot is lost.",
        timeout: A_DAY,
        advice: "look at the age of the snapshot, and confirm the loss or abort the migration",
        on_done: to::note_loss,
        ..Row::new(Side::Destination, Step::LossConfirmed, to::is_loss_confirmed)
    },
    Row {
        after: &[Step::LossConfirmed],
        does: "The snapshots are copied to the bucket of the destination and verified, and the source has stored none since.",
        timeout: A_DAY,
        advice: "see in the logs of the copying Job what it waits for",
        effects: to::copy_snapshots,
        ..Row::new(Side::Destination, Step::SnapshotsCopied, to::are_snapshots_copied)
    },
    Row {
        after: &[Step::LossConfirmed],
        does: "Gardener's API server has a ShootState that is as new as that of Repot.",
        advice: "see why the ShootState cannot be written",
        effects: to::ensure_state,
        ..Row::new(Side::Destination, Step::StateEnsured, to::is_state_ensured)
    },
    Row {
        after: &[Step::SnapshotsCopied, Step::StateEnsured],
        does: "`spec.seedName` of the Shoot is the destination, by its binding.",
        advice: "see why the Shoot cannot be bound",
        on_start: garden::note_former_seeds,
        effects: garden::bind,
        ..Row::new(Side::Garden, Step::SeedBound, garden::is_bound)
    },
    Row {
        after: &[Step::SeedBound],
        does: "`spec.seedName` of the BackupEntry is the destination, and `status.seedName` is empty.",
        advice: "see why the BackupEntry cannot be written",
        effects: garden::move_backup_entry,
        ..Row::new(Side::Garden, Step::BackupEntryMoved, garden::is_backup_entry_moved)
    },
    Row {
        after: &[Step::BackupEntryMoved],
        does: "`status.seedName` of the Shoot is the destination, and its last operation is Migrate, Succeeded: gardenlet restores.",
        advice: "see why the status of the Shoot cannot be written",
        effects: garden::request_restore,
        ..day_long(Side::Garden, Step::RestoreRequested, garden::is_restore_requested)
    },
    Row {
        after: &[Step::RestoreRequested],
        does: "EtcdCopyBackupsTasks of gardenlet are marked as succeeded, until it has restored the Shoot.",
        on_failure: OnFailure::Skip,
        timeout: A_DAY,
        advice: "etcd-druid copies where Repot cannot mark the task",
        effects: to::mark_copy_tasks,
        ..Row::new(Side::Destination, Step::CopyTaskEnded, to::has_copy_task_ended)
    },
    Row {
        after: &[Step::RestoreRequested],
        does: "A kube-apiserver of the Shoot is ready at the destination. The outage ends.",
        guard: |context| !context.observed.request.hibernated,
        on_failure: OnFailure::Skip,
        timeout: A_DAY,
        advice: "see in the last operation of the Shoot what gardenlet waits for",
        ..Row::new(Side::Destination, Step::ApiServes, to::does_api_serve)
    },
    Row {
        after: &[Step::RestoreRequested],
        does: "gardenlet reports Restore, Succeeded.",
        advice: "repair what gardenlet names in the last operation and the last errors of the Shoot",
        ..day_long(Side::Garden, Step::RestoreSucceeded, garden::has_restore_succeeded)
    },
    Row {
        after: &[Step::CopyTaskEnded],
        does: "The namespace of the copy is deleted. The snapshots stay.",
        on_failure: OnFailure::Skip,
        timeout: A_DAY,
        advice: "delete the namespace by hand",
        effects: to::remove_copy,
        ..Row::new(Side::Destination, Step::CopyRemoved, to::is_copy_removed)
    },
];
