//! The operator of `druid.gardener.cloud/v1alpha1 Etcd`.
//!
//! A pass reads everything of one Etcd from kube-apiserver itself, asks `repot_etcd_core::operator` what becomes of the
//! StatefulSet, and writes. Nothing is deleted or created before it was looked once more whether the Etcd still asks for it, and
//! only under the UID and version that were seen. It is the only writer of what it makes, under one field manager.
//!
//! It may not touch volumes of a set that is not in use, nor anything that another controller made under one of its names.

pub mod access;
mod act;
pub mod agents;
pub mod api;
pub mod copy;
mod copy_progress;
mod copy_state;
mod departure;
mod error;
mod events;
mod findings;
mod gateways;
mod leases;
mod membership;
pub mod metrics;
pub mod names;
mod observe;
mod pass;
pub mod render;
mod report;
mod rolling;
pub mod status;

use std::{sync::Arc, time::Duration};

use jiff::Timestamp;
use k8s_openapi::api::{
    apps::v1::StatefulSet,
    batch::v1::Job,
    core::v1::{ConfigMap, Pod},
};
use kube::{
    Client, Resource, ResourceExt,
    runtime::{Controller, controller, controller::Action, reflector::ObjectRef, watcher},
};
use repot_apimachinery::time::Time;
use repot_etcd_core::operator::{Next, decide};
use tokio_util::sync::CancellationToken;

use crate::{
    errors::causes,
    events::EventPublisher,
    local_stores::LocalStores,
    members::Outcome,
    metrics::Metrics,
    namespaces::{Namespaces, Scope},
    reconciler::{self, Settings},
    term::LeaseDeadline,
};
use api::Etcd;
pub use error::{Error, Result};
use membership::{MembershipStatus, Memberships};
use metrics::EtcdMetrics;
use observe::Observed;
use pass::Pass;
use render::Layout;
use status::LastError;

/// From one look to the next, while nothing happens.
const REST: Duration = Duration::from_secs(30);
/// The same while something is waited for.
const HASTE: Duration = Duration::from_secs(5);
/// The same between changes of membership: connections that are not looked at for longer are taken for broken.
const SOON: Duration = Duration::from_secs(1);
/// After a change of membership: the next one may be due.
const AT_ONCE: Duration = Duration::from_millis(50);
/// After somebody else was quicker.
const AGAIN: Duration = Duration::from_millis(500);
/// Etcds that are worked on at once.
const CONCURRENCY: u16 = 16;

/// What an operator is told.
#[derive(Clone, Debug)]
pub struct Options {
    /// Image of members and Jobs, with `repot`, `etcd` and `etcdutl`.
    pub image: String,
    /// Where Etcds are looked after.
    pub namespaces: Namespaces,
    /// Which directories stores with the provider `Local` may use.
    pub local_stores: LocalStores,
    /// How long members may be changed; the client has to follow it, too.
    pub term: LeaseDeadline,
    /// Where reconciles are counted.
    pub metrics: Metrics,
    /// Where Etcds are counted.
    pub etcds: EtcdMetrics,
}

struct Context {
    client: Client,
    options: Options,
    memberships: Memberships,
    events: EventPublisher,
}

/// Looks after all Etcds until `shutdown`. Only one operator may run at a time.
pub async fn run(client: Client, options: Options, shutdown: CancellationToken) {
    let memberships = Memberships::new(options.term.clone());
    let events = EventPublisher::new(client.clone(), names::MANAGER, None);
    let scopes = options.namespaces.scopes();
    let context = Arc::new(Context { client, options, memberships, events });
    let each = scopes.iter().map(|scope| run_in(scope, context.clone(), shutdown.clone()));
    futures::future::join_all(each).await;
}

async fn run_in(scope: &Scope, context: Arc<Context>, shutdown: CancellationToken) {
    let config = || watcher::Config::default();
    let ours = || config().labels(&format!("{}={}", names::MANAGED_BY, names::MANAGED_BY_REPOT));
    let client = &context.client;
    let controller = Controller::new(scope.api::<Etcd>(client), config())
        .owns(scope.api::<StatefulSet>(client), ours())
        .owns(scope.api::<ConfigMap>(client), ours())
        .owns(scope.api::<Job>(client), config())
        .watches(scope.api::<Pod>(client), ours(), of_pod)
        .with_config(controller::Config::default().concurrency(CONCURRENCY));
    context.options.etcds.add_store(controller.store());
    let metrics = context.options.metrics.clone();
    let settings = Settings { name: "etcd", after_conflict: AGAIN, after_error: HASTE, metrics };
    reconciler::run(settings, controller, reconcile, context, shutdown).await;
}

