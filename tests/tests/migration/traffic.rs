//! A Pod of the Shoot that serves traffic, and a client of it that does not use the API.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use parking_lot::Mutex;
use repot_tests::{port, wait::until};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use super::world::World;

const PODS: &str = "/api/v1/namespaces/default/pods";
const NAME: &str = "traffic";
const PERIOD: Duration = Duration::from_millis(100);
/// A request without an answer after this time has failed.
const PATIENCE: Duration = Duration::from_secs(2);
const DEADLINE: Duration = Duration::from_secs(60);

/// A Pod that is asked all the time, until this is dropped.
pub struct Traffic {
    uid: String,
    seen: Arc<Mutex<Seen>>,
    task: JoinHandle<()>,
}

#[derive(Debug, Default)]
struct Seen {
    answers: u32,
    failures: Vec<String>,
}

impl Traffic {
    /// Creates a Pod on a node of the Shoot, and asks it from its first answer on.
    pub async fn start(world: &World) -> Result<Self> {
        let (api, port) = (world.api()?, port::reserve()?);
        let nodes = api.get("/api/v1/nodes").await?.ok()?;
        let node = nodes["items"][0]["metadata"]["name"].as_str().context("there is no node")?;
        let container = json!({
            "name": "app", "image": "app", "ports": [{"containerPort": 80, "hostPort": port, "protocol": "TCP"}],
        });
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": NAME},
            "spec": {"nodeName": node, "automountServiceAccountToken": false, "containers": [container]},
        });
        // kube-controller-manager makes the ServiceAccount of Pods soon after the namespace.
        let created =
            until("the Pod to be created", DEADLINE, async || api.post(PODS, &pod).await?.ok()).await?;
        let uid = created["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
        until("the Pod to serve", DEADLINE, async || {
            let answer = ask(port).await?;
            ensure!(answer.ends_with(&uid), "{answer}");
            Ok(())
        })
        .await?;
        let seen = Arc::new(Mutex::new(Seen::default()));
        let task = tokio::spawn(ask_on(port, uid.clone(), seen.clone()));
        Ok(Self { uid, seen, task })
    }

    /// Fails where a request to the Pod has failed, or another Pod is there by now.
    pub async fn ensure_served(&self, world: &World) -> Result<()> {
        let pod = world.api()?.get(&format!("{PODS}/{NAME}")).await?.ok()?;
        ensure!(pod["metadata"]["uid"] == self.uid.as_str(), "it was {}, and is {pod}", self.uid);
        ensure!(pod["status"]["phase"] == "Running", "{pod}");
        let seen = self.seen.lock();
        println!("the Pod has answered {} times, and failed {} times", seen.answers, seen.failures.len());
        ensure!(seen.answers > 0 && seen.failures.is_empty(), "{seen:?}");
        Ok(())
    }
}

impl Drop for Traffic {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn ask_on(port: u16, uid: String, seen: Arc<Mutex<Seen>>) {
    loop {
        let answer = ask(port).await;
        seen.lock().note(&uid, answer);
        sleep(PERIOD).await;
    }
}

impl Seen {
    fn note(&mut self, uid: &str, answer: Result<String>) {
        match answer {
            Ok(answer) if answer.ends_with(uid) => self.answers += 1,
            Ok(answer) => self.failures.push(answer),
            Err(error) => self.failures.push(format!("{error:#}")),
        }
    }
}

/// One request over a connection of its own.
async fn ask(port: u16) -> Result<String> {
    let asked = async {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).await?;
        stream.write_all(b"GET / HTTP/1.1\r\nHost: app\r\n\r\n").await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        anyhow::Ok(answer)
    };
    timeout(PATIENCE, asked).await.context("no answer in time")?
}
