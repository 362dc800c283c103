//! EtcdBackup, EtcdRestore and EtcdMigration: what `repot_plan` decides is done, one pass at a time.
//!
//! A pass is that of all flows ([`crate::flow`]): it observes everything ([`observe`]), asks the plan, stores what it says
//! ([`record`]) and only then requests effects ([`act`]).
//!
//! | module | does |
//! |---|---|
//! | [`kinds`] | kinds, and names on objects |
//! | [`site`] | one hosted etcd as kube-apiserver has it |
//! | [`members`] | what its members hold |
//! | [`shelf`], [`jobs`] | its backups, and the Jobs that take and prove them |
//! | [`observe`] | all of that as the plan sees it |
//! | [`act`] | effects as calls |
//! | `histories` | which histories of snapshots the volumes of an etcd have |
//! | [`driver`] | all of these as a driver of the flow |
//! | [`record`] | the ledger as status and events |
//! | [`hosted`] | the HostedEtcd's own status |
//! | [`wake`] | who is woken by what |

pub mod act;
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
pub mod shelf;
pub mod site;
pub mod wake;

use std::sync::Arc;

use kube::{
    ResourceExt,
    api::DynamicObject,
    runtime::{Controller, controller::Action, watcher},
};
use tokio_util::sync::CancellationToken;

use crate::{
    flow,
    namespaces::{Namespaces, Scope},
    reconciler,
};
pub use context::Context;
use context::gather;
use driver::Workflow;
pub use error::{Error, Result};
use kinds::Kind;
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
    let [backups, restores, migrations] =
        Kind::ALL.map(|kind| run_kind(kind, scope, context.clone(), &wake, stop.clone()));
    tokio::join!(backups, restores, migrations, hosted::run(scope, context.clone(), &wake, stop));
}

async fn run_kind(
    kind: Kind,
    scope: &Scope,
    context: Arc<Context>,
    wake: &NamespaceTrigger,
    stop: CancellationToken,
) {
    let resource = kind.resource();
    let all = scope.api_with::<DynamicObject>(context.clients.own(), &resource);
    let controller = Controller::new_with(all, watcher::Config::default(), resource.clone());
    let woken = wake.all(controller.store(), resource, |object| !sleeps(object));
    let settings = context.controller(kind.controller());
    let reconcile = move |object, context| reconcile(kind, object, context);
    reconciler::run(settings, controller.reconcile_on(woken), reconcile, context, stop).await;
}

/// Whether nothing that happens around it matters: it waits for its schedule, or is over and has nothing to give back.
fn sleeps(object: &DynamicObject) -> bool {
    if object.metadata.deletion_timestamp.is_some() {
        return false;
    }
    match kinds::text(object, "/status/phase") {
        Some("Scheduled") => true,
        Some("Succeeded" | "RolledBack" | "Failed" | "Cancelled") => object.finalizers().is_empty(),
        _ => false,
    }
}

/// One pass.
async fn reconcile(kind: Kind, cached: Arc<DynamicObject>, context: Arc<Context>) -> Result<Action> {
    gather().await;
    let (namespace, name) = (cached.namespace().unwrap_or_default(), cached.name_any());
    flow::reconcile(&Workflow { context: &context, kind, namespace, name }).await
}
