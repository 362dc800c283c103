//! API servers that watch each other: the flags of `repot apiserver`.

use anyhow::Context as _;
use clap::Args;
use repot_apiserver::{
    delegation,
    peers::{self, Peers},
};
use tokio_util::sync::CancellationToken;

/// Flags of servers that watch the other servers of their Service.
#[derive(Args)]
pub struct PeerFlags {
    /// Mark the Pod of another API server as not ready when it has not answered three times in a row, once a second, so that
    /// kube-apiserver sends it no more requests. Only in a Pod; it needs the rights that the charts give
    #[arg(long)]
    mark_lost_peers: bool,
    /// Service, in the namespace of this Pod, whose ready endpoints are the API servers that watch each other
    #[arg(long, default_value = "repot-apiserver", value_name = "NAME")]
    peer_service: String,
    /// Name of this Pod, for --mark-lost-peers
    #[arg(long, env = "POD_NAME", value_name = "NAME", hide_env_values = true)]
    pod_name: Option<String>,
}

impl PeerFlags {
    /// Watches the other servers until `stop`, where that is asked for.
    pub async fn watch(&self, stop: &CancellationToken) -> anyhow::Result<()> {
        if !self.mark_lost_peers {
            return Ok(());
        }
        let pod = self.pod_name.clone().context("--mark-lost-peers needs --pod-name")?;
        // Pods and their Service are in the cluster in which this process runs, also where a kubeconfig names another one.
        let client = delegation::client_without_retries(None).await;
        let client = client.context("--mark-lost-peers works only in a Pod")?;
        let namespace = client.default_namespace().to_owned();
        tracing::info!(service = self.peer_service, namespace, pod, "watching the other API servers");
        let peers = Peers { client, namespace, service: self.peer_service.clone(), pod };
        tokio::spawn(peers::watch(peers, stop.clone()));
        Ok(())
    }
}
