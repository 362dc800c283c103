//! Watches the other API servers of the Service, and takes one that is lost out of its endpoints.
//!
//! A node that loses its power tells nobody. Until kube-controller-manager notices, kube-apiserver sends requests to a server there,
//! and does not send them to another one when they fail. Peers notice in seconds.
//!
//! [`judge`] decides which peers are lost, [`mark`] writes that to their Pods.

mod dial;
mod endpoints;
mod judge;
mod mark;

use std::time::{Duration, Instant};

use futures::{StreamExt, future::join_all};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::{
    Api, Client,
    runtime::{WatchStreamExt, reflector, watcher},
};
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use self::{
    dial::Dialer,
    endpoints::Peer,
    judge::{Judge, Round},
    mark::{Error, Marker},
};
use crate::metrics::{PEERS_MARKED, PEERS_UNREACHABLE};

/// How often peers are checked.
const INTERVAL: Duration = Duration::from_secs(1);
/// Label of EndpointSlices with the name of their Service.
const SERVICE_NAME: &str = "kubernetes.io/service-name";

/// Which servers are peers of this one.
#[derive(Clone)]
pub struct Peers {
    /// Client of the cluster in which the Pods run.
    pub client: Client,
    /// Namespace of the Pods and their Service.
    pub namespace: String,
    /// Name of the Service.
    pub service: String,
    /// Name of the Pod of this server.
    pub pod: String,
}

/// Watches peers until `stop`, and marks those that are lost.
pub async fn watch(peers: Peers, stop: CancellationToken) {
    let dialer = match Dialer::new() {
        Ok(dialer) => dialer,
        Err(error) => return tracing::error!(%error, "other API servers are not watched"),
    };
    let slices: Api<EndpointSlice> = Api::namespaced(peers.client.clone(), &peers.namespace);
    let config = watcher::Config::default().labels(&format!("{SERVICE_NAME}={}", peers.service));
    let (seen, writer) = reflector::store();
    let mut events = Box::pin(reflector(writer, watcher(slices, config)).default_backoff());
    let follow = async {
        while let Some(event) = events.next().await {
            if let Err(error) = event {
                tracing::warn!(service = peers.service, %error, "watch of EndpointSlices failed, trying again");
            }
        }
    };
    let marker = Marker::new(&peers.client, &peers.namespace, &peers.pod);
    let rounds = async {
        let mut watch = Watch { own: peers.pod.clone(), seen, dialer, marker, judge: Judge::default() };
        watch.rounds().await;
    };
    stop.run_until_cancelled(async { tokio::join!(follow, rounds) }).await;
}

/// What the checks of peers need.
struct Watch {
    own: String,
    seen: reflector::Store<EndpointSlice>,
    dialer: Dialer,
    marker: Marker,
    judge: Judge,
}

impl Watch {
    /// Checks peers for ever.
    async fn rounds(&mut self) {
        let mut tick = interval(INTERVAL);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut rested = Instant::now();
        loop {
            tick.tick().await;
            self.round(rested.elapsed()).await;
            rested = Instant::now();
        }
    }

    async fn round(&mut self, slept: Duration) {
        let began = Instant::now();
        let slices = self.seen.state();
        let ready = endpoints::ready(slices.iter().map(AsRef::as_ref), &self.own);
        let dialer = &self.dialer;
        let checks =
            ready.peers.iter().map(|peer| async move { (peer, dialer.answers(&peer.addresses).await) });
        let answers = join_all(checks).await;
        let (now, took) = (Instant::now(), began.elapsed());
        let lost = self.judge.round(&Round { now, slept, took, is_own_ready: ready.own, answers });
        PEERS_UNREACHABLE.set(i64::try_from(self.judge.unreachable()).unwrap_or(i64::MAX));
        for peer in ready.peers.iter().filter(|peer| lost.contains(&peer.uid)) {
            self.mark(peer).await;
        }
    }

    async fn mark(&mut self, peer: &Peer) {
        match self.marker.mark(peer).await {
            Ok(()) => {
                self.judge.marked(&peer.uid, Instant::now());
                PEERS_MARKED.inc();
                tracing::warn!(
                    pod = peer.name,
                    "another API server has not answered for three seconds and its Pod is marked as not ready: kube-apiserver sends \
                     it no more requests; see whether its node is lost. If it is not, its kubelet marks the Pod ready again"
                );
            }
            // Another server was faster, or it ends.
            Err(Error::NotNeeded) => {}
            Err(error) if self.judge.not_marked(&peer.uid) => {
                tracing::warn!(pod = peer.name, %error, "another API server does not answer, and its Pod was not marked as not ready");
            }
            Err(_) => {}
        }
    }
}
