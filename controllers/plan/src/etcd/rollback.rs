//! The rollback of restore and migration: the old etcd on its old volumes, then the API servers, then everything else.
//!
//! Its effects carry another fence than those of the way forward, so it writes the objects that matter even where they look
//! untouched: what was asked for before and is still on its way is refused afterwards.

use super::{
    effect::Effect,
    notes::Notes,
    observed::{Cluster, Observed},
    rows::{Context, api_is_up, give_lock_back, is_locked, is_unlocked, take_lock},
    step::{Side, Step},
    workflow::EtcdFlow,
};
use crate::{
    flow::{OnFailure, Proof, Row, Timeout},
    ledger::Check,
};

/// The table.
pub(super) static ROLLBACK: &[Row<EtcdFlow>] = &[
    Row {
        does: "The lock is still this workflow's; without it nothing is touched.",
        proof: Proof::HeldUntil(Step::LockGivenBack),
        timeout: Timeout::Hours(24),
        on_failure: OnFailure::Fail,
        advice: "end the workflow that has the lock",
        effects: take_lock,
        ..Row::new(Side::Seed, Step::LockHeld, is_locked)
    },
    Row {
        after: &[Step::LockHeld],
        does: "The StatefulSet on the new volumes is deleted, until no member of it is left.",
        proof: Proof::HeldUntil(Step::LockGivenBack),
        timeout: Timeout::Hours(2),
        on_failure: OnFailure::Fail,
        advice: "delete the pods of members on nodes that do not answer, once the nodes are surely off",
        effects: delete_new_etcd,
        ..Row::new(Side::Seed, Step::NewEtcdGone, is_new_etcd_gone)
    },
    Row {
        after: &[Step::NewEtcdGone],
        does: "`spec.settings` of the HostedEtcd is what it was.",
        proof: Proof::Held,
        timeout: Timeout::Hours(2),
        on_failure: OnFailure::Fail,
        advice: "see why the HostedEtcd cannot be written",
        effects: put_settings_back,
        ..Row::new(Side::Seed, Step::SettingsPutBack, are_settings_back)
    },
    Row {
        after: &[Step::SettingsPutBack],
        does: "The StatefulSet on the old volumes exists and, if it did so before, serves.",
        proof: Proof::HeldUntil(Step::LockGivenBack),
        timeout: Timeout::Hours(2),
        on_failure: OnFailure::Fail,
        advice: "see why the members do not start on the old volumes; if they cannot, restore the backup by an EtcdRestore",
        effects: start_old_etcd,
        ..Row::new(Side::Seed, Step::OldEtcdUp, is_old_etcd_up)
    },
    Row {
        after: &[Step::OldEtcdUp],
        does: "As many API servers as before are wanted and, if the etcd served before, one is ready.",
        proof: Proof::HeldUntil(Step::LockGivenBack),
        timeout: Timeout::Hours(2),
        on_failure: OnFailure::Fail,
        advice: "see why the API servers do not become ready; the etcd serves",
        effects: start_api_again,
        ..Row::new(Side::Seed, Step::ApiUpAgain, is_api_up_again)
    },
    Row {
        after: &[Step::ApiUpAgain],
        does: "The new volumes are deleted: they hold nothing that the old ones and the backup do not.",
        on_failure: OnFailure::Skip,
        advice: "delete them by hand",
        effects: release_new_volumes,
        ..Row::new(Side::Seed, Step::NewVolumesReleased, are_new_volumes_gone)
    },
    Row {
        after: &[Step::NewVolumesReleased],
        does: "Our finalizer is taken off the HostedEtcd, and the lock is given back.",
        on_failure: OnFailure::Skip,
        advice: "it is given back when the HostedEtcd can be written",
        effects: give_lock_back,
        ..Row::new(Side::Seed, Step::LockGivenBack, is_unlocked)
    },
];

/// Fields of the status of a workflow that can roll back. `original` is another name of `before`, which is read and not written.
pub(super) const FIELDS: &[&str] =
    &["apiDownSeconds", "backupName", "before", "newVolumes", "original", "proof"];

/// Whether there is anything to roll back.
pub(super) fn is_needed(notes: &Notes) -> bool {
    notes.locked
}

