//! Rows that several tables share: the lock, backups, the API servers, the deletion and the restore of an etcd.

use super::{
    EtcdFlow, Notes,
    effect::Effect,
    world::{Cluster, Lock, Request, Taking, Verifying, VolumeSet, World},
};
use crate::{flow, ledger::Check};

pub(super) type Scene<'a> = flow::Scene<'a, EtcdFlow>;

/// How often the taking of a backup may fail before it counts.
pub const BACKUP_ATTEMPTS: u32 = 3;
/// Characters of the name of a backup, which becomes a label.
const MOST_NAME: usize = 63;

pub(super) fn nothing(_: &World, _: &mut Notes) {}

pub(super) fn no_effects(_: &Scene) -> Vec<Effect> {
    Vec::new()
}

fn forward(world: &World) -> String {
    format!("{}/forward", world.request.uid)
}

// The lock.

pub(super) fn is_locked(scene: &Scene) -> Check {
    let world = scene.world;
    match &world.lock {
        Lock::Other(name) => Check::waiting(
            "AnotherWorkflow",
            format!("{name} works on this etcd, and this one begins when that is over"),
        ),
        Lock::Free if world.cluster == Cluster::Gone && scene.notes.locked => {
            Check::Met("the HostedEtcd does not exist any more, so no other workflow can lock it".to_owned())
        }
        Lock::Free => Check::waiting("TakingLock", "the lock is free and is being taken"),
        Lock::Ours if !world.request.finalizer => {
            Check::waiting("SettingFinalizer", "the finalizer is being set")
        }
        Lock::Ours => Check::Met("status.currentWorkflow is this workflow".to_owned()),
    }
}

pub(super) fn take_lock(scene: &Scene) -> Vec<Effect> {
    let mut effects = Vec::new();
    // An object that is being deleted takes no finalizer any more.
    if !scene.world.request.finalizer && scene.world.request.deleting.is_none() {
        effects.push(Effect::EnsureFinalizer { present: true });
    }
    if scene.world.lock == Lock::Free {
        effects.push(Effect::EnsureLock { held: true });
    }
    effects
}

/// Locked, and the HostedEtcd cannot go before this workflow has ended.
pub(super) fn is_held(scene: &Scene) -> Check {
    let world = scene.world;
    match is_locked(scene) {
        // One that is being deleted takes no finalizer any more.
        Check::Met(_) if world.cluster == Cluster::Present && !world.cluster_finalizer => {
            Check::waiting("SettingClusterFinalizer", "the finalizer is being set on the HostedEtcd")
        }
        check => check,
    }
}

pub(super) fn take_lock_and_hold(scene: &Scene) -> Vec<Effect> {
    let (world, mut effects) = (scene.world, take_lock(scene));
    if world.lock == Lock::Ours && world.cluster == Cluster::Present && !world.cluster_finalizer {
        effects.push(Effect::EnsureClusterFinalizer { present: true });
    }
    effects
}

pub(super) fn note_lock(world: &World, notes: &mut Notes) {
    // A lock that was lost and is taken again tells nothing of how the etcd was at the beginning.
    if !notes.locked {
        notes.served = world.serving.is_some();
    }
    notes.locked = true;
    notes.targets.get_or_insert_with(|| world.targets.clone());
}

pub(super) fn is_unlocked(scene: &Scene) -> Check {
    match scene.world.lock {
        Lock::Ours => Check::waiting("GivingLockBack", "the lock is being given back"),
        Lock::Free | Lock::Other(_) => Check::Met("status.currentWorkflow is not this workflow".to_owned()),
    }
}

pub(super) fn give_lock_back(scene: &Scene) -> Vec<Effect> {
    vec![release(scene.world)]
}

/// What gives a HostedEtcd back that this workflow has locked: its finalizer first, then its lock.
pub(super) fn release(world: &World) -> Effect {
    if world.cluster_finalizer {
        Effect::EnsureClusterFinalizer { present: false }
    } else {
        Effect::EnsureLock { held: false }
    }
}

// The etcd as it was.

