//! The HostedEtcd's own status: where its life stands, inferred from what is seen; and its number of members, handed to the Etcd
//! while no workflow runs.
//!
//! One that is being deleted is held by the finalizer of its workflow. Its status says what is waited for; and where that workflow
//! does not exist any more, the finalizer is taken off here.

use std::{sync::Arc, time::Duration};

use kube::{
    Api, ResourceExt,
    api::{Patch, PatchParams},
    runtime::{Controller, controller::Action, watcher},
};
use repot_apimachinery::time::Time;
use repot_etcd_core::digest::Digest;
use repot_plan::{
    etcd::{EtcdLedger, Step, observed::Lock},
    ledger::{Phase, State},
    status::from_status,
};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::{errors::is_not_found, etcd::api::Etcd, namespaces::Scope, reconciler};

use super::{
    api::{Condition, HostedEtcd, HostedEtcdStatus},
    context::{Context, gather},
    error::{Error, Result},
    kinds::{self, Kind},
    observe,
    site::ControlPlane,
    wake::NamespaceTrigger,
};

/// Nothing tells of an etcd that lost its quorum without a Pod that ends.
const LOOK: Duration = Duration::from_secs(30);
const MANAGER: &str = "repot-hosted-etcd";

/// Runs all HostedEtcds of a scope until `stop`.
pub async fn run(scope: &Scope, context: Arc<Context>, wake: &NamespaceTrigger, stop: CancellationToken) {
    let all = scope.api::<HostedEtcd>(context.clients.own());
    let controller = Controller::new(all, watcher::Config::default());
    let woken = wake.all(controller.store(), |_| true);
    let settings = context.controller("hostedetcd");
    reconciler::run(settings, controller.reconcile_on(woken), reconcile, context, stop).await;
}

/// What a HostedEtcd tells of itself.
struct Seen {
    site: ControlPlane,
    serving: Option<Digest>,
    lock: Lock,
    /// The workflow that has the lock: kind and name, and its ledger.
    workflow: Option<(String, EtcdLedger)>,
}

async fn reconcile(cached: Arc<HostedEtcd>, context: Arc<Context>) -> Result<Action> {
    gather().await;
    let (namespace, name) = (cached.namespace().unwrap_or_default(), cached.name_any());
    let all = Api::<HostedEtcd>::namespaced(context.clients.own().clone(), &namespace);
    let what = || format!("HostedEtcd {namespace}/{name}");
    let found = all.get_opt(&name).await.map_err(|source| Error::Read { what: what(), source })?;
    // Others' finalizers are waited for by others.
    let is_ours = |hosted: &HostedEtcd| !is_ending(hosted) || kinds::has_finalizer(hosted);
    let Some(hosted) = found.filter(is_ours) else {
        context.digests.forget(&cached);
        return Ok(Action::await_change());
    };
    let seen = look(&context, hosted).await?;
    tend(&context, &all, &seen).await?;
    Ok(Action::requeue(LOOK))
}

fn is_ending(hosted: &HostedEtcd) -> bool {
    hosted.metadata.deletion_timestamp.is_some()
}

async fn tend(context: &Context, all: &Api<HostedEtcd>, seen: &Seen) -> Result<()> {
    let hosted = &seen.site.hosted;
    if seen.lock == Lock::Free && kinds::has_finalizer(hosted) {
        return release(all, hosted).await;
    }
    let outcome = write(all, seen, &render(seen, context.now())).await;
    if is_ending(hosted) {
        return outcome;
    }
    outcome.and(scale(context, seen).await)
}

/// Takes off a finalizer without a lock. A workflow sets it after the lock and takes it off before, so this is of one that does not
/// exist any more, and nobody else would.
async fn release(all: &Api<HostedEtcd>, hosted: &HostedEtcd) -> Result<()> {
    let patch = json!({"metadata": {
        "resourceVersion": hosted.resource_version(), "finalizers": kinds::finalizers(hosted, false),
    }});
    let params = PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() };
    match all.patch(&hosted.name_any(), &params, &Patch::Merge(patch)).await {
        Err(error) if is_not_found(&error) => Ok(()),
        outcome => outcome
            .map(drop)
            .map_err(|source| Error::Write { task: "take the finalizer off the HostedEtcd", source }),
    }
}

async fn look(context: &Context, hosted: HostedEtcd) -> Result<Seen> {
    let client = context.clients.own();
    // Asked for as nobody: the lock is free, or another one's.
    let lock = observe::lock(client, &hosted, "").await?;
    let workflow = match &lock {
        Lock::Other(title) => workflow(client, &hosted, title).await?,
        Lock::Free | Lock::Ours => None,
    };
    let site = ControlPlane::read(client, hosted).await?;
    let serving = match site.deployed() {
        Some(etcd) => context.digests.ask(client, &site, &etcd.volumes, false).await,
        None => None,
    };
    Ok(Seen { site, serving, lock, workflow })
}

