//! A garden with nodes in three zones, which tests share; each has a namespace of its own.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::ops::Deref;

use anyhow::{Context, Result};
use repot_tests::garden::{Garden, GardenOptions};
use repot_tests::pods::{Image, Images, PodRunner, PodRunnerOptions};
use repot_tests::{Shared, SharedRef, TestEnv, binaries, namespace, start_shared};
use serde_json::{Value, json};
use tokio::net::UdpSocket;

pub use repot_tests::namespace::DEADLINE;

/// Runs nothing but what names it.
pub const APART: &str = "node-apart";
/// A class of volumes that are deleted with their claims: three members of etcd take up 370 MiB.
pub const IMMEDIATE: &str = "immediate";
/// What the DNS server of this machine knows, and nobody else: an address at which pods find what is exposed to them.
pub const OUTSIDE_NAME: &str = "server.example.com";
const OUTSIDE_IP: [u8; 4] = [10, 0, 0, 20];

pub struct World {
    pub garden: Garden,
    pub runner: PodRunner,
}

static WORLD: Shared<World> = Shared::new(|env| start_shared(World::start(env)));

pub fn shared() -> Result<SharedRef<World>> {
    WORLD.value()
}

pub fn images() -> Result<Images> {
    let images = Images::default()
        .with("shell", Image::of("/bin/sh").and(binaries::find("kubectl")?))
        .with("python", Image::of("/usr/bin/python3"))
        .with("etcd", Image::of(binaries::find("etcd")?));
    Ok(images)
}

impl World {
    async fn start(env: &TestEnv) -> Result<Self> {
        let options = GardenOptions { controller_manager: true, ..GardenOptions::default() };
        let garden = Garden::start_with(env, options).await?;
        let zone = |zone: &str| BTreeMap::from([("topology.kubernetes.io/zone".to_owned(), zone.to_owned())]);
        let mut nodes: Vec<_> = ["a", "b", "c"].map(|name| (format!("node-{name}"), zone(name))).into();
        nodes.push((APART.to_owned(), BTreeMap::new()));
        let upstream_dns = Some(start_dns().await?);
        let options = PodRunnerOptions { nodes, images: images()?, upstream_dns, service_proxy: false };
        let runner = PodRunner::start(env, &garden, options).await?;
        garden.kubectl(["cordon", APART]).await?.text()?;
        let mut limited = PodRunner::storage_class("limited", "Immediate", "Delete");
        limited["parameters"] = json!({"quota": "enforced"});
        let classes = [
            PodRunner::storage_class("zonal", "WaitForFirstConsumer", "Delete"),
            PodRunner::storage_class("kept", "Immediate", "Retain"),
            PodRunner::storage_class(IMMEDIATE, "Immediate", "Delete"),
            limited,
        ];
        garden.apply(&classes).await?;
        Ok(Self { garden, runner })
    }
}

/// A DNS server that answers every question for addresses of [`OUTSIDE_NAME`], and nothing else, with one address.
async fn start_dns() -> Result<SocketAddr> {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    let address = socket.local_addr()?;
    tokio::spawn(async move {
        let mut message = [0; 512];
        while let Ok((length, client)) = socket.recv_from(&mut message).await {
            let question = &message[12..length];
            let asks = question.starts_with(b"\x06server\x07example\x03com\0\0\x01");
            // The question again, as an answer; then the name of the question, type A, class IN, no time to live, four bytes.
            let mut answer = message[..length].to_vec();
            answer[2] |= 0x80;
            answer[7] = u8::from(asks);
            answer[10..12].fill(0);
            answer.truncate(12 + question.windows(5).position(|w| w[0] == 0).unwrap_or(0) + 5);
            if asks {
                answer.extend([0xc0, 0x0c, 0, 1, 0, 1, 0, 0, 0, 0, 0, 4]);
                answer.extend(OUTSIDE_IP);
            }
            let _ = socket.send_to(&answer, client).await;
        }
    });
    Ok(address)
}

/// A namespace of one test.
pub struct TestNamespace {
    pub world: SharedRef<World>,
    place: namespace::TestNamespace,
}

impl Deref for TestNamespace {
    type Target = namespace::TestNamespace;

    fn deref(&self) -> &namespace::TestNamespace {
        &self.place
    }
}

impl TestNamespace {
    pub async fn make(namespace: &str) -> Result<Self> {
        let world = shared()?;
        let place = namespace::TestNamespace::make(&world.garden, namespace).await?;
        Ok(Self { world, place })
    }

    pub async fn roll_out(&self, workload: &str) -> Result<()> {
        self.kubectl(&["rollout", "status", workload, "--timeout=120s"]).await.map(drop)
    }

    /// A pod of one container that runs a shell script and ends at once when it is told to.
    pub async fn run(&self, name: &str, script: &str) -> Result<()> {
        self.apply(&[pod(name, json!({"containers": [shell(script)]}))]).await
    }
}

pub fn pod(name: &str, mut spec: Value) -> Value {
    spec["terminationGracePeriodSeconds"] = 1.into();
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": name}}, "spec": spec})
}

/// The container `main` with a shell script; `sleep` in it ends with it.
pub fn shell(script: &str) -> Value {
    json!({"name": "main", "image": "shell", "args": ["-c", script]})
}

/// The status of the first container.
pub fn container(pod: &Value) -> &Value {
    &pod["status"]["containerStatuses"][0]
}

pub fn is_ready(pod: &Value) -> bool {
    let conditions = pod["status"]["conditions"].as_array();
    conditions.is_some_and(|all| all.iter().any(|c| c["type"] == "Ready" && c["status"] == "True"))
}

/// What a server answers over plain HTTP at a port of this machine.
pub async fn fetch(port: u16) -> Result<String> {
    let client = reqwest::Client::builder().no_proxy().build()?;
    let answer = client.get(format!("http://127.0.0.1:{port}/")).send().await?.error_for_status()?;
    answer.text().await.context("a broken answer")
}
