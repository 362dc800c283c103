//! Clients of a Shoot that ask and write all the time, and remember each request that has failed and each write that was acknowledged.
//! They repeat a request as client-go does: where the API server has refused it and says when it may be repeated.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use jiff::Timestamp;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::{interval, sleep, timeout};

use crate::http::{Answer, Api};

const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";
const PREFIX: &str = "asked-";
/// From one request of a client to the next.
const PERIOD: Duration = Duration::from_millis(25);
/// A request without an answer after this time has failed.
const PATIENCE: Duration = Duration::from_secs(10);
/// How often client-go repeats a request.
const REPETITIONS: u32 = 10;
/// So many failures are remembered one by one.
const MOST_FAILURES: usize = 20_000;

/// Clients that run until they are dropped.
pub struct Requests {
    seen: Arc<Mutex<Seen>>,
    clients: JoinSet<()>,
}

/// What the clients have seen.
#[derive(Default)]
struct Seen {
    answered: u64,
    failed: Vec<Failure>,
    repeated: u64,
    slowest: Duration,
    last_answer: Option<Instant>,
    longest_gap: Duration,
    gap_began: Option<Timestamp>,
    /// What was acknowledged, by the name of the object.
    written: BTreeMap<String, Written>,
    /// The newest version of which each client was told.
    versions: BTreeMap<usize, u64>,
    /// Answers that were older than one before them.
    older: Vec<String>,
}

/// A request that was not answered as it should be.
#[derive(Clone, Debug)]
pub struct Failure {
    /// When it was begun.
    pub begun: Timestamp,
    /// When it had failed.
    pub ended: Timestamp,
    /// What went wrong, in a few words that are the same for all failures of this kind.
    pub kind: String,
    /// What went wrong, in words.
    pub message: String,
}

/// An object whose creation was acknowledged.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// Its version after the last write that was acknowledged.
    pub version: u64,
    /// Whether a change of it was acknowledged, too.
    pub is_changed: bool,
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
    /// When it began: the time of the answer before it.
    pub gap_began: Option<Timestamp>,
}

