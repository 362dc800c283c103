//! Clients that watch ConfigMaps of a Shoot all the time, as informers do: a watch that ends is begun again where it ended. Each of them has
//! to be told everything that it asks for, once and in order: all ConfigMaps, or one, as a kubelet watches those of its Pods.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use parking_lot::Mutex;
use repot_tests::http::Api;
use repot_tests::wait::until;
use reqwest::Method;
use serde_json::Value;
use tokio::task::JoinSet;
use tokio::time::sleep;

const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";
/// How long client-go waits at first before it begins a watch again.
const PAUSE: Duration = Duration::from_millis(800);

/// Watches that run until they are dropped.
pub struct Watches {
    /// Those that watch all ConfigMaps.
    seen: Vec<Arc<Mutex<Seen>>>,
    /// Those that watch one, with its name.
    of_one: Vec<(String, Arc<Mutex<Seen>>)>,
    tasks: JoinSet<()>,
}

/// What one of them has seen.
#[derive(Default)]
struct Seen {
    /// Names of the objects of events, by version.
    names: BTreeMap<u64, String>,
    /// Versions in the order of their events.
    versions: Vec<u64>,
    /// How often it was begun again.
    restarts: u32,
    failed: Vec<String>,
}

impl Watches {
    /// Begins `count` watches, from what is there now on, by each of the APIs in turn.
    pub async fn start(apis: Vec<Api>, count: usize) -> Result<Self> {
        let mut all = Self { seen: Vec::new(), of_one: Vec::new(), tasks: JoinSet::new() };
        for at in 0..count {
            let api = apis[at % apis.len()].clone();
            let from = version(&api.get(CONFIG_MAPS).await?.ok()?)?;
            let own = all.follow(api, from, String::new());
            all.seen.push(own);
        }
        Ok(all)
    }

    /// Begins a watch for each of these names, which may not exist yet, by each of the APIs in turn.
    pub async fn add_of_one(&mut self, apis: &[Api], names: impl IntoIterator<Item = String>) -> Result<()> {
        let api = apis.first().context("there is no API")?;
        let from = version(&api.get(&format!("{CONFIG_MAPS}?limit=1")).await?.ok()?)?;
        for (at, name) in names.into_iter().enumerate() {
            let selector = format!("&fieldSelector=metadata.name%3D{name}");
            let own = self.follow(apis[at % apis.len()].clone(), from, selector);
            self.of_one.push((name, own));
        }
        Ok(())
    }

    fn follow(&mut self, api: Api, from: u64, selector: String) -> Arc<Mutex<Seen>> {
        let own = Arc::new(Mutex::new(Seen::default()));
        self.tasks.spawn(follow(api, from, selector, own.clone()));
        own
    }

