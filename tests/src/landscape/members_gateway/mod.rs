//! A Gateway for members of etcds in a seed, as an implementation of the Gateway API makes one, or Istio: Envoy passes TLS through by the
//! name that a connection asks for, and a small controller tells it what TLSRoutes or VirtualServices say.

mod envoy;
mod kinds;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, ensure};
use kube::Client;
use serde_json::{Value, json};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::sleep;

pub use kinds::GatewayKind;

use envoy::{bootstrap, cluster, listener, replace};
use kinds::Target;

use super::load_balancer::new_address;
use super::seed::Seed;
use super::wide_network::{WideAddress, WideNetwork};
use crate::pods::Balancer;
use crate::process::{Process, Spec};
use crate::test_env::TestEnv;
use crate::{binaries, port};

/// Ports for clients, and for peers of each of three members.
const PORTS: [u16; 4] = [2379, 2380, 2480, 2580];
/// From one look at the routes to the next.
const LOOK: Duration = Duration::from_millis(300);

/// A running Gateway. It ends when it is dropped.
pub struct MembersGateway {
    _envoy: Process,
    _wide: WideAddress,
    task: AbortHandle,
}

/// What the controller needs.
struct Controller {
    kind: GatewayKind,
    client: Client,
    balancer: Balancer,
    address: Ipv4Addr,
    dir: PathBuf,
    /// Ports of this machine that lead to a port of a Service, by `service.namespace.svc:port`.
    backends: BTreeMap<String, u16>,
    relays: JoinSet<()>,
    written: String,
}

impl Drop for MembersGateway {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl MembersGateway {
    /// Starts it in a seed, and gives the Gateway its address.
    pub async fn start(env: &TestEnv, seed: &Seed, network: &WideNetwork, kind: GatewayKind) -> Result<Self> {
        let address = new_address()?;
        let opened = network.open(&seed.name, address, &PORTS).await?;
        kind.create(seed, address).await?;
        let dir = env.make_dir("members-gateway")?;
        let mut controller = Controller {
            kind,
            client: seed.client().clone(),
            balancer: seed.runner.balancer(),
            address,
            dir: dir.clone(),
            backends: BTreeMap::new(),
            relays: JoinSet::new(),
            written: String::new(),
        };
        controller.configure(&[])?;
        let admin = port::reserve()?;
        fs::write(dir.join("bootstrap.json"), bootstrap(&dir, admin).to_string())?;
        let spec = Spec::new(format!("envoy-{}", seed.name), binaries::find("envoy")?)
            .arg("--config-path")
            .arg(dir.join("bootstrap.json"))
            .args(["--use-dynamic-base-id", "--concurrency", "1", "--log-level", "warning"]);
        let mut envoy = Process::start(env, spec)?;
        let probe = async || {
            let answer = reqwest::get(format!("http://127.0.0.1:{admin}/ready")).await?;
            ensure!(answer.status().is_success(), "{}", answer.status());
            Ok(())
        };
        envoy.ready(super::DEADLINE, probe).await?;
        let task = tokio::spawn(controller.run()).abort_handle();
        Ok(Self { _envoy: envoy, _wide: opened, task })
    }
}

impl Controller {
    /// Does what the routes say until it is ended. What fails is tried again.
    async fn run(mut self) {
        loop {
            if let Err(error) = self.pass().await {
                eprintln!("the Gateway of members: {error:#}");
            }
            sleep(LOOK).await;
        }
    }

    async fn pass(&mut self) -> Result<()> {
        let mut served = Vec::new();
        for target in self.kind.targets(&self.client).await? {
            let local = self.open(&target).await?;
            served.push((target.gateway_port, target.host, local));
        }
        self.configure(&served)?;
        self.kind.accept(&self.client).await
    }

    /// The port of this machine that leads to a port of a Service.
    async fn open(&mut self, target: &Target) -> Result<u16> {
        let key = format!("{}:{}", target.service, target.port);
        if let Some(local) = self.backends.get(&key) {
            return Ok(*local);
        }
        let local = port::reserve()?;
        let at = SocketAddr::from((Ipv4Addr::LOCALHOST, local));
        self.relays.spawn(self.balancer.open(at, &target.service, target.port).await?);
        self.backends.insert(key, local);
        Ok(local)
    }

    /// Writes what Envoy reads, where it has changed.
    fn configure(&mut self, served: &[(u16, String, u16)]) -> Result<()> {
        let clusters: BTreeSet<u16> = served.iter().map(|(.., local)| *local).collect();
        let clusters: Vec<Value> = clusters.into_iter().map(cluster).collect();
        let listeners: Vec<Value> = PORTS.iter().map(|port| listener(self.address, *port, served)).collect();
        let text = json!({"resources": listeners}).to_string();
        if text == self.written {
            return Ok(());
        }
        replace(&self.dir.join("clusters.json"), &json!({"resources": clusters}).to_string())?;
        replace(&self.dir.join("listeners.json"), &text)?;
        self.written = text;
        Ok(())
    }
}
