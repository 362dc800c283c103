//! Clients at both gateways: they write, read and watch, and remember what they were told.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use etcd_client::{Client, Compare, CompareOp, Error, GetOptions, Txn, TxnOp, WatchOptions};
use parking_lot::Mutex;
use repot_etcd::link;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use crate::gateway::world::DEADLINE;

/// A request that takes longer has failed.
const LONGEST: Duration = Duration::from_secs(30);
/// From one failure to the next attempt.
const PAUSE: Duration = Duration::from_millis(50);

/// The clients that run.
pub struct Load {
    shared: Arc<Shared>,
    clients: JoinSet<Result<()>>,
    watchers: JoinSet<Result<()>>,
}

/// What they remember.
struct Shared {
    end: AtomicBool,
    requests: AtomicUsize,
    /// Requests of each side that failed, with what was said.
    failures: Mutex<Vec<String>>,
    /// What was acknowledged: the key, and the revision.
    acknowledged: Mutex<BTreeMap<String, i64>>,
    /// What was asked for and neither acknowledged nor refused.
    unknown: Mutex<BTreeSet<String>>,
    /// The last acknowledged number of each writer.
    last: Vec<AtomicI64>,
    /// How long acknowledgements were apart.
    gaps: Mutex<Gaps>,
    /// What each watcher has seen: revision and key.
    histories: Mutex<[Vec<(i64, String)>; 2]>,
    resumed: AtomicUsize,
}

/// The longest time between two acknowledgements on each side, by the phase in which it began.
#[derive(Default)]
struct Gaps {
    phases: Vec<Phase>,
    last: [Option<(Instant, usize)>; 2],
}

/// A time between two changes of the membership.
#[derive(Clone, Debug)]
pub struct Phase {
    /// What it began with.
    pub name: String,
    /// At the source and at the destination.
    pub longest: [Duration; 2],
}

/// What they say in the end.
#[derive(Debug)]
pub struct Report {
    pub requests: usize,
    pub acknowledged: usize,
    pub failures: Vec<String>,
    pub resumed: usize,
    pub phases: Vec<Phase>,
}

impl Load {
    /// So many writers and a reader and a watcher on each side, by the gateways there.
    pub async fn start(gateways: [link::Options; 2], writers: usize) -> Result<Self> {
        let shared = Arc::new(Shared {
            end: AtomicBool::new(false),
            requests: AtomicUsize::new(0),
            failures: Mutex::default(),
            acknowledged: Mutex::default(),
            unknown: Mutex::default(),
            last: (0..2 * writers).map(|_| AtomicI64::new(-1)).collect(),
            gaps: Mutex::default(),
            histories: Mutex::default(),
            resumed: AtomicUsize::new(0),
        });
        let (mut clients, mut watchers) = (JoinSet::new(), JoinSet::new());
        for (side, gateway) in gateways.into_iter().enumerate() {
            let connect = async || link::connect(&gateway).await;
            for writer in (0..writers).map(|at| 2 * at + side) {
                clients.spawn(write(shared.clone(), connect().await?, side, writer));
            }
            clients.spawn(read(shared.clone(), connect().await?, side));
            watchers.spawn(watch(shared.clone(), connect().await?, side));
        }
        Ok(Self { shared, clients, watchers })
    }

    /// Requests that were made so far.
    pub fn requests(&self) -> usize {
        self.shared.requests.load(Ordering::Relaxed)
    }

    /// Counts for another phase from now on.
    pub fn begin(&self, name: &str) {
        let phase = Phase { name: name.to_owned(), longest: Default::default() };
        self.shared.gaps.lock().phases.push(phase);
    }

    /// Ends the clients and compares what they were told with what is there.
    ///
    /// Errors: where a write that was acknowledged is not there once, or a watch has missed, repeated or swapped one.
    pub async fn finish(mut self, client: &Client) -> Result<Report> {
        self.shared.end.store(true, Ordering::Relaxed);
        while let Some(client) = self.clients.join_next().await {
            client??;
        }
        let there = self.compare(client).await?;
        let end = Instant::now() + DEADLINE;
        for side in 0..2 {
            loop {
                let seen = self.shared.histories.lock()[side].clone();
                if seen.len() >= there.len() {
                    ensure!(
                        seen == there,
                        "the history of side {side} differs: {}",
                        difference(&seen, &there)
                    );
                    break;
                }
                if let Some(watcher) = self.watchers.try_join_next() {
                    watcher??;
                }
                ensure!(Instant::now() < end, "side {side} saw {} of {}", seen.len(), there.len());
                sleep(PAUSE).await;
            }
        }
        self.watchers.abort_all();
        let shared = &self.shared;
        Ok(Report {
            requests: self.requests(),
            acknowledged: shared.acknowledged.lock().len(),
            failures: shared.failures.lock().clone(),
            resumed: shared.resumed.load(Ordering::Relaxed),
            phases: shared.gaps.lock().phases.clone(),
        })
    }

    /// All that is there, in the order in which it came to be.
    async fn compare(&self, client: &Client) -> Result<Vec<(i64, String)>> {
        let options = GetOptions::new().with_prefix().with_keys_only();
        let answer = client.kv_client().get("log/", Some(options)).await?;
        let (mut there, unknown) = (Vec::new(), self.shared.unknown.lock().clone());
        let acknowledged = self.shared.acknowledged.lock().clone();
        for kv in answer.kvs() {
            let key = kv.key_str()?.to_owned();
            ensure!(kv.version() == 1, "{key} was written {} times", kv.version());
            match acknowledged.get(&key) {
                Some(revision) => ensure!(*revision == kv.mod_revision(), "{key} came at another revision"),
                None => ensure!(unknown.contains(&key), "{key} is there, and nobody asked for it"),
            }
            there.push((kv.mod_revision(), key));
        }
        let keys: BTreeSet<&str> = there.iter().map(|(_, key)| key.as_str()).collect();
        let lost = acknowledged.keys().find(|key| !keys.contains(key.as_str()));
        ensure!(lost.is_none(), "{lost:?} was acknowledged and is lost");
        there.sort_unstable();
        Ok(there)
    }
}

