//! EtcdBackup, EtcdRestore and EtcdMigration: what `repot_plan` decides is done, one pass at a time.
//!
//! A pass looks at everything ([`observe`]), asks the plan, stores what it says ([`record`]) and only then asks for effects
//! ([`act`]). It never waits: it ends, and the next event in the namespace or the requeue brings the next one. Whatever it
//! knows is in the status of the workflow's object and in the world, so any other process can take over after any line.
//!
//! | module | does |
//! |---|---|
//! | [`kinds`] | kinds, and names on objects |
//! | [`site`] | one hosted etcd as kube-apiserver has it |
//! | [`members`] | what its members hold |
//! | [`shelf`], [`jobs`] | its backups, and the Jobs that take and prove them |
//! | [`observe`] | all of that as the world of the plan |
//! | [`act`] | effects as calls |
//! | [`record`] | the ledger as status and events |
//! | [`hosted`] | the HostedEtcd's own status |
//! | [`wake`] | who is woken by what |

pub mod act;
pub mod hosted;
pub mod jobs;
pub mod kinds;
pub mod members;
pub mod observe;
pub mod record;
pub mod shelf;
pub mod site;
pub mod wake;

use std::{sync::Arc, time::Duration};

use futures::StreamExt;
use kube::{
    Api, Client, ResourceExt,
    api::DynamicObject,
    runtime::{
        Controller,
        controller::{self, Action},
        events::{Recorder, Reporter},
        watcher,
    },
};
use repot_etcd::backup::place::Place;
use repot_plan::{
    etcd::{EtcdFlow, EtcdLedger, backup},
    flow::{self, Decision, Input},
    ledger::Phase,
    status::from_status,
    time::Time,
};
use tokio_util::sync::CancellationToken;

use crate::{
    local_stores::{self, LocalStores},
    namespaces::{Namespaces, Scope},
    term::{Over, Term},
};
use act::Actor;
use kinds::{Kind, MANAGER};
use observe::Observation;
use wake::Wake;

/// How long a store may take for its answer.
const STORE_ANSWER: Duration = Duration::from_secs(20);
/// After a pass that did not come to its end.
const AGAIN: Duration = Duration::from_secs(5);
/// After somebody else was faster.
const AT_ONCE: Duration = Duration::from_secs(1);
/// Events of the same moment bring one pass.
const DEBOUNCE: Duration = Duration::from_millis(200);
/// A status that cannot be read is looked at again.
const RARELY: Duration = Duration::from_secs(300);