pub(super) fn is_well(scene: &Scene) -> Check {
    let world = scene.world;
    let Some(etcd) = &world.etcd else {
        return Check::waiting("NoEtcd", "there is no StatefulSet of members");
    };
    match &world.serving {
        None => Check::waiting(
            "EtcdUnwell",
            format!("{} of {} members are ready, no quorum answers", world.ready, etcd.settings.replicas),
        ),
        Some(digest) => Check::Met(format!("a quorum answers at revision {}", digest.revision.0)),
    }
}

pub(super) fn note_service(world: &World, notes: &mut Notes) {
    notes.served = world.serving.is_some();
}

// Backups.

pub(super) fn name_backup(world: &World, notes: &mut Notes) {
    let Request { backup_name, fresh_name, .. } = &world.request;
    notes.backup.get_or_insert_with(|| backup_name.as_ref().unwrap_or(fresh_name).clone());
}

fn name_is_taken(name: &str, owner: &str) -> Check {
    Check::blocked("BackupNameTaken", format!("the store has a backup {name} of another object ({owner})"))
}

/// A backup that exists is never written over, nor taken for one's own. A store that does not answer shows none, so
/// [`is_backed_up`] looks at the owner again.
pub(super) fn is_name_free(scene: &Scene) -> Check {
    let Some(name) = &scene.world.request.backup_name else {
        return Check::Met("the backup gets a random name".to_owned());
    };
    match scene.world.backups.get(name) {
        _ if name.len() > MOST_NAME => Check::blocked(
            "BackupNameTooLong",
            format!(
                "the backup would have the name of its object, {} characters, and {MOST_NAME} are the most",
                name.len()
            ),
        ),
        Some(backup) if backup.owner != scene.world.request.uid => name_is_taken(name, &backup.owner),
        Some(_) | None => Check::Met(format!("no other backup is called {name}")),
    }
}

pub(super) fn is_backed_up(scene: &Scene) -> Check {
    let Some(name) = &scene.notes.backup else {
        return Check::waiting("BackupUnnamed", "the backup gets its name");
    };
    let backup = scene.world.backups.get(name);
    if let Some(other) = backup.filter(|backup| backup.owner != scene.world.request.uid) {
        return name_is_taken(name, &other.owner);
    }
    match backup.map(|backup| &backup.taking) {
        None => Check::waiting("BackupNotBegun", format!("backup {name} is not begun")),
        Some(Taking::Running) => Check::waiting("BackupRuns", format!("backup {name} is being taken")),
        Some(Taking::Failed(times, why)) if *times < BACKUP_ATTEMPTS => Check::waiting(
            "BackupRetried",
            format!("backup {name} failed {times} times and is tried again: {why}"),
        ),
        Some(Taking::Failed(times, why)) => {
            Check::blocked("BackupFailed", format!("backup {name} failed {times} times: {why}"))
        }
        Some(Taking::Stored) => Check::Met(format!("backup {name} is stored")),
    }
}

pub(super) fn take_backup(scene: &Scene) -> Vec<Effect> {
    scene.notes.backup.iter().map(|name| Effect::EnsureBackup { name: name.clone() }).collect()
}

pub(super) fn is_verified(scene: &Scene) -> Check {
    let Some((name, backup)) =
        scene.notes.backup.as_ref().and_then(|name| Some((name, scene.world.backups.get(name)?)))
    else {
        return Check::blocked("BackupMissing", "the backup is not in the store");
    };
    match &backup.verifying {
        Verifying::Open => {
            Check::waiting("BackupVerified", format!("backup {name} is read and restored elsewhere"))
        }
        Verifying::Corrupt(why) => {
            Check::blocked("BackupCorrupt", format!("backup {name} cannot be restored: {why}"))
        }
        Verifying::Sound(digest) => {
            Check::Met(format!("backup {name} holds {} keys at revision {}", digest.keys, digest.revision.0))
        }
    }
}

