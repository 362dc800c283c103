//! The life of one Pod on a node: network, volumes, init containers, containers, and its end.

use std::collections::BTreeMap;
use std::fs;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::{Context, Result};
use futures::future::join_all;
use k8s_openapi::api::core::v1::{Container, Pod, PodSpec};
use k8s_openapi::jiff::Timestamp;
use kube::Api;
use kube::api::{DeleteParams, Preconditions};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::Ground;
use super::container::{self, Restart, Stop, stopped};
use super::environment::Facts;
use super::security::VolumeOwner;
use super::status::{Observed, State, is_sidecar};
use super::volume::Supply;
use super::wire::{DNS_IP, Sandbox};

/// How long until something that failed is tried again.
pub(super) const RETRY: Duration = Duration::from_millis(200);
/// How often volumes of ConfigMaps and Secrets are brought up to date; a kubelet takes a minute or so.
const REFRESH: Duration = Duration::from_secs(2);
/// What a Pod without a word about it gets.
const DEFAULT_GRACE: Duration = Duration::from_secs(30);

/// A Pod that was bound to one of our nodes.
pub(super) struct Life {
    pub ground: Arc<Ground>,
    pub namespace: String,
    pub name: String,
    pub uid: String,
    pub node: usize,
    /// Logs, and volumes that end with it.
    pub dir: PathBuf,
    /// As the API last had it; closed when it is gone from there.
    pub pod: watch::Receiver<Arc<Pod>>,
    pub seen: watch::Sender<Observed>,
    stop: watch::Sender<Option<Duration>>,
}

/// What the containers of a Pod share.
pub(super) struct Cell {
    pub life: Arc<Life>,
    pub sandbox: Sandbox,
    pub volumes: BTreeMap<String, PathBuf>,
}

/// Containers that run beside all others, and end after them.
struct Sidecars {
    tasks: JoinSet<()>,
    stop: watch::Sender<Option<Duration>>,
}

/// Lives the whole life of a Pod, until it is gone from the API.
pub(super) async fn run(ground: Arc<Ground>, node: usize, pod: watch::Receiver<Arc<Pod>>) {
    let life = Arc::new(Life::new(ground, node, pod));
    let work = async {
        tokio::join!(life.live(), life.report());
        stopped(&mut life.stop.subscribe()).await;
        life.remove().await;
    };
    tokio::select! {
        () = life.follow_deletion() => {}
        () = work => {}
    }
}

impl Life {
    fn new(ground: Arc<Ground>, node: usize, pod: watch::Receiver<Arc<Pod>>) -> Self {
        let first = pod.borrow().clone();
        let metadata = &first.metadata;
        let [namespace, name, uid] = [&metadata.namespace, &metadata.name, &metadata.uid]
            .map(|field| field.clone().unwrap_or_default());
        let short = uid.split('-').next().unwrap_or_default();
        let dir = ground.dir.join(format!("{namespace}.{name}.{short}"));
        let has_init =
            first.spec.as_ref().is_some_and(|s| s.init_containers.iter().flatten().next().is_some());
        let seen = watch::Sender::new(Observed {
            containers: BTreeMap::new(),
            host_ip: ground.nodes[node].address,
            pod_ip: None,
            since: Timestamp::now(),
            initialized: !has_init,
            over: false,
        });
        Self { ground, namespace, name, uid, node, dir, pod, seen, stop: watch::Sender::new(None) }
    }

    pub(super) fn host_ip(&self) -> Ipv4Addr {
        self.ground.nodes[self.node].address
    }

    pub(super) fn host_name(&self) -> String {
        self.spec().hostname.unwrap_or_else(|| self.name.clone())
    }

    pub(super) fn spec(&self) -> PodSpec {
        self.pod.borrow().spec.clone().unwrap_or_default()
    }

    pub(super) fn waits_as_kubelet(&self) -> bool {
        self.ground.waits_as_kubelet.load(Ordering::Relaxed)
    }

    fn grace(&self) -> Duration {
        let seconds = self.spec().termination_grace_period_seconds;
        seconds.and_then(|s| s.try_into().ok()).map_or(DEFAULT_GRACE, Duration::from_secs)
    }

