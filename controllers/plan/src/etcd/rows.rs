//! Rows that several tables share: the lock, backups, the API servers, the deletion and the restore of an etcd.

use repot_etcd_core::{
    backups::{Taking, Verifying},
    volumes::VolumeSet,
};

use super::{
    effect::Effect,
    notes::Notes,
    observed::{Cluster, Lock, Observed, Request},
    workflow::{EtcdFlow, release},
};
use crate::{flow, ledger::Check};

pub(super) type Context<'a> = flow::StepContext<'a, EtcdFlow>;

/// How often the taking of a backup may fail before it counts.
pub const BACKUP_ATTEMPTS: u32 = 3;
/// Characters of the name of a backup, which becomes a label.
const MOST_NAME: usize = 63;

fn forward(observed: &Observed) -> String {
    format!("{}/forward", observed.request.uid)
}

// The lock.

pub(super) fn is_locked(context: &Context) -> Check {
    let observed = context.observed;
    match &observed.lock {
        Lock::Other(name) => Check::waiting(
            "AnotherWorkflow",
            format!("{name} works on this etcd, and this one begins when that is over"),
        ),
        Lock::Free if observed.cluster == Cluster::Gone && context.notes.locked => {
            Check::Met("the HostedEtcd does not exist any more, so no other workflow can lock it".to_owned())
        }
        Lock::Free => Check::waiting("TakingLock", "the lock is free and is being taken"),
        Lock::Ours if !observed.request.finalizer => {
            Check::waiting("SettingFinalizer", "the finalizer is being set")
        }
        Lock::Ours => Check::Met("status.currentWorkflow is this workflow".to_owned()),
    }
}

pub(super) fn take_lock(context: &Context) -> Vec<Effect> {
    let mut effects = Vec::new();
    // An object that is being deleted takes no finalizer any more.
    if !context.observed.request.finalizer && context.observed.request.deleting.is_none() {
        effects.push(Effect::EnsureFinalizer { present: true });
    }
    if context.observed.lock == Lock::Free {
        effects.push(Effect::EnsureLock { held: true });
    }
    effects
}

/// Locked, and the HostedEtcd cannot go before this workflow has ended.
pub(super) fn is_held(context: &Context) -> Check {
    let observed = context.observed;
    match is_locked(context) {
        // One that is being deleted takes no finalizer any more.
        Check::Met(_) if observed.cluster == Cluster::Present && !observed.cluster_finalizer => {
            Check::waiting("SettingClusterFinalizer", "the finalizer is being set on the HostedEtcd")
        }
        check => check,
    }
}

pub(super) fn take_lock_and_hold(context: &Context) -> Vec<Effect> {
    let (observed, mut effects) = (context.observed, take_lock(context));
    if observed.lock == Lock::Ours && observed.cluster == Cluster::Present && !observed.cluster_finalizer {
        effects.push(Effect::EnsureClusterFinalizer { present: true });
    }
    effects
}

pub(super) fn note_lock(context: &Context, notes: &mut Notes) {
    // A lock that was lost and is taken again tells nothing of how the etcd was at the beginning.
    if !notes.locked {
        notes.served = context.observed.serving.is_some();
    }
    notes.locked = true;
    notes.targets.get_or_insert_with(|| context.observed.targets.clone());
}

pub(super) fn is_unlocked(context: &Context) -> Check {
    match context.observed.lock {
        Lock::Ours => Check::waiting("GivingLockBack", "the lock is being given back"),
        Lock::Free | Lock::Other(_) => Check::Met("status.currentWorkflow is not this workflow".to_owned()),
    }
}

pub(super) fn give_lock_back(context: &Context) -> Vec<Effect> {
    vec![release(context.observed)]
}

// The etcd as it was.

pub(super) fn is_well(context: &Context) -> Check {
    let observed = context.observed;
    let Some(etcd) = &observed.etcd else {
        return Check::waiting("NoEtcd", "there is no StatefulSet of members");
    };
    match &observed.serving {
        None => Check::waiting(
            "NoQuorum",
            format!("{} of {} members are ready, no quorum answers", observed.ready, etcd.settings.replicas),
        ),
        Some(digest) => Check::Met(format!("a quorum answers at revision {}", digest.revision.0)),
    }
}

pub(super) fn note_service(context: &Context, notes: &mut Notes) {
    notes.served = context.observed.serving.is_some();
}

// Backups.