    /// Fails unless each watch has told of every object as it is now, once and in order. Nobody writes any more.
    pub async fn ensure_none_missed(&self, api: &Api, deadline: Duration) -> Result<String> {
        let list = api.get(CONFIG_MAPS).await?.ok()?;
        let items = list["items"].as_array().context("no list")?.iter();
        let name = |one: &Value| one["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let asked = items.filter(|one| name(one).starts_with("asked-"));
        let stored: BTreeMap<String, u64> =
            asked.map(|one| Ok((name(one), version(one)?))).collect::<Result<_>>()?;
        let versions: BTreeSet<u64> = stored.values().copied().collect();
        let last = *versions.last().context("nothing was written")?;
        until("all watches to see the last write", deadline, async || {
            let is_behind = |one: &Mutex<Seen>, last| one.lock().versions.last() < Some(&last);
            let behind = self.seen.iter().filter(|one| is_behind(one, last)).count();
            let of_one = self.of_one.iter().filter_map(|(name, one)| Some((one, *stored.get(name)?)));
            let behind = behind + of_one.filter(|(one, last)| is_behind(one, *last)).count();
            ensure!(behind == 0, "{behind} watches are behind");
            Ok(())
        })
        .await?;
        self.ensure_told(&versions, last)?;
        let all = || self.seen.iter().chain(self.of_one.iter().map(|(_, one)| one));
        let restarts: u32 = all().map(|one| one.lock().restarts).sum();
        let events: usize = all().map(|one| one.lock().versions.len()).sum();
        Ok(format!("{} watches, {events} events, begun again {restarts} times", all().count()))
    }

    fn ensure_told(&self, versions: &BTreeSet<u64>, last: u64) -> Result<()> {
        // What comes after the last write that is known may have reached some of them only.
        let until_last = |one: &Mutex<Seen>| {
            one.lock().versions.iter().copied().filter(|version| *version <= last).collect::<Vec<_>>()
        };
        let all: Vec<Vec<u64>> = self.seen.iter().map(|one| until_last(one)).collect();
        // One that began later has seen the end of what the others have.
        let most = all.iter().max_by_key(|versions| versions.len()).context("there is no watch")?;
        for (at, (one, told)) in self.seen.iter().zip(&all).enumerate() {
            one.lock().check(versions).with_context(|| format!("watch {at}"))?;
            ensure!(most.ends_with(told), "watch {at} was told of other events than the others");
        }
        let names = self.seen.first().context("there is no watch")?.lock().names.clone();
        for (name, one) in &self.of_one {
            let is_own = |(version, of): &(&u64, &String)| **version <= last && *of == name;
            let own: Vec<u64> = names.iter().filter(is_own).map(|(version, _)| *version).collect();
            one.lock().check(&BTreeSet::new()).with_context(|| format!("the watch of {name}"))?;
            let told = until_last(one);
            ensure!(told == own, "the watch of {name} was told of {told:?}, others of {own:?}");
        }
        Ok(())
    }
}

impl Seen {
    fn check(&self, stored: &BTreeSet<u64>) -> Result<()> {
        ensure!(self.failed.is_empty(), "failed: {:#?}", self.failed);
        let is_ordered = self.versions.windows(2).all(|pair| pair[0] < pair[1]);
        ensure!(is_ordered, "versions went back, or came twice");
        let told: BTreeSet<u64> = self.versions.iter().copied().collect();
        let missed: Vec<_> = stored.iter().filter(|version| !told.contains(version)).collect();
        ensure!(missed.is_empty(), "{missed:?} were not told");
        Ok(())
    }
}

fn version(object: &Value) -> Result<u64> {
    let version = object["metadata"]["resourceVersion"].as_str().context("no version")?;
    version.parse().with_context(|| format!("the version is {version}"))
}

async fn follow(api: Api, mut from: u64, selector: String, seen: Arc<Mutex<Seen>>) {
    loop {
        if let Err(error) = watch(&api, &mut from, &selector, &seen).await {
            seen.lock().failed.push(format!("{error:#}"));
        }
        seen.lock().restarts += 1;
        sleep(PAUSE).await;
    }
}

/// One watch to its end, which is no failure.
async fn watch(api: &Api, from: &mut u64, selector: &str, seen: &Mutex<Seen>) -> Result<()> {
    let path = format!("{CONFIG_MAPS}?watch=true&allowWatchBookmarks=true&resourceVersion={from}{selector}");
    let mut answer = api.request(Method::GET, &path).send().await?;
    let status = answer.status();
    if status == 429 || status.as_u16() >= 500 && answer.headers().contains_key("Retry-After") {
        return Ok(());
    }
    ensure!(status == 200, "the watch is refused with {status}");
    let mut buffer = Vec::new();
    // A stream that breaks is begun again, as one that ends.
    while let Ok(Some(chunk)) = answer.chunk().await {
        buffer.extend_from_slice(&chunk);
        while let Some(end) = buffer.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = buffer.drain(..=end).collect();
            note(&serde_json::from_slice(&line)?, from, seen)?;
        }
    }
    Ok(())
}

fn note(event: &Value, from: &mut u64, seen: &Mutex<Seen>) -> Result<()> {
    match event["type"].as_str() {
        Some("ADDED" | "MODIFIED") => {
            let (version, name) = (version(&event["object"])?, &event["object"]["metadata"]["name"]);
            let mut seen = seen.lock();
            seen.versions.push(version);
            seen.names.insert(version, name.as_str().unwrap_or_default().to_owned());
        }
        Some("BOOKMARK") => {}
        _ => bail!("an unexpected event: {event}"),
    }
    *from = version(&event["object"])?;
    Ok(())
}