    /// Tells the containers when to stop; never ends.
    async fn follow_deletion(&self) {
        let mut pod = self.pod.clone();
        loop {
            let metadata = pod.borrow_and_update().metadata.clone();
            if metadata.deletion_timestamp.is_some() {
                let seconds = metadata.deletion_grace_period_seconds.and_then(|s| s.try_into().ok());
                self.stop_within(seconds.map_or(DEFAULT_GRACE, Duration::from_secs));
            }
            if pod.changed().await.is_err() {
                // Somebody deleted it with no grace at all: it is gone from the API, so nobody waits for it.
                self.stop_within(Duration::ZERO);
                std::future::pending::<()>().await;
            }
        }
    }

    fn stop_within(&self, grace: Duration) {
        self.stop.send_if_modified(|stop| {
            let changes = stop.is_none_or(|earlier| grace < earlier);
            if changes {
                *stop = Some(grace);
            }
            changes
        });
    }

    /// From the network to the end of the last container.
    async fn live(self: &Arc<Self>) {
        let mut stop = self.stop.subscribe();
        let cell = tokio::select! {
            cell = self.prepare() => Some(Arc::new(cell)),
            () = stopped(&mut stop) => None,
        };
        if let Some(cell) = cell {
            let mut sidecars = Sidecars { tasks: JoinSet::new(), stop: watch::Sender::new(None) };
            if self.initialize(&cell, &mut sidecars).await {
                self.seen.send_modify(|seen| seen.initialized = true);
                self.run_containers(&cell).await;
            }
            sidecars.end(self.grace_left()).await;
        }
        self.seen.send_modify(|seen| seen.over = true);
    }

    async fn run_containers(&self, cell: &Cell) {
        let spec = self.spec();
        let restart = self.restart();
        let all = spec.containers.iter().map(|c| container::run(cell, c, restart, self.stop.subscribe()));
        tokio::select! {
            _ = join_all(all) => {}
            () = self.refresh(cell) => {}
        }
    }

    /// Runs the init containers in their order; whether all of them did their work.
    async fn initialize(&self, cell: &Arc<Cell>, sidecars: &mut Sidecars) -> bool {
        let restart = match self.restart() {
            Restart::Never => Restart::Never,
            Restart::Always | Restart::OnFailure => Restart::OnFailure,
        };
        for spec in self.spec().init_containers.unwrap_or_default() {
            let mut stop = self.stop.subscribe();
            if is_sidecar(&spec) {
                sidecars.start(cell.clone(), spec.clone());
                let mut seen = self.seen.subscribe();
                let started =
                    seen.wait_for(|seen| seen.containers.get(&spec.name).is_some_and(|c| c.started));
                tokio::select! { _ = started => {}, () = stopped(&mut stop) => return false }
            } else {
                let end = container::run(cell, &spec, restart, stop).await;
                if end.is_none_or(|end| end.code != 0) {
                    return false;
                }
                self.seen.send_modify(|seen| {
                    seen.containers.entry(spec.name.clone()).or_default().ready = true;
                });
            }
        }
        self.stop.borrow().is_none()
    }

    fn restart(&self) -> Restart {
        match self.spec().restart_policy.as_deref() {
            Some("Never") => Restart::Never,
            Some("OnFailure") => Restart::OnFailure,
            _ => Restart::Always,
        }
    }

    fn grace_left(&self) -> Duration {
        (*self.stop.borrow()).unwrap_or_else(|| self.grace())
    }

    /// Makes network and volumes, again and again until it succeeds, and says meanwhile what is missing.
    async fn prepare(self: &Arc<Self>) -> Cell {
        let sandbox = loop {
            match self.ground.wire.sandbox(&self.key(), self.ground.nodes[self.node].range).await {
                Ok(sandbox) => break sandbox,
                Err(error) => self.explain(&error.context("failed to make the network of the pod")),
            }
            sleep(RETRY).await;
        };
        self.seen.send_modify(|seen| seen.pod_ip = Some(sandbox.ip));
        let mut cell = Cell { life: self.clone(), sandbox, volumes: BTreeMap::new() };
        while let Err(error) = cell.bring_volumes(|_| true).await {
            self.explain(&error);
            sleep(RETRY).await;
        }
        cell
    }

    /// Keeps volumes of ConfigMaps and Secrets as the API has them; never ends.
    async fn refresh(&self, cell: &Cell) {
        loop {
            sleep(REFRESH).await;
            let mut copy = BTreeMap::new();
            // What is not there now may be back at the next turn; a kubelet keeps what it has, too.
            let _ =
                cell.bring(&mut copy, |volume| volume.config_map.is_some() || volume.secret.is_some()).await;
        }
    }

