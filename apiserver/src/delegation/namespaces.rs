//! Which namespaces there are: creating an object needs one that lives.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use futures::StreamExt;
use k8s_openapi::api::core::v1::Namespace;
use kube::{
    Api, Client,
    runtime::{WatchStreamExt, reflector, watcher},
};
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use crate::status::Status;

/// The label that every namespace has since Kubernetes 1.21.
const NAME_LABEL: &str = "kubernetes.io/metadata.name";
/// How long a direct question may take.
const LIVE_DEADLINE: Duration = Duration::from_secs(10);
/// For so long after its deletion a namespace is asked for directly.
const LEAVING: Duration = Duration::from_secs(30);

/// What is known of a namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NamespaceState {
    /// It lives.
    Active,
    /// It is being deleted: nothing new may come into it.
    Terminating,
    /// There is none.
    Missing,
}

/// The namespaces of the cluster.
#[derive(Clone)]
pub enum Namespaces {
    /// There is no cluster: every namespace counts as existing.
    Any,
    /// Followed by a watch; asked for directly where the watch does not know.
    Cluster(Box<Cluster>),
}

/// The namespaces of a cluster.
#[derive(Clone)]
pub struct Cluster {
    /// For direct questions.
    api: Api<Namespace>,
    /// What the watch has seen.
    seen: reflector::Store<Namespace>,
    /// Whether that is all.
    synced: Arc<AtomicBool>,
    /// When the watch last saw that a namespace was on its way out.
    leaving: Arc<Mutex<BTreeMap<String, Instant>>>,
}

/// A namespace that exists.
#[derive(Clone, Copy, Debug)]
pub struct Found {
    /// When it was made.
    pub created: Option<jiff::Timestamp>,
}

impl Namespaces {
    /// Follows the namespaces of a cluster until `stop`.
    #[must_use]
    pub fn follow(client: Client, stop: CancellationToken) -> Self {
        let api: Api<Namespace> = Api::all(client);
        let (seen, writer) = reflector::store();
        let cluster = Cluster { api: api.clone(), seen, synced: Arc::default(), leaving: Arc::default() };
        let stream = reflector(writer, watcher(api, watcher::Config::default())).default_backoff();
        let (leaving, all) = (cluster.leaving.clone(), cluster.synced.clone());
        tokio::spawn(async move {
            let mut stream = Box::pin(stream);
            while let Some(Some(event)) = stop.run_until_cancelled(stream.next()).await {
                match event {
                    Ok(watcher::Event::Delete(namespace)) => note(&leaving, &namespace),
                    Ok(watcher::Event::Apply(namespace))
                        if state(&namespace) == NamespaceState::Terminating =>
                    {
                        note(&leaving, &namespace);
                    }
                    Ok(watcher::Event::InitDone) => all.store(true, Ordering::Release),
                    Ok(_) => {}
                    Err(error) => tracing::warn!(%error, "watch of namespaces failed, trying again"),
                }
            }
        });
        Self::Cluster(Box::new(cluster))
    }

    /// Whether the watch has seen them all.
    #[must_use]
    pub fn synced(&self) -> bool {
        match self {
            Self::Any => true,
            Self::Cluster(cluster) => cluster.synced.load(Ordering::Acquire),
        }
    }

    /// Whether there is a cluster to ask.
    #[must_use]
    pub fn is_of_cluster(&self) -> bool {
        matches!(self, Self::Cluster(_))
    }

    /// Whether a namespace exists: as the watch knows it, and where it knows of none, by a direct question.
    ///
    /// # Errors
    /// 500 when nobody could tell.
    pub async fn look(&self, name: &str) -> Result<Option<Found>, Status> {
        let Self::Cluster(cluster) = self else { return Ok(Some(Found { created: None })) };
        let found = cluster.find(name).await?;
        Ok(found
            .map(|found| Found { created: found.metadata.creation_timestamp.as_ref().map(|time| time.0) }))
    }

    /// The labels of a namespace. One that is gone has only its name: what was in it can still be deleted.
    ///
    /// # Errors
    /// 500 when nobody could tell.
    pub async fn labels(&self, name: &str) -> Result<BTreeMap<String, String>, Status> {
        let mut labels = match self {
            Self::Any => None,
            Self::Cluster(cluster) => {
                cluster.find(name).await?.and_then(|found| found.metadata.labels.clone())
            }
        }
        .unwrap_or_default();
        labels.entry(NAME_LABEL.to_owned()).or_insert_with(|| name.to_owned());
        Ok(labels)
    }

    /// What is known of a namespace.
    ///
    /// # Errors
    /// 500 when nobody could tell.
    pub async fn state(&self, name: &str) -> Result<NamespaceState, Status> {
        let Self::Cluster(cluster) = self else { return Ok(NamespaceState::Active) };
        let mut found = cluster.find(name).await?;
        // Deleted and made again within seconds: what the watch says may be about the old one or the new one.
        if cluster.was_leaving(name) && found.as_deref().map(state) == Some(NamespaceState::Active) {
            found = cluster.ask(name).await?;
        }
        Ok(found.as_deref().map_or(NamespaceState::Missing, state))
    }
}

impl Cluster {
    async fn find(&self, name: &str) -> Result<Option<Arc<Namespace>>, Status> {
        match self.seen.get(&reflector::ObjectRef::new(name)) {
            Some(namespace) => Ok(Some(namespace)),
            // The watch may be late: a namespace that was just made must be seen.
            None => self.ask(name).await,
        }
    }

    async fn ask(&self, name: &str) -> Result<Option<Arc<Namespace>>, Status> {
        match tokio::time::timeout(LIVE_DEADLINE, self.api.get_opt(name)).await {
            Ok(Ok(namespace)) => Ok(namespace.map(Arc::new)),
            Ok(Err(error)) => Err(unknown(&error.to_string())),
            Err(_) => Err(unknown("no answer in time")),
        }
    }

    fn was_leaving(&self, name: &str) -> bool {
        self.leaving.lock().get(name).is_some_and(|when| when.elapsed() < LEAVING)
    }
}

fn note(leaving: &Mutex<BTreeMap<String, Instant>>, namespace: &Namespace) {
    let mut leaving = leaving.lock();
    leaving.retain(|_, when| when.elapsed() < LEAVING);
    leaving.insert(namespace.metadata.name.clone().unwrap_or_default(), Instant::now());
}

fn state(namespace: &Namespace) -> NamespaceState {
    let phase = namespace.status.as_ref().and_then(|status| status.phase.as_deref());
    let leaving = phase == Some("Terminating") || namespace.metadata.deletion_timestamp.is_some();
    if leaving { NamespaceState::Terminating } else { NamespaceState::Active }
}

fn unknown(why: &str) -> Status {
    tracing::error!(why, "namespace could not be read");
    Status::internal("failed to read the namespace")
}
