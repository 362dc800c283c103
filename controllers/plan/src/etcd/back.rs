//! The way back of restore and migration: the old etcd on its old volumes, then the API servers, then everything else.
//!
//! Its effects carry another fence than those of the way forward, so it writes the objects that matter even where they look
//! untouched: what was asked for before and is still on its way is refused afterwards.

use super::{
    EtcdFlow, Notes,
    effect::Effect,
    rows::{Scene, api_is_up, give_lock_back, is_locked, is_unlocked, nothing, take_lock},
    world::{Cluster, World},
};
use crate::{
    flow::{Otherwise, Patience, Proof, Row},
    ledger::Check,
};

const LAST: &str = "LockGivenBack";

/// The table.
pub(super) static BACK: &[Row<EtcdFlow>] = &[
    Row {
        step: "LockHeld",
        does: "The lock is still this workflow's; without it nothing is touched.",
        proof: Proof::HeldUntil(LAST),
        patience: Patience::Hours(24),
        otherwise: Otherwise::GiveUp,
        advice: "end the workflow that has the lock",
        check: is_locked,
        effects: take_lock,
        begin: nothing,
        met: nothing,
    },
    Row {
        step: "NewEtcdGone",
        does: "The StatefulSet on the new volumes is deleted, until no member of it is left.",
        proof: Proof::HeldUntil(LAST),
        patience: Patience::Hours(2),
        otherwise: Otherwise::GiveUp,
        advice: "delete the pods of members on nodes that do not answer, once the nodes are surely off",
        check: is_new_etcd_gone,
        effects: delete_new_etcd,
        begin: nothing,
        met: nothing,
    },
    Row {
        step: "SettingsPutBack",
        does: "`spec.settings` of the HostedEtcd is what it was.",
        proof: Proof::Held,
        patience: Patience::Hours(2),
        otherwise: Otherwise::GiveUp,
        advice: "see why the HostedEtcd cannot be written",
        check: are_settings_back,
        effects: put_settings_back,
        begin: nothing,
        met: nothing,
    },
    Row {
        step: "OldEtcdUp",
        does: "The StatefulSet on the old volumes exists and, if it did so before, serves.",
        proof: Proof::HeldUntil(LAST),
        patience: Patience::Hours(2),
        otherwise: Otherwise::GiveUp,
        advice: "see why the members do not start on the old volumes; if they cannot, restore the backup by an EtcdRestore",
        check: is_old_etcd_up,
        effects: start_old_etcd,
        begin: nothing,
        met: nothing,
    },
    Row {
        step: "ApiUpAgain",
        does: "As many API servers as before are wanted and, if the etcd served before, one is ready.",
        proof: Proof::HeldUntil(LAST),
        patience: Patience::Hours(2),
        otherwise: Otherwise::GiveUp,
        advice: "see why the API servers do not become ready; the etcd serves",
        check: is_api_up_again,
        effects: start_api_again,
        begin: nothing,
        met: nothing,
    },
    Row {
        step: "NewVolumesReleased",
        does: "The new volumes are deleted: they hold nothing that the old ones and the backup do not.",
        proof: Proof::Latched,
        patience: Patience::Steps(1),
        otherwise: Otherwise::GoOn,
        advice: "delete them by hand",
        check: are_new_volumes_gone,
        effects: release_new_volumes,
        begin: nothing,
        met: nothing,
    },
    Row {
        step: LAST,
        does: "Our finalizer is taken off the HostedEtcd, and the lock is given back.",
        proof: Proof::Latched,
        patience: Patience::Steps(1),
        otherwise: Otherwise::GoOn,
        advice: "it is given back when the HostedEtcd can be written",
        check: is_unlocked,
        effects: give_lock_back,
        begin: nothing,
        met: nothing,
    },
];

/// Whether the way back has anything to do.
pub(super) fn is_touched(notes: &Notes) -> bool {
    notes.locked
}

fn fence(world: &World) -> String {
    format!("{}/back", world.request.uid)
}

