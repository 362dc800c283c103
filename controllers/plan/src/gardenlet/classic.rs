//! The tables of a classic migration: gardenlet does everything, and Repot prepares, binds the Shoot, watches and measures.

use super::{
    destination as to,
    flow::{Context, source},
    forward::{A_DAY, MigrationRow, day_long},
    garden, steer,
    step::Step,
};
use crate::{
    flow::{OnFailure, Proof, Row, Timeout},
    ledger::Check,
    migration::Side,
};

/// Rows of a classic migration by gardenlet.
pub(super) static CLASSIC_FORWARD: &[MigrationRow] = &[
    Row {
        does: "The finalizer is on the ControlPlaneMigration, and no other migration is in the way.",
        advice: "wait for the other migration of this Shoot, or abort it",
        effects: garden::record,
        ..Row::new(Side::Garden, Step::MigrationRecorded, garden::is_recorded)
    },
    Row {
        after: &[Step::MigrationRecorded],
        does: "Both seeds are ready, their gardenlets answer, the BackupEntry is at the source, and Gardener and all webhooks would accept the binding (a dry run).",
        proof: Proof::HeldUntil(Step::SeedBound),
        advice: "repair what is named; where the source does not answer, use mode Forced",
        ..Row::new(Side::Garden, Step::SeedsReady, steer::are_seeds_ready)
    },
    Row {
        after: &[Step::SeedsReady],
        does: "A namespace for the copy exists at the destination, with access to both buckets, and the bucket of the source answers.",
        advice: "see whether credentials and networks of the destination reach the bucket of the source",
        on_start: to::note_change,
        effects: to::ensure_copy_namespace,
        ..Row::new(Side::Destination, Step::SourceBucketReadable, to::is_bucket_readable)
    },
    Row {
        after: &[Step::SeedsReady],
        does: "Gardener's API server takes a ShootState of the size that is known.",
        advice: "make the ShootState smaller, or use executor Repot, which stores ShootStates of any size",
        ..Row::new(Side::Destination, Step::StateFits, to::does_state_fit)
    },
    Row {
        after: &[Step::SourceBucketReadable, Step::StateFits],
        does: "What the source has stored is copied to the bucket of the destination and verified, so little is left to copy in the outage.",
        timeout: A_DAY,
        advice: "see in the logs of the copying Job what it waits for",
        effects: to::copy_snapshots,
        ..Row::new(Side::Destination, Step::SnapshotsCopiedAhead, to::are_snapshots_copied_ahead)
    },
    Row {
        after: &[Step::SnapshotsCopiedAhead],
        does: "The Shoot is at the source, and gardenlet does nothing with it.",
        proof: Proof::HeldUntil(Step::SeedBound),
        timeout: Timeout::Hours(2),
        advice: "see in the last operation of the Shoot what gardenlet does",
        ..Row::new(Side::Garden, Step::ShootIdle, steer::is_shoot_idle)
    },
    Row {
        after: &[Step::ShootIdle],
        does: "Gardener and all webhooks would accept the binding now (a dry run).",
        proof: Proof::HeldUntil(Step::SeedBound),
        advice: "do what the message says",
        ..Row::new(Side::Garden, Step::BindingAccepted, steer::is_binding_accepted)
    },
    Row {
        after: &[Step::BindingAccepted],
        does: "`spec.seedName` of the Shoot is the destination, by its binding. gardenlet migrates from then on.",
        on_failure: OnFailure::Fail,
        timeout: Timeout::Hours(2),
        advice: "see why the Shoot cannot be bound",
        effects: steer::bind,
        ..Row::new(Side::Garden, Step::SeedBound, steer::is_bound)
    },
    Row {
        after: &[Step::SeedBound],
        does: "No kube-apiserver of the Shoot is ready at the source. The outage begins.",
        guard: is_awake,
        on_failure: OnFailure::Skip,
        timeout: A_DAY,
        advice: "see in the last operation of the Shoot what gardenlet waits for",
        ..Row::new(Side::Source, Step::ApiStopped, has_api_stopped)
    },
    Row {
        after: &[Step::SeedBound],
        does: "gardenlet reports Migrate, Succeeded, or has gone on to restore.",
        advice: "repair what gardenlet names in the last operation and the last errors of the Shoot",
        ..day_long(Side::Garden, Step::MigrateSucceeded, steer::has_migrate_succeeded)
    },
    Row {
        after: &[Step::MigrateSucceeded],
        does: "A kube-apiserver of the Shoot is ready at the destination. The outage ends.",
        guard: is_awake,
        on_failure: OnFailure::Skip,
        timeout: A_DAY,
        advice: "see in the last operation of the Shoot what gardenlet waits for",
        ..Row::new(Side::Destination, Step::ApiServes, to::does_api_serve)
    },
    Row {
        after: &[Step::MigrateSucceeded],
        does: "gardenlet reports Restore, Succeeded.",
        advice: "repair what gardenlet names in the last operation and the last errors of the Shoot",
        ..day_long(Side::Garden, Step::RestoreSucceeded, steer::has_restore_succeeded)
    },
    Row {
        after: &[Step::RestoreSucceeded],
        does: "The namespace of the copy is deleted. The snapshots stay.",
        on_failure: OnFailure::Skip,
        timeout: A_DAY,
        advice: "delete the namespace by hand",
        effects: to::remove_copy,
        ..Row::new(Side::Destination, Step::CopyRemoved, to::is_copy_removed)
    },
];

/// Rows that are worked on when the Shoot was not bound: nothing but the copy was made.
pub(super) static CLASSIC_ROLLBACK: &[MigrationRow] = &[Row {
    does: "The namespace of the copy is deleted.",
    advice: "delete the namespace by hand",
    effects: to::remove_copy,
    ..day_long(Side::Destination, Step::DestinationCleaned, to::is_copy_removed)
}];

fn is_awake(context: &Context) -> bool {
    !context.observed.request.hibernated
}

fn has_api_stopped(context: &Context) -> Check {
    source(context, |facts| match facts.api_ready {
        Some(false) => Check::Met("no kube-apiserver of the source is ready".to_owned()),
        Some(true) => Check::waiting("ApiServes", "a kube-apiserver of the source is ready"),
        None => Check::waiting("ApiUnknown", "nobody has looked at the kube-apiservers of the source"),
    })
}
