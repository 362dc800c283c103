//! Which Pods live on our nodes.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use futures::{StreamExt, pin_mut};
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::runtime::{WatchStreamExt, watcher};
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::{Ground, pod};

/// Gives every Pod of our nodes that is wanted a life of its own; never ends. `config` says which Pods are watched.
pub(super) async fn follow(
    ground: Arc<Ground>,
    config: watcher::Config,
    is_wanted: impl Fn(&Pod) -> bool + Send,
) {
    let mut lives = Lives { ground: ground.clone(), channels: HashMap::new(), tasks: JoinSet::new() };
    let pods = Api::<Pod>::all(ground.client.clone());
    let events = watcher(pods, config).default_backoff();
    pin_mut!(events);
    let mut listed = HashSet::new();
    while let Some(event) = events.next().await {
        match event {
            Ok(watcher::Event::Init) => listed.clear(),
            Ok(watcher::Event::InitApply(pod)) => {
                listed.extend(pod.metadata.uid.clone());
                lives.see(pod, &is_wanted);
            }
            // Whatever went while nobody watched is not in the list.
            Ok(watcher::Event::InitDone) => lives.channels.retain(|uid, _| listed.contains(uid)),
            Ok(watcher::Event::Apply(pod)) => lives.see(pod, &is_wanted),
            Ok(watcher::Event::Delete(pod)) => lives.forget(&pod),
            // The watcher takes its failures up by itself.
            Err(_) => {}
        }
    }
}

/// The life of a Pod. With its node it ends at once, and nobody is told.
async fn live(ground: Arc<Ground>, node: usize, pod: watch::Receiver<Arc<Pod>>) {
    let (namespace, name) = {
        let metadata = &pod.borrow().metadata;
        (metadata.namespace.clone().unwrap_or_default(), metadata.name.clone().unwrap_or_default())
    };
    tokio::select! {
        () = ground.nodes[node].until_lost() => {}
        () = pod::run(ground.clone(), node, pod) => return,
    }
    ground.roster.end_all(&format!("{namespace}/{name}/"));
}

/// The Pods of our nodes, by uid.
struct Lives {
    ground: Arc<Ground>,
    channels: HashMap<String, watch::Sender<Arc<Pod>>>,
    tasks: JoinSet<()>,
}

impl Lives {
    fn see(&mut self, pod: Pod, is_wanted: &impl Fn(&Pod) -> bool) {
        let uid = pod.metadata.uid.clone().unwrap_or_default();
        let node = pod.spec.as_ref().and_then(|spec| spec.node_name.clone());
        let node = node.and_then(|name| self.ground.nodes.iter().position(|slot| slot.name == name));
        let Some(node) = node.filter(|_| is_wanted(&pod)) else { return };
        let pod = Arc::new(pod);
        match self.channels.get(&uid) {
            // Nobody listens when its life is over and the API has yet to say so.
            Some(channel) => drop(channel.send(pod)),
            None => {
                let (channel, receiver) = watch::channel(pod);
                self.channels.insert(uid, channel);
                self.tasks.spawn(live(self.ground.clone(), node, receiver));
            }
        }
    }

    fn forget(&mut self, pod: &Pod) {
        self.channels.remove(pod.metadata.uid.as_deref().unwrap_or_default());
    }
}