fn is_new_etcd_gone(scene: &Scene) -> Check {
    let (world, Some(new)) = (scene.world, &scene.notes.new) else {
        return Check::Met("there is no new etcd".to_owned());
    };
    let pods = world.pods.get(new).copied().unwrap_or_default();
    if world.etcd.as_ref().is_some_and(|etcd| etcd.volumes == *new) {
        Check::waiting("EtcdEnding", "the new StatefulSet is being deleted")
    } else if pods > 0 {
        Check::waiting("MembersEnding", format!("{pods} members of the new etcd are left"))
    } else {
        Check::Met("no member of the new etcd is left".to_owned())
    }
}

fn delete_new_etcd(scene: &Scene) -> Vec<Effect> {
    scene.notes.new.iter().map(|volumes| Effect::EnsureNoEtcd { volumes: volumes.clone() }).collect()
}

fn are_settings_back(scene: &Scene) -> Check {
    match &scene.notes.old_settings {
        Some(_) if scene.world.cluster == Cluster::Gone => {
            Check::Met("the HostedEtcd does not exist any more, and its settings with it".to_owned())
        }
        Some(settings) if scene.world.settings != *settings => {
            Check::waiting("SettingsChanging", "the settings are being put back")
        }
        _ => Check::Met("the settings are what they were".to_owned()),
    }
}

fn put_settings_back(scene: &Scene) -> Vec<Effect> {
    let settings = scene.notes.old_settings.iter();
    settings.map(|settings| Effect::EnsureSettings { settings: settings.clone() }).collect()
}

fn is_old_etcd_up(scene: &Scene) -> Check {
    let (world, Some((old, settings))) = (scene.world, &scene.notes.old) else {
        return Check::Met("the old etcd was not touched".to_owned());
    };
    if !world.volumes.contains(old) {
        return Check::blocked("VolumesMissing", format!("volumes {old} do not all exist any more"));
    }
    // Whoever deletes a HostedEtcd and its Etcd, as with their namespace, does not make them again.
    if world.cluster != Cluster::Present && !world.etcd_declared {
        return Check::blocked("EtcdMissing", "the Etcd is deleted as well, so nothing starts the members");
    }
    match &world.etcd {
        None => Check::waiting("EtcdNotCreated", "the old StatefulSet is being created"),
        Some(etcd) if etcd.volumes != *old || etcd.fence != fence(world) => {
            Check::waiting("EtcdNotOurs", "the old StatefulSet is being put back")
        }
        Some(_) if scene.notes.served && world.serving.is_none() => {
            let message = format!("{} of {} members are ready", world.ready, settings.replicas);
            Check::waiting("EtcdStarting", message)
        }
        Some(_) => Check::Met("the old etcd is what it was".to_owned()),
    }
}

fn start_old_etcd(scene: &Scene) -> Vec<Effect> {
    let (world, Some((old, settings))) = (scene.world, &scene.notes.old) else { return Vec::new() };
    if world.pods_beside(old) > 0 {
        return Vec::new();
    }
    let (volumes, settings) = (old.clone(), settings.clone());
    vec![Effect::EnsureEtcd { volumes, settings, from: None, fence: fence(world) }]
}

fn is_api_up_again(scene: &Scene) -> Check {
    match scene.notes.api_replicas {
        None => Check::Met("the API servers were not touched".to_owned()),
        Some(_) => api_is_up(scene, &fence(scene.world), scene.notes.served),
    }
}

fn start_api_again(scene: &Scene) -> Vec<Effect> {
    let replicas = scene.notes.api_replicas.iter();
    replicas.map(|replicas| Effect::EnsureApi { replicas: *replicas, fence: fence(scene.world) }).collect()
}

fn are_new_volumes_gone(scene: &Scene) -> Check {
    match &scene.notes.new {
        Some(new) if scene.world.volumes.contains(new) => {
            Check::waiting("VolumesEnding", format!("volumes {new} are being deleted"))
        }
        _ => Check::Met("the new volumes are gone".to_owned()),
    }
}

fn release_new_volumes(scene: &Scene) -> Vec<Effect> {
    scene.notes.new.iter().map(|volumes| Effect::EnsureNoVolumes { volumes: volumes.clone() }).collect()
}