async fn workflow(
    client: &kube::Client,
    hosted: &HostedEtcd,
    title: &str,
) -> Result<Option<(String, EtcdLedger)>> {
    let Some(holder) = &hosted.status.current_workflow else { return Ok(None) };
    let Some(kind) = Kind::of(&holder.kind) else { return Ok(None) };
    let namespace = hosted.namespace().unwrap_or_default();
    let status = observe::workflow(client, kind, &namespace, holder).await?;
    let ledger = status.and_then(|status| from_status(kind.plans(), &status.to_ledger()).ok());
    Ok(ledger.map(|ledger| (title.to_owned(), ledger)))
}

/// The command of the paper that the running step stands for.
fn command(ledger: &EtcdLedger) -> Option<&'static str> {
    let commands = [
        (Step::ApiDown, "stopApi"),
        (Step::EtcdDeleted, "deleteEtcd"),
        (Step::EtcdRestored, "startRestore"),
        (Step::ApiUp, "startApi"),
        (Step::NewEtcdGone, "deleteEtcd"),
        (Step::OldEtcdUp, "startRestore"),
        (Step::ApiUpAgain, "startApi"),
    ];
    let runs = |step| ledger.state(step) == State::Running;
    commands.into_iter().filter(|(step, _)| runs(*step)).map(|(_, command)| command).next_back()
}

/// The fields of the status that are this controller's.
fn render(seen: &Seen, now: Time) -> HostedEtcdStatus {
    let site = &seen.site;
    let etcd = site.deployed();
    let ready = etcd.as_ref().map_or(0, |etcd| site.ready(&etcd.volumes).count());
    let wanted = etcd.as_ref().map_or(0, |etcd| etcd.settings.replicas);
    let command = seen.workflow.as_ref().and_then(|(_, ledger)| command(ledger));
    let backup = seen.workflow.as_ref().and_then(|(_, ledger)| ledger.notes.backup.clone());
    let members = match (&etcd, &seen.serving) {
        (None, _) => "there are no members".to_owned(),
        (Some(_), Some(_)) => format!("{ready} of {wanted} members are ready"),
        (Some(_), None) => format!("{ready} of {wanted} members are ready, and no quorum answers"),
    };
    let message = match &seen.workflow {
        Some((title, ledger)) if ledger.phase == Phase::RollingBack => {
            format!("{members}; {title} rolls back: {}", ledger.message)
        }
        Some((title, ledger)) if !ledger.message.is_empty() => {
            format!("{members}; {title} is at {}", ledger.message)
        }
        Some((title, _)) => format!("{members}; {title} works on it"),
        None => members.clone(),
    };
    let (status, reason) = match (&etcd, &seen.serving) {
        (None, _) => ("False", "EtcdDeleted"),
        (Some(_), None) => ("False", "NoQuorum"),
        (Some(_), Some(_)) if site.api().ready == 0 => ("False", "NoApiServer"),
        (Some(_), Some(_)) => ("True", "Serving"),
    };
    let mut conditions = vec![condition(&site.hosted, ("Ready", status, reason), &members, now)];
    if let (Lock::Other(title), true) = (&seen.lock, is_ending(&site.hosted)) {
        let ledger = seen.workflow.as_ref().map(|(_, ledger)| ledger);
        let terminating = ("Terminating", "True", "WorkflowRunning");
        conditions.push(condition(&site.hosted, terminating, &waits_for(title, ledger), now));
    }
    HostedEtcdStatus {
        lifecycle_status: Some(lifecycle(site, etcd.is_some()).to_owned()),
        ready_replicas: i64::try_from(ready).ok(),
        observed_generation: site.hosted.metadata.generation,
        command: command.map(str::to_owned),
        backup_name: backup.filter(|_| command == Some("startRestore")),
        message: Some(message),
        conditions,
        current_workflow: None,
    }
}

/// What the deletion of a HostedEtcd waits for: the workflow, and its step where its status can be read.
fn waits_for(title: &str, ledger: Option<&EtcdLedger>) -> String {
    let Some(ledger) = ledger else { return format!("the HostedEtcd is deleted when {title} is over") };
    let is_back = ledger.phase == Phase::RollingBack;
    // Restore and migration have the same rollback. The step that ran before it is left as it was.
    let rollback = Kind::Migration.plans().newest().rollback;
    let is_meant = |step| rollback.iter().any(|row| row.step == step) == is_back;
    let runs = ledger.steps.iter().find(|(step, record)| record.state == State::Running && is_meant(**step));
    let end = if is_back { "has rolled back" } else { "is over" };
    let at = runs.map_or_else(String::new, |(step, record)| format!("; it is at {step}: {}", record.message));
    format!("the HostedEtcd is deleted when {title} {end}{at}")
}

