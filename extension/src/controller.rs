//! The controller: watches one kind, decides, and runs one operation per object at a time.

use std::{convert::Infallible, sync::Arc, time::Duration};

use futures::StreamExt;
use kube::{
    Api, Client, Resource, ResourceExt,
    runtime::{
        Controller, WatchStreamExt,
        controller::{self, Action},
        reflector,
        watcher::{self, watcher},
    },
};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::{
    annotations::{SeenRequest, deletion_is_confirmed},
    backoff::{Backoff, Purpose, Retries},
    decide::{Decision, Observed, Trigger, Work, decide, summary},
    kinds::{Class, Cluster, ExtensionObject},
    operation::{Ended, Operation, release, report_unconfirmed},
    ownership::{AlwaysOwner, NotOwner, Ownership, Subject, WatchdogTiming, while_owner},
    provider::Provider,
    write::{CALL_TIMEOUT, WriteError},
};

/// From one look to the next while the Shoot has failed, or while another seed owns it.
const BLOCKED_POLL: Duration = Duration::from_secs(30);

/// Whether operations need the Cluster of the object's namespace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ClusterPolicy {
    /// An operation waits until the Cluster exists. Cluster-scoped kinds have none and do not wait.
    #[default]
    Required,
    /// An operation runs without a Cluster where there is none.
    Optional,
}

/// Settings of a controller.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Objects with another `spec.type` are left alone.
    pub provider_type: String,
    /// Objects of another class are left alone.
    pub class: Class,
    /// Finalizer of the controller; `None` takes that of Gardener's library for the kind.
    pub finalizer: Option<String>,
    /// What makes the controller act on an object whose last operation succeeded.
    pub trigger: Trigger,
    /// Whether operations need a Cluster.
    pub cluster: ClusterPolicy,
    /// Longest duration of one call of the provider.
    pub deadline: Duration,
    /// Waits between tries of an operation that fails.
    pub backoff: Backoff,
    /// How often the owner of the Shoot is asked for.
    pub watchdog: WatchdogTiming,
    /// Objects that are worked on at once.
    pub concurrency: u16,
    /// How long running operations may go on after the controller was told to stop.
    pub shutdown_grace: Duration,
}

impl Settings {
    /// Settings for objects of one type and of class `shoot`: ten minutes for an operation, ten objects at once, ten seconds to stop.
    #[must_use]
    pub fn new(provider_type: impl Into<String>) -> Self {
        Self {
            provider_type: provider_type.into(),
            class: Class::Shoot,
            finalizer: None,
            trigger: Trigger::default(),
            cluster: ClusterPolicy::default(),
            deadline: Duration::from_secs(600),
            backoff: Backoff::default(),
            watchdog: WatchdogTiming::default(),
            concurrency: 10,
            shutdown_grace: Duration::from_secs(10),
        }
    }
}

/// A controller of one kind and type.
///
/// It may run once per seed only: use a Lease where several processes could run.
pub struct ExtensionController<P> {
    client: Client,
    provider: P,
    settings: Settings,
    ownership: Arc<dyn Ownership>,
}

