//! The attacks: each goes on until it is stopped, and counts what it was answered.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, ensure};
use bytes::Bytes;
use parking_lot::Mutex;
use repot_tests::access::{Access, Credential};
use repot_tests::http::Api;
use reqwest::{Client, Method};
use serde_json::{Value, json};
use tokio::runtime::Runtime;
use tokio::task::JoinSet;
use tokio::time::timeout;

const COLLECTION: &str = "/apis/core.gardener.cloud/v1alpha1/namespaces/default/shootstates";
/// Streams without credentials that read nothing: GETs and POSTs.
const UNREAD: [(Method, usize); 2] = [(Method::GET, 450), (Method::POST, 250)];
/// Connections of each attack by costly requests.
const CONNECTIONS: usize = 4;
/// As deep as kube-apiserver reads JSON.
const DEPTH: usize = 9_900;
/// Towers of arrays in one object: 198 KB.
const TOWERS: usize = 10;
const WIDE_BYTES: usize = 14 << 20;
/// A stream that is answered with nothing at all is given up after this long, and begun again.
const GIVEN_UP: Duration = Duration::from_secs(90);

/// A way to make a server spend more than the attacker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attack {
    /// One HTTP/2 connection without credentials, whose streams have a window of zero.
    ZeroWindow,
    /// `?pretty=true` on deeply nested arrays.
    Pretty,
    /// Objects with millions of empty list entries.
    Wide,
}

/// Attacks that go on.
pub struct Running {
    tasks: JoinSet<()>,
    answers: Answers,
    /// Runs the attacks at the lowest priority; `None` once it is shut down.
    runtime: Option<Runtime>,
}

/// Attackers have machines of their own in reality. Here they run on threads that get what the server and its user leave of the
/// CPUs: what is measured is the work of the server, not that of its attackers.
fn low_priority_runtime() -> Result<Runtime> {
    let low = || {
        // Where the system refuses, attackers compete as equals.
        let _ = rustix::process::nice(19);
    };
    Ok(tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .on_thread_start(low)
        .build()?)
}

/// How often each attack was answered with each status, or failed.
type Answers = Arc<Mutex<BTreeMap<String, u64>>>;

impl Attack {
    /// All attacks, in the order of the table.
    pub const ALL: [Self; 3] = [Self::ZeroWindow, Self::Pretty, Self::Wide];

    /// The name of the attack in tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::ZeroWindow => "anonymous, window of zero",
            Self::Pretty => "pretty printing of deep arrays",
            Self::Wide => "millions of empty list entries",
        }
    }
}

/// Creates the object that [`Attack::Pretty`] reads.
pub async fn prepare(attacker: &Access) -> Result<()> {
    let tower = format!("{}{}", "[".repeat(DEPTH), "]".repeat(DEPTH));
    let extensions: Vec<String> = (0..TOWERS)
        .map(|at| format!(r#"{{"kind":"Infrastructure","name":"tower-{at}","state":{tower}}}"#))
        .collect();
    let body = object("towers", &extensions.join(","));
    let answer = Api::new(attacker)?
        .request(Method::POST, COLLECTION)
        .header("Content-Type", "application/json")
        .body(body)
        .send()
        .await?;
    ensure!(answer.status() == 201, "the towers were not created: {}", answer.text().await?);
    Ok(())
}

fn object(name: &str, extensions: &str) -> String {
    format!(
        r#"{{"apiVersion":"core.gardener.cloud/v1alpha1","kind":"ShootState","metadata":{{"name":"{name}","labels":{{"attack":"yes"}}}},"spec":{{"extensions":[{extensions}]}}}}"#
    )
}

impl Running {
    /// Starts these attacks at once.
    pub async fn start(attacker: &Access, attacks: &[Attack]) -> Result<Self> {
        let mut running = Self {
            tasks: JoinSet::new(),
            answers: Answers::default(),
            runtime: Some(low_priority_runtime()?),
        };
        for attack in attacks {
            match attack {
                Attack::ZeroWindow => running.zero_window(attacker)?,
                Attack::Pretty => running.costly(attacker, *attack, Method::GET, None)?,
                Attack::Wide => {
                    let entries = vec!["{}"; WIDE_BYTES / 3].join(",");
                    let body = Bytes::from(object("wide", &entries));
                    running.costly(attacker, *attack, Method::POST, Some(body))?;
                }
            }
        }
        Ok(running)
    }

    /// Ends them. Tells how often each was answered with what.
    pub async fn stop(mut self) -> Value {
        self.tasks.shutdown().await;
        json!(*self.answers.lock())
    }

    fn spawn(&mut self, attack: impl Future<Output = ()> + Send + 'static) {
        if let Some(runtime) = &self.runtime {
            self.tasks.spawn_on(attack, runtime.handle());
        }
    }

    fn zero_window(&mut self, attacker: &Access) -> Result<()> {
        let anonymous = attacker.with(Credential::Anonymous);
        let api = Api::build(&anonymous, Client::builder().http2_initial_stream_window_size(0))?;
        for (method, count) in UNREAD {
            for _ in 0..count {
                let (api, method, answers) = (api.clone(), method.clone(), self.answers.clone());
                self.spawn(async move {
                    loop {
                        let held = async {
                            let mut response = api.request(method.clone(), COLLECTION).send().await?;
                            let status = response.status().as_u16();
                            // The window is zero: this waits until the server ends the stream.
                            let _ = response.chunk().await;
                            anyhow::Ok(status)
                        };
                        let ended = timeout(GIVEN_UP, held).await;
                        count_answer(&answers, Attack::ZeroWindow, ended.ok().and_then(Result::ok));
                        tokio::task::yield_now().await;
                    }
                });
            }
        }
        Ok(())
    }

    fn costly(
        &mut self,
        attacker: &Access,
        attack: Attack,
        method: Method,
        body: Option<Bytes>,
    ) -> Result<()> {
        let path = match attack {
            Attack::Pretty => format!("{COLLECTION}/towers?pretty=true"),
            Attack::ZeroWindow | Attack::Wide => COLLECTION.to_owned(),
        };
        for _ in 0..CONNECTIONS {
            let api = Api::new(attacker)?;
            let (path, method, body, answers) =
                (path.clone(), method.clone(), body.clone(), self.answers.clone());
            self.spawn(async move {
                loop {
                    let status = exchange(&api, method.clone(), &path, body.clone()).await;
                    count_answer(&answers, attack, status.ok());
                    tokio::task::yield_now().await;
                }
            });
        }
        Ok(())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // A runtime that is dropped would wait, which async code must not.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// One request, read to its end.
async fn exchange(api: &Api, method: Method, path: &str, body: Option<Bytes>) -> Result<u16> {
    let mut request = api.request(method, path).header("Content-Type", "application/json");
    if let Some(body) = body {
        request = request.body(body);
    }
    let mut response = request.send().await?;
    while response.chunk().await?.is_some() {}
    Ok(response.status().as_u16())
}

fn count_answer(answers: &Answers, attack: Attack, status: Option<u16>) {
    let status = status.map_or_else(|| "failed".to_owned(), |status| status.to_string());
    *answers.lock().entry(format!("{}: {status}", attack.name())).or_default() += 1;
}
