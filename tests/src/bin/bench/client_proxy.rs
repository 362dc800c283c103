//! What the proxy in the guard of an etcd costs (`etcd/src/agent/client_proxy.rs`): the same etcd is asked through the proxy and
//! directly, in turns.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use etcd_client::Client;
use futures::future::try_join_all;
use repot_etcd::link;
use repot_tests::dns::{DnsServer, TTL, ZONE};
use repot_tests::process::{Process, Spec};
use repot_tests::{TestEnv, binaries, port};
use serde_json::json;

use crate::proc;
use crate::storage::Report;

const DEADLINE: Duration = Duration::from_secs(60);
const KEY: &str = "/client-proxy";

/// A call of the key-value service.
#[derive(Clone, Copy, Debug)]
enum Call {
    Put,
    Get,
}

/// Call, bytes of the value, and calls at a time.
const CELLS: [(Call, usize, usize); 5] = [
    (Call::Put, 1_000, 1),
    (Call::Put, 1_000, 64),
    (Call::Get, 1_000, 1),
    (Call::Get, 1_000, 64),
    (Call::Get, 1_000_000, 4),
];

/// Measures each cell on both ways, in turns.
///
/// Errors: when a program is missing, or a call fails.
pub async fn bench(
    env: &TestEnv,
    repot: &Path,
    rounds: usize,
    time: Duration,
    only: Option<&str>,
) -> Result<Report> {
    let dns = DnsServer::start(env).await?;
    dns.set("owner", &["a/1"]).await?;
    let port = port::reserve()?;
    let mut agent = start(env, repot, &dns, port)?;
    let through = format!("http://127.0.0.1:{port}");
    let probe = async || connect(&through).await?.status().await.map(drop).map_err(Into::into);
    agent.ready(DEADLINE, probe).await?;
    let sides = [("direct", connect(&direct(env)?).await?), ("through the proxy", connect(&through).await?)];
    let mut report = Report { setting: proc::describe_machine(env.path())?, rows: Vec::new() };
    for (call, bytes, at_once) in CELLS {
        let what = format!("{call:?} {bytes} bytes, {at_once} at a time");
        if only.is_some_and(|only| !what.contains(only)) {
            continue;
        }
        let mut runs = [Vec::new(), Vec::new()];
        for round in 0..=rounds {
            for ((_, client), runs) in sides.iter().zip(&mut runs) {
                let run = measure(client, call, bytes, at_once, time).await?;
                // The first round warms up.
                runs.extend((round > 0).then_some(run));
            }
        }
        let before = median(&runs[0]);
        for ((side, _), runs) in sides.iter().zip(&runs) {
            let own = median(runs);
            report.add(
                "client-proxy",
                &what,
                side,
                json!({
                    "p50Millis": own.p50, "p99Millis": own.p99, "callsPerSecond": own.rate,
                    "p50 beside direct": own.p50 / before.p50, "calls beside direct": own.rate / before.rate,
                }),
            );
        }
    }
    Ok(report)
}

/// An agent whose etcd has a deadline.
fn start(env: &TestEnv, repot: &Path, dns: &DnsServer, client: u16) -> Result<Process> {
    let (peer, http) = (port::reserve()?, port::reserve()?);
    let config = json!({
        "name": "main", "namespace": "ns", "volumes": "v", "clusterToken": "1/v", "clusterState": "new",
        "members": [{
            "name": "m0", "pod": "main-0",
            "peerUrls": [format!("http://127.0.0.1:{peer}")],
            "clientUrls": [format!("http://127.0.0.1:{client}")],
        }],
        "ports": { "client": client, "peer": peer, "agent": http },
        "dataDir": env.make_dir("volume")?,
        "store": { "url": format!("file://{}", env.make_dir("store")?.display()) },
        "owner": {
            "name": format!("owner.{ZONE}"), "id": "a/1", "servers": [dns.address()],
            "ttl": format!("{TTL}s"), "interval": "5s", "timeout": "30s", "grace": "41s",
        },
    });
    let file = env.make_dir("agent")?.join("agent.yaml");
    fs::write(&file, config.to_string())?;
    let spec = Spec::new("agent", repot).arg("etcd-agent").flag("config", file);
    let spec = spec.flag("etcd", binaries::find("etcd")?).flag("etcdutl", binaries::find("etcdutl")?);
    Process::start(env, spec.env("POD_NAME", "main-0").env("POD_IP", "127.0.0.1"))
}

/// Where etcd itself listens, as its command line says.
fn direct(env: &TestEnv) -> Result<String> {
    let dir = env.path().display().to_string();
    for entry in fs::read_dir("/proc")?.flatten() {
        let line = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let words: Vec<_> = line.split(|byte| *byte == 0).map(String::from_utf8_lossy).collect();
        let is_ours = words.iter().any(|word| word.starts_with("--data-dir=") && word.contains(&dir));
        let url = words.iter().find_map(|word| word.strip_prefix("--listen-client-urls="));
        if let (true, Some(url), true) = (is_ours, url, words[0].ends_with("etcd")) {
            return Ok(url.to_owned());
        }
    }
    anyhow::bail!("no etcd runs in {dir}")
}

async fn connect(url: &str) -> Result<Client> {
    let options = link::Options { endpoints: vec![url.to_owned()], ..Default::default() };
    Ok(link::connect(&options).await?)
}

/// One round of one side.
#[derive(Clone, Copy, Debug, Default)]
struct Run {
    p50: f64,
    p99: f64,
    rate: f64,
}

async fn measure(client: &Client, call: Call, bytes: usize, at_once: usize, time: Duration) -> Result<Run> {
    let value = vec![7; bytes];
    client.kv_client().put(KEY, value.clone(), None).await?;
    let begun = Instant::now();
    let workers = (0..at_once).map(|_| {
        let (mut kv, value) = (client.kv_client(), value.clone());
        tokio::spawn(async move {
            let mut millis = Vec::new();
            while begun.elapsed() < time {
                let asked = Instant::now();
                match call {
                    Call::Put => drop(kv.put(KEY, value.clone(), None).await?),
                    Call::Get => drop(kv.get(KEY, None).await?),
                }
                millis.push(asked.elapsed().as_secs_f64() * 1e3);
            }
            anyhow::Ok(millis)
        })
    });
    let all = try_join_all(workers).await?;
    let mut millis = Vec::new();
    for one in all {
        millis.extend(one.context("a call failed")?);
    }
    let rate = millis.len() as f64 / begun.elapsed().as_secs_f64();
    millis.sort_by(f64::total_cmp);
    Ok(Run { p50: proc::percentile(&millis, 50.0), p99: proc::percentile(&millis, 99.0), rate })
}

/// Of each reading the middle one.
fn median(runs: &[Run]) -> Run {
    let of = |read: fn(&Run) -> f64| {
        let mut all: Vec<f64> = runs.iter().map(read).collect();
        all.sort_by(f64::total_cmp);
        all.get(all.len() / 2).copied().unwrap_or_default()
    };
    Run { p50: of(|run| run.p50), p99: of(|run| run.p99), rate: of(|run| run.rate) }
}