/// The Etcd of a Pod: StatefulSets own Pods, and they may be gone before them.
fn of_pod(pod: Pod) -> Option<ObjectRef<Etcd>> {
    let etcd = pod.labels().get(names::PART_OF)?;
    Some(ObjectRef::new(etcd).within(&pod.namespace()?))
}

async fn reconcile(etcd: Arc<Etcd>, context: Arc<Context>) -> Result<Action> {
    let (namespace, name) = (etcd.namespace().unwrap_or_default(), etcd.name_any());
    let Some(mut observed) = observe::observe(&context.client, &namespace, &name).await? else {
        context.memberships.forget(&etcd);
        return Ok(Action::await_change());
    };
    // What is made goes with it, by garbage collection. Only members of an etcd that goes on elsewhere have to leave it first.
    if observed.is_ending() && !observed.is_held() {
        return Ok(Action::await_change());
    }
    observed.progress = copy_progress::observe(&context.client, &observed, Timestamp::now()).await?;
    match pass(&context, &observed).await {
        Ok(done) => Ok(Action::requeue(again(&observed, &done))),
        Err(error) => {
            record_last_error(&context, &observed, &error).await;
            Err(error)
        }
    }
}

/// What a pass did.
struct Done {
    next: Next,
    known: Option<MembershipStatus>,
}

async fn pass(context: &Context, observed: &Observed) -> Result<Done> {
    let source = copy_state::source(observed);
    let mut next = decide(&observed.seen(None, source.clone(), departure::may_be_needed(observed)));
    let mut known = None;
    if asks_members(observed, &next) {
        known = context.memberships.ask(&context.client, observed).await?;
        let said = known.as_ref().map_or(&[][..], |known| known.said.as_slice());
        context.options.etcds.record_verdicts(&observed.etcd, said);
        let pods = known.as_ref().and_then(|known| departure::pods(observed, known));
        next = decide(&observed.seen(pods, source, departure::is_needed(observed, known.as_ref())));
    }
    check_local_stores(context, observed, &next)?;
    events::log(observed, &next);
    let bound = departure::is_bound(observed, known.as_ref());
    if bound && !observed.is_held() {
        act::hold(&context.client, &observed.etcd, true).await?;
    }
    // What is decided is written down before it is done. Whoever reads there that others need this etcd finds it protected.
    let mut status = report::status(&Pass { observed, next: &next, known: known.as_ref(), now: now() });
    // What went wrong stands there until a pass came through: each change of the status begins another pass.
    let wrong = observed.status().last_errors;
    status.last_errors.clone_from(&wrong);
    act::record(&context.client, &observed.etcd, &status).await?;
    let news = events::changes(&observed.status(), &status, &next, known.as_ref());
    let about = observed.etcd.object_ref(&());
    for event in news {
        context.events.publish(&about, event).await;
    }
    act(context, observed, &next, known.as_ref()).await?;
    if !bound && observed.is_held() {
        act::hold(&context.client, &observed.etcd, false).await?;
    }
    if !wrong.is_empty() {
        status.last_errors.clear();
        act::record(&context.client, &observed.etcd, &status).await?;
    }
    Ok(Done { next, known })
}

/// Refuses stores on directories that are not allowed, before anything that mounts them is made or changed. Members may be stopped.
fn check_local_stores(context: &Context, observed: &Observed, next: &Next) -> Result<()> {
    let spec = &observed.etcd.spec;
    if spec.replicas == 0 && matches!(next, Next::Stop(_) | Next::Rest) {
        return Ok(());
    }
    for (field, store) in spec.backup.local_stores() {
        let checked = context.options.local_stores.check(&store.container, &store.prefix);
        checked.map_err(|error| Error::LocalStore(field, error))?;
    }
    Ok(())
}

/// Members are asked while they are to run, and before they leave another etcd.
fn asks_members(observed: &Observed, next: &Next) -> bool {
    match next {
        Next::Run { .. } => true,
        Next::Wait(why) => why.reason == "NoMemberAnswers" && observed.existing().is_some(),
        Next::Stop(_) | Next::Rest | Next::Copy(_) => false,
    }
}

