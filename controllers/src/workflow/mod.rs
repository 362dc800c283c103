//! EtcdBackup, EtcdRestore and EtcdMigration: what `repot_plan` decides is done, one pass at a time.
//!
//! A pass is that of all flows ([`crate::flow`]): it observes everything ([`observe`]), asks the plan, stores what it says
//! ([`record`]) and only then requests effects ([`act`]).
//!
//! | module | does |
//! |---|---|
//! | [`api`] | objects of these kinds and of HostedEtcd as types |
//! | [`kinds`] | kinds, and names on objects |
//! | [`site`] | one hosted etcd as kube-apiserver has it |
//! | [`members`] | what its members hold |
//! | [`backup_store`], [`jobs`] | its backups, and the Jobs that take and prove them |
//! | [`observe`] | all of that as the plan sees it |
//! | [`act`] | effects as calls |
//! | `histories` | which histories of snapshots the volumes of an etcd have |
//! | [`driver`] | all of these as a driver of the flow |
//! | [`record`] | the ledger as status and events |
//! | [`hosted`] | the HostedEtcd's own status |
//! | [`wake`] | who is woken by what |

pub mod act;
pub mod api;
pub mod backup_store;
pub mod context;
pub mod driver;
pub mod error;
mod histories;
pub mod hosted;
pub mod jobs;
pub mod kinds;
pub mod members;
pub mod observe;
pub mod record;
pub mod site;
pub mod wake;

use std::{marker::PhantomData, sync::Arc};

use kube::{
    ResourceExt,
    runtime::{Controller, controller::Action, watcher},
};
use tokio_util::sync::CancellationToken;

use crate::{
    flow,
    namespaces::{Namespaces, Scope},
    reconciler,
};
use api::{BackupSpec, MigrationSpec, RestoreSpec, WorkflowObject, WorkflowSpec};
pub use context::Context;
use context::gather;
use driver::Workflow;
pub use error::{Error, Result};
use wake::NamespaceTrigger;

/// Runs all workflows and HostedEtcds of these namespaces until `stop`.
pub async fn run(context: Context, namespaces: &Namespaces, stop: CancellationToken) {
    let context = Arc::new(context);
    let scopes = namespaces.scopes();
    let each = scopes.iter().map(|scope| run_in(scope, context.clone(), stop.clone()));
    futures::future::join_all(each).await;
}

async fn run_in(scope: &Scope, context: Arc<Context>, stop: CancellationToken) {
    let wake = NamespaceTrigger::start(context.clients.own(), scope, &stop);
    tokio::join!(
        run_kind::<BackupSpec>(scope, context.clone(), &wake, stop.clone()),
        run_kind::<RestoreSpec>(scope, context.clone(), &wake, stop.clone()),
        run_kind::<MigrationSpec>(scope, context.clone(), &wake, stop.clone()),
        hosted::run(scope, context.clone(), &wake, stop),
    );
}

async fn run_kind<S: WorkflowSpec>(
    scope: &Scope,
    context: Arc<Context>,
    wake: &NamespaceTrigger,
    stop: CancellationToken,
) {
    let all = scope.api::<WorkflowObject<S>>(context.clients.own());
    let controller = Controller::new(all, watcher::Config::default());
    let woken = wake.all(controller.store(), |object| !sleeps(object));
    let settings = context.controller(S::KIND.controller());
    reconciler::run(settings, controller.reconcile_on(woken), reconcile::<S>, context, stop).await;
}

/// Whether nothing that happens around it matters: it waits for its schedule, or is over and has nothing to give back.
fn sleeps<S: WorkflowSpec>(object: &WorkflowObject<S>) -> bool {
    if object.metadata.deletion_timestamp.is_some() {
        return false;
    }
    match object.status.phase() {
        Some("Scheduled") => true,
        Some("Succeeded" | "RolledBack" | "Failed" | "Cancelled") => object.finalizers().is_empty(),
        _ => false,
    }
}

/// One pass.
async fn reconcile<S: WorkflowSpec>(cached: Arc<WorkflowObject<S>>, context: Arc<Context>) -> Result<Action> {
    gather().await;
    let (namespace, name) = (cached.namespace().unwrap_or_default(), cached.name_any());
    flow::reconcile(&Workflow::<S> { context: &context, namespace, name, kind: PhantomData }).await
}
