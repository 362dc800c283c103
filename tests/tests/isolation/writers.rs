//! Clients of an etcd that write all the time, each write by a connection of its own, as many short-lived programs do.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use base64::prelude::{BASE64_STANDARD, Engine as _};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::{Instant, interval};

const CLIENTS: usize = 4;
/// From one write of a client to the next.
const PERIOD: Duration = Duration::from_millis(50);
/// A write without an answer after this time has failed.
const TIMEOUT: Duration = Duration::from_secs(5);
const PREFIX: &str = "written/";

/// Clients that run until they are dropped.
pub struct Writers {
    url: String,
    client: reqwest::Client,
    seen: Arc<Mutex<Vec<Write>>>,
    _tasks: JoinSet<()>,
}

/// One write: its key, when it was begun, how long it took, and why it failed, if it did.
struct Write {
    key: String,
    begun: Instant,
    took: Duration,
    failure: Option<String>,
}

/// What clients saw in a time.
#[derive(Debug)]
pub struct Seen {
    pub writes: usize,
    pub failed: Vec<String>,
    pub p50: Duration,
    pub p99: Duration,
}

impl Writers {
    /// Starts them at the address of a Service.
    pub fn start(service: SocketAddr) -> Result<Self> {
        let client =
            reqwest::Client::builder().no_proxy().pool_max_idle_per_host(0).timeout(TIMEOUT).build()?;
        let (url, seen, mut tasks) = (format!("http://{service}/v3/kv"), Arc::default(), JoinSet::new());
        for number in 0..CLIENTS {
            tasks.spawn(write(client.clone(), url.clone(), number, Arc::clone(&seen)));
        }
        Ok(Self { url, client, seen, _tasks: tasks })
    }

    /// What they saw of writes that were begun since then and have ended.
    pub fn since(&self, from: Instant) -> Seen {
        let seen = self.seen.lock();
        let own: Vec<&Write> = seen.iter().filter(|write| write.begun >= from).collect();
        let mut took: Vec<Duration> = own.iter().map(|write| write.took).collect();
        took.sort();
        let at = |percent: usize| took.get((took.len() * percent / 100).min(took.len().saturating_sub(1)));
        let at = |percent| at(percent).copied().unwrap_or_default();
        let failed = own.iter().filter_map(|write| write.failure.clone()).collect();
        Seen { writes: own.len(), failed, p50: at(50), p99: at(99) }
    }

    /// Every write that was acknowledged is there.
    pub async fn ensure_none_lost(&self) -> Result<usize> {
        let (key, end) = (BASE64_STANDARD.encode(PREFIX), BASE64_STANDARD.encode("written0"));
        let acknowledged: BTreeSet<String> = {
            let seen = self.seen.lock();
            seen.iter().filter(|write| write.failure.is_none()).map(|write| write.key.clone()).collect()
        };
        let range = json!({"key": key, "range_end": end, "keys_only": true});
        let answer = self.client.post(format!("{}/range", self.url)).json(&range).send().await?;
        let answer: Value = answer.error_for_status()?.json().await?;
        let keys = answer["kvs"].as_array().context("no keys")?.iter();
        let keys = keys.map(|one| BASE64_STANDARD.decode(one["key"].as_str().unwrap_or_default()));
        let keys: BTreeSet<String> =
            keys.flatten().map(|key| String::from_utf8_lossy(&key).into_owned()).collect();
        let lost: Vec<_> = acknowledged.difference(&keys).collect();
        ensure!(lost.is_empty(), "{} of {} writes are lost: {lost:?}", lost.len(), acknowledged.len());
        Ok(acknowledged.len())
    }
}

async fn write(client: reqwest::Client, url: String, client_number: usize, seen: Arc<Mutex<Vec<Write>>>) {
    let mut ticks = interval(PERIOD);
    for number in 0_u64.. {
        ticks.tick().await;
        let (key, begun) = (format!("{PREFIX}{client_number}/{number:08}"), Instant::now());
        let put = json!({"key": BASE64_STANDARD.encode(&key), "value": BASE64_STANDARD.encode("x")});
        let answer = client.post(format!("{url}/put")).json(&put).send().await;
        let failure =
            answer.and_then(reqwest::Response::error_for_status).err().map(|error| format!("{error:?}"));
        seen.lock().push(Write { key, begun, took: begun.elapsed(), failure });
    }
}
