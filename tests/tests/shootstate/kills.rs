//! `kill -9` of the server at random points of hundreds of writes: what was acknowledged is there, nothing is half there,
//! and the next start needs no help.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use repot_tests::http::Api;
use repot_tests::run;
use repot_tests::wait::until;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep_until};

use super::world::{World, collection, path, small};

const WRITES: usize = 300;
const WRITERS: usize = 3;
/// How long the kube-apiserver may take to notice that the server is there again.
const DEADLINE: Duration = Duration::from_secs(90);
/// Filler of the states written, from what fits into a record to many chunks.
const SIZES: [usize; 5] = [100, 20_000, 200_000, 900_000, 2_500_000];

#[test]
fn acknowledged_writes_survive_kills_on_the_embedded_store() {
    run(async |env| survive(World::dev(env).await?).await);
}

#[test]
fn acknowledged_writes_survive_kills_on_etcd() {
    run(async |env| survive(World::garden_on_etcd(env).await?).await);
}

async fn survive(mut world: World) -> Result<()> {
    let done = Arc::new(AtomicUsize::new(0));
    let stop = Arc::new(AtomicBool::new(false));
    let deaths = Arc::new(Deaths::default());
    let writer = |number| tokio::spawn(Writer::new(&world, number, &done, &stop, &deaths).run());
    let writers: Vec<_> = (0..WRITERS).map(writer).collect();
    let mut kills = 0;
    let mut random = Random(7);
    while done.load(Ordering::Relaxed) < WRITES {
        // The point of the kill is what is random here; nothing is waited for.
        sleep_until(Instant::now() + Duration::from_millis(random.below(700))).await;
        deaths.begin();
        world.repot().kill();
        kills += 1;
        world.repot().restart().await.context("the start after a kill")?;
        let api = world.api.clone();
        until("the server to be reached again", DEADLINE, async || {
            api.get(&collection("default")).await?.ok().map(drop)
        })
        .await?;
        deaths.end();
    }
    stop.store(true, Ordering::Relaxed);
    let mut acknowledged = Vec::new();
    for writer in writers {
        acknowledged.push(writer.await??);
    }
    ensure!(kills >= 5, "only {kills} kills in {WRITES} writes");
    for (name, last) in acknowledged {
        let found = read(&world.api, &name).await?.context("an acknowledged object is gone")?;
        let number = verify(&found)?;
        ensure!(number >= last, "{name}: write {last} was acknowledged, {number} is there");
    }
    let list = world.api.get(&collection("default")).await?.ok()?;
    for object in list["items"].as_array().context("items")? {
        verify(object)?;
    }
    Ok(())
}

/// When the server is dead, or not reached yet after a start: odd then, and another number each time.
#[derive(Default)]
struct Deaths(AtomicUsize);

impl Deaths {
    fn begin(&self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }

    fn end(&self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }

    fn now(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }

    /// Whether the server was dead at some time since `before`.
    fn any_since(&self, before: usize) -> bool {
        before % 2 == 1 || self.now() != before
    }
}

/// Writes one object again and again; remembers the last write that was acknowledged.
struct Writer {
    api: Api,
    name: String,
    done: Arc<AtomicUsize>,
    stop: Arc<AtomicBool>,
    deaths: Arc<Deaths>,
}

impl Writer {
    fn new(
        world: &World,
        number: usize,
        done: &Arc<AtomicUsize>,
        stop: &Arc<AtomicBool>,
        deaths: &Arc<Deaths>,
    ) -> Self {
        let (api, done, stop, deaths) = (world.api.clone(), done.clone(), stop.clone(), deaths.clone());
        Self { api, name: format!("writer-{number}"), done, stop, deaths }
    }

    async fn run(self) -> Result<(String, u64)> {
        let (mut next, mut last) = (1, 0);
        while !self.stop.load(Ordering::Relaxed) {
            if self.write(next).await? {
                last = next;
                self.done.fetch_add(1, Ordering::Relaxed);
            }
            next += 1;
        }
        Ok((self.name, last))
    }

    /// Whether the write was acknowledged. That it was not is excused by a server that was dead meanwhile, and by nothing else.
    async fn write(&self, number: u64) -> Result<bool> {
        let before = self.deaths.now();
        match self.try_write(number).await {
            Ok(200 | 201) => Ok(true),
            Err(error) if error.is::<Half>() => Err(error),
            // A write that was not acknowledged may have come to light after the read.
            Ok(409) | Err(_) if self.deaths.any_since(before) => Ok(false),
            Ok(500..) if self.deaths.any_since(before) => Ok(false),
            Ok(status) => {
                bail!("write {number} of {} was answered with {status} by a server that lived", self.name)
            }
            Err(error) => {
                Err(error.context(format!("write {number} of {}, to a server that lived", self.name)))
            }
        }
    }

    /// The status of the answer.
    async fn try_write(&self, number: u64) -> Result<u16> {
        let mut object = small(&self.name, &state(number));
        let answer = match read(&self.api, &self.name).await? {
            None => self.api.post(&collection("default"), &object).await?,
            Some(current) => {
                verify(&current).map_err(|error| Half(error.to_string()))?;
                object["metadata"] = current["metadata"].clone();
                self.api.put(&path(&self.name), &object).await?
            }
        };
        Ok(answer.status)
    }
}

/// An object that is not wholly of one write: no kill excuses that.
#[derive(Debug)]
struct Half(String);

impl std::fmt::Display for Half {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Half {}

async fn read(api: &Api, name: &str) -> Result<Option<Value>> {
    let answer = api.get(&path(name)).await?;
    match answer.status {
        404 if answer.json()?["details"]["name"] == name => Ok(None),
        _ => answer.ok().map(Some),
    }
}

fn state(number: u64) -> Value {
    let size = SIZES[usize::try_from(number).unwrap_or(0) % SIZES.len()];
    json!({"number": number, "filler": filler(number, size)})
}

/// Hexadecimal digits that no codec shortens by more than half.
pub fn noise(size: usize) -> String {
    filler(1, size)
}

fn filler(seed: u64, size: usize) -> String {
    let mut random = Random(seed);
    (0..size / 16).map(|_| format!("{:016x}", random.next())).collect()
}

/// The number of the write that an object shows; its whole content has to be of that write.
fn verify(object: &Value) -> Result<u64> {
    let found = &object["spec"]["extensions"][0]["state"];
    let number = found["number"].as_u64().context("an object without a number")?;
    ensure!(*found == state(number), "half of write {number} of {} is there", object["metadata"]["name"]);
    Ok(number)
}

/// Numbers that look random and are the same in each run.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }
}