/// Verified, and the etcd that it was taken from holds just that: nothing came after it.
pub(super) fn is_verified_and_final(scene: &Scene) -> Check {
    let check = is_verified(scene);
    let sound = scene.notes.backup.as_ref().and_then(|name| sound(scene.world, name));
    match (check, sound, &scene.world.serving) {
        (Check::Met(_), Some(_), None) => {
            Check::waiting("EtcdUnwell", "no quorum answers, so the backup cannot be compared")
        }
        (Check::Met(evidence), Some(backup), Some(etcd)) => {
            if etcd.continues(backup) {
                Check::Met(format!("{evidence}, as the etcd does"))
            } else {
                let message =
                    format!("the etcd at revision {} holds other keys than its backup", etcd.revision.0);
                Check::blocked("BackupStale", message)
            }
        }
        (check, ..) => check,
    }
}

fn sound<'a>(world: &'a World, name: &str) -> Option<&'a super::world::Digest> {
    match &world.backups.get(name)?.verifying {
        Verifying::Sound(digest) => Some(digest),
        Verifying::Open | Verifying::Corrupt(_) => None,
    }
}

pub(super) fn verify_backup(scene: &Scene) -> Vec<Effect> {
    scene.notes.backup.iter().map(|name| Effect::EnsureVerified { name: name.clone() }).collect()
}

pub(super) fn note_proof(world: &World, notes: &mut Notes) {
    notes.proof = notes.backup.as_ref().and_then(|name| sound(world, name)).cloned();
}

// The API servers.

pub(super) fn note_api(world: &World, notes: &mut Notes) {
    notes.api_replicas.get_or_insert(world.api.wanted);
}

pub(super) fn is_api_down(scene: &Scene) -> Check {
    let api = &scene.world.api;
    let down = api.wanted == 0 && api.pods == 0;
    match scene.notes.api_generation {
        // Whatever they wrote meanwhile is in the old etcd and in no backup.
        Some(generation) if !down || api.generation != generation => Check::blocked(
            "ApiServersCameBack",
            "somebody else changed the Deployment of the API servers after they were stopped",
        ),
        _ if down => Check::Met("no API server is left".to_owned()),
        _ => Check::waiting("ApiServersEnding", format!("{} API servers are left", api.pods.max(api.wanted))),
    }
}

pub(super) fn stop_api(scene: &Scene) -> Vec<Effect> {
    vec![Effect::EnsureApi { replicas: 0, fence: forward(scene.world) }]
}

pub(super) fn note_generation(world: &World, notes: &mut Notes) {
    notes.api_generation.get_or_insert(world.api.generation);
}

/// As many as there were are wanted by this fence, and one is ready.
pub(super) fn api_is_up(scene: &Scene, fence: &str, ready: bool) -> Check {
    let (api, replicas) = (&scene.world.api, scene.notes.api_replicas.unwrap_or_default());
    // Whoever deletes a HostedEtcd and its API servers, as with their namespace, does not make them again.
    let are_deleted = !api.exists && scene.world.cluster != Cluster::Present;
    if are_deleted && replicas == 0 {
        Check::Met("there were no API servers".to_owned())
    } else if are_deleted {
        Check::blocked("ApiServersMissing", "the Deployment of the API servers is deleted as well")
    } else if api.wanted != replicas || api.fence != fence {
        Check::waiting("ApiServersStarting", format!("{replicas} API servers are asked for"))
    } else if ready && replicas > 0 && api.ready == 0 {
        Check::waiting("ApiServersNotReady", format!("0 of {replicas} API servers are ready"))
    } else {
        Check::Met(format!("{} of {replicas} API servers are ready", api.ready))
    }
}

pub(super) fn is_api_up(scene: &Scene) -> Check {
    api_is_up(scene, &forward(scene.world), true)
}

pub(super) fn start_api(scene: &Scene) -> Vec<Effect> {
    let replicas = scene.notes.api_replicas.unwrap_or_default();
    vec![Effect::EnsureApi { replicas, fence: forward(scene.world) }]
}

// The old etcd.

pub(super) fn note_old(world: &World, notes: &mut Notes) {
    if notes.old.is_none() {
        notes.old = world.etcd.as_ref().map(|etcd| (etcd.volumes.clone(), etcd.settings.clone()));
    }
}