    fn explain(&self, error: &anyhow::Error) {
        let message = format!("{error:#}");
        let spec = self.spec();
        self.seen.send_modify(|seen| {
            for container in spec.init_containers.iter().flatten().chain(&spec.containers) {
                let state = State::Waiting { reason: "ContainerCreating", message: message.clone() };
                seen.containers.entry(container.name.clone()).or_default().state = state;
            }
        });
    }

    /// Takes it out of the API, now that nothing of it runs.
    async fn remove(&self) {
        let uid = Some(self.uid.clone());
        let preconditions = Some(Preconditions { uid, resource_version: None });
        let params = DeleteParams { grace_period_seconds: Some(0), preconditions, ..DeleteParams::default() };
        while let Err(error) = self.pods().delete(&self.name, &params).await {
            if matches!(&error, kube::Error::Api(status) if [404, 409].contains(&status.code)) {
                break;
            }
            sleep(RETRY).await;
        }
        // What only this pod could use; logs stay.
        let _ = fs::remove_dir_all(self.dir.join("volumes"));
    }

    pub(super) fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.ground.client.clone(), &self.namespace)
    }

    pub(super) fn key(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }

    /// What the C library and others read before they ask for names.
    fn write_names(&self, ip: Ipv4Addr) -> Result<()> {
        let (spec, host, namespace) = (self.spec(), self.host_name(), &self.namespace);
        let full = spec.subdomain.map(|sub| format!("{host}.{sub}.{namespace}.svc.cluster.local "));
        let full = full.unwrap_or_default();
        fs::create_dir_all(&self.dir)?;
        let hosts = format!("127.0.0.1 localhost\n::1 localhost ip6-localhost\n{ip} {full}{host}\n");
        fs::write(self.dir.join("hosts"), hosts)?;
        let search = format!("search {namespace}.svc.cluster.local svc.cluster.local cluster.local");
        let resolver = format!("nameserver {DNS_IP}\n{search}\noptions ndots:5\n");
        fs::write(self.dir.join("resolv.conf"), resolver).context("failed to write resolv.conf")
    }
}

impl Cell {
    /// The name under which others find the process of a container.
    pub(super) fn name_of(&self, spec: &Container) -> String {
        format!("{}/{}", self.life.key(), spec.name)
    }

    pub(super) fn grace(&self) -> Duration {
        self.life.grace()
    }

    async fn bring_volumes(
        &mut self,
        wanted: impl Fn(&k8s_openapi::api::core::v1::Volume) -> bool,
    ) -> Result<()> {
        let mut volumes = BTreeMap::new();
        self.life.write_names(self.sandbox.ip)?;
        self.bring(&mut volumes, wanted).await?;
        self.volumes = volumes;
        Ok(())
    }

    async fn bring(
        &self,
        volumes: &mut BTreeMap<String, PathBuf>,
        wanted: impl Fn(&k8s_openapi::api::core::v1::Volume) -> bool,
    ) -> Result<()> {
        let life = &self.life;
        let pod = life.pod.borrow().clone();
        let none = BTreeMap::new;
        let (pod_ip, host_ip) = (self.sandbox.ip, life.host_ip());
        let facts = Facts { pod: &pod, pod_ip, host_ip, config_maps: none(), secrets: none() };
        let owner = VolumeOwner::of(&life.spec())?;
        let (client, api, wire) = (&life.ground.client, &life.ground.api, life.ground.wire.as_ref());
        let supply = Supply { client, api, wire, facts: &facts, owner };
        for volume in life.spec().volumes.iter().flatten().filter(|volume| wanted(volume)) {
            let dir = life.dir.join("volumes").join(&volume.name);
            let brought = supply.bring(volume, &dir).await;
            let path = brought.with_context(|| format!("volume {} is not ready", volume.name))?;
            volumes.insert(volume.name.clone(), path);
        }
        Ok(())
    }
}

impl Sidecars {
    fn start(&mut self, cell: Arc<Cell>, spec: Container) {
        let stop: Stop = self.stop.subscribe();
        self.tasks.spawn(async move {
            container::run(&cell, &spec, Restart::Always, stop).await;
        });
    }

    async fn end(mut self, grace: Duration) {
        self.stop.send_replace(Some(grace));
        while self.tasks.join_next().await.is_some() {}
    }
}
