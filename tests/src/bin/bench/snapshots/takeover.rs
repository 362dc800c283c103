//! How long nobody can write while another seed takes over: from the last write that the source took to the first one that the
//! destination takes, by the size of the etcd. A standby beside a restore of the final snapshot; both with real agents, whose ownership a
//! DNS record tells.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use repot_etcd::link;
use repot_tests::access::{Access, Credential};
use repot_tests::dns::{DnsServer, TTL, ZONE};
use repot_tests::http::Api;
use repot_tests::port;
use repot_tests::process::{Process, Spec};
use repot_tests::wait::until;
use serde_json::{Value, json};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::fixture::{fill, url};
use super::{Bench, MB};

/// Owner IDs of the two sides.
const SOURCE: &str = "seed-a/1";
const DESTINATION: &str = "seed-b/2";
/// For what depends on the size of the etcd.
const DEADLINE: Duration = Duration::from_secs(1800);
/// How long one write may take before the next one is tried.
const PATIENCE: Duration = Duration::from_millis(500);
/// From one write to the next.
const PACE: Duration = Duration::from_millis(20);

pub(super) async fn bench(bench: &mut Bench<'_>) -> Result<()> {
    for size in bench.flags.takeover_sizes.clone() {
        let cell = format!("take over an etcd of {} MB", size / MB);
        if !bench.wants(&cell) {
            continue;
        }
        for (side, standby) in [("standby", true), ("restore of the final snapshot", false)] {
            let mut millis = Vec::new();
            for _ in 0..bench.flags.takeovers {
                millis.push(take_over(bench, size, standby).await?.as_secs_f64() * 1000.0);
            }
            bench.say(&format!("{cell}, {side}: {millis:.0?} ms"));
            bench.report.add_times(&cell, side, millis);
        }
    }
    Ok(())
}

/// One takeover of an etcd that is filled anew; gives the time without writes.
async fn take_over(bench: &Bench<'_>, size: usize, standby: bool) -> Result<Duration> {
    let dns = DnsServer::start(bench.env).await?;
    dns.set("owner", &[SOURCE]).await?;
    let store = bench.env.make_dir("takeover-store")?;
    let mut source = Side::plan(bench, &dns, SOURCE)?;
    source.config["store"] = json!({ "url": url(&store) });
    let mut source_agent = source.start(bench)?;
    source.until(&mut source_agent, "ready", |status| status["phase"] == "Serving").await?;
    let client = connect(&source.client_url).await?;
    until("etcd of the source", DEADLINE, async || Ok(client.kv_client().get("x", None).await.map(drop)?))
        .await?;
    fill(&client, size).await?;
    let full: Value = source.api.get("/snapshot/full").await?.json()?;
    let filled = full["lastRevision"].as_i64().context("no full snapshot was taken")?;

    let mut destination = Side::plan(bench, &dns, DESTINATION)?;
    destination.config["restore"] = json!({ "store": { "url": url(&store) }, "standby": standby });
    destination.config["store"] = json!({ "url": url(&bench.env.make_dir("takeover-own")?) });
    let mut agent = destination.start(bench)?;
    let is_prepared = |status: &Value| match standby {
        true => status["standby"]["revision"].as_i64() >= Some(filled),
        false => status["owner"]["reason"] == "OwnerOlder",
    };
    destination.until(&mut agent, "prepared", is_prepared).await?;

    let stop = CancellationToken::new();
    let last = tokio::spawn(write_until(source.client_url.clone(), stop.clone()));
    // Some deltas are written and followed.
    sleep(Duration::from_secs(5)).await;
    dns.set("owner", &[DESTINATION]).await?;
    let first = first_write(&destination.client_url).await?;
    stop.cancel();
    let (last, count) = last.await??;
    let client = connect(&destination.client_url).await?;
    let found = client.kv_client().get(key(count - 1), None).await?;
    ensure!(found.kvs().len() == 1, "the last write that was taken, {count}, is lost");
    Ok(first - last)
}

/// One side: an agent with one member.
struct Side {
    config: Value,
    file: PathBuf,
    client_url: String,
    api: Api,
}

impl Side {
    fn plan(bench: &Bench<'_>, dns: &DnsServer, id: &str) -> Result<Self> {
        let dir = bench.env.make_dir("takeover-agent")?;
        let [client, peer, agent] = [port::reserve()?, port::reserve()?, port::reserve()?];
        let at = |port: u16| format!("http://127.0.0.1:{port}");
        let config = json!({
            "name": "main", "namespace": "ns", "volumes": "v", "clusterToken": id, "clusterState": "new",
            "members": [{"name": "m0", "pod": "main-0", "peerUrls": [at(peer)], "clientUrls": [at(client)]}],
            "ports": {"client": client, "peer": peer, "agent": agent}, "dataDir": bench.env.make_dir("takeover-volume")?,
            "snapshots": {"fullSchedule": "@yearly", "deltaPeriod": "2s"},
            "etcdFlags": {"quota-backend-bytes": "8589934592"},
            "owner": {
                "name": format!("owner.{ZONE}"), "id": id, "servers": [dns.address()], "ttl": format!("{TTL}s"),
                "interval": "2s", "timeout": "4s", "grace": "60s",
            },
        });
        let access = Access { server: at(agent), ca_pem: String::new(), credential: Credential::Anonymous };
        Ok(Self { config, file: dir.join("agent.yaml"), client_url: at(client), api: Api::new(&access)? })
    }

    fn start(&self, bench: &Bench<'_>) -> Result<Process> {
        std::fs::write(&self.file, self.config.to_string())?;
        let programs = &bench.programs;
        let spec = Spec::new("takeover", &programs.repot)
            .arg("etcd-agent")
            .flag("config", &self.file)
            .flag("etcd", &programs.etcd)
            .flag("etcdutl", &programs.etcdutl)
            .env("POD_NAME", "main-0")
            .env("POD_IP", "127.0.0.1");
        Process::start(bench.env, spec)
    }

    async fn until(&self, process: &mut Process, what: &str, fits: impl Fn(&Value) -> bool) -> Result<()> {
        let look = async || {
            let status: Value = self.api.get("/status").await?.json()?;
            ensure!(fits(&status), "it is not {what}: {status}");
            Ok(())
        };
        process.ready(DEADLINE, look).await
    }
}

async fn connect(url: &str) -> Result<etcd_client::Client> {
    Ok(link::connect(&link::Options { endpoints: vec![url.to_owned()], ..Default::default() }).await?)
}

fn key(number: usize) -> String {
    format!("/written/{number}")
}

/// Writes until `stop`; gives when the last write was taken, and how many were.
async fn write_until(url: String, stop: CancellationToken) -> Result<(Instant, usize)> {
    let client = connect(&url).await?;
    let (mut last, mut count) = (None, 0);
    while !stop.is_cancelled() {
        let mut kv = client.kv_client();
        if let Ok(Ok(_)) = timeout(PATIENCE * 4, kv.put(key(count), "x", None)).await {
            (last, count) = (Some(Instant::now()), count + 1);
        }
        sleep(PACE).await;
    }
    Ok((last.context("no write was taken")?, count))
}

/// When the first write is taken.
async fn first_write(url: &str) -> Result<Instant> {
    until("a write at the destination", DEADLINE, async || {
        let client = timeout(PATIENCE, connect(url)).await??;
        timeout(PATIENCE, client.kv_client().put("/first", "x", None)).await??;
        Ok(Instant::now())
    })
    .await
}
