//! The controller of a seed that keeps the ShootStates of its Shoots up to date.

use std::{collections::HashMap, sync::Arc, time::Duration};

use k8s_openapi::api::core::v1::ObjectReference;
use kube::{Client, core::ObjectMeta};
use parking_lot::Mutex;
use serde::Deserialize;
use tokio::{
    sync::OnceCell,
    task::{Id, JoinSet},
    time::{Instant, interval_at, sleep_until, timeout},
};
use tokio_util::sync::CancellationToken;

use super::{
    collect::collect_parts,
    decide::{Decision, Shoot, decide},
    difference::Mode,
    error::{Error, Result},
    kinds::CLUSTER,
    list::get,
    load::Load,
    metrics::StateMetrics,
    parts::Parts,
    queue::Timing,
    watches::{self, Changes, shoots},
    write::{ShootKey, ShootStates, Synced},
};
use crate::{
    errors::causes,
    events::{EventContent, EventPublisher},
    metrics::{Metrics, ReconcileResult},
    reconciler::ReconcileError,
};

/// The name of the controller in metrics, logs and Events.
pub const CONTROLLER: &str = "shootstate";
/// A synchronization that takes longer is given up and repeated.
const DEADLINE: Duration = Duration::from_secs(300);
/// How long a synchronization may go on when the process is to stop.
const GRACE: Duration = Duration::from_secs(5);

/// What the controller works with.
#[derive(Clone)]
pub struct Context {
    /// Client of the seed.
    pub seed: Client,
    /// Client of the garden.
    pub garden: Client,
    /// Name of the Seed.
    pub seed_name: String,
    /// Publishes Events on Shoots in the garden.
    pub events: EventPublisher,
    /// Where synchronizations are counted.
    pub metrics: Metrics,
    /// How far ShootStates are behind, and how much is written.
    pub states: StateMetrics,
    /// How long changes are gathered and failures wait.
    pub timing: Timing,
}

impl Context {
    /// With usual timing; `instance` is the name of this process in Events.
    #[must_use]
    pub fn new(
        seed: Client,
        garden: Client,
        seed_name: String,
        (metrics, states): (Metrics, StateMetrics),
        instance: String,
    ) -> Self {
        let events = EventPublisher::new(garden.clone(), "repot-shootstate", Some(instance));
        Self { seed, garden, seed_name, events, metrics, states, timing: Timing::default() }
    }
}

/// What all synchronizations share.
struct Controller {
    context: Context,
    changes: Arc<Changes>,
    shoot_states: OnceCell<ShootStates>,
    load: Mutex<Load>,
}

/// The synchronizations that run, and what each has written.
#[derive(Default)]
struct Running {
    tasks: JoinSet<Option<u32>>,
    names: HashMap<Id, String>,
}

/// A Shoot as the Cluster of its namespace has it.
#[derive(Deserialize)]
struct Cluster {
    spec: ClusterSpec,
}

#[derive(Deserialize)]
struct ClusterSpec {
    shoot: ClusterShoot,
}

#[derive(Deserialize)]
struct ClusterShoot {
    metadata: ObjectMeta,
}