pub(super) fn is_etcd_deleted(scene: &Scene) -> Check {
    let world = scene.world;
    let pods: u32 = world.pods.values().sum();
    match &world.etcd {
        Some(etcd) if !world.volumes.contains(&etcd.volumes) => Check::blocked(
            "VolumesMissing",
            format!("volumes {} do not all exist, so they could not be kept", etcd.volumes),
        ),
        Some(_) => Check::waiting("EtcdEnding", "the StatefulSet is being deleted; its volumes stay"),
        None if pods > 0 => Check::waiting("MembersEnding", format!("{pods} members are left")),
        None => Check::Met("no member is left".to_owned()),
    }
}

pub(super) fn delete_etcd(scene: &Scene) -> Vec<Effect> {
    let old = scene.notes.old.iter().map(|(volumes, _)| volumes);
    old.map(|volumes| Effect::EnsureNoEtcd { volumes: volumes.clone() }).collect()
}

// The new etcd.

pub(super) fn name_volumes(world: &World, notes: &mut Notes) {
    notes.new.get_or_insert_with(|| VolumeSet(world.request.fresh_name.clone()));
}

pub(super) fn is_restored(scene: &Scene) -> Check {
    let (world, Some(new)) = (scene.world, &scene.notes.new) else {
        return Check::waiting("VolumesUnnamed", "the new volumes get their name");
    };
    match &world.etcd {
        None => Check::waiting("EtcdNotCreated", "the StatefulSet is being created"),
        Some(etcd) if etcd.volumes != *new => Check::blocked(
            "OtherEtcd",
            format!("a StatefulSet on volumes {} was made by somebody else", etcd.volumes),
        ),
        Some(etcd) if world.ready < etcd.settings.replicas || world.serving.is_none() => {
            let (ready, all) = (world.ready, etcd.settings.replicas);
            Check::waiting("EtcdRestoring", format!("{ready} of {all} members are ready"))
        }
        Some(etcd) => Check::Met(format!("all {} members are ready", etcd.settings.replicas)),
    }
}

pub(super) fn restore_etcd(scene: &Scene) -> Vec<Effect> {
    let (world, Some(new)) = (scene.world, &scene.notes.new) else { return Vec::new() };
    // A member that nobody can reach may still write: nothing new beside it.
    if world.pods_beside(new) > 0 {
        return Vec::new();
    }
    let (volumes, from) = (new.clone(), scene.notes.backup.clone());
    vec![Effect::EnsureEtcd { volumes, settings: world.settings.clone(), from, fence: forward(world) }]
}

pub(super) fn is_equal(scene: &Scene) -> Check {
    match (&scene.world.serving, &scene.notes.proof) {
        (_, None) => Check::blocked("NoProof", "what the backup holds is not recorded"),
        (None, _) => Check::waiting("EtcdUnwell", "no quorum of the new etcd answers"),
        (Some(etcd), Some(backup)) if etcd.continues(backup) => {
            Check::Met(format!("{} keys at revision {}, as in the backup", etcd.keys, etcd.revision.0))
        }
        (Some(etcd), Some(backup)) => Check::blocked(
            "NotEqual",
            format!(
                "the new etcd holds {} keys and the backup {}, or their content differs",
                etcd.keys, backup.keys
            ),
        ),
    }
}

pub(super) fn are_old_volumes_gone(scene: &Scene) -> Check {
    let world = scene.world;
    match &scene.notes.old {
        Some((volumes, _)) if world.volumes.contains(volumes) || world.pods.contains_key(volumes) => {
            Check::waiting("VolumesEnding", format!("volumes {volumes} are being deleted"))
        }
        _ => Check::Met("the old volumes are gone".to_owned()),
    }
}

pub(super) fn release_old_volumes(scene: &Scene) -> Vec<Effect> {
    let (world, Some((old, _)), Some(new)) = (scene.world, &scene.notes.old, &scene.notes.new) else {
        return Vec::new();
    };
    // Kept as long as the new etcd does not serve, whatever it has proved before.
    let serves = world.serving.is_some() && world.etcd.as_ref().is_some_and(|etcd| etcd.volumes == *new);
    if serves { vec![Effect::EnsureNoVolumes { volumes: old.clone() }] } else { Vec::new() }
}
