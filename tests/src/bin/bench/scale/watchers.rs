//! Many watchers of one object that is written again and again: who sees what, and how late.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use futures::future::try_join_all;
use parking_lot::Mutex;
use repot_tests::http::{Api, send};
use reqwest::{Method, Response};
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::{interval, timeout};

use crate::proc;

/// Watchers that share a connection.
const ON_ONE: usize = 100;
/// Before the number of a write in an event.
const MARK: &str = "\"seq\":\"w";
/// How long after the last write somebody may still wait for it.
const LATE: Duration = Duration::from_secs(60);

/// A server, and what is watched there.
pub struct Watch {
    pub what: &'static str,
    /// Path of the collection, of which one object is written.
    pub path: String,
    /// Metadata alone, or whole objects.
    pub metadata: bool,
    /// The object alone by a field selector, or its collection.
    pub one: bool,
    pub count: usize,
    pub writes: u64,
    /// From one write to the next.
    pub every: Duration,
}

/// When each write was begun, by its number.
type Begun = Arc<Mutex<Vec<Instant>>>;

/// What one watcher saw.
#[derive(Default)]
struct Seen {
    /// Number of the write, and how late it was.
    millis: Vec<(usize, f64)>,
    twice: usize,
}

/// Watches until each watcher has seen all writes, or waits in vain; `connect` makes a connection of its own.
pub async fn watch(connect: &dyn Fn() -> Result<Api>, watch: &Watch) -> Result<Value> {
    let apis = (0..watch.count.div_ceil(ON_ONE)).map(|_| connect()).collect::<Result<Vec<_>>>()?;
    let path = &watch.path;
    let list = apis[0].get(&format!("{path}?limit=1")).await?.ok()?;
    let version = list["metadata"]["resourceVersion"].as_str().context("a list without version")?;
    let name = list["items"][0]["metadata"]["name"].as_str().context("nothing to watch")?.to_owned();
    let selector = if watch.one { format!("&fieldSelector=metadata.name%3D{name}") } else { String::new() };
    let watched = format!("{path}?watch=true&resourceVersion={version}{selector}");
    let opened = Instant::now();
    let streams = (0..watch.count).map(|at| open(&apis[at / ON_ONE], &watched, watch.metadata));
    let streams = try_join_all(streams).await?;
    let opened = opened.elapsed().as_secs_f64() * 1000.0;
    let (begun, writes) = (Begun::default(), watch.writes);
    let mut readers = JoinSet::new();
    for stream in streams {
        readers.spawn(read(stream, Arc::clone(&begun), usize::try_from(writes)?));
    }
    write(&connect()?, &format!("{path}/{name}"), watch, writes, &begun).await?;
    let (mut millis, mut twice) = (Vec::new(), 0);
    while let Some(seen) = readers.join_next().await {
        let seen = seen??;
        millis.extend(seen.millis);
        twice += seen.twice;
    }
    let last = until_last(&millis, usize::try_from(writes)?);
    let mut millis: Vec<f64> = millis.into_iter().map(|(_, millis)| millis).collect();
    millis.sort_by(f64::total_cmp);
    let expected = usize::try_from(writes)? * watch.count;
    Ok(json!({
        "openedMillis": opened, "events": millis.len(), "missed": expected - millis.len(), "twice": twice,
        "p50Millis": proc::percentile(&millis, 50.0), "p99Millis": proc::percentile(&millis, 99.0),
        "worstMillis": millis.last(), "lastWatcherP50Millis": proc::percentile(&last, 50.0),
    }))
}

/// For each write that somebody saw, how late the last watcher was; sorted.
fn until_last(millis: &[(usize, f64)], writes: usize) -> Vec<f64> {
    let mut last = vec![0.0_f64; writes];
    for (number, millis) in millis {
        last[*number] = last[*number].max(*millis);
    }
    last.retain(|millis| *millis > 0.0);
    last.sort_by(f64::total_cmp);
    last
}

async fn open(api: &Api, path: &str, metadata: bool) -> Result<Response> {
    let accept = if metadata {
        "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
    } else {
        "application/json"
    };
    let response = api.request(Method::GET, path).header("accept", accept).send().await?;
    ensure!(response.status().is_success(), "{path} answers {}", response.status());
    Ok(response)
}

/// Writes in a fixed rhythm, however long one takes.
async fn write(api: &Api, path: &str, watch: &Watch, writes: u64, begun: &Begun) -> Result<()> {
    let mut rhythm = interval(watch.every);
    for at in 0..writes {
        rhythm.tick().await;
        let patch = json!({"metadata": {"annotations": {"seq": format!("w{at}")}}}).to_string();
        begun.lock().push(Instant::now());
        let request = api.request(Method::PATCH, path).header("content-type", "application/merge-patch+json");
        let answer = send(request.body(patch)).await?;
        ensure!(answer.status == 200, "{answer}");
    }
    Ok(())
}

/// Reads events until the last write is there.
async fn read(mut stream: Response, begun: Begun, writes: usize) -> Result<Seen> {
    let (mut seen, mut line, mut next) = (Seen::default(), Vec::new(), 0);
    while next < writes {
        let Ok(chunk) = timeout(LATE, stream.chunk()).await else { break };
        let chunk = chunk?.context("a watch ended")?;
        let mut rest = &chunk[..];
        while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
            line.extend_from_slice(&rest[..end]);
            rest = &rest[end + 1..];
            if let Some(number) = number(&line) {
                let late = begun.lock().get(number).map(|begun| begun.elapsed().as_secs_f64() * 1000.0);
                match late {
                    Some(millis) if number >= next => {
                        seen.millis.push((number, millis));
                        next = number + 1;
                    }
                    _ => seen.twice += 1,
                }
            }
            line.clear();
        }
        line.extend_from_slice(rest);
    }
    Ok(seen)
}

/// The number of the write that an event shows.
fn number(line: &[u8]) -> Option<usize> {
    let text = std::str::from_utf8(line).ok()?;
    let (_, rest) = text.split_once(MARK)?;
    rest.split_once('"')?.0.parse().ok()
}
