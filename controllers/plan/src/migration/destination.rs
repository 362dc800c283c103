//! Rows of the destination: it is prepared, takes ownership, serves, and restores what the source exported.

use std::time::Duration;

use super::{
    context::{Context, destination, none_left},
    effect::Effect,
    notes::Notes,
    observed::{
        DestinationFacts, ExtensionOperation, KUBE_CONTROLLERS, OwnerId, OwnerRecord, Replicas, Workloads,
    },
    source::have_done,
    step::Step,
};
use crate::ledger::{Check, MACHINES_DIFFER};

pub(crate) fn is_bucket_readable(context: &Context) -> Check {
    destination(context, |facts| match &facts.bucket_problem {
        None => Check::Met("the bucket of the source can be read".to_owned()),
        Some(problem) => Check::waiting("SourceBucketUnreadable", problem.clone()),
    })
}

pub(crate) fn note_change(_: &Context, notes: &mut Notes) {
    notes.changed = true;
}

pub(crate) fn ensure_source_backup_entry(_: &Context) -> Vec<Effect> {
    vec![Effect::EnsureSourceBackupEntry]
}

pub(crate) fn are_bindings_resolved(context: &Context) -> Check {
    destination(context, |facts| {
        none_left(
            &facts.unresolved,
            "BindingUnresolved",
            "no value at the destination",
            "all bindings have a value",
        )
    })
}

pub(crate) fn ensure_exposure(_: &Context) -> Vec<Effect> {
    vec![Effect::EnsureExposure]
}

pub(crate) fn are_snapshots_copied(context: &Context) -> Check {
    destination(context, |facts| match facts.copied {
        Some(revision) => Check::Met(format!("snapshots up to revision {revision} are copied and verified")),
        None => Check::waiting("CopyingSnapshots", "the snapshots of the source are being copied"),
    })
}

pub(crate) fn copy_snapshots(_: &Context) -> Vec<Effect> {
    vec![Effect::CopySnapshots]
}

pub(crate) fn is_prepared(context: &Context) -> Check {
    destination(context, |facts| {
        if !facts.machine_guard {
            return Check::waiting("MachineGuardMissing", "the policy that keeps Machines is not in effect");
        }
        none_left(&facts.unprepared, "Preparing", "not there yet", "all objects exist at the destination")
    })
}

pub(crate) fn prepare(_: &Context) -> Vec<Effect> {
    vec![Effect::PrepareDestination]
}

pub(crate) fn is_final_snapshot_copied(context: &Context) -> Check {
    let Some(wanted) = context.source_notes().and_then(|notes| notes.final_snapshot.as_ref()) else {
        return Check::waiting("NoFinalSnapshot", "the source has not recorded its final snapshot");
    };
    destination(context, |facts| {
        if facts.final_copied.as_ref() == Some(wanted) {
            Check::Met(format!("{} is copied and verified", wanted.name))
        } else {
            Check::waiting("CopyingFinalSnapshot", format!("{} is being copied", wanted.name))
        }
    })
}

pub(crate) fn copy_final_snapshot(context: &Context) -> Vec<Effect> {
    let snapshot = context.source_notes().and_then(|notes| notes.final_snapshot.clone());
    snapshot.into_iter().map(|snapshot| Effect::CopyFinalSnapshot { snapshot }).collect()
}

/// The epoch of this hand-over: higher than any that either side has seen.
pub(crate) fn note_epoch(context: &Context, notes: &mut Notes) {
    let ended = context.source_notes().and_then(|source| source.owner_epoch).unwrap_or_default();
    let seen = match context.at_destination().map(|facts| &facts.owner) {
        Some(OwnerRecord::Present(owner)) => owner.epoch,
        _ => 0,
    };
    notes.owner_epoch = notes.owner_epoch.max(Some(ended.max(seen) + 1));
}

pub(crate) fn own_id(context: &Context) -> Option<OwnerId> {
    let epoch = context.notes.owner_epoch?;
    Some(OwnerId { seed: context.observed.request.destination_identity.clone(), epoch })
}

pub(crate) fn is_owner(context: &Context) -> Check {
    let own = own_id(context);
    destination(context, |facts| match (&facts.owner, &own) {
        (OwnerRecord::Present(owner), Some(own)) if owner == own => {
            Check::Met(format!("the owner record names {} with epoch {}", own.seed, own.epoch))
        }
        (OwnerRecord::Unknown, _) => {
            Check::waiting("OwnerUnknown", "the servers of the zone do not agree, or do not answer")
        }
        _ => Check::waiting("TakingOwnership", "the owner record is being written"),
    })
}

pub(crate) fn take_ownership(context: &Context) -> Vec<Effect> {
    own_id(context).into_iter().map(|owner| Effect::EnsureOwner { owner }).collect()
}

/// How long kube-apiservers have to start, from when they were asked for. One that starts later is ready later, and nothing else.
const API_START: Duration = Duration::from_secs(10);