fn lifecycle(site: &ControlPlane, has_set: bool) -> &'static str {
    repot_plan::etcd::observed::lifecycle(has_set, site.members.len(), &site.api())
}

/// A condition whose time is that of its last transition.
fn condition(
    hosted: &HostedEtcd,
    (kind, status, reason): (&str, &str, &str),
    message: &str,
    now: Time,
) -> Condition {
    let is_same = |old: &&Condition| old.kind == kind && old.status == status;
    let old = hosted.status.conditions.iter().find(is_same).map(|old| old.last_transition_time.clone());
    Condition {
        kind: kind.to_owned(),
        status: status.to_owned(),
        reason: reason.to_owned(),
        message: message.to_owned(),
        last_transition_time: old.filter(|old| !old.is_empty()).unwrap_or_else(|| now.to_rfc3339()),
    }
}

/// Writes what changed. A lock of an object that does not exist any more is cleared, under the version that was seen.
async fn write(all: &Api<HostedEtcd>, seen: &Seen, status: &HostedEtcdStatus) -> Result<()> {
    let hosted = &seen.site.hosted;
    let is_stale = seen.lock == Lock::Free && hosted.status.current_workflow.is_some();
    let known = HostedEtcdStatus { current_workflow: None, ..hosted.status.clone() };
    if !is_stale && known == *status {
        return Ok(());
    }
    let mut patch = json!({"status": status});
    if is_stale {
        patch["status"]["currentWorkflow"] = Value::Null;
        patch["metadata"] = json!({"resourceVersion": hosted.resource_version()});
    }
    let params = PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() };
    let outcome = all.patch_status(&hosted.name_any(), &params, &Patch::Merge(patch)).await;
    outcome.map(drop).map_err(|source| Error::Write { task: "write the status of the HostedEtcd", source })
}

/// The number of members can be changed in place; a workflow that runs decides on it alone.
async fn scale(context: &Context, seen: &Seen) -> Result<()> {
    let (Some(etcd), Some(wanted)) = (&seen.site.etcd, seen.site.hosted.spec.settings.wanted().replicas)
    else {
        return Ok(());
    };
    let has = etcd.spec.replicas;
    if seen.lock != Lock::Free || has == 0 || has == wanted {
        return Ok(());
    }
    let all = Api::<Etcd>::namespaced(context.clients.own().clone(), &seen.site.namespace());
    let patch =
        json!({"metadata": {"resourceVersion": etcd.resource_version()}, "spec": {"replicas": wanted}});
    let params = PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() };
    let outcome = all.patch(&etcd.name_any(), &params, &Patch::Merge(patch)).await;
    outcome.map(drop).map_err(|source| Error::Write { task: "scale the Etcd", source })
}

#[cfg(test)]
mod tests {
    use repot_plan::ledger::Record;

    use super::*;

    fn mk_ledger(steps: &[(Step, State)]) -> EtcdLedger {
        let record = |state| Record {
            state,
            reason: String::new(),
            message: String::new(),
            started: None,
            completed: None,
            attempts: 1,
        };
        let steps = steps.iter().map(|(step, state)| (*step, record(*state))).collect();
        EtcdLedger { steps, ..EtcdLedger::default() }
    }

    #[test]
    fn deletion_tells_the_step_that_it_waits_for() {
        let steps = [(Step::EtcdRestored, State::Running), (Step::OldEtcdUp, State::Running)];
        for (phase, expected) in [
            (Phase::Running, "the HostedEtcd is deleted when EtcdRestore r is over; it is at EtcdRestored: "),
            (
                Phase::RollingBack,
                "the HostedEtcd is deleted when EtcdRestore r has rolled back; it is at OldEtcdUp: ",
            ),
        ] {
            let ledger = EtcdLedger { phase, ..mk_ledger(&steps) };
            assert_eq!(waits_for("EtcdRestore r", Some(&ledger)), expected);
        }
        for ledger in [Some(&mk_ledger(&[])), None] {
            let told = waits_for("EtcdRestore r", ledger);
            assert_eq!(told, "the HostedEtcd is deleted when EtcdRestore r is over");
        }
    }

    #[test]
    fn command_is_that_of_the_step_that_runs() {
        for (steps, expected) in [
            (&[(Step::ApiDown, State::Running)][..], Some("stopApi")),
            (&[(Step::ApiDown, State::Succeeded), (Step::BackupTaken, State::Running)], None),
            (
                &[(Step::ApiDown, State::Succeeded), (Step::EtcdRestored, State::Running)],
                Some("startRestore"),
            ),
            // On the way back, the step that ran before is left as it was.
            (&[(Step::EtcdRestored, State::Running), (Step::ApiUpAgain, State::Running)], Some("startApi")),
            (&[(Step::ApiUp, State::Succeeded)], None),
        ] {
            assert_eq!(command(&mk_ledger(steps)), expected, "{steps:?}");
        }
    }
}