/// Keeps the ShootStates of all Shoots of a seed up to date until `stop`, and ends seconds later.
///
/// Every Shoot is compared once at the start; only what differs is written.
pub async fn run(context: Context, stop: CancellationToken) {
    context.metrics.init_controller(CONTROLLER);
    let changes = Arc::new(Changes::new(context.timing));
    let watches = watches::start(&context.seed, &context.garden, &context.seed_name, &changes);
    let resync = context.timing.resync;
    let mut resync = interval_at(Instant::now() + resync, resync);
    let controller = Arc::new(Controller {
        context,
        changes: changes.clone(),
        shoot_states: OnceCell::new(),
        load: Mutex::default(),
    });
    let mut running = Running::default();
    loop {
        running.start_due(&controller);
        controller.context.states.set_pending(changes.queue.lock().len());
        let next = changes.queue.lock().next_due().filter(|_| controller.load.lock().has_room());
        let due = async {
            match next {
                Some(next) => sleep_until(next).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = stop.cancelled() => break,
            Some(ended) = running.tasks.join_next_with_id() => {
                let (id, written) = ended.unwrap_or_else(|error| (error.id(), None));
                let name = running.names.remove(&id).unwrap_or_default();
                controller.load.lock().end(&name);
                let lag = changes.queue.lock().end(&name, written.is_some(), Instant::now());
                lag.filter(|_| written != Some(0)).into_iter().for_each(|lag| controller.context.states.count_lag(lag));
            }
            () = changes.woken.notified() => {}
            () = due => {}
            _ = resync.tick() => {
                controller.load.lock().retain(|namespace| changes.has(namespace));
                changes.touch_all();
            }
        }
    }
    drop(watches);
    end(&mut running.tasks).await;
}

/// Lets synchronizations end, and gives up those that do not: each writes by one request, which is carried out as a whole or not at all.
async fn end(tasks: &mut JoinSet<Option<u32>>) {
    let ended = async { while tasks.join_next().await.is_some() {} };
    if timeout(GRACE, ended).await.is_err() {
        tracing::warn!(controller = CONTROLLER, running = tasks.len(), "stopping, reconciles are given up");
        tasks.shutdown().await;
    }
}

impl Running {
    fn start_due(&mut self, controller: &Arc<Controller>) {
        while controller.load.lock().has_room() {
            let due = controller.changes.queue.lock().start(Instant::now());
            let Some((namespace, parts)) = due else { return };
            controller.load.lock().start(&namespace);
            let (controller, name) = (controller.clone(), namespace.clone());
            let task = self.tasks.spawn(async move { controller.reconcile(&namespace, parts).await });
            self.names.insert(task.id(), name);
        }
    }
}

impl Controller {
    /// Synchronizes one Shoot, counted and logged; gives the entries that were written, where it succeeded.
    async fn reconcile(&self, namespace: &str, parts: Parts) -> Option<u32> {
        let running = self.context.metrics.start_reconcile(CONTROLLER);
        let outcome = match timeout(DEADLINE, self.sync(namespace, parts)).await {
            Ok(outcome) => outcome,
            Err(_) => Err(Error::Deadline(DEADLINE)),
        };
        match &outcome {
            Ok(_) => running.end(ReconcileResult::Success),
            Err(error) if error.is_conflict() => {
                running.end(ReconcileResult::Conflict);
                tracing::debug!(
                    controller = CONTROLLER,
                    namespace,
                    error = causes(error),
                    "conflict, requeueing"
                );
            }
            Err(error) => {
                running.end(ReconcileResult::Error);
                let error = causes(error);
                tracing::warn!(controller = CONTROLLER, namespace, error, "reconcile failed, requeueing");
            }
        }
        outcome.ok()
    }

    async fn sync(&self, namespace: &str, parts: Parts) -> Result<u32> {
        if !self.changes.has(namespace) {
            return Ok(0);
        }
        let Some(shoot) = self.shoot_of(namespace).await? else { return Ok(0) };
        self.changes.locate(namespace, (shoot.namespace.clone(), shoot.name.clone()));
        let outcome = self.sync_shoot(&shoot, parts).await;
        match &outcome {
            Ok(Synced { written: 0, .. }) => {}
            Ok(Synced { written, .. }) => {
                tracing::info!(controller = CONTROLLER, namespace, entries = written, "ShootState written");
            }
            Err(error) if error.is_conflict() => {}
            Err(error) => self.publish(&shoot, error).await,
        }
        let synced = outcome?;
        self.context.states.count(&synced);
        Ok(synced.written)
    }

    async fn sync_shoot(&self, shoot: &ShootKey, parts: Parts) -> Result<Synced> {
        if self.mode(shoot).await?.is_none() {
            return Ok(Synced::default());
        }
        let (wanted, bytes) = collect_parts(&self.context.seed, &shoot.seed_namespace, parts).await?;
        // Also where it cannot be written: it is held in memory all the same.
        self.load.lock().learn(&shoot.seed_namespace, bytes, parts == Parts::ALL);
        if parts.objects {
            self.changes.refer(&shoot.seed_namespace, &wanted);
        }
        let discover = || ShootStates::discover(&self.context.garden);
        let shoot_states = self.shoot_states.get_or_try_init(discover).await?;
        // Asked again: the seed may have lost the Shoot meanwhile, and the namespace may have begun to go away. A seed that loses it
        // after this answer meets the resourceVersion of what the other seed has written.
        let mode = self.mode(shoot).await?.filter(|_| self.changes.has(&shoot.seed_namespace));
        let Some(mode) = mode else { return Ok(Synced::default()) };
        shoot_states.write(shoot, wanted, mode, parts).await
    }

    /// The Shoot whose control plane is in a namespace; `None` where gardenlet has not said so.
    async fn shoot_of(&self, namespace: &str) -> Result<Option<ShootKey>> {
        let Some(cluster) = get(&self.context.seed, &CLUSTER.resource(), None, namespace).await? else {
            return Ok(None);
        };
        let cluster: Cluster =
            cluster.decode().map_err(|_| Error::Malformed(format!("Cluster {namespace}")))?;
        let ObjectMeta { namespace: Some(of), name: Some(name), uid, .. } = cluster.spec.shoot.metadata
        else {
            return Ok(None);
        };
        let (uid, seed_namespace) = (uid.unwrap_or_default(), namespace.to_owned());
        Ok(Some(ShootKey { namespace: of, name, uid, seed_namespace }))
    }

    /// How this seed may write the ShootState now; `None` where it may not.
    async fn mode(&self, key: &ShootKey) -> Result<Option<Mode>> {
        let title = format!("{}/{}", key.namespace, key.name);
        let shoot = get(&self.context.garden, &shoots(), Some(&key.namespace), &key.name).await?;
        let Some(shoot) = shoot else { return Ok(skipped(&title, "the Shoot does not exist")) };
        let shoot: Shoot = shoot.decode().map_err(|_| Error::Malformed(format!("Shoot {title}")))?;
        if shoot.metadata.uid.as_deref() != Some(&key.uid) {
            return Ok(skipped(&title, "the Shoot has another uid than in the seed's Cluster"));
        }
        if shoot.status.technical_id.as_ref().is_some_and(|id| *id != key.seed_namespace) {
            return Ok(skipped(&title, "the control plane of the Shoot is in another namespace"));
        }
        match decide(&shoot, &self.context.seed_name) {
            Decision::Sync(mode) => Ok(Some(mode)),
            Decision::Skip(reason) => Ok(skipped(&title, reason)),
        }
    }

    async fn publish(&self, shoot: &ShootKey, error: &Error) {
        let resource = shoots();
        let about = ObjectReference {
            api_version: Some(resource.api_version),
            kind: Some(resource.kind),
            namespace: Some(shoot.namespace.clone()),
            name: Some(shoot.name.clone()),
            uid: Some(shoot.uid.clone()),
            ..ObjectReference::default()
        };
        let content = EventContent::warning("SyncShootState", "ShootStateSyncFailed", causes(error));
        self.context.events.publish(&about, content).await;
    }
}

fn skipped(shoot: &str, reason: &str) -> Option<Mode> {
    tracing::debug!(controller = CONTROLLER, shoot, reason, "ShootState is left alone");
    None
}