fn fence(observed: &Observed) -> String {
    format!("{}/back", observed.request.uid)
}

fn is_new_etcd_gone(context: &Context) -> Check {
    let (observed, Some(new)) = (context.observed, &context.notes.new) else {
        return Check::Met("there is no new etcd".to_owned());
    };
    let pods = observed.pods.get(new).copied().unwrap_or_default();
    if observed.etcd.as_ref().is_some_and(|etcd| etcd.volumes == *new) {
        Check::waiting("EtcdEnding", "the new StatefulSet is being deleted")
    } else if pods > 0 {
        Check::waiting("MembersEnding", format!("{pods} members of the new etcd are left"))
    } else {
        Check::Met("no member of the new etcd is left".to_owned())
    }
}

fn delete_new_etcd(context: &Context) -> Vec<Effect> {
    context.notes.new.iter().map(|volumes| Effect::EnsureNoEtcd { volumes: volumes.clone() }).collect()
}

fn are_settings_back(context: &Context) -> Check {
    match &context.notes.old_settings {
        Some(_) if context.observed.cluster == Cluster::Gone => {
            Check::Met("the HostedEtcd does not exist any more, and its settings with it".to_owned())
        }
        Some(settings) if context.observed.settings != *settings => {
            Check::waiting("SettingsChanging", "the settings are being put back")
        }
        _ => Check::Met("the settings are what they were".to_owned()),
    }
}

fn put_settings_back(context: &Context) -> Vec<Effect> {
    let settings = context.notes.old_settings.iter();
    settings.map(|settings| Effect::EnsureSettings { settings: settings.clone() }).collect()
}

fn is_old_etcd_up(context: &Context) -> Check {
    let (observed, Some((old, settings))) = (context.observed, &context.notes.old) else {
        return Check::Met("the old etcd was not touched".to_owned());
    };
    if !observed.volumes.contains(old) {
        return Check::blocked("VolumesMissing", format!("volumes {old} do not all exist any more"));
    }
    // Whoever deletes a HostedEtcd and its Etcd, as with their namespace, does not make them again.
    if observed.cluster != Cluster::Present && !observed.etcd_declared {
        return Check::blocked("EtcdMissing", "the Etcd is deleted as well, so nothing starts the members");
    }
    match &observed.etcd {
        None => Check::waiting("EtcdNotCreated", "the old StatefulSet is being created"),
        Some(etcd) if etcd.volumes != *old || etcd.fence != fence(observed) => {
            Check::waiting("EtcdNotOurs", "the old StatefulSet is being put back")
        }
        Some(_) if context.notes.served && observed.serving.is_none() => {
            let message = format!("{} of {} members are ready", observed.ready, settings.replicas);
            Check::waiting("EtcdStarting", message)
        }
        Some(_) => Check::Met("the old etcd is what it was".to_owned()),
    }
}

fn start_old_etcd(context: &Context) -> Vec<Effect> {
    let (observed, Some((old, settings))) = (context.observed, &context.notes.old) else { return Vec::new() };
    if observed.pods_beside(old) > 0 {
        return Vec::new();
    }
    let (volumes, settings) = (old.clone(), settings.clone());
    vec![Effect::EnsureEtcd { volumes, settings, from: None, fence: fence(observed) }]
}

fn is_api_up_again(context: &Context) -> Check {
    match context.notes.api_replicas {
        None => Check::Met("the API servers were not touched".to_owned()),
        Some(_) => api_is_up(context, &fence(context.observed), context.notes.served),
    }
}

fn start_api_again(context: &Context) -> Vec<Effect> {
    let replicas = context.notes.api_replicas.iter();
    replicas
        .map(|replicas| Effect::EnsureApi { replicas: *replicas, fence: fence(context.observed) })
        .collect()
}

fn are_new_volumes_gone(context: &Context) -> Check {
    match &context.notes.new {
        Some(new) if context.observed.volumes.contains(new) => {
            Check::waiting("VolumesEnding", format!("volumes {new} are being deleted"))
        }
        _ => Check::Met("the new volumes are gone".to_owned()),
    }
}

fn release_new_volumes(context: &Context) -> Vec<Effect> {
    context.notes.new.iter().map(|volumes| Effect::EnsureNoVolumes { volumes: volumes.clone() }).collect()
}
