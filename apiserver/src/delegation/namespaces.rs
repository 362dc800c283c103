//! Which namespaces there are: creating an object needs one that lives.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use futures::StreamExt;
use k8s_openapi::api::core::v1::Namespace;
use kube::{
    Api, Client,
    runtime::{WatchStreamExt, reflector, watcher},
};
use tokio_util::sync::CancellationToken;

use crate::status::Status;

/// The label that every namespace has since Kubernetes 1.21.
const NAME_LABEL: &str = "kubernetes.io/metadata.name";
/// How long a direct question may take.
const LIVE_DEADLINE: Duration = Duration::from_secs(10);

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
}

impl Namespaces {
    /// Follows the namespaces of a cluster until `stop`.
    #[must_use]
    pub fn follow(client: Client, stop: CancellationToken) -> Self {
        let api: Api<Namespace> = Api::all(client);
        let (seen, writer) = reflector::store();
        let stream = reflector(writer, watcher(api.clone(), watcher::Config::default())).default_backoff();
        tokio::spawn(async move {
            let mut stream = Box::pin(stream);
            while let Some(Some(event)) = stop.run_until_cancelled(stream.next()).await {
                if let Err(error) = event {
                    tracing::warn!(%error, "watch of namespaces failed, trying again");
                }
            }
        });
        Self::Cluster(Box::new(Cluster { api, seen }))
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
        Ok(cluster.find(name).await?.as_deref().map_or(NamespaceState::Missing, state))
    }
}

impl Cluster {
    async fn find(&self, name: &str) -> Result<Option<Arc<Namespace>>, Status> {
        if let Some(namespace) = self.seen.get(&reflector::ObjectRef::new(name)) {
            return Ok(Some(namespace));
        }
        // The watch may be late: a namespace that was just made must be seen.
        match tokio::time::timeout(LIVE_DEADLINE, self.api.get_opt(name)).await {
            Ok(Ok(namespace)) => Ok(namespace.map(Arc::new)),
            Ok(Err(error)) => Err(unknown(&error.to_string())),
            Err(_) => Err(unknown("no answer in time")),
        }
    }
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