/// Why a pass over one object did not come to its end.
#[derive(Debug, thiserror::Error)]
enum PassError {
    #[error("failed to read the {0}")]
    Read(&'static str, #[source] kube::Error),
    #[error("the API server did not answer within {CALL_TIMEOUT:?}")]
    Timeout,
    #[error("there is no Cluster {0}")]
    NoCluster(String),
    #[error("the Cluster has no readable Shoot")]
    Shoot(#[from] serde_json::Error),
    #[error("failed to write")]
    Write(#[from] WriteError),
    #[error(transparent)]
    NotOwner(#[from] NotOwner),
    #[error("the operation failed")]
    Operation(Option<Duration>),
}

struct Shared<P> {
    client: Client,
    provider: P,
    settings: Settings,
    finalizer: String,
    ownership: Arc<dyn Ownership>,
    retries: Retries,
}

impl<P: Provider> ExtensionController<P> {
    /// A controller for objects that this seed owns by definition.
    #[must_use]
    pub fn new(client: Client, provider: P, settings: Settings) -> Self {
        Self { client, provider, settings, ownership: Arc::new(AlwaysOwner) }
    }

    /// Asks for the owner of the Shoot before and during operations. Migrations are not asked for: the flow may have given the Shoot
    /// to the other seed before.
    #[must_use]
    pub fn with_ownership(mut self, ownership: impl Ownership) -> Self {
        self.ownership = Arc::new(ownership);
        self
    }

    /// Works on all objects of the kind until `shutdown`. Dropping the future stops all operations at once.
    pub async fn run(self, shutdown: CancellationToken) {
        let Self { client, provider, settings, ownership } = self;
        let finalizer = settings.finalizer.clone();
        let finalizer = finalizer.unwrap_or_else(|| P::Object::finalizer_of(&settings.provider_type));
        let retries = Retries::new(settings.backoff);
        let (concurrency, grace) = (settings.concurrency, settings.shutdown_grace);
        let shared = Arc::new(Shared { client, provider, settings, finalizer, ownership, retries });
        let (reader, writer) = reflector::store();
        let objects = watcher(P::Object::api(shared.client.clone(), None), watcher::Config::default())
            .default_backoff()
            .modify(P::Object::drop_large_fields)
            .reflect(writer)
            .applied_objects();
        let controller = Controller::for_stream(objects, reader)
            .with_config(controller::Config::default().concurrency(concurrency))
            .graceful_shutdown_on(shutdown.clone().cancelled_owned())
            .run(reconcile, |_, never: &Infallible, _| match *never {}, shared)
            .for_each(async |outcome| match outcome {
                // It was deleted between the request and the reconcile.
                Ok(_) | Err(controller::Error::ObjectNotFound(_)) => {}
                Err(error) => tracing::warn!(error = causes(&error), "a watch failed, watching again"),
            });
        let stop = async {
            shutdown.cancelled().await;
            sleep(grace).await;
        };
        tokio::select! {
            () = controller => {}
            () = stop => tracing::warn!("operations did not end in time and are stopped"),
        }
    }
}

async fn reconcile<P: Provider>(
    object: Arc<P::Object>,
    shared: Arc<Shared<P>>,
) -> Result<Action, Infallible> {
    let uid = object.uid().unwrap_or_default();
    if !shared.is_responsible(&object) || matches!(shared.decide(&object), Decision::Skip(_)) {
        shared.retries.forget(&uid);
        return Ok(Action::await_change());
    }
    if let Some(wait) = shared.retries.wait(&uid, &purpose(&*object)) {
        return Ok(Action::requeue(wait));
    }
    let error = match shared.pass(&object).await {
        Ok(action) => {
            shared.retries.forget(&uid);
            return Ok(action);
        }
        Err(error) => error,
    };
    let name = object.name_any();
    if let PassError::NotOwner(reason) = &error {
        tracing::warn!(%name, %reason, "nothing is done, requeueing");
        return Ok(Action::requeue(shared.settings.watchdog.interval));
    }
    let asked = if let PassError::Operation(asked) = error { asked } else { None };
    let wait = shared.retries.failed(&uid, purpose(&*object), asked);
    tracing::warn!(%name, error = causes(&error), ?wait, "reconcile failed, requeueing");
    Ok(Action::requeue(wait))
}

/// An error with everything below it.
fn causes(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}

fn purpose<K: ExtensionObject>(object: &K) -> Purpose {
    Purpose {
        generation: object.meta().generation.unwrap_or_default(),
        request: SeenRequest::of(object),
        deleting: object.meta().deletion_timestamp.is_some(),
        confirmed: deletion_is_confirmed(object),
    }
}

impl<P: Provider> Shared<P> {
    fn is_responsible(&self, object: &P::Object) -> bool {
        object.provider_type() == self.settings.provider_type && object.class() == self.settings.class
    }

    fn decide(&self, object: &P::Object) -> Decision {
        let status = object.status();
        let generation = object.meta().generation.unwrap_or_default();
        let observed = Observed {
            requested: SeenRequest::of(object).requested(),
            deleting: object.meta().deletion_timestamp.is_some(),
            confirmed: deletion_is_confirmed(object),
            finalizer: object.finalizers().contains(&self.finalizer),
            last: summary(status.last_operation),
            generation_changed: generation != status.observed_generation,
            has_state: status.state.is_some_and(|state| !state.is_null()),
        };
        decide(&observed, self.settings.trigger)
    }

    /// Reads the object anew, because the watch may be late, and does what is due.
    async fn pass(&self, cached: &P::Object) -> Result<Action, PassError> {
        let api = P::Object::api(self.client.clone(), cached.namespace().as_deref());
        let Some(object) = get("object", &api, &cached.name_any()).await? else {
            return Ok(Action::await_change());
        };
        let done = match self.decide(&object) {
            Decision::Skip(_) => Ok(()),
            Decision::ReleaseFinalizer => release(&self.client, object, &self.finalizer).await,
            Decision::ReportUnconfirmed => {
                self.fenced(&object.clone(), report_unconfirmed(&self.client, object)).await?
            }
            Decision::Run { work, recorded } => {
                let Some(cluster) = self.cluster(&object).await? else {
                    return Ok(Action::requeue(BLOCKED_POLL));
                };
                let operation = Operation {
                    client: &self.client,
                    provider: &self.provider,
                    finalizer: &self.finalizer,
                    deadline: self.settings.deadline,
                    cluster: cluster.0,
                    work,
                    recorded,
                };
                self.operate(operation, object).await?
            }
        };
        match done {
            Ok(()) | Err(WriteError::Gone) => Ok(Action::await_change()),
            Err(error) => Err(error.into()),
        }
    }

    async fn operate(
        &self,
        operation: Operation<'_, P>,
        object: P::Object,
    ) -> Result<Result<(), WriteError>, PassError> {
        // A migration touches no infrastructure, and the other seed may own the Shoot already: in the good case the flow deletes the
        // owner record before extensions are migrated, and in the bad case the namespace is cleaned up after the loss.
        let ended = match operation.work {
            Work::Migrate => operation.run(object).await,
            Work::Reconcile | Work::Restore | Work::Delete => {
                self.fenced(&object.clone(), operation.run(object)).await?
            }
        };
        match ended {
            Ok(Ended::Succeeded) => Ok(Ok(())),
            Ok(Ended::Failed(asked)) => Err(PassError::Operation(asked)),
            Err(error) => Ok(Err(error)),
        }
    }

    async fn fenced<T>(&self, object: &P::Object, operation: impl Future<Output = T>) -> Result<T, NotOwner> {
        let kind = P::Object::kind(&());
        let (namespace, name) = (object.namespace(), object.name_any());
        let subject = Subject { kind: &kind, namespace: namespace.as_deref(), name: &name };
        while_owner(&*self.ownership, self.settings.watchdog, subject, operation).await
    }

    /// The Cluster of the object; `None` where the Shoot has failed, so nothing may be done.
    async fn cluster(&self, object: &P::Object) -> Result<Option<OptionalCluster>, PassError> {
        let Some(namespace) = object.namespace() else { return Ok(Some(OptionalCluster(None))) };
        let api = Api::<Cluster>::all(self.client.clone());
        match get("Cluster", &api, &namespace).await? {
            Some(cluster) if cluster.shoot_has_failed()? => Ok(None),
            None if self.settings.cluster == ClusterPolicy::Required => Err(PassError::NoCluster(namespace)),
            found => Ok(Some(OptionalCluster(found))),
        }
    }
}

/// The Cluster of an object, where there is one.
struct OptionalCluster(Option<Cluster>);

async fn get<K>(what: &'static str, api: &Api<K>, name: &str) -> Result<Option<K>, PassError>
where
    K: Resource + Clone + std::fmt::Debug + serde::de::DeserializeOwned,
{
    let call = timeout(CALL_TIMEOUT, api.get_opt(name)).await.map_err(|_| PassError::Timeout)?;
    call.map_err(|error| PassError::Read(what, error))
}
