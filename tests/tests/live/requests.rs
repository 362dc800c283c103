//! Clients of a Shoot that ask and write all the time, and remember each request that has failed. They repeat a request as client-go
//! does: where the API server has refused it and says when it may be repeated.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use parking_lot::Mutex;
use repot_tests::http::{Answer, Api};
use serde_json::json;
use tokio::task::JoinSet;
use tokio::time::{interval, sleep, timeout};

const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";
/// From one request of a client to the next.
const PERIOD: Duration = Duration::from_millis(25);
/// A request without an answer after this time has failed.
const PATIENCE: Duration = Duration::from_secs(10);
/// How often client-go repeats a request.
const REPETITIONS: u32 = 10;

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
    repeated: u64,
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
    /// How often a request was repeated because the API server asked for that.
    pub repeated: u64,
    /// The longest time that an answer took.
    pub slowest: Duration,
    /// The longest time from one answer to the next, of all clients together.
    pub longest_gap: Duration,
}

impl Count {
    /// The numbers in one line.
    pub fn summary(&self) -> String {
        let Self { answered, failed, repeated, slowest, longest_gap } = self;
        let failed = failed.len();
        format!(
            "{answered} answered, {failed} failed, {repeated} repeated, slowest {slowest:?}, longest gap {longest_gap:?}"
        )
    }
}

impl Requests {
    /// Starts one client for each API; they read and write in turn.
    pub fn start(apis: Vec<Api>) -> Self {
        Self::start_every(PERIOD, apis)
    }

    /// The same with another time from one request of a client to the next.
    pub fn start_every(period: Duration, apis: Vec<Api>) -> Self {
        let (seen, mut clients) = (Arc::new(Mutex::new(Seen::default())), JoinSet::new());
        for (at, api) in apis.into_iter().enumerate() {
            clients.spawn(ask(api, (at, period), seen.clone()));
        }
        Self { seen, _clients: clients }
    }

    /// What was seen so far.
    pub fn count(&self) -> Count {
        let seen = self.seen.lock();
        Count {
            answered: seen.answered,
            failed: seen.failed.clone(),
            repeated: seen.repeated,
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

async fn ask(api: Api, (client, period): (usize, Duration), seen: Arc<Mutex<Seen>>) {
    let (mut ticks, start) = (interval(period), Instant::now());
    for number in 0_u64.. {
        ticks.tick().await;
        let begun = Instant::now();
        let outcome = timeout(PATIENCE, repeated(&api, (client, number), &seen)).await;
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

/// Makes a request, and makes it again where the API server has refused it with a time.
async fn repeated(api: &Api, which: (usize, u64), seen: &Mutex<Seen>) -> Result<()> {
    for _ in 0..REPETITIONS {
        let (answer, status) = request(api, which).await?;
        match retry_after(&answer) {
            None => return has_status(&answer, status),
            Some(pause) => {
                seen.lock().repeated += 1;
                sleep(pause).await;
            }
        }
    }
    bail!("refused {REPETITIONS} times")
}

fn retry_after(answer: &Answer) -> Option<Duration> {
    let is_asked = answer.status == 429 || answer.status >= 500;
    let pause = answer.headers.get("Retry-After").filter(|_| is_asked)?.to_str().ok()?;
    pause.parse().ok().map(Duration::from_secs)
}

/// One object is created, read and changed in turn; gives the answer, and the status that it should have.
async fn request(api: &Api, (client, number): (usize, u64)) -> Result<(Answer, u16)> {
    let name = format!("asked-{client}-{}", number / 3);
    let path = format!("{CONFIG_MAPS}/{name}");
    match number % 3 {
        0 => {
            let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}});
            Ok((api.post(CONFIG_MAPS, &object).await?, 201))
        }
        1 => Ok((api.get(&path).await?, 200)),
        _ => {
            let patch = json!({"data": {"changed": "true"}});
            Ok((api.patch(&path, "application/merge-patch+json", &patch).await?, 200))
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