pub(crate) fn is_api_started(context: &Context) -> Check {
    let has_time = context.since_start(Step::ApiStarted).unwrap_or_default() >= API_START;
    destination(context, |facts| {
        let is_ours = facts.api.fence == context.forward_fence();
        match facts.api.pods {
            pods if is_ours && pods > 0 && has_time => Check::Met(format!("{pods} kube-apiservers run")),
            pods if is_ours && pods > 0 => {
                Check::waiting("ApiServersStarting", "kube-apiservers are starting")
            }
            _ => Check::waiting("ApiServersStarting", "no kube-apiserver runs"),
        }
    })
}

pub(crate) fn does_api_serve(context: &Context) -> Check {
    destination(context, |facts| {
        let is_ready = facts.api.ready > 0 && facts.api.fence == context.forward_fence();
        match &facts.exposure_problem {
            _ if !is_ready => Check::waiting(
                "ApiServersNotReady",
                format!("{} kube-apiservers run, none is ready", facts.api.pods),
            ),
            Some(problem) => Check::waiting("ApiNotReachable", problem.clone()),
            None => Check::Met(format!("{} kube-apiservers are ready", facts.api.ready)),
        }
    })
}

pub(crate) fn serve_api(context: &Context) -> Vec<Effect> {
    let replicas = context.replica_notes().and_then(|notes| notes.api_servers.clone());
    let ensure = replicas.map(|replicas| Effect::EnsureApi { replicas, fence: context.forward_fence() });
    let held_back = context.at_destination().map(|facts| facts.api_held_back.clone()).unwrap_or_default();
    let replace = (!held_back.is_empty()).then_some(Effect::ReplaceApi { pods: held_back });
    ensure.into_iter().chain(replace).collect()
}

/// Recorded, and thereby true: the record is stored only if no side has begun to roll back.
pub(crate) fn is_committed(_: &Context) -> Check {
    Check::Met("no side rolls back from here on".to_owned())
}

pub(crate) fn is_infrastructure_restored(context: &Context) -> Check {
    destination(context, |facts| have_done(&facts.infrastructure, ExtensionOperation::Restore))
}

pub(crate) fn restore_infrastructure(_: &Context) -> Vec<Effect> {
    vec![Effect::RequestInfrastructure { operation: ExtensionOperation::Restore }]
}

pub(crate) fn are_extensions_restored(context: &Context) -> Check {
    destination(context, |facts| have_done(&facts.extensions, ExtensionOperation::Restore))
}

pub(crate) fn restore_extensions(_: &Context) -> Vec<Effect> {
    vec![Effect::RequestExtensions { operation: ExtensionOperation::Restore }]
}

pub(crate) fn are_workers_restored(context: &Context) -> Check {
    destination(context, |facts| have_done(&facts.workers, ExtensionOperation::Restore))
}

pub(crate) fn restore_workers(_: &Context) -> Vec<Effect> {
    vec![Effect::RequestWorkers { operation: ExtensionOperation::Restore }]
}

/// The controllers that act on Machines stay stopped until this holds, whoever starts them.
pub(crate) fn are_machines_unchanged(context: &Context) -> Check {
    destination(context, |facts| match &facts.machine_differences {
        _ if !facts.controllers.is_stopped() => {
            Check::waiting("ControllersRun", "controllers were started before the Machines are compared")
        }
        None => Check::waiting("MachinesUnreadable", "Machines and their classes cannot be compared"),
        Some(differences) => none_left(
            differences,
            MACHINES_DIFFER,
            "the machine-controller-manager would replace nodes",
            "Machines, classes and provider IDs are those of the source",
        ),
    })
}

/// An extension controller may start the controllers of Machines by itself.
pub(crate) fn stop_early_controllers(context: &Context) -> Vec<Effect> {
    let facts = context.at_destination().filter(|facts| !facts.controllers.is_stopped()).into_iter();
    facts
        .map(|facts| Effect::EnsureControllers {
            replicas: facts.controllers.none(),
            fence: context.forward_fence(),
        })
        .collect()
}

pub(crate) fn are_leases_renewed(context: &Context) -> Check {
    destination(context, |facts| match &facts.stale_leases {
        None => Check::waiting("NodesUnreadable", "nodes and their Leases cannot be listed"),
        Some(nodes) => none_left(nodes, "LeasesStale", "not renewed", "all nodes have renewed their Leases"),
    })
}

/// Replicas that ran before the move: those of [`KUBE_CONTROLLERS`], or those of all others.
fn noted_controllers(context: &Context, own_api_only: bool) -> Replicas {
    let noted = context.replica_notes().and_then(|notes| notes.controllers.clone()).unwrap_or_default();
    noted.into_iter().filter(|(name, _)| KUBE_CONTROLLERS.contains(&name.as_str()) == own_api_only).collect()
}

fn are_started(context: &Context, controllers: &Workloads, wanted: &Replicas) -> Check {
    let is_asked = wanted.is_empty() || controllers.fence == context.forward_fence();
    match (is_asked && controllers.wanted == *wanted, controllers.ready, wanted.values().sum::<u32>()) {
        (true, ready, all) if ready >= all => Check::Met(format!("{ready} Pods of controllers are ready")),
        (_, ready, all) => {
            Check::waiting("ControllersStarting", format!("{ready} of {all} Pods of controllers are ready"))
        }
    }
}

