//! Clients of a Shoot that ask and write all the time, and remember each request that has failed.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use parking_lot::Mutex;
use repot_tests::http::{Answer, Api};
use serde_json::json;
use tokio::task::JoinSet;
use tokio::time::{interval, timeout};

const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";
/// From one request of a client to the next.
const PERIOD: Duration = Duration::from_millis(25);
/// A request without an answer after this time has failed.
const PATIENCE: Duration = Duration::from_secs(10);

/// Clients that run until they are dropped.
pub struct Requests {
    seen: Arc<Mutex<Seen>>,
    _clients: JoinSet<()>,
}

/// What the clients have seen.
#[derive(Default)]
struct Seen {
    answered: u64,
    failed: Vec<String>,
    slowest: Duration,
    last_answer: Option<Instant>,
    longest_gap: Duration,
}

/// What the clients have seen, as numbers.
#[derive(Debug)]
pub struct Count {
    /// Requests that were answered as they should be.
    pub answered: u64,
    /// Requests that were not, in words.
    pub failed: Vec<String>,
    /// The longest time that an answer took.
    pub slowest: Duration,
    /// The longest time from one answer to the next, of all clients together.
    pub longest_gap: Duration,
}

impl Requests {
    /// Starts one client for each API; they read and write in turn.
    pub fn start(apis: Vec<Api>) -> Self {
        let (seen, mut clients) = (Arc::new(Mutex::new(Seen::default())), JoinSet::new());
        for (at, api) in apis.into_iter().enumerate() {
            clients.spawn(ask(api, at, seen.clone()));
        }
        Self { seen, _clients: clients }
    }

    /// What was seen so far.
    pub fn count(&self) -> Count {
        let seen = self.seen.lock();
        Count {
            answered: seen.answered,
            failed: seen.failed.clone(),
            slowest: seen.slowest,
            longest_gap: seen.longest_gap,
        }
    }

    /// None of at least so many requests has failed.
    pub fn ensure_none_failed(&self, least: u64) -> Result<Count> {
        let count = self.count();
        ensure!(
            count.failed.is_empty(),
            "{} of {} failed: {:#?}",
            count.failed.len(),
            count.answered,
            count.failed
        );
        ensure!(count.answered >= least, "only {} were answered", count.answered);
        Ok(count)
    }
}

async fn ask(api: Api, client: usize, seen: Arc<Mutex<Seen>>) {
    let (mut ticks, start) = (interval(PERIOD), Instant::now());
    for number in 0_u64.. {
        ticks.tick().await;
        let begun = Instant::now();
        let outcome = timeout(PATIENCE, request(&api, client, number)).await;
        let outcome = outcome.unwrap_or_else(|_| bail_late());
        let mut seen = seen.lock();
        match outcome {
            Ok(()) => seen.note(begun, Instant::now()),
            Err(error) => seen.failed.push(format!("after {:?}: {error:#}", start.elapsed())),
        }
    }
}

fn bail_late() -> Result<()> {
    bail!("no answer within {PATIENCE:?}")
}

/// One object is created, read and changed in turn.
async fn request(api: &Api, client: usize, number: u64) -> Result<()> {
    let name = format!("asked-{client}-{}", number / 3);
    let path = format!("{CONFIG_MAPS}/{name}");
    match number % 3 {
        0 => {
            let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}});
            has_status(&api.post(CONFIG_MAPS, &object).await?, 201)
        }
        1 => has_status(&api.get(&path).await?, 200),
        _ => {
            let patch = json!({"data": {"changed": "true"}});
            has_status(&api.patch(&path, "application/merge-patch+json", &patch).await?, 200)
        }
    }
}

fn has_status(answer: &Answer, status: u16) -> Result<()> {
    ensure!(answer.status == status, "{answer}");
    Ok(())
}

impl Seen {
    fn note(&mut self, begun: Instant, now: Instant) {
        self.answered += 1;
        self.slowest = self.slowest.max(now.duration_since(begun));
        let gap = self.last_answer.map(|last| now.duration_since(last)).unwrap_or_default();
        self.longest_gap = self.longest_gap.max(gap);
        self.last_answer = Some(now);
    }
}
