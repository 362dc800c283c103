//! EtcdMigration: an etcd is made anew from a backup of itself, with other settings.

use super::{
    effect::Effect,
    notes::Notes,
    observed::Settings,
    rollback,
    rows::{
        Context, are_old_volumes_gone, delete_etcd, give_lock_back, is_api_down, is_api_up, is_backed_up,
        is_equal, is_etcd_deleted, is_held, is_restored, is_unlocked, is_verified_and_final, is_well,
        name_backup, name_volumes, note_api, note_generation, note_lock, note_old, note_proof, note_service,
        release_old_volumes, restore_etcd, start_api, stop_api, take_backup, take_lock_and_hold,
        verify_backup,
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
    kind: "EtcdMigration",
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
        does: "`status.currentWorkflow` of the HostedEtcd is this migration, and our finalizer is on both objects.",
        proof: Proof::HeldUntil(Step::LockReleased),
        timeout: Timeout::Hours(24),
        advice: "end the workflow that has the lock, or wait for it",
        effects: take_lock_and_hold,
        on_done: note_lock,
        ..Row::new(Side::Seed, Step::LockTaken, is_held)
    },
    Row {
        after: &[Step::LockTaken],
        does: "A quorum of the etcd answers: nothing is begun on one that is ill.",
        advice: "repair the etcd first, or restore it by an EtcdRestore",
        on_done: note_service,
        ..Row::new(Side::Seed, Step::EtcdServes, is_well)
    },
    Row {
        after: &[Step::EtcdServes],
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
        does: "A backup with a random name, recorded in `status.backupName`, is in the store.",
        timeout: Timeout::Steps(2),
        advice: "see whether the store can be reached and has room",
        effects: take_backup,
        on_start: name_backup,
        ..Row::new(Side::Seed, Step::BackupTaken, is_backed_up)
    },
    Row {
        after: &[Step::BackupTaken],
        does: "The backup was restored elsewhere, and holds what the etcd holds.",
        timeout: Timeout::Steps(2),
        advice: "see the log of the etcd agent",
        effects: verify_backup,
        on_done: note_proof,
        ..Row::new(Side::Seed, Step::BackupVerified, is_verified_and_final)
    },
    Row {
        after: &[Step::BackupVerified],
        does: "deleteEtcd: the StatefulSet is deleted, and no member is left. The old volumes stay.",
        advice: "see why members do not end; delete pods on nodes that do not answer, once the nodes are surely off",
        effects: delete_etcd,
        on_start: note_old,
        ..Row::new(Side::Seed, Step::EtcdDeleted, is_etcd_deleted)
    },
    Row {
        after: &[Step::EtcdDeleted],
        does: "`spec.settings` of the migration is in the HostedEtcd.",
        advice: "see why the HostedEtcd cannot be written",
        effects: apply_settings,
        on_start: note_settings,
        ..Row::new(Side::Seed, Step::SettingsApplied, are_settings_applied)
    },
    Row {
        after: &[Step::SettingsApplied],
        does: "startRestore: a StatefulSet on new volumes with the new settings is filled from the backup, and all members are ready.",
        timeout: Timeout::Steps(3),
        advice: "see the events of the new volumes and members: storage class, quota, nodes",
        effects: restore_etcd,
        on_start: name_volumes,
        ..Row::new(Side::Seed, Step::EtcdRestored, is_restored)
    },
    Row {
        after: &[Step::EtcdRestored],
        does: "The new etcd holds what the backup holds: number of keys, hash, and a revision that is not behind.",
        proof: Proof::HeldUntil(Step::ApiUp),
        advice: "see the members' logs",
        ..Row::new(Side::Seed, Step::ProvedEqual, is_equal)
    },
    Row {
        after: &[Step::ProvedEqual],
        does: "startApi: as many API servers as before are wanted, and one is ready. This is the point of no return.",
        timeout: Timeout::Steps(3),
        on_failure: OnFailure::Fail,
        advice: "see why the API servers do not become ready; the etcd was proved to hold all data",
        effects: start_api,
        ..Row::new(Side::Seed, Step::ApiUp, is_api_up)
    },
    Row {
        after: &[Step::ApiUp],
        does: "The old volumes are deleted, while the new etcd serves.",
        timeout: Timeout::Steps(2),
        on_failure: OnFailure::Skip,
        advice: "delete them by hand when the new etcd is well",
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

fn note_settings(context: &Context, notes: &mut Notes) {
    notes.old_settings.get_or_insert_with(|| context.observed.settings.clone());
}

fn new_settings(context: &Context) -> Settings {
    let old = context.notes.old_settings.as_ref().unwrap_or(&context.observed.settings);
    context.observed.request.settings.over(old)
}

fn are_settings_applied(context: &Context) -> Check {
    if context.observed.settings == new_settings(context) {
        Check::Met("the settings are those of the migration".to_owned())
    } else {
        Check::waiting("SettingsChanging", "the settings are being written")
    }
}

fn apply_settings(context: &Context) -> Vec<Effect> {
    vec![Effect::EnsureSettings { settings: new_settings(context) }]
}
