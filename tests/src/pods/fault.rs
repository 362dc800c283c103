//! What a test may do to Pods, nodes and volumes.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::Ordering;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use kube::Api;

use super::roster::Running;
use super::wire::Cut;
use super::{Firewall, PodRunner, node, wire};

impl PodRunner {
    /// Kills a container's process (SIGKILL), as the kernel does when memory runs out.
    pub fn kill(&self, namespace: &str, pod: &str, container: &str) -> Result<()> {
        self.find(namespace, pod, container).map(|process| process.kill())
    }

    /// Freezes a container: its connections stay open and nothing answers.
    pub fn freeze(&self, namespace: &str, pod: &str, container: &str) -> Result<()> {
        self.find(namespace, pod, container).map(|process| process.pause())
    }

    /// Freezes one process of a container, the first whose command line holds this text. Those that it has started go on.
    pub fn freeze_one(&self, namespace: &str, pod: &str, container: &str, command: &str) -> Result<()> {
        self.find(namespace, pod, container)?.pause_one(command)
    }

    /// Lets containers that end from now on wait as long as under a kubelet before they are started again, or a few seconds at most.
    pub fn wait_as_kubelet(&self, yes: bool) {
        self.ground.waits_as_kubelet.store(yes, Ordering::Relaxed);
    }

    /// Lets a frozen container go on.
    pub fn resume(&self, namespace: &str, pod: &str, container: &str) -> Result<()> {
        self.find(namespace, pod, container).map(|process| process.resume())
    }

    /// Lets no packet pass between the Pods of two nodes: connections stay and wait.
    pub async fn cut(&self, a: &str, b: &str) -> Result<Cut> {
        let (a, b) = (self.index(a)?, self.index(b)?);
        self.ground.wire.cut(&wire::range(a), &wire::range(b)).await
    }

    /// Lets no packet pass between the Pods of a node and all others, kube-apiserver and DNS. Its probes go on, and so do
    /// connections through [`PodRunner::publish`], which start on the node; its lease is another matter
    /// ([`PodRunner::set_heartbeat`]).
    pub async fn isolate(&self, node: &str) -> Result<Cut> {
        self.ground.wire.isolate(self.index(node)?).await
    }

    /// Lets no Pod get an answer of a server of this machine that was exposed at this address, over UDP and TCP.
    pub async fn cut_server(&self, server: SocketAddr) -> Result<Cut> {
        self.ground.wire.cut_server(server).await
    }

    /// Lets no Pod get an answer of kube-apiserver, DNS or any exposed server. Pods still reach each other.
    pub async fn cut_servers(&self) -> Result<Cut> {
        self.ground.wire.cut_servers().await
    }

    /// Heals what was cut or isolated.
    pub async fn heal(&self, cut: Cut) -> Result<()> {
        self.ground.wire.heal(cut).await
    }

    /// Sets the condition Ready of a node, as a kubelet with a problem does.
    pub async fn set_ready(&self, node: &str, ready: bool) -> Result<()> {
        node::set_ready(&self.ground, self.index(node)?, ready).await
    }

    /// Stops or resumes the heartbeat of a node: without it kube-controller-manager soon takes the node for lost. Its Pods go on.
    pub async fn set_heartbeat(&self, node: &str, beats: bool) -> Result<()> {
        let index = self.index(node)?;
        self.ground.nodes[index].beats.store(beats, Ordering::Relaxed);
        if beats { node::set_ready(&self.ground, index, true).await } else { Ok(()) }
    }

    /// Ends a node as a loss of power does: no packet passes between its Pods and anybody else, their processes are killed, and its
    /// heartbeat ends. Nobody is told: connections stay and wait. It does not come back.
    pub async fn lose(&self, node: &str) -> Result<()> {
        let index = self.index(node)?;
        let (wire, range) = (&self.ground.wire, self.ground.nodes[index].range);
        // First the network, because the kernel closes connections of a process that is killed.
        Firewall::new(wire.clone()).isolate(&format!("lost_{range}"), &[wire::pods_of(range)]).await?;
        // Without a route to Pods whose interfaces are gone, connections to them would be refused.
        wire.in_hub("ip", &["route", "replace", &wire::range(range), "dev", "lo"]).await?;
        self.ground.nodes[index].lose();
        Ok(())
    }

    /// Where a test finds the files of a claim.
    ///
    /// Errors: when it is not bound to a volume of ours.
    pub async fn volume(&self, namespace: &str, claim: &str) -> Result<PathBuf> {
        let client = &self.ground.client;
        let found = Api::<PersistentVolumeClaim>::namespaced(client.clone(), namespace).get(claim).await?;
        let name = found.spec.and_then(|spec| spec.volume_name).context("the claim is not bound")?;
        let found = Api::<PersistentVolume>::all(client.clone()).get(&name).await?;
        let path = found.spec.and_then(|spec| spec.host_path).context("its volume is none of ours")?.path;
        Ok(self.ground.wire.seen_from_here(path.as_ref()))
    }

    /// Fills the volume of a claim to the last byte with a file, and gives its path: removing it makes room again.
    ///
    /// Errors: unless the class of the claim has the parameter `quota: enforced`.
    pub async fn fill(&self, namespace: &str, claim: &str) -> Result<PathBuf> {
        let dir = self.volume(namespace, claim).await?;
        // A volume without a quota would be the disk of this machine.
        let own = rustix::fs::stat(&dir)?.st_dev != rustix::fs::stat(&self.ground.dir)?.st_dev;
        ensure!(own, "the volume of claim {claim} has no quota");
        let path = dir.join("filled-by-the-testbed");
        let mut file = std::fs::File::create(&path)?;
        match std::io::copy(&mut std::io::repeat(0), &mut file) {
            Err(error) if error.kind() == std::io::ErrorKind::StorageFull => Ok(path),
            other => other.map(|_| path).context("failed to fill the volume"),
        }
    }

    fn find(&self, namespace: &str, pod: &str, container: &str) -> Result<Running> {
        let name = format!("{namespace}/{pod}/{container}");
        self.ground.roster.find(&name).with_context(|| format!("container {name} does not run"))
    }

    fn index(&self, node: &str) -> Result<usize> {
        let found = self.ground.nodes.iter().position(|slot| slot.name == node);
        found.with_context(|| format!("there is no node {node}"))
    }
}
