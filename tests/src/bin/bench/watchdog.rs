//! What the watchdog proxy costs (`controllers/src/watchdog`): the same kube-apiserver is asked through the proxy and directly, in turns.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use futures::future::try_join_all;
use repot_tests::access::Access;
use repot_tests::dns::{DnsServer, TTL, ZONE};
use repot_tests::garden::Garden;
use repot_tests::http::Api;
use repot_tests::process::{Process, Spec};
use repot_tests::{TestEnv, port};
use serde_json::json;

use crate::proc;
use crate::storage::Report;

const DEADLINE: Duration = Duration::from_secs(60);
const NAMESPACE: &str = "shoot--bench--a";
const MERGE: &str = "application/merge-patch+json";

/// A call of the API.
#[derive(Clone, Copy, Debug)]
enum Call {
    Get,
    Patch,
}

/// Call, bytes of the ConfigMap, and connections with one call at a time each.
const CELLS: [(Call, usize, usize); 5] = [
    (Call::Get, 1_000, 1),
    (Call::Get, 1_000, 16),
    (Call::Patch, 1_000, 1),
    (Call::Patch, 1_000, 16),
    (Call::Get, 500_000, 4),
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
    let (seed, dns) = (seed(env).await?, DnsServer::start(env).await?);
    dns.set("owner", &["a/1"]).await?;
    own(&seed, &dns).await?;
    let (_proxy, through) = start(env, repot, &seed).await?;
    let sides = [("direct", seed.admin().clone()), ("through the proxy", through)];
    let mut report = Report { setting: proc::describe_machine(env.path())?, rows: Vec::new() };
    for (call, bytes, connections) in CELLS {
        let what = format!("{call:?} {bytes} bytes, {connections} connections");
        if only.is_some_and(|only| !what.contains(only)) {
            continue;
        }
        let mut runs = [Vec::new(), Vec::new()];
        for round in 0..=rounds {
            for ((_, access), runs) in sides.iter().zip(&mut runs) {
                let run = measure(access, call, bytes, connections, time).await?;
                // The first round warms up.
                runs.extend((round > 0).then_some(run));
            }
        }
        let before = median(&runs[0]);
        for ((side, _), runs) in sides.iter().zip(&runs) {
            let own = median(runs);
            report.add(
                "watchdog",
                &what,
                side,
                json!({
                    "p50Millis": own.p50, "p99Millis": own.p99, "callsPerSecond": own.rate,
                    "p50 beside direct": own.p50 / before.p50, "p99 beside direct": own.p99 / before.p99,
                    "calls beside direct": own.rate / before.rate,
                }),
            );
        }
    }
    Ok(report)
}

async fn seed(env: &TestEnv) -> Result<Garden> {
    let seed = Garden::start(env).await?;
    let etcds = concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy/crds/etcds.yaml");
    seed.kubectl(["apply", "--server-side", "-f", etcds]).await?.text()?;
    seed.kubectl(["wait", "--for=condition=Established", "crd", "--all", "--timeout=60s"]).await?.text()?;
    Ok(seed)
}

/// A Namespace whose owner record is checked.
async fn own(seed: &Garden, dns: &DnsServer) -> Result<()> {
    let check = json!({
        "name": format!("owner.{ZONE}"), "id": "a/1", "servers": [dns.address()], "dnsCacheTTL": format!("{TTL}s"),
    });
    seed.apply(&[
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}),
        json!({
            "apiVersion": "druid.gardener.cloud/v1alpha1", "kind": "Etcd",
            "metadata": {"name": "etcd-main", "namespace": NAMESPACE},
            "spec": {
                "replicas": 1,
                "backup": {"ownerCheck": check, "store": {"provider": "S3", "container": "b", "prefix": "p"}},
            },
        }),
    ])
    .await
}

async fn start(env: &TestEnv, repot: &Path, seed: &Garden) -> Result<(Process, Access)> {
    let (dir, health) = (env.make_dir("watchdog")?, port::reserve()?);
    let spec = Spec::new("watchdog-proxy", repot).arg("watchdog-proxy");
    let spec = spec.flag("kubeconfig", seed.kubeconfig()).flag("dir", &dir).flag("listen", "127.0.0.1:0");
    let mut proxy = Process::start(env, spec.flag("health-address", format!("127.0.0.1:{health}")))?;
    let probe = async || {
        reqwest::get(format!("http://127.0.0.1:{health}/readyz")).await?.error_for_status()?;
        Access::read(&dir.join("kubeconfig"))
    };
    let access = proxy.ready(DEADLINE, probe).await?;
    Ok((proxy, access))
}

/// One round of one side.
#[derive(Clone, Copy, Debug, Default)]
struct Run {
    p50: f64,
    p99: f64,
    rate: f64,
}

async fn measure(
    access: &Access,
    call: Call,
    bytes: usize,
    connections: usize,
    time: Duration,
) -> Result<Run> {
    let path = format!("/api/v1/namespaces/{NAMESPACE}/configmaps");
    let clients: Vec<Api> = (0..connections).map(|_| Api::new(access)).collect::<Result<_>>()?;
    // Each connection has an object of its own, so that patches do not conflict; making it opens the connection.
    for (number, client) in clients.iter().enumerate() {
        let object = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": format!("a-{number}")},
            "data": {"a": "x".repeat(bytes)},
        });
        let apply = format!("{path}/a-{number}?fieldManager=bench&force=true");
        client.patch(&apply, "application/apply-patch+yaml", &object).await?.ok()?;
    }
    let begun = Instant::now();
    let workers = clients.into_iter().enumerate().map(|(number, client)| {
        let path = format!("{path}/a-{number}");
        tokio::spawn(async move {
            let mut millis = Vec::new();
            while begun.elapsed() < time {
                let asked = Instant::now();
                let answer = match call {
                    Call::Get => client.get(&path).await?,
                    Call::Patch => {
                        let label = json!({"metadata": {"labels": {"a": millis.len().to_string()}}});
                        client.patch(&path, MERGE, &label).await?
                    }
                };
                millis.push(asked.elapsed().as_secs_f64() * 1e3);
                anyhow::ensure!(answer.status == 200, "{answer}");
            }
            anyhow::Ok(millis)
        })
    });
    let mut millis = Vec::new();
    for one in try_join_all(workers).await? {
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