pub(crate) fn are_kube_controllers_started(context: &Context) -> Check {
    let wanted = noted_controllers(context, true);
    destination(context, |facts| are_started(context, &facts.kube_controllers, &wanted))
}

pub(crate) fn start_kube_controllers(context: &Context) -> Vec<Effect> {
    let replicas = noted_controllers(context, true);
    vec![Effect::EnsureKubeControllers { replicas, fence: context.forward_fence() }]
}

pub(crate) fn are_controllers_started(context: &Context) -> Check {
    let wanted = noted_controllers(context, false);
    destination(context, |facts| are_started(context, &facts.controllers, &wanted))
}

pub(crate) fn start_controllers(context: &Context) -> Vec<Effect> {
    let replicas = noted_controllers(context, false);
    vec![Effect::EnsureControllers { replicas, fence: context.forward_fence() }]
}

pub(crate) fn are_nodes_healthy(context: &Context) -> Check {
    destination(context, |facts| match &facts.unhealthy_nodes {
        None => Check::waiting("NodesUnreadable", "nodes cannot be listed"),
        Some(nodes) => none_left(nodes, "NodesUnhealthy", "not healthy", "all nodes are healthy"),
    })
}

pub(crate) fn is_source_backup_entry_gone(context: &Context) -> Check {
    destination(context, |facts| {
        if facts.source_backup_entry {
            Check::waiting("Removing", "the BackupEntry for the bucket of the source is being deleted")
        } else {
            Check::Met("there is no BackupEntry for the bucket of the source".to_owned())
        }
    })
}

pub(crate) fn remove_source_backup_entry(_: &Context) -> Vec<Effect> {
    vec![Effect::EnsureNoSourceBackupEntry]
}

pub(crate) fn is_machine_guard_gone(context: &Context) -> Check {
    destination(context, |facts| {
        if facts.machine_guard {
            Check::waiting("Removing", "the policy that keeps Machines is being deleted")
        } else {
            Check::Met("Machines may be deleted again".to_owned())
        }
    })
}

pub(crate) fn remove_machine_guard(_: &Context) -> Vec<Effect> {
    vec![Effect::EnsureNoMachineGuard]
}

pub(crate) fn is_stopped(context: &Context) -> Check {
    destination(context, |facts| {
        if is_all_stopped(facts, &context.rollback_fence()) {
            Check::Met("neither a member nor a kube-apiserver is left".to_owned())
        } else {
            let controllers = facts.controllers.pods + facts.kube_controllers.pods;
            let pods = facts.etcd.pods + facts.api.pods + facts.tunnel.servers.pods + controllers;
            Check::waiting("Stopping", format!("{pods} Pods are left at the destination"))
        }
    })
}

fn is_all_stopped(facts: &DestinationFacts, fence: &str) -> bool {
    let is_etcd_stopped =
        facts.etcd.pods == 0 && facts.etcd.wanted.unwrap_or_default() == 0 && facts.standby.is_none();
    // Where workloads exist, they are written once by this fence, so that what was requested before is refused.
    let is_api_fenced = facts.api.wanted.is_empty() || facts.api.fence == fence;
    let is_fenced = is_api_fenced && (facts.etcd.wanted.is_none() || facts.etcd.fence == fence);
    is_etcd_stopped
        && is_fenced
        && facts.api.is_stopped()
        && facts.tunnel.servers.is_stopped()
        && facts.controllers.is_stopped()
        && facts.kube_controllers.is_stopped()
}

/// Of one that a forced migration supersedes the etcd is given up: the source is taken for dead, and most voters are there. So it is where
/// this seed was taken for lost: the source has removed its members, and may not be reached any more to ask.
pub(crate) fn stop(context: &Context) -> Vec<Effect> {
    let request = &context.observed.request;
    let abandons_etcd = request.superseded.is_some() || request.destination_lost;
    vec![Effect::StopDestination { abandons_etcd, fence: context.rollback_fence() }]
}

pub(crate) fn is_removed(context: &Context) -> Check {
    destination(context, |facts| {
        none_left(
            &facts.left,
            "Removing",
            "left at the destination",
            "nothing of the Shoot is left at the destination",
        )
    })
}

pub(crate) fn remove(_: &Context) -> Vec<Effect> {
    vec![Effect::RemoveDestination]
}

/// Whether the flow of this Shoot has API servers, members and controllers that run.
pub(crate) fn is_awake(context: &Context) -> bool {
    !context.is_hibernated()
}

pub(crate) fn has_workers(context: &Context) -> bool {
    !context.is_workerless()
}

pub(crate) fn has_nodes(context: &Context) -> bool {
    is_awake(context) && has_workers(context)
}

/// Evidence that the destination has stopped, as far as the source has read it.
pub(crate) fn has_stopped(context: &Context) -> bool {
    context.is_settled(Step::DestinationStopped)
}
