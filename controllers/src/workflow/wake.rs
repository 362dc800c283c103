//! Who is woken by what: whatever happens in a namespace to Pods, Jobs, Deployments, Etcds and HostedEtcds wakes the workflows and
//! HostedEtcds of that namespace. Only metadata is followed, once for all controllers.

use std::time::Duration;

use futures::{Stream, StreamExt};
use k8s_openapi::api::{apps::v1::Deployment, batch::v1::Job, core::v1::Pod};
use kube::{
    Api, Client, Resource, ResourceExt,
    core::PartialObjectMeta,
    runtime::{
        WatchStreamExt,
        reflector::{ObjectRef, Store},
        watcher,
    },
};
use serde::de::DeserializeOwned;
use tokio::sync::broadcast;
use tokio_util::sync::CancellationToken;

use super::api::HostedEtcd;
use crate::{etcd::api::Etcd, namespaces::Scope};

/// Namespaces in which something happened and that nobody looked at yet. Whoever falls behind is woken by its requeue.
const WAITING: usize = 1024;
/// After a watch was refused, as for a kind that is not served.
const PAUSE: Duration = Duration::from_secs(10);

/// Namespaces in which something happens.
#[derive(Clone)]
pub struct NamespaceTrigger(broadcast::Sender<String>);

impl NamespaceTrigger {
    /// Begins to follow everything that wakes somebody.
    #[must_use]
    pub fn start(client: &Client, scope: &Scope, stop: &CancellationToken) -> Self {
        let (sender, _) = broadcast::channel(WAITING);
        follow(scope.api::<PartialObjectMeta<Pod>>(client), &sender, stop);
        follow(scope.api::<PartialObjectMeta<Job>>(client), &sender, stop);
        follow(scope.api::<PartialObjectMeta<Deployment>>(client), &sender, stop);
        follow(scope.api::<PartialObjectMeta<Etcd>>(client), &sender, stop);
        follow(scope.api::<PartialObjectMeta<HostedEtcd>>(client), &sender, stop);
        Self(sender)
    }

    /// The objects of a store that are to be looked at again, as it happens.
    pub fn all<K>(
        &self,
        store: Store<K>,
        is_awake: fn(&K) -> bool,
    ) -> impl Stream<Item = ObjectRef<K>> + Send + 'static + use<K>
    where
        K: Resource<DynamicType = ()> + Clone + Send + Sync + 'static,
    {
        let namespaces = futures::stream::unfold(self.0.subscribe(), async |mut receiver| {
            loop {
                match receiver.recv().await {
                    Ok(namespace) => return Some((namespace, receiver)),
                    Err(broadcast::error::RecvError::Lagged(_)) => {}
                    Err(broadcast::error::RecvError::Closed) => return None,
                }
            }
        });
        namespaces.flat_map(move |namespace| {
            let is_meant = |object: &&std::sync::Arc<K>| {
                object.namespace().as_deref() == Some(&namespace) && is_awake(object)
            };
            let all = store.state();
            let meant: Vec<_> =
                all.iter().filter(is_meant).map(|object| ObjectRef::from_obj(&**object)).collect();
            futures::stream::iter(meant)
        })
    }
}

fn follow<K>(all: Api<K>, sender: &broadcast::Sender<String>, stop: &CancellationToken)
where
    K: Resource + Clone + DeserializeOwned + std::fmt::Debug + Send + 'static,
{
    let (sender, stop) = (sender.clone(), stop.clone());
    let events = watcher(all, watcher::Config::default()).default_backoff().touched_objects();
    tokio::spawn(stop.run_until_cancelled_owned(async move {
        let mut events = std::pin::pin!(events);
        while let Some(event) = events.next().await {
            match event {
                // Nobody listens before the first controller runs.
                Ok(object) => drop(sender.send(object.namespace().unwrap_or_default())),
                Err(error) => {
                    tracing::debug!(%error, "a watch that wakes workflows is begun again");
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
    }));
}
