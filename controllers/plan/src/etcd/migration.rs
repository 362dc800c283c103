//! EtcdMigration: an etcd is made anew from a backup of itself, with other settings.

use super::{
    EtcdFlow, Notes, PLAN_VERSION, back,
    effect::Effect,
    rows::{
        Scene, are_old_volumes_gone, delete_etcd, give_lock_back, is_api_down, is_api_up, is_backed_up,
        is_equal, is_etcd_deleted, is_held, is_restored, is_unlocked, is_verified_and_final, is_well,
        name_backup, name_volumes, no_effects, note_api, note_generation, note_lock, note_old, note_proof,
        note_service, nothing, release_old_volumes, restore_etcd, start_api, stop_api, take_backup,
        take_lock_and_hold, verify_backup,
    },
    world::{Settings, World},
};
use crate::{
    flow::{Otherwise, Patience, Plan, Proof, Row},
    ledger::Check,
};

/// The workflow.
pub static PLAN: Plan<EtcdFlow> = Plan {
    kind: "EtcdMigration",
    version: PLAN_VERSION,
    forward: FORWARD,
    back: back::BACK,
    no_return: Some("ApiUp"),
    touched: back::is_touched,
};

static FORWARD: &[Row<EtcdFlow>] = &[
    Row {
        step: "LockTaken",
        does: "`status.currentWorkflow` of the HostedEtcd is this migration, and our finalizer is on both objects.",
        proof: Proof::HeldUntil("LockReleased"),
        patience: Patience::Hours(24),
        otherwise: Otherwise::TurnBack,
        advice: "end the workflow that has the lock, or wait for it",
        check: is_held,
        effects: take_lock_and_hold,
        begin: nothing,
        met: note_lock,
    },
    Row {
        step: "EtcdServes",
        does: "A quorum of the etcd answers: nothing is begun on one that is ill.",
        proof: Proof::Latched,
        patience: Patience::Steps(1),
        otherwise: Otherwise::TurnBack,
        advice: "repair the etcd first, or restore it by an EtcdRestore",
        check: is_well,
        effects: no_effects,
        begin: nothing,
        met: note_service,
    },
    Row {
        step: "ApiDown",
        does: "stopApi: no API server is left, by their pods, so nothing changes the data.",
        proof: Proof::HeldUntil("ApiUp"),
        patience: Patience::Steps(1),
        otherwise: Otherwise::TurnBack,
        advice: "see why API servers do not end, and whether somebody else scales their Deployment",
        check: is_api_down,
        effects: stop_api,
        begin: note_api,
        met: note_generation,
    },
    Row {
        step: "BackupTaken",
        does: "A backup with a random name, recorded in `status.backupName`, is in the store.",
        proof: Proof::Latched,
        patience: Patience::Steps(2),
        otherwise: Otherwise::TurnBack,
        advice: "see whether the store can be reached and has room",
        check: is_backed_up,
        effects: take_backup,
        begin: name_backup,
        met: nothing,
    },
    Row {
        step: "BackupVerified",
        does: "The backup was restored elsewhere, and holds what the etcd holds.",
        proof: Proof::Latched,
        patience: Patience::Steps(2),
        otherwise: Otherwise::TurnBack,
        advice: "see the log of the etcd agent",
        check: is_verified_and_final,
        effects: verify_backup,
        begin: nothing,
        met: note_proof,
    },
    Row {
        step: "EtcdDeleted",
        does: "deleteEtcd: the StatefulSet is deleted, and no member is left. The old volumes stay.",
        proof: Proof::Latched,
        patience: Patience::Steps(1),
        otherwise: Otherwise::TurnBack,
        advice: "see why members do not end; delete pods on nodes that do not answer, once the nodes are surely off",
        check: is_etcd_deleted,
        effects: delete_etcd,
        begin: note_old,
        met: nothing,
    },
    Row {
        step: "SettingsApplied",
        does: "`spec.settings` of the migration is in the HostedEtcd.",
        proof: Proof::Latched,
        patience: Patience::Steps(1),
        otherwise: Otherwise::TurnBack,
        advice: "see why the HostedEtcd cannot be written",
        check: are_settings_applied,
        effects: apply_settings,
        begin: note_settings,
        met: nothing,
    },
    Row {
        step: "EtcdRestored",
        does: "startRestore: a StatefulSet on new volumes with the new settings is filled from the backup, and all members are ready.",
        proof: Proof::Latched,
        patience: Patience::Steps(3),
        otherwise: Otherwise::TurnBack,
        advice: "see the events of the new volumes and members: storage class, quota, nodes",
        check: is_restored,
        effects: restore_etcd,
        begin: name_volumes,
        met: nothing,
    },
    Row {
        step: "ProvedEqual",
        does: "The new etcd holds what the backup holds: number of keys, hash, and a revision that is not behind.",
        proof: Proof::HeldUntil("ApiUp"),
        patience: Patience::Steps(1),
        otherwise: Otherwise::TurnBack,
        advice: "see the members' logs",
        check: is_equal,
        effects: no_effects,
        begin: nothing,
        met: nothing,
    },
    Row {
        step: "ApiUp",
        does: "startApi: as many API servers as before are wanted, and one is ready. No way back from here.",
        proof: Proof::Latched,
        patience: Patience::Steps(3),
        otherwise: Otherwise::GiveUp,
        advice: "see why the API servers do not become ready; the etcd was proved to hold all data",
        check: is_api_up,
        effects: start_api,
        begin: nothing,
        met: nothing,
    },
    Row {
        step: "OldVolumesReleased",
        does: "The old volumes are deleted, while the new etcd serves.",
        proof: Proof::Latched,
        patience: Patience::Steps(2),
        otherwise: Otherwise::GoOn,
        advice: "delete them by hand when the new etcd is well",
        check: are_old_volumes_gone,
        effects: release_old_volumes,
        begin: nothing,
        met: nothing,
    },
    Row {
        step: "LockReleased",
        does: "Our finalizer is taken off the HostedEtcd, and `status.currentWorkflow` is cleared.",
        proof: Proof::Latched,
        patience: Patience::Steps(1),
        otherwise: Otherwise::GoOn,
        advice: "it is cleared when the HostedEtcd can be written",
        check: is_unlocked,
        effects: give_lock_back,
        begin: nothing,
        met: nothing,
    },
];

fn note_settings(world: &World, notes: &mut Notes) {
    notes.old_settings.get_or_insert_with(|| world.settings.clone());
}

fn new_settings(scene: &Scene) -> Settings {
    let old = scene.notes.old_settings.as_ref().unwrap_or(&scene.world.settings);
    scene.world.request.settings.over(old)
}

fn are_settings_applied(scene: &Scene) -> Check {
    if scene.world.settings == new_settings(scene) {
        Check::Met("the settings are those of the migration".to_owned())
    } else {
        Check::waiting("SettingsChanging", "the settings are being written")
    }
}

fn apply_settings(scene: &Scene) -> Vec<Effect> {
    vec![Effect::EnsureSettings { settings: new_settings(scene) }]
}