pub(super) fn name_backup(context: &Context, notes: &mut Notes) {
    let Request { backup_name, fresh_name, .. } = &context.observed.request;
    notes.backup.get_or_insert_with(|| backup_name.as_ref().unwrap_or(fresh_name).clone());
}

fn name_is_taken(name: &str, owner: &str) -> Check {
    Check::blocked("BackupNameTaken", format!("the store has a backup {name} of another object ({owner})"))
}

/// A backup that exists is never written over, nor taken for one's own. A store that does not answer shows none, so
/// [`is_backed_up`] looks at the owner again.
pub(super) fn is_name_free(context: &Context) -> Check {
    let Some(name) = &context.observed.request.backup_name else {
        return Check::Met("the backup gets a random name".to_owned());
    };
    match context.observed.backups.get(name) {
        _ if name.len() > MOST_NAME => Check::blocked(
            "BackupNameTooLong",
            format!(
                "the backup would have the name of its object, {} characters, and {MOST_NAME} are the most",
                name.len()
            ),
        ),
        Some(backup) if backup.owner != context.observed.request.uid => name_is_taken(name, &backup.owner),
        Some(_) | None => Check::Met(format!("no other backup is called {name}")),
    }
}

pub(super) fn is_backed_up(context: &Context) -> Check {
    let Some(name) = &context.notes.backup else {
        return Check::waiting("BackupUnnamed", "the backup gets its name");
    };
    let backup = context.observed.backups.get(name);
    if let Some(other) = backup.filter(|backup| backup.owner != context.observed.request.uid) {
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

pub(super) fn take_backup(context: &Context) -> Vec<Effect> {
    context.notes.backup.iter().map(|name| Effect::EnsureBackup { name: name.clone() }).collect()
}

pub(super) fn is_verified(context: &Context) -> Check {
    let Some((name, backup)) =
        context.notes.backup.as_ref().and_then(|name| Some((name, context.observed.backups.get(name)?)))
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
pub(super) fn is_verified_and_final(context: &Context) -> Check {
    let check = is_verified(context);
    let sound = context.notes.backup.as_ref().and_then(|name| sound(context.observed, name));
    match (check, sound, &context.observed.serving) {
        (Check::Met(_), Some(_), None) => {
            Check::waiting("NoQuorum", "no quorum answers, so the backup cannot be compared")
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

fn sound<'a>(observed: &'a Observed, name: &str) -> Option<&'a repot_etcd_core::digest::Digest> {
    match &observed.backups.get(name)?.verifying {
        Verifying::Sound(digest) => Some(digest),
        Verifying::Open | Verifying::Corrupt(_) => None,
    }
}

pub(super) fn verify_backup(context: &Context) -> Vec<Effect> {
    context.notes.backup.iter().map(|name| Effect::EnsureVerified { name: name.clone() }).collect()
}

pub(super) fn note_proof(context: &Context, notes: &mut Notes) {
    notes.proof = notes.backup.as_ref().and_then(|name| sound(context.observed, name)).cloned();
}

// The API servers.

pub(super) fn note_api(context: &Context, notes: &mut Notes) {
    notes.api_replicas.get_or_insert(context.observed.api.wanted);
}

pub(super) fn is_api_down(context: &Context) -> Check {
    let api = &context.observed.api;
    let down = api.wanted == 0 && api.pods == 0;
    match context.notes.api_generation {
        // Whatever they wrote meanwhile is in the old etcd and in no backup.
        Some(generation) if !down || api.generation != generation => Check::blocked(
            "ApiServersCameBack",
            "somebody else changed the Deployment of the API servers after they were stopped",
        ),
        _ if down => Check::Met("no API server is left".to_owned()),
        _ => Check::waiting("ApiServersEnding", format!("{} API servers are left", api.pods.max(api.wanted))),
    }
}

pub(super) fn stop_api(context: &Context) -> Vec<Effect> {
    vec![Effect::EnsureApi { replicas: 0, fence: forward(context.observed) }]
}

pub(super) fn note_generation(context: &Context, notes: &mut Notes) {
    notes.api_generation.get_or_insert(context.observed.api.generation);
}

/// As many as there were are wanted by this fence, and one is ready.
pub(super) fn api_is_up(context: &Context, fence: &str, ready: bool) -> Check {
    let (api, replicas) = (&context.observed.api, context.notes.api_replicas.unwrap_or_default());
    // Whoever deletes a HostedEtcd and its API servers, as with their namespace, does not make them again.
    let are_deleted = !api.exists && context.observed.cluster != Cluster::Present;
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

pub(super) fn is_api_up(context: &Context) -> Check {
    api_is_up(context, &forward(context.observed), true)
}

pub(super) fn start_api(context: &Context) -> Vec<Effect> {
    let replicas = context.notes.api_replicas.unwrap_or_default();
    vec![Effect::EnsureApi { replicas, fence: forward(context.observed) }]
}

// The old etcd.

pub(super) fn note_old(context: &Context, notes: &mut Notes) {
    if notes.old.is_none() {
        notes.old = context.observed.etcd.as_ref().map(|etcd| (etcd.volumes.clone(), etcd.settings.clone()));
    }
}

pub(super) fn is_etcd_deleted(context: &Context) -> Check {
    let observed = context.observed;
    let pods: u32 = observed.pods.values().sum();
    match &observed.etcd {
        Some(etcd) if !observed.volumes.contains(&etcd.volumes) => Check::blocked(
            "VolumesMissing",
            format!("volumes {} do not all exist, so they could not be kept", etcd.volumes),
        ),
        Some(_) => Check::waiting("EtcdEnding", "the StatefulSet is being deleted; its volumes stay"),
        None if pods > 0 => Check::waiting("MembersEnding", format!("{pods} members are left")),
        None => Check::Met("no member is left".to_owned()),
    }
}

pub(super) fn delete_etcd(context: &Context) -> Vec<Effect> {
    let old = context.notes.old.iter().map(|(volumes, _)| volumes);
    old.map(|volumes| Effect::EnsureNoEtcd { volumes: volumes.clone() }).collect()
}

// The new etcd.

pub(super) fn name_volumes(context: &Context, notes: &mut Notes) {
    notes.new.get_or_insert_with(|| VolumeSet(context.observed.request.fresh_name.clone()));
}

pub(super) fn is_restored(context: &Context) -> Check {
    let (observed, Some(new)) = (context.observed, &context.notes.new) else {
        return Check::waiting("VolumesUnnamed", "the new volumes get their name");
    };
    match &observed.etcd {
        None => Check::waiting("EtcdNotCreated", "the StatefulSet is being created"),
        Some(etcd) if etcd.volumes != *new => Check::blocked(
            "OtherEtcd",
            format!("a StatefulSet on volumes {} was made by somebody else", etcd.volumes),
        ),
        Some(etcd) if observed.ready < etcd.settings.replicas || observed.serving.is_none() => {
            let (ready, all) = (observed.ready, etcd.settings.replicas);
            Check::waiting("EtcdRestoring", format!("{ready} of {all} members are ready"))
        }
        Some(etcd) => Check::Met(format!("all {} members are ready", etcd.settings.replicas)),
    }
}

pub(super) fn restore_etcd(context: &Context) -> Vec<Effect> {
    let (observed, Some(new)) = (context.observed, &context.notes.new) else { return Vec::new() };
    // A member that nobody can reach may still write: nothing new beside it.
    if observed.pods_beside(new) > 0 {
        return Vec::new();
    }
    let (volumes, from) = (new.clone(), context.notes.backup.clone());
    vec![Effect::EnsureEtcd { volumes, settings: observed.settings.clone(), from, fence: forward(observed) }]
}

pub(super) fn is_equal(context: &Context) -> Check {
    match (&context.observed.serving, &context.notes.proof) {
        (_, None) => Check::blocked("NoProof", "what the backup holds is not recorded"),
        (None, _) => Check::waiting("NoQuorum", "no quorum of the new etcd answers"),
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

pub(super) fn are_old_volumes_gone(context: &Context) -> Check {
    let observed = context.observed;
    match &context.notes.old {
        Some((volumes, _)) if observed.volumes.contains(volumes) || observed.pods.contains_key(volumes) => {
            Check::waiting("VolumesEnding", format!("volumes {volumes} are being deleted"))
        }
        _ => Check::Met("the old volumes are gone".to_owned()),
    }
}

pub(super) fn release_old_volumes(context: &Context) -> Vec<Effect> {
    let (observed, Some((old, _)), Some(new)) = (context.observed, &context.notes.old, &context.notes.new)
    else {
        return Vec::new();
    };
    // Kept as long as the new etcd does not serve, whatever it has proved before.
    let serves =
        observed.serving.is_some() && observed.etcd.as_ref().is_some_and(|etcd| etcd.volumes == *new);
    if serves { vec![Effect::EnsureNoVolumes { volumes: old.clone() }] } else { Vec::new() }
}
