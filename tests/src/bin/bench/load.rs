//! The load generator: so many connections, each with one request at a time, for so long; or requests that arrive at a rate of
//! their own, whether those before them are answered or not.
//!
//! Bodies are made ready before the clock starts and responses are counted, not parsed.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use bytes::Bytes;
use futures::future::join_all;
use repot_tests::access::Access;
use repot_tests::http::Api;
use reqwest::{Client, Method};
use tokio::task::JoinSet;
use tokio::time::sleep_until;

/// Receive windows as client-go has them, rounded: 4 MiB a stream, more than enough a connection.
const STREAM_WINDOW: u32 = 4 << 20;
const CONNECTION_WINDOW: u32 = 1 << 30;
/// Longer than any server's own limit, so that theirs is seen.
const TIMEOUT: Duration = Duration::from_secs(120);
/// A round that only the number of requests ends.
pub const FOREVER: Duration = Duration::from_secs(3600);

/// Connections to one server, each with its own HTTP/2 session.
#[derive(Clone)]
pub struct Line {
    connections: Vec<Api>,
}

/// One request that is to be sent.
#[derive(Clone)]
pub struct Shot {
    /// HTTP method of the request.
    pub method: Method,
    /// Path and query of the request.
    pub path: String,
    /// Media types to accept.
    pub accept: &'static str,
    /// The JSON body, if there is one.
    pub body: Option<Bytes>,
}

/// What to load with: the request of each sequence number.
pub type Shots = Arc<dyn Fn(u64) -> Shot + Send + Sync>;

/// When a round ends.
#[derive(Clone, Copy, Debug)]
pub struct Limit {
    /// Requests in flight at any time; one a connection.
    pub connections: usize,
    /// No request starts later.
    pub time: Duration,
    /// Nor more requests on any connection.
    pub requests: usize,
}

/// What came back in one round.
#[derive(Clone, Debug, Default)]
pub struct Round {
    /// Latencies of requests that succeeded, in milliseconds.
    pub millis: Vec<f64>,
    /// From the first request's start to the last one's end.
    pub seconds: f64,
    /// Bytes of the bodies received by requests that succeeded.
    pub received: u64,
    /// Latencies of those that failed, of requests that arrive at a rate of their own.
    pub refused_millis: Vec<f64>,
    /// Messages of the requests that failed.
    pub failures: Vec<String>,
    /// Names (sequence numbers) that were used up: from, to.
    pub sequence: (u64, u64),
}

impl Line {
    /// Prepares connections; each is made by its first request.
    pub fn new(access: &Access, connections: usize) -> Result<Self> {
        let connect = |_| {
            let builder = Client::builder()
                .http2_initial_stream_window_size(STREAM_WINDOW)
                .http2_initial_connection_window_size(CONNECTION_WINDOW)
                .pool_max_idle_per_host(1)
                .timeout(TIMEOUT);
            Api::build(access, builder)
        };
        Ok(Self { connections: (0..connections).map(connect).collect::<Result<_>>()? })
    }

    /// Any one of the connections, for calls that are not measured.
    pub fn api(&self) -> &Api {
        &self.connections[0]
    }

    /// Loads the server; numbers of requests start at `first`.
    pub async fn load(&self, shots: &Shots, first: u64, limit: Limit) -> Round {
        let next = Arc::new(AtomicU64::new(first));
        let start = Instant::now();
        let end = start + limit.time;
        let connections = self.connections.iter().take(limit.connections);
        let workers = connections.map(|api| {
            let (api, shots, next) = (api.clone(), shots.clone(), next.clone());
            tokio::spawn(async move { work(&api, &shots, &next, end, limit.requests).await })
        });
        let mut round = Round::default();
        for part in join_all(workers).await {
            match part {
                Ok(part) => round.add(part),
                Err(error) => round.failures.push(error.to_string()),
            }
        }
        round.seconds = start.elapsed().as_secs_f64();
        round.sequence = (first, next.load(Ordering::Relaxed));
        round
    }
}

impl Line {
    /// Lets requests arrive at a constant rate, each over the next connection. Latency counts from when a request was due, so that
    /// a server which keeps everybody waiting is not asked less.
    pub async fn offer(&self, shots: &Shots, first: u64, rate: f64, time: Duration) -> Round {
        let (start, mut asked) = (Instant::now(), JoinSet::new());
        let count = ((rate * time.as_secs_f64()) as u64).max(1);
        for at in 0..count {
            let (api, shot) =
                (self.connections[at as usize % self.connections.len()].clone(), shots(first + at));
            let due = start + Duration::from_secs_f64(at as f64 / rate);
            sleep_until(due.into()).await;
            asked.spawn(async move {
                let answer = fire(&api, shot).await;
                (due.elapsed().as_secs_f64() * 1000.0, answer)
            });
        }
        let mut round = Round { sequence: (first, first + count), ..Round::default() };
        while let Some(answer) = asked.join_next().await {
            match answer {
                Ok((millis, Ok(received))) => {
                    round.millis.push(millis);
                    round.received += received;
                }
                Ok((millis, Err(error))) => round.refuse(millis, &error),
                Err(error) => round.failures.push(error.to_string()),
            }
        }
        round.seconds = start.elapsed().as_secs_f64();
        round
    }
}

impl Round {
    fn refuse(&mut self, millis: f64, error: &anyhow::Error) {
        self.refused_millis.push(millis);
        self.failures.push(format!("{error:#}"));
    }

    fn add(&mut self, part: Self) {
        self.millis.extend(part.millis);
        self.received += part.received;
        self.failures.extend(part.failures);
    }

    /// Requests that succeeded, a second.
    pub fn rate(&self) -> f64 {
        self.millis.len() as f64 / self.seconds.max(1e-9)
    }
}

async fn work(api: &Api, shots: &Shots, next: &AtomicU64, end: Instant, requests: usize) -> Round {
    let mut round = Round::default();
    for _ in 0..requests {
        let shot = shots(next.fetch_add(1, Ordering::Relaxed));
        let start = Instant::now();
        match fire(api, shot).await {
            Ok(received) => {
                round.millis.push(start.elapsed().as_secs_f64() * 1000.0);
                round.received += received;
            }
            Err(error) => round.failures.push(format!("{error:#}")),
        }
        if Instant::now() >= end {
            break;
        }
    }
    round
}

/// Sends a request and counts the bytes of its response.
///
/// Errors: on transport failures and any status but 200 and 201, with the start of the body.
pub async fn fire(api: &Api, shot: Shot) -> Result<u64> {
    let media_type =
        if shot.method == Method::PATCH { "application/merge-patch+json" } else { "application/json" };
    let mut request = api.request(shot.method, &shot.path).header("Accept", shot.accept);
    if let Some(body) = shot.body {
        request = request.header("Content-Type", media_type).body(body);
    }
    let mut response = request.send().await?;
    let status = response.status().as_u16();
    if !matches!(status, 200 | 201) {
        let text: String = response.text().await.unwrap_or_default().chars().take(300).collect();
        bail!("HTTP {status}: {text}");
    }
    let mut received = 0;
    while let Some(chunk) = response.chunk().await? {
        received += chunk.len() as u64;
    }
    Ok(received)
}