async fn act(
    context: &Context,
    observed: &Observed,
    next: &Next,
    known: Option<&MembershipStatus>,
) -> Result<()> {
    let client = &context.client;
    match next {
        Next::Stop(_) => act::stop(client, observed).await,
        Next::Copy(_) => {
            // They may wait for ever for an owner that nobody names any more.
            for job in &observed.stale_copies {
                tracing::info!(
                    job = job.name_any(),
                    "deleting a Job that copies for an earlier owner or store"
                );
                act::delete(client, job).await?;
            }
            let job = copy::job(&observed.etcd, &context.options.image).filter(|_| observed.copy.is_none());
            match job {
                Some(job) => act::run_job(client, &observed.etcd, &job).await,
                None => Ok(()),
            }
        }
        Next::Run { members } => {
            act::run(client, observed, &layout(context, observed, *members)).await?;
            // Leases only tell others, so they hold up nothing.
            if let Err(error) = leases::renew(client, observed, *members, known).await {
                tracing::warn!(
                    etcd = observed.etcd.name_any(),
                    error = causes(&error),
                    "Leases of members are not renewed"
                );
            }
            for claim in known.map(|known| known.claims_to_delete(observed)).unwrap_or_default() {
                tracing::info!(claim = claim.name_any(), "deleting the volume of a member that was removed");
                act::delete_claim(client, claim).await?;
            }
            replace(context, observed, *members, known).await
        }
        Next::Wait(_) | Next::Rest => Ok(()),
    }
}

/// Replaces a Pod of an earlier template, once no client is at its member.
async fn replace(
    context: &Context,
    observed: &Observed,
    members: u32,
    known: Option<&MembershipStatus>,
) -> Result<()> {
    let Some((at, pod)) = rolling::to_replace(observed, members, known) else { return Ok(()) };
    let name = pod.name_any();
    if let Some(why) = context.memberships.vacate(&context.client, observed, known, at).await? {
        tracing::info!(pod = name, why, "a Pod of an earlier template stays a little longer");
        return Ok(());
    }
    tracing::info!(pod = name, "replacing a Pod of an earlier template");
    act::delete(&context.client, pod).await
}

fn layout(context: &Context, observed: &Observed, members: u32) -> Layout {
    Layout {
        image: context.options.image.clone(),
        members,
        founded: observed.is_founded(),
        existing: observed.existing(),
        standby: observed.stands_by(),
        exists: observed.set.clone(),
    }
}

/// When to look again if nothing happens.
fn again(observed: &Observed, done: &Done) -> Duration {
    let outcome = done.known.as_ref().and_then(|known| known.outcome.as_ref());
    match (&done.next, outcome) {
        (Next::Rest, _) => REST,
        (Next::Run { .. }, Some(Outcome::Changed(_))) => AT_ONCE,
        (Next::Run { .. }, Some(Outcome::Waiting(_) | Outcome::Refused(_))) => SOON,
        (Next::Run { members }, _) => {
            let ready = (0..*members).all(|at| observed.pod(at).is_some_and(observe::is_ready));
            // Who they are is asked once they are all known to carry a cluster.
            let asked = done.known.as_ref().is_some_and(|known| known.seen.is_some());
            if ready && asked { REST } else { HASTE }
        }
        (Next::Stop(_) | Next::Wait(_) | Next::Copy(_), _) => HASTE,
    }
}

/// An error is told where people look for it, unless it is that somebody was quicker.
async fn record_last_error(context: &Context, observed: &Observed, error: &Error) {
    let (namespace, etcd) = (observed.etcd.namespace().unwrap_or_default(), observed.etcd.name_any());
    let Some(code) = error.code() else { return };
    let description = causes(error);
    let mut status = observed.status();
    let known = status.last_errors.iter().find(|last| last.description == description).cloned();
    let fresh = || LastError { code: code.to_owned(), description, observed_at: now().to_rfc3339() };
    status.last_errors = vec![known.unwrap_or_else(fresh)];
    // If that cannot be written either, the log has it.
    if let Err(error) = act::record(&context.client, &observed.etcd, &status).await {
        tracing::debug!(namespace, etcd, %error, "the error could not be written to the status");
    }
}

fn now() -> Time {
    Time(u64::try_from(Timestamp::now().as_second()).unwrap_or_default())
}