impl Count {
    /// The numbers in one line.
    pub fn summary(&self) -> String {
        let Self { answered, failed, repeated, slowest, longest_gap, gap_began } = self;
        let failed = failed.len();
        let began = gap_began.map(|began| format!(" at {began:.3}")).unwrap_or_default();
        format!(
            "{answered} answered, {failed} failed, {repeated} repeated, slowest {slowest:?}, longest gap {longest_gap:?}{began}"
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
        Self { seen, clients }
    }

    /// How many clients there are.
    pub fn clients(&self) -> usize {
        self.clients.len()
    }

    /// What was seen so far.
    pub fn count(&self) -> Count {
        let seen = self.seen.lock();
        Count {
            answered: seen.answered,
            failed: seen.failed.iter().map(|one| format!("at {}: {}", one.ended, one.message)).collect(),
            repeated: seen.repeated,
            slowest: seen.slowest,
            longest_gap: seen.longest_gap,
            gap_began: seen.gap_began,
        }
    }

    /// Requests that were not answered as they should be, in the order in which they failed.
    pub fn failures(&self) -> Vec<Failure> {
        self.seen.lock().failed.clone()
    }

    /// Objects whose creation was acknowledged, by name.
    pub fn written(&self) -> BTreeMap<String, Written> {
        self.seen.lock().written.clone()
    }

    /// Acknowledged writes whose version was not newer than that of a write before it, of one client; in words.
    pub fn older_versions(&self) -> Vec<String> {
        self.seen.lock().older.clone()
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
    let mut ticks = interval(period);
    let mut number = 0_u64;
    loop {
        ticks.tick().await;
        let (begun, begun_at) = (Instant::now(), Timestamp::now());
        let outcome = timeout(PATIENCE, repeated(&api, (client, number), &seen)).await;
        let outcome = outcome.unwrap_or_else(|_| bail_late());
        let mut seen = seen.lock();
        number += 1;
        match outcome {
            Ok(answer) => {
                seen.note(begun, Instant::now());
                seen.note_write((client, number - 1), &answer);
            }
            Err(error) => {
                seen.note_failure(begun_at, &error);
                // Nobody knows whether an object is there whose creation has failed: the next one is another.
                number = number.next_multiple_of(3);
            }
        }
    }
}

fn bail_late() -> Result<Answer> {
    bail!("no answer within {PATIENCE:?}")
}

/// Makes a request, and makes it again where the API server has refused it with a time.
async fn repeated(api: &Api, which: (usize, u64), seen: &Mutex<Seen>) -> Result<Answer> {
    for _ in 0..REPETITIONS {
        let (answer, status) = request(api, which).await?;
        match retry_after(&answer) {
            None => {
                ensure!(answer.status == status, "{answer}");
                return Ok(answer);
            }
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

/// Name of the object that is created, read and changed by three requests of a client.
fn name((client, number): (usize, u64)) -> String {
    object_name(client, number / 3)
}

/// Name of an object that a client creates, by how many it has created before.
pub fn object_name(client: usize, created: u64) -> String {
    format!("{PREFIX}{client}-{created}")
}

/// One object is created, read and changed in turn; gives the answer, and the status that it should have.
async fn request(api: &Api, which: (usize, u64)) -> Result<(Answer, u16)> {
    let name = name(which);
    let path = format!("{CONFIG_MAPS}/{name}");
    match which.1 % 3 {
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

impl Seen {
    fn note(&mut self, begun: Instant, now: Instant) {
        self.answered += 1;
        self.slowest = self.slowest.max(now.duration_since(begun));
        let gap = self.last_answer.map(|last| now.duration_since(last)).unwrap_or_default();
        if gap > self.longest_gap {
            self.longest_gap = gap;
            self.gap_began = Timestamp::now().checked_sub(gap).ok();
        }
        self.last_answer = Some(now);
    }

    /// Remembers what was acknowledged. A client makes one request after the other, so each write has a newer version than those before.
    fn note_write(&mut self, (client, number): (usize, u64), answer: &Answer) {
        if number % 3 == 1 {
            return;
        }
        let name = name((client, number));
        let version = answer.json().ok().as_ref().and_then(version);
        let newest = self.versions.get(&client).copied();
        let Some(version) = version.filter(|version| Some(*version) > newest) else {
            self.older.push(format!("{name} had version {version:?}, and a write before it {newest:?}"));
            return;
        };
        self.versions.insert(client, version);
        self.written.insert(name, Written { version, is_changed: number % 3 == 2 });
    }

    fn note_failure(&mut self, begun: Timestamp, error: &anyhow::Error) {
        if self.failed.len() < MOST_FAILURES {
            let (kind, message) = (kind(error), format!("{error:#}"));
            self.failed.push(Failure { begun, ended: Timestamp::now(), kind, message });
        }
    }
}

/// The version of an object; `None` where it has none.
pub fn version(object: &Value) -> Option<u64> {
    object["metadata"]["resourceVersion"].as_str()?.parse().ok()
}

/// What kind of failure it is.
fn kind(error: &anyhow::Error) -> String {
    let client = error.chain().find_map(|cause| cause.downcast_ref::<reqwest::Error>());
    match client {
        Some(cause) if cause.is_connect() => "no connection".to_owned(),
        Some(_) => "connection lost".to_owned(),
        None => {
            let text = error.to_string();
            let status = text.split(" answered ").nth(1).and_then(|rest| rest.split(':').next());
            status.map_or(text.clone(), |status| format!("status {status}"))
        }
    }
}

/// Reads all objects of the clients that are there, by name, some hundreds at a time.
pub async fn read_back(api: &Api) -> Result<BTreeMap<String, Written>> {
    let mut found = BTreeMap::new();
    let mut next = String::new();
    loop {
        let page = api.get(&format!("{CONFIG_MAPS}?limit=500&continue={next}")).await?.ok()?;
        for object in page["items"].as_array().into_iter().flatten() {
            let name = object["metadata"]["name"].as_str().unwrap_or_default();
            if let Some(version) = version(object).filter(|_| name.starts_with(PREFIX)) {
                let is_changed = object["data"]["changed"] == "true";
                found.insert(name.to_owned(), Written { version, is_changed });
            }
        }
        match page["metadata"]["continue"].as_str().filter(|text| !text.is_empty()) {
            Some(text) => text.clone_into(&mut next),
            None => return Ok(found),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_of_one_kind_have_one_name() {
        let refused = anyhow::anyhow!("POST https://api/x answered 403: {{}}");
        assert_eq!(kind(&refused), "status 403");
        assert_eq!(kind(&anyhow::anyhow!("no answer within 10s")), "no answer within 10s");
    }
}
