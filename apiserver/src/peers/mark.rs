//! Marks the Pod of a lost peer as not ready, as kube-controller-manager does for Pods of a node that is silent.
//!
//! One server at least has to stay ready, also where servers suspect each other and all reach kube-apiserver. So a server that marks:
//!
//! 1. reads its own Pod, which has to be ready, and the peer's;
//! 2. writes a condition to its own Pod, if that is still as it was read;
//! 3. marks the peer's Pod, if that is still as it was read.
//!
//! Say that A has marked B. Then the second step of B was before the first step of A: if it was in between, the third step of A
//! would fail; if it was later, B would find itself not ready. So among servers that mark each other in a circle, the second step of
//! each would be before that of the one that marks it, which cannot be. Whoever came last to the second step is marked by none.

use std::time::Duration;

use k8s_openapi::{
    api::core::v1::{Event, Pod},
    apimachinery::pkg::apis::meta::v1::Time,
};
use kube::{
    Api, Client,
    api::{Patch, PatchParams, PostParams},
};
use repot_api::names::MARKS_PEER;
use serde_json::{Value, json};
use tokio::time::timeout;

use super::endpoints::Peer;

/// How long all requests to kube-apiserver for one mark may take.
const DEADLINE: Duration = Duration::from_secs(3);
/// Reason of the condition and of the Event.
const REASON: &str = "PeerUnreachable";
const COMPONENT: &str = "repot-apiserver";

/// Why a Pod was not marked.
#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    /// This server should not judge others.
    #[error("this server's own Pod is not ready")]
    OwnNotReady,
    /// It is not sent any requests.
    #[error("its Pod is gone, ends, or is not ready already")]
    NotNeeded,
    /// This server may be the one that is cut off.
    #[error("kube-apiserver does not answer this server either")]
    NoAnswer,
    /// A request failed, for example because somebody else has written meanwhile.
    #[error("kube-apiserver: {0}")]
    Kube(#[from] kube::Error),
}

/// Marks Pods of one namespace.
pub(super) struct Marker {
    pods: Api<Pod>,
    events: Api<Event>,
    namespace: String,
    own: String,
}

impl Marker {
    /// `own`: the name of this server's Pod.
    pub(super) fn new(client: &Client, namespace: &str, own: &str) -> Self {
        let (pods, events) =
            (Api::namespaced(client.clone(), namespace), Api::namespaced(client.clone(), namespace));
        Self { pods, events, namespace: namespace.to_owned(), own: own.to_owned() }
    }

    /// Marks the Pod of a peer as not ready.
    ///
    /// # Errors
    /// [`Error`]; the Pod may be marked all the same when kube-apiserver did not answer.
    pub(super) async fn mark(&self, peer: &Peer) -> Result<(), Error> {
        timeout(DEADLINE, self.mark_ready(peer)).await.map_err(|_| Error::NoAnswer)??;
        if let Ok(Err(error)) = timeout(DEADLINE, self.publish(peer)).await {
            tracing::warn!(pod = peer.name, %error, "failed to publish an Event");
        }
        Ok(())
    }

    async fn mark_ready(&self, peer: &Peer) -> Result<(), Error> {
        let (own, found) = tokio::try_join!(self.pods.get(&self.own), self.pods.get_opt(&peer.name))?;
        if !is_ready(&own) {
            return Err(Error::OwnNotReady);
        }
        let is_same = |pod: &Pod| pod.metadata.uid.as_deref() == Some(&peer.uid);
        let found = found.filter(|pod| is_same(pod) && is_ready(pod)).ok_or(Error::NotNeeded)?;
        let now = Time(jiff::Timestamp::now());
        // The time makes each write another one: kube-apiserver leaves out those that change nothing.
        let message = format!("marked Pod {} as not ready at {}", peer.name, now.0);
        self.write(&own, MARKS_PEER, "True", &message, &now).await?;
        let message = format!("Pod {} got no answer from this one in three seconds", self.own);
        self.write(&found, "Ready", "False", &message, &now).await
    }

    /// Sets a condition of a Pod, unless somebody has written to that since it was read.
    async fn write(
        &self,
        read: &Pod,
        kind: &str,
        status: &str,
        message: &str,
        now: &Time,
    ) -> Result<(), Error> {
        let patch = condition_patch(read, kind, status, message, now);
        let name = read.metadata.name.as_deref().unwrap_or_default();
        self.pods.patch_status(name, &PatchParams::default(), &Patch::Strategic(&patch)).await?;
        Ok(())
    }

    async fn publish(&self, peer: &Peer) -> kube::Result<()> {
        let event = event(&self.namespace, &self.own, peer, &Time(jiff::Timestamp::now()));
        let event = serde_json::from_value(event).map_err(kube::Error::SerdeError)?;
        self.events.create(&PostParams::default(), &event).await.map(drop)
    }
}

/// Whether a Pod is ready and not being deleted.
fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    let ready = conditions.iter().any(|condition| condition.type_ == "Ready" && condition.status == "True");
    ready && pod.metadata.deletion_timestamp.is_none()
}

/// A strategic merge patch, which keeps other conditions. It fails with 409 where the Pod has changed.
fn condition_patch(read: &Pod, kind: &str, status: &str, message: &str, now: &Time) -> Value {
    let metadata = &read.metadata;
    let condition = json!({
        "type": kind, "status": status, "reason": REASON, "message": message, "lastTransitionTime": now,
    });
    json!({
        "metadata": {"uid": metadata.uid, "resourceVersion": metadata.resource_version},
        "status": {"conditions": [condition]},
    })
}

fn event(namespace: &str, own: &str, peer: &Peer, now: &Time) -> Value {
    let message = format!(
        "Marked as not ready by Pod {own}, which got no answer in three seconds; its kubelet marks it ready again if it lives"
    );
    json!({
        "metadata": {"generateName": format!("{}.", peer.name), "namespace": namespace},
        "involvedObject": {"apiVersion": "v1", "kind": "Pod", "namespace": namespace, "name": peer.name, "uid": peer.uid},
        "type": "Warning", "reason": REASON, "message": message, "count": 1,
        "source": {"component": COMPONENT}, "reportingComponent": COMPONENT, "reportingInstance": own,
        "firstTimestamp": now, "lastTimestamp": now,
    })
}

#[cfg(test)]
#[path = "mark_tests.rs"]
mod tests;