fn difference(seen: &[(i64, String)], there: &[(i64, String)]) -> String {
    let at = seen.iter().zip(there).position(|(seen, there)| seen != there).unwrap_or(there.len());
    format!("at {at}: {:?} instead of {:?}", seen.get(at), there.get(at))
}

impl Gaps {
    fn note(&mut self, side: usize, now: Instant) {
        let phase = self.phases.len().saturating_sub(1);
        if let Some((last, began)) = self.last[side].replace((now, phase))
            && let Some(phase) = self.phases.get_mut(began)
        {
            phase.longest[side] = phase.longest[side].max(now - last);
        }
    }
}

impl Shared {
    fn ended(&self) -> bool {
        self.end.load(Ordering::Relaxed)
    }

    fn fail(&self, side: usize, what: &str, why: &str) {
        println!("side {side}: {what}: {why}");
        self.failures.lock().push(format!("side {side}: {what}: {why}"));
    }

    fn acknowledge(&self, side: usize, writer: usize, number: i64, key: String, revision: i64) {
        let now = Instant::now();
        self.gaps.lock().note(side, now);
        self.acknowledged.lock().insert(key, revision);
        self.last[writer].store(number, Ordering::SeqCst);
    }
}

/// The key of a number of a writer.
fn key_of(writer: usize, number: i64) -> String {
    format!("log/{writer:02}/{number:08}")
}

/// Writes its numbers, one after the other, each under a key of its own.
async fn write(shared: Arc<Shared>, client: Client, side: usize, writer: usize) -> Result<()> {
    let mut number = 0;
    while !shared.ended() {
        let key = key_of(writer, number);
        let absent = [Compare::create_revision(key.as_str(), CompareOp::Equal, 0)];
        let last = TxnOp::put(format!("last/{writer}"), number.to_string(), None);
        let puts = [TxnOp::put(key.as_str(), "1", None), last];
        let mut kv = client.kv_client();
        let answer = timeout(LONGEST, kv.txn(Txn::new().when(absent).and_then(puts))).await;
        shared.requests.fetch_add(1, Ordering::Relaxed);
        match answer {
            Ok(Ok(answer)) => {
                ensure!(answer.succeeded(), "{key} was there before it was written: it was sent twice");
                let revision = answer.header().context("no header")?.revision();
                shared.acknowledge(side, writer, number, key, revision);
            }
            // Whether it is there nobody knows: the next number is another key.
            failed => {
                shared.unknown.lock().insert(key.clone());
                shared.fail(side, &key, &describe(failed));
                sleep(PAUSE).await;
            }
        }
        number += 1;
    }
    Ok(())
}

/// Reads what the writers wrote last: never less than what was acknowledged before it asked. Only a write without an answer may be done
/// late, after those that followed it.
async fn read(shared: Arc<Shared>, client: Client, side: usize) -> Result<()> {
    let mut turn = 0;
    while !shared.ended() {
        turn += 1;
        let writer = turn % shared.last.len();
        let before = shared.last[writer].load(Ordering::SeqCst);
        let answer = timeout(LONGEST, client.kv_client().get(format!("last/{writer}"), None)).await;
        shared.requests.fetch_add(1, Ordering::Relaxed);
        match answer {
            Ok(Ok(answer)) => {
                let read = answer
                    .kvs()
                    .first()
                    .map_or(Ok(-1), |kv| kv.value_str()?.parse::<i64>().map_err(anyhow::Error::from))?;
                let is_late = || shared.unknown.lock().contains(&key_of(writer, read));
                ensure!(
                    read >= before || is_late(),
                    "side {side} read {read} after {before} was acknowledged"
                );
            }
            failed => {
                shared.fail(side, "a read", &describe(failed));
                sleep(PAUSE).await;
            }
        }
    }
    Ok(())
}

fn describe<T>(failed: Result<Result<T, Error>, tokio::time::error::Elapsed>) -> String {
    match failed {
        Ok(Ok(_)) => "it did not fail".to_owned(),
        Ok(Err(error)) => error.to_string(),
        Err(_) => format!("no answer within {LONGEST:?}"),
    }
}

/// Watches the log from its beginning; begins anew after the last revision that it has whole.
async fn watch(shared: Arc<Shared>, mut client: Client, side: usize) -> Result<()> {
    let mut next = 1;
    loop {
        let options = WatchOptions::new().with_prefix().with_start_revision(next).with_progress_notify();
        let Ok(mut stream) = client.watch("log/", Some(options)).await else {
            sleep(PAUSE).await;
            continue;
        };
        while let Ok(Some(message)) = stream.message().await {
            if message.compact_revision() > 0 || message.canceled() {
                bail!("the watch of side {side} was cancelled: {}", message.cancel_reason());
            }
            let mut histories = shared.histories.lock();
            for event in message.events() {
                let kv = event.kv().context("an event without a key")?;
                histories[side].push((kv.mod_revision(), kv.key_str()?.to_owned()));
                next = kv.mod_revision() + 1;
            }
        }
        shared.resumed.fetch_add(1, Ordering::Relaxed);
    }
}
