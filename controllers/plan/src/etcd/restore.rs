//! EtcdRestore: an etcd is put back to a backup. The backup is verified before anything is stopped.

use super::{
    effect::Effect,
    notes::Notes,
    observed::Source,
    rollback,
    rows::{
        Context, are_old_volumes_gone, delete_etcd, give_lock_back, is_api_down, is_api_up, is_backed_up,
        is_equal, is_etcd_deleted, is_held, is_restored, is_unlocked, is_verified, name_backup, name_volumes,
        note_api, note_generation, note_lock, note_old, note_proof, release_old_volumes, restore_etcd,
        start_api, stop_api, take_backup, take_lock_and_hold, verify_backup,
    },
    step::{Side, Step},
    workflow::{EtcdFlow, PLAN_VERSION, SIDE_LIMIT},
};
use crate::{
    flow::{OnFailure, Plan, Plans, Proof, Row, Timeout},
    ledger::Check,
};

/// The workflow, version 1.
pub static PLAN: Plan<EtcdFlow> = Plan {
    kind: "EtcdRestore",
    version: PLAN_VERSION,
    forward: FORWARD,
    rollback: rollback::ROLLBACK,
    point_of_no_return: Some(Step::ApiUp),
    needs_rollback: rollback::is_needed,
    fields: rollback::FIELDS,
    unpausable_from: None,
    side_limit: SIDE_LIMIT,
    committed_side_limit: SIDE_LIMIT,
};

/// All versions of the workflow.
pub static PLANS: Plans<EtcdFlow> = Plans { versions: &[&PLAN] };

static FORWARD: &[Row<EtcdFlow>] = &[
    Row {
        does: "`status.currentWorkflow` of the HostedEtcd is this restore, and our finalizer is on both objects.",
        proof: Proof::HeldUntil(Step::LockReleased),
        timeout: Timeout::Hours(24),
        advice: "end the workflow that has the lock, or wait for it",
        effects: take_lock_and_hold,
        on_done: note_lock,
        ..Row::new(Side::Seed, Step::LockTaken, is_held)
    },
    Row {
        after: &[Step::LockTaken],
        does: "The backup is chosen, recorded in `status.backupName`, and lies in the store; the newest of `source.store` is copied there.",
        timeout: Timeout::Steps(2),
        advice: "see whether the stores can be reached, and the names in them",
        effects: copy_source,
        on_start: name_source,
        on_done: note_source,
        ..Row::new(Side::Seed, Step::BackupFound, is_found)
    },
    Row {
        after: &[Step::BackupFound],
        does: "The backup was restored elsewhere; nothing is stopped or deleted before.",
        timeout: Timeout::Steps(2),
        advice: "choose another backup",
        effects: verify_backup,
        on_done: note_proof,
        ..Row::new(Side::Seed, Step::BackupVerified, is_verified)
    },
    Row {
        after: &[Step::BackupVerified],
        does: "stopApi: no API server is left, by their pods, so nothing changes the data.",
        proof: Proof::HeldUntil(Step::ApiUp),
        advice: "see why API servers do not end, and whether somebody else scales their Deployment",
        effects: stop_api,
        on_start: note_api,
        on_done: note_generation,
        ..Row::new(Side::Seed, Step::ApiDown, is_api_down)
    },
    Row {
        after: &[Step::ApiDown],
        does: "deleteEtcd: the StatefulSet is deleted, and no member is left. The old volumes stay.",
        advice: "see why members do not end; delete pods on nodes that do not answer, once the nodes are surely off",
        effects: delete_etcd,
        on_start: note_old,
        ..Row::new(Side::Seed, Step::EtcdDeleted, is_etcd_deleted)
    },
    Row {
        after: &[Step::EtcdDeleted],
        does: "startRestore: a StatefulSet on new volumes is filled from the backup, and all members are ready.",
        timeout: Timeout::Steps(3),
        advice: "see the events of the new volumes and members: storage class, quota, nodes",
        effects: restore_etcd,
        on_start: name_volumes,
        ..Row::new(Side::Seed, Step::EtcdRestored, is_restored)
    },
    Row {
        after: &[Step::EtcdRestored],
        does: "The etcd holds what the backup holds: number of keys, hash, and a revision that is not behind.",
        proof: Proof::HeldUntil(Step::ApiUp),
        advice: "see the members' logs",
        ..Row::new(Side::Seed, Step::ProvedEqual, is_equal)
    },
    Row {
        after: &[Step::ProvedEqual],
        does: "startApi: as many API servers as before are wanted, and one is ready. This is the point of no return.",
        timeout: Timeout::Steps(3),
        on_failure: OnFailure::Fail,
        advice: "see why the API servers do not become ready; the etcd was proved to hold the backup",
        effects: start_api,
        ..Row::new(Side::Seed, Step::ApiUp, is_api_up)
    },
    Row {
        after: &[Step::ApiUp],
        does: "The old volumes are deleted, while the restored etcd serves.",
        timeout: Timeout::Steps(2),
        on_failure: OnFailure::Skip,
        advice: "delete them by hand when the etcd is well",
        effects: release_old_volumes,
        ..Row::new(Side::Seed, Step::OldVolumesReleased, are_old_volumes_gone)
    },
    Row {
        after: &[Step::OldVolumesReleased],
        does: "Our finalizer is taken off the HostedEtcd, and `status.currentWorkflow` is cleared.",
        on_failure: OnFailure::Skip,
        advice: "it is cleared when the HostedEtcd can be written",
        effects: give_lock_back,
        ..Row::new(Side::Seed, Step::LockReleased, is_unlocked)
    },
];

fn is_found(context: &Context) -> Check {
    match &context.observed.request.source {
        Some(Source::Named(name)) if context.observed.backups.contains_key(name) => {
            Check::Met(format!("backup {name} is in the store"))
        }
        Some(Source::Named(name)) => {
            Check::waiting("BackupNotFound", format!("backup {name} is not in the store"))
        }
        Some(Source::Store { trouble }) => match (is_backed_up(context), trouble) {
            (Check::Waiting(_), Some(why)) => Check::waiting("SourceNotUsable", why.clone()),
            (check, _) => check,
        },
        None => Check::waiting("BackupNotFound", "no backup is named"),
    }
}

fn name_source(context: &Context, notes: &mut Notes) {
    if let Some(Source::Store { .. }) = context.observed.request.source {
        name_backup(context, notes);
    }
}

fn copy_source(context: &Context) -> Vec<Effect> {
    match context.observed.request.source {
        Some(Source::Store { trouble: None }) => take_backup(context),
        Some(Source::Store { trouble: Some(_) } | Source::Named(_)) | None => Vec::new(),
    }
}

fn note_source(context: &Context, notes: &mut Notes) {
    if let Some(Source::Named(name)) = &context.observed.request.source {
        notes.backup = Some(name.clone());
    }
}
