//! EtcdRestore: an etcd is put back to a backup. The backup is verified before anything is stopped.

use super::{
    EtcdFlow, Notes, PLAN_VERSION, back,
    effect::Effect,
    rows::{
        Scene, are_old_volumes_gone, delete_etcd, give_lock_back, is_api_down, is_api_up, is_backed_up,
        is_equal, is_etcd_deleted, is_held, is_restored, is_unlocked, is_verified, name_backup, name_volumes,
        no_effects, note_api, note_generation, note_lock, note_old, note_proof, nothing, release_old_volumes,
        restore_etcd, start_api, stop_api, take_backup, take_lock_and_hold, verify_backup,
    },
    world::{Source, World},
};
use crate::{
    flow::{Otherwise, Patience, Plan, Proof, Row},
    ledger::Check,
};

/// The workflow.
pub static PLAN: Plan<EtcdFlow> = Plan {
    kind: "EtcdRestore",
    version: PLAN_VERSION,
    forward: FORWARD,
    back: back::BACK,
    no_return: Some("ApiUp"),
    touched: back::is_touched,
};

static FORWARD: &[Row<EtcdFlow>] = &[
    Row {
        step: "LockTaken",
        does: "`status.currentWorkflow` of the HostedEtcd is this restore, and our finalizer is on both objects.",
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
        step: "BackupFound",
        does: "The backup is chosen, recorded in `status.backupName`, and lies in the store; the newest of `source.store` is copied there.",
        proof: Proof::Latched,
        patience: Patience::Steps(2),
        otherwise: Otherwise::TurnBack,
        advice: "see whether the stores can be reached, and the names in them",
        check: is_found,
        effects: copy_source,
        begin: name_source,
        met: note_source,
    },
    Row {
        step: "BackupVerified",
        does: "The backup was restored elsewhere; nothing is stopped or deleted before.",
        proof: Proof::Latched,
        patience: Patience::Steps(2),
        otherwise: Otherwise::TurnBack,
        advice: "choose another backup",
        check: is_verified,
        effects: verify_backup,
        begin: nothing,
        met: note_proof,
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
        step: "EtcdRestored",
        does: "startRestore: a StatefulSet on new volumes is filled from the backup, and all members are ready.",
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
        does: "The etcd holds what the backup holds: number of keys, hash, and a revision that is not behind.",
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
        advice: "see why the API servers do not become ready; the etcd was proved to hold the backup",
        check: is_api_up,
        effects: start_api,
        begin: nothing,
        met: nothing,
    },
    Row {
        step: "OldVolumesReleased",
        does: "The old volumes are deleted, while the restored etcd serves.",
        proof: Proof::Latched,
        patience: Patience::Steps(2),
        otherwise: Otherwise::GoOn,
        advice: "delete them by hand when the etcd is well",
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

fn is_found(scene: &Scene) -> Check {
    match &scene.world.request.source {
        Some(Source::Named(name)) if scene.world.backups.contains_key(name) => {
            Check::Met(format!("backup {name} is in the store"))
        }
        Some(Source::Named(name)) => {
            Check::waiting("BackupNotFound", format!("backup {name} is not in the store"))
        }
        Some(Source::Store { trouble }) => match (is_backed_up(scene), trouble) {
            (Check::Waiting(_), Some(why)) => Check::waiting("SourceNotUsable", why.clone()),
            (check, _) => check,
        },
        None => Check::waiting("BackupNotFound", "no backup is named"),
    }
}

fn name_source(world: &World, notes: &mut Notes) {
    if let Some(Source::Store { .. }) = world.request.source {
        name_backup(world, notes);
    }
}

fn copy_source(scene: &Scene) -> Vec<Effect> {
    match scene.world.request.source {
        Some(Source::Store { trouble: None }) => take_backup(scene),
        Some(Source::Store { trouble: Some(_) } | Source::Named(_)) | None => Vec::new(),
    }
}

fn note_source(world: &World, notes: &mut Notes) {
    if let Some(Source::Named(name)) = &world.request.source {
        notes.backup = Some(name.clone());
    }
}
