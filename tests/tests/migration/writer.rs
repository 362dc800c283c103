//! A client of the Shoot that writes all the time, and remembers what was acknowledged.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use parking_lot::Mutex;
use repot_tests::http::Api;
use serde_json::json;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";
const PREFIX: &str = "written-";
/// Between two writes.
const PAUSE: Duration = Duration::from_millis(100);
/// A request without an answer after this time may have been done or not.
const PATIENCE: Duration = Duration::from_secs(2);

/// Writes until it is dropped.
pub struct Writer {
    acknowledged: Arc<Mutex<BTreeMap<u32, Instant>>>,
    task: JoinHandle<()>,
}

impl Writer {
    /// Starts to create one object after the other.
    pub fn start(api: Api) -> Self {
        Self::start_with(api, PREFIX)
    }

    /// The same with another beginning of the names of objects.
    pub fn start_with(api: Api, prefix: &str) -> Self {
        let acknowledged = Arc::new(Mutex::new(BTreeMap::new()));
        let task = tokio::spawn(write(api, prefix.to_owned(), acknowledged.clone()));
        Self { acknowledged, task }
    }

    /// Numbers of the objects whose creation was acknowledged.
    pub fn acknowledged(&self) -> BTreeSet<u32> {
        self.acknowledged.lock().keys().copied().collect()
    }

    /// The longest time without an acknowledged creation, from `since` on.
    pub fn longest_silence_since(&self, since: Instant) -> Duration {
        let mut times: Vec<_> =
            self.acknowledged.lock().values().copied().filter(|time| *time > since).collect();
        times.extend([since, Instant::now()]);
        times.sort_unstable();
        times.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap_or_default()
    }

    /// When the first and the last creation was acknowledged.
    pub fn times(&self) -> Option<(Instant, Instant)> {
        let acknowledged = self.acknowledged.lock();
        acknowledged.values().min().copied().zip(acknowledged.values().max().copied())
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn write(api: Api, prefix: String, acknowledged: Arc<Mutex<BTreeMap<u32, Instant>>>) {
    for number in 0.. {
        let object = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": format!("{prefix}{number}")},
        });
        if let Ok(Ok(answer)) = timeout(PATIENCE, api.post(CONFIG_MAPS, &object)).await
            && answer.status == 201
        {
            acknowledged.lock().insert(number, Instant::now());
        }
        sleep(PAUSE).await;
    }
}

/// Name of the object of a number.
pub fn name(number: u32) -> String {
    format!("{PREFIX}{number}")
}

/// Numbers of the objects that are there.
pub async fn stored(api: &Api) -> Result<BTreeSet<u32>> {
    stored_with(api, PREFIX).await
}

/// The same with another beginning of the names of objects.
pub async fn stored_with(api: &Api, prefix: &str) -> Result<BTreeSet<u32>> {
    let all = api.get(CONFIG_MAPS).await?.ok()?;
    let items = all["items"].as_array().context("no list")?;
    let names = items.iter().filter_map(|one| one["metadata"]["name"].as_str()?.strip_prefix(prefix));
    Ok(names.filter_map(|number| number.parse().ok()).collect())
}