/// Why a pass, or a part of it, came to nothing.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// kube-apiserver did not give what was asked for.
    #[error("failed to read {what}")]
    Read {
        /// What.
        what: String,
        /// Why.
        #[source]
        source: kube::Error,
    },
    /// kube-apiserver refused a change.
    #[error("failed to {task}")]
    Write {
        /// What was to be done.
        task: &'static str,
        /// Why.
        #[source]
        source: kube::Error,
    },
    /// Something that is needed is not there.
    #[error("{0} is missing")]
    Missing(String),
    /// Backups cannot be read or removed.
    #[error(transparent)]
    Backups(#[from] repot_etcd::backup::Error),
    /// A store uses a directory that it may not use.
    #[error("the store is refused")]
    LocalStore(#[from] local_stores::Error),
    /// The store does not answer.
    #[error("the store gives no answer within {STORE_ANSWER:?}")]
    SilentStore,
    /// Members cannot be connected to.
    #[error("failed to connect to the members")]
    Connect(#[source] etcd_client::Error),
    /// Members do not answer.
    #[error("no member that is ready, or no answer in time")]
    NoQuorum,
    /// What members hold cannot be read.
    #[error(transparent)]
    Digest(#[from] repot_etcd::digest::Error),
    /// The etcd is run by a StatefulSet of somebody else.
    #[error("the HostedEtcd refers to a StatefulSet; only the members of an Etcd can be made anew")]
    Unmanaged,
    /// Somebody else may act.
    #[error(transparent)]
    Over(#[from] Over),
    /// A rendered object is none.
    #[error("a Job could not be rendered")]
    Render(#[source] serde_json::Error),
}

impl Error {
    /// Somebody changed the object meanwhile.
    #[must_use]
    pub fn is_conflict(&self) -> bool {
        matches!(self, Self::Write { source: kube::Error::Api(status), .. } if status.code == 409)
    }
}

/// The result of this module's calls.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What all passes share.
pub struct Context {
    /// kube-apiserver.
    pub client: Client,
    /// The image of Jobs, with `repot`, `etcd` and `etcdutl`.
    pub image: String,
    /// Publishes events.
    pub events: Recorder,
    /// What members held when they were last asked.
    pub digests: members::Digests,
    /// Backups that do not change any more.
    pub settled: shelf::Settled,
    /// Which directories stores with the provider `Local` may use.
    pub local_stores: LocalStores,
    /// How long backups may be removed; the client has to follow it, too.
    pub term: Term,
}

impl Context {
    /// For a client; `instance` is the name of this process in events.
    #[must_use]
    pub fn new(
        client: Client,
        image: String,
        instance: String,
        local_stores: LocalStores,
        term: Term,
    ) -> Self {
        let reporter = Reporter { controller: MANAGER.to_owned(), instance: Some(instance) };
        let events = Recorder::new(client.clone(), reporter);
        let (digests, settled) = (members::Digests::default(), shelf::Settled::default());
        Self { client, image, events, digests, settled, local_stores, term }
    }

    /// Checks that a store uses no directory that it may not use.
    ///
    /// # Errors
    /// [`Error::LocalStore`].
    pub fn check_store(&self, place: &Place) -> Result<()> {
        match place.directory() {
            Some(directory) => Ok(self.local_stores.check(&directory, &place.prefix)?),
            None => Ok(()),
        }
    }

    /// The time.
    #[must_use]
    pub fn now(&self) -> Time {
        Time(u64::try_from(jiff::Timestamp::now().as_second()).unwrap_or_default())
    }
}

/// An error with everything below it.
pub(crate) fn causes(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}

/// Runs all workflows and HostedEtcds of these namespaces until `stop`.
pub async fn run(context: Context, namespaces: &Namespaces, stop: CancellationToken) {
    let context = Arc::new(context);
    let scopes = namespaces.scopes();
    let each = scopes.iter().map(|scope| run_in(scope, context.clone(), stop.clone()));
    futures::future::join_all(each).await;
}

async fn run_in(scope: &Scope, context: Arc<Context>, stop: CancellationToken) {
    let wake = Wake::start(&context.client, scope, &stop);
    let [backups, restores, migrations] =
        Kind::ALL.map(|kind| run_kind(kind, scope, context.clone(), &wake, stop.clone()));
    tokio::join!(backups, restores, migrations, hosted::run(scope, context.clone(), &wake, stop));
}

async fn run_kind(kind: Kind, scope: &Scope, context: Arc<Context>, wake: &Wake, stop: CancellationToken) {
    let resource = kind.resource();
    let all = scope.api_with::<DynamicObject>(&context.client, &resource);
    let controller = Controller::new_with(all, watcher::Config::default(), resource.clone());
    let woken = wake.all(controller.store(), resource, |object| !sleeps(object));
    controller
        .with_config(controller::Config::default().debounce(DEBOUNCE))
        .reconcile_on(woken)
        .graceful_shutdown_on(async move { stop.cancelled().await })
        .run(
            move |object, context| reconcile(kind, object, context),
            |object, error, _| {
                let error = causes(error);
                tracing::warn!(name = object.name_any(), error, "a pass came to nothing and is repeated");
                Action::requeue(AGAIN)
            },
            context,
        )
        .for_each(|_| std::future::ready(()))
        .await;
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
    let (namespace, name) = (cached.namespace().unwrap_or_default(), cached.name_any());
    let all = Api::<DynamicObject>::namespaced_with(context.client.clone(), &namespace, &kind.resource());
    let what = || format!("{} {namespace}/{name}", kind.name());
    let found = all.get_opt(&name).await.map_err(|source| Error::Read { what: what(), source })?;
    let Some(object) = found else { return Ok(Action::await_change()) };
    let before = match from_status(kind.plans(), &kinds::status(&object)) {
        Ok(ledger) => ledger,
        Err(error) => {
            tracing::error!(workflow = what(), %error, "its status cannot be read, and it is left alone");
            let event = record::event(true, "StatusUnreadable", &error.to_string());
            record::publish(&context, kind, &object, event).await;
            return Ok(Action::requeue(RARELY));
        }
    };
    let now = context.now();
    let observed = observe::observe(&context, kind, &object, &before, now).await?;
    let decision = decide(kind, &object, &observed, &before, now);
    let object = match &decision.records {
        None => object,
        Some(next) => match record::record(&context, kind, &object, &observed, (&before, next)).await {
            // The next pass reads what it is now.
            Err(error) if error.is_conflict() => return Ok(Action::requeue(AT_ONCE)),
            other => other?,
        },
    };
    let missed =
        act_all(&Actor { context: &context, kind, object: &object, observed: &observed }, &decision).await;
    let requeue = if missed { Some(AT_ONCE) } else { decision.requeue };
    Ok(requeue.map_or_else(Action::await_change, Action::requeue))
}

fn decide(
    kind: Kind,
    object: &DynamicObject,
    observed: &Observation,
    before: &EtcdLedger,
    now: Time,
) -> Decision<EtcdFlow> {
    let makes_anew = matches!(kind, Kind::Restore | Kind::Migration);
    let unmanaged = observed.site.as_ref().is_some_and(|site| !site::is_etcd(&site.hosted));
    if makes_anew && unmanaged && before.phase == Phase::Pending {
        return refused(before, now);
    }
    let input = Input::alone(&observed.facts, before, now);
    match kind {
        Kind::Backup => backup::decide(&kinds::backup_spec(object), &input),
        Kind::Restore | Kind::Migration => flow::decide(kind.plans(), &input),
    }
}

/// Nothing was begun, and nothing will be: it would only fail once the API servers are stopped.
fn refused(before: &EtcdLedger, now: Time) -> Decision<EtcdFlow> {
    let records = EtcdLedger {
        phase: Phase::Failed,
        reason: "NotManaged".to_owned(),
        message: format!("{}; let it refer to an Etcd. Nothing was changed", Error::Unmanaged),
        started: Some(now),
        completed: Some(now),
        ..before.clone()
    };
    Decision { effects: Vec::new(), records: Some(records), requeue: None }
}

/// Asks for all effects; whether one of them was decided on what is out of date.
async fn act_all(actor: &Actor<'_>, decision: &Decision<EtcdFlow>) -> bool {
    let mut missed = false;
    for effect in &decision.effects {
        let name = actor.object.name_any();
        let Err(error) = actor.act(effect).await else {
            tracing::info!(kind = actor.kind.name(), name, ?effect, "asked for");
            continue;
        };
        if error.is_conflict() {
            missed = true;
            continue;
        }
        let error = causes(&error);
        tracing::warn!(kind = actor.kind.name(), name, ?effect, error, "an effect was not to be had");
        let event = record::event(true, "EffectFailed", &error);
        record::publish(actor.context, actor.kind, actor.object, event).await;
    }
    missed
}
