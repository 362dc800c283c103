//! A client that writes all the time, and notes how long each write took.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Result, ensure};
use parking_lot::Mutex;
use repot_tests::http::Api;
use serde_json::json;
use tokio::task::AbortHandle;
use tokio::time::{interval, sleep, timeout};

const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";
const NAME: &str = "probe";
/// From one write to the next.
const PERIOD: Duration = Duration::from_millis(50);
/// A write without an answer after this time has failed.
const PATIENCE: Duration = Duration::from_secs(10);

/// One write: when it was begun and answered, in seconds since 1970, whether it was acknowledged, and how often it was repeated since the
/// API server asked for that.
#[derive(Clone, Copy, Debug)]
pub struct Write {
    pub begun: f64,
    pub ended: f64,
    pub is_acknowledged: bool,
    pub repeated: u32,
}

/// A client that writes until it is dropped.
pub struct Probe {
    writes: Arc<Mutex<Vec<Write>>>,
    task: AbortHandle,
}

impl Drop for Probe {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Probe {
    /// Starts to write to one ConfigMap.
    pub async fn start(api: Api) -> Result<Self> {
        let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": NAME}});
        let made = api.post(CONFIG_MAPS, &object).await?;
        ensure!([201, 409].contains(&made.status), "{made}");
        let writes = Arc::new(Mutex::new(Vec::new()));
        let task = tokio::spawn(write(api, writes.clone())).abort_handle();
        Ok(Self { writes, task })
    }

    /// All writes since the start, in their order.
    pub fn writes(&self) -> Vec<Write> {
        self.writes.lock().clone()
    }
}

/// The time now, in seconds since 1970.
pub fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}

async fn write(api: Api, writes: Arc<Mutex<Vec<Write>>>) {
    let mut ticks = interval(PERIOD);
    for number in 0_u64.. {
        ticks.tick().await;
        let (begun, mut repeated) = (now(), 0);
        let outcome = timeout(PATIENCE, patiently(&api, number, &mut repeated)).await;
        let is_acknowledged = outcome.is_ok_and(|outcome| outcome.is_ok());
        writes.lock().push(Write { begun, ended: now(), is_acknowledged, repeated });
    }
}

/// As client-go does: what the API server refuses with a time is asked again.
async fn patiently(api: &Api, number: u64, repeated: &mut u32) -> Result<()> {
    loop {
        let patch = json!({"data": {"number": number.to_string()}});
        let answer =
            api.patch(&format!("{CONFIG_MAPS}/{NAME}"), "application/merge-patch+json", &patch).await?;
        let pause = answer.headers.get("Retry-After").and_then(|text| text.to_str().ok()?.parse().ok());
        match pause.filter(|_| answer.status == 429 || answer.status >= 500) {
            Some(seconds) => {
                *repeated += 1;
                sleep(Duration::from_secs(seconds)).await;
            }
            None => return answer.ok().map(drop),
        }
    }
}
