//! Another key (P12): `repot storage rewrite` under traffic, beside the only way that kube-apiserver has, which writes each object again.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use repot_tests::TestEnv;
use repot_tests::encryption::{config, provider, write_config};
use repot_tests::repot::{Repot, program};
use repot_tests::states::Payload;
use repot_tests::tool;
use repot_tests::wait::until;
use reqwest::Method;
use serde_json::{Value, json};
use tokio::process::Command;

use super::{Flags, HEAVY, MANY, Report, WRITTEN};
use crate::body::{self, Body};
use crate::cells;
use crate::load::{FOREVER, Limit, Line, Shot, Shots};
use crate::servers::{self, Servers, Side};

const MB: usize = 1_000_000;
const LARGE: usize = 40;
/// More than can be written, so that nothing waits.
const RATE: &str = "--rate=100000";
const DEADLINE: Duration = Duration::from_secs(120);
/// Number of the first object: none of another part.
const FIRST: u64 = 60_000_000;

/// A server with two sorts of objects on each backend, whose keys change while it is asked.
pub async fn measure(env: &TestEnv, servers: &mut Servers, flags: &Flags, report: &mut Report) -> Result<()> {
    let etcd = format!("--etcd-servers={}", servers.garden().etcd().endpoints().join(","));
    rotate(env, servers, flags, &[etcd, "--etcd-prefix=/rotation".to_owned()], report).await?;
    for (bytes, count) in [(1_000, flags.many.min(1_000)), (MB, LARGE)] {
        let side = Side::Crd;
        let created = create(servers.line(side), side, bytes, count).await?;
        let patched = servers.line(side).load(&patches(side, bytes), FIRST, created).await;
        ensure!(patched.failures.is_empty(), "{}", patched.failures[0]);
        let what = format!("each of {count} objects of {bytes} bytes written again, c=8");
        report.add("P12", &what, side.name(), json!({ "objectsASecond": patched.rate() }));
    }
    Ok(())
}

async fn rotate(
    env: &TestEnv,
    servers: &mut Servers,
    flags: &Flags,
    storage: &[String],
    report: &mut Report,
) -> Result<()> {
    let keys = env.make_dir("rotation")?.join("encryption.yaml");
    let (old, new) = (provider("secretbox", "old")?, provider("secretbox", "new")?);
    write_config(&keys, &config(&[&old]).to_string())?;
    let file = format!("--encryption-provider-config={}", keys.display());
    let reload = "--encryption-provider-config-automatic-reload=true".to_owned();
    let stored = [&[file, reload][..], storage].concat();
    let garden = servers.garden();
    let repot = Repot::replica(env, garden, &stored).await?;
    let line = Line::new(&servers::access(garden, &repot), 8)?;
    create(&line, Side::Direct, 1_000, flags.many).await?;
    create(&line, Side::Direct, MB, LARGE).await?;
    for providers in [[&old, &new], [&new, &old]] {
        change(&line, &keys, &config(&providers)).await?;
    }
    let (used, begun) = (wal_bytes(servers), Instant::now());
    let mut rewrite = Command::new(program()?);
    rewrite.args(["storage", "rewrite", RATE]).args(&stored).kill_on_drop(true);
    let asked = line.clone();
    let traffic = tokio::spawn(async move { ask_until_done(&asked, rewrite).await });
    let (output, asked, failures) = traffic.await??;
    let seconds = begun.elapsed().as_secs_f64();
    ensure!(output.code == 0, "{output:?}");
    let said = output.text()?;
    let written: f64 = said
        .split(" seen, ")
        .nth(1)
        .and_then(|text| text.split(' ').next()?.parse().ok())
        .with_context(|| format!("it says {said:?}"))?;
    let readings = json!({
        "objectsRewritten": written, "seconds": seconds, "objectsASecond": written / seconds,
        "requestsMeanwhile": asked, "failed": failures.len(), "firstFailure": failures.first(),
        "bytesEtcdWroteAnObject": (wal_bytes(servers) - used) / written,
    });
    let what = format!(
        "data keys of {} objects of 1 KB and {LARGE} of 1 MB wrapped again, under traffic",
        flags.many
    );
    report.add("P12", &what, Side::SameEtcd.name(), readings);
    Ok(())
}

/// What etcd handed to the kernel since its start.
fn wal_bytes(servers: &mut Servers) -> f64 {
    let etcd = servers.pids().into_iter().find(|(program, _)| *program == "etcd");
    let text = etcd.and_then(|(_, pid)| std::fs::read_to_string(format!("/proc/{pid}/io")).ok());
    let text = text.unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("write_bytes: "));
    line.and_then(|bytes| bytes.parse().ok()).unwrap_or(f64::NAN)
}

/// Reads and changes objects until the program ends: what it printed, how many requests there were, and which failed.
async fn ask_until_done(line: &Line, program: Command) -> Result<(tool::Output, usize, Vec<String>)> {
    let body = Body::generate(Side::Direct, WRITTEN, 1_000, Payload::Realistic, 5)?;
    let creates = cells::create_in(Side::Direct.collection(WRITTEN), body);
    let collection = Side::Direct.collection(MANY);
    let shots: Shots = Arc::new(move |number| match number % 5 {
        0 => creates(number),
        _ => {
            let path = format!("{collection}/{}", body::name(FIRST + number % 100));
            Shot { method: Method::GET, path, accept: "application/json", body: None }
        }
    });
    let running = tool::run(program, b"");
    tokio::pin!(running);
    let (mut asked, mut failures, mut first) = (0, Vec::new(), 50_000_000);
    loop {
        let limit = Limit { connections: 2, time: FOREVER, requests: 10 };
        let round = line.load(&shots, first, limit).await;
        (asked, first) = (asked + round.millis.len() + round.failures.len(), round.sequence.1);
        failures.extend(round.failures);
        if let std::task::Poll::Ready(output) = futures::poll!(&mut running) {
            return Ok((output?, asked, failures));
        }
    }
}

/// Puts another configuration in place, and waits until it is in use.
async fn change(line: &Line, file: &Path, config: &Value) -> Result<()> {
    const RELOADS: &str = "apiserver_encryption_config_controller_automatic_reloads_total";
    let reloads = async || {
        let answer = line.api().get("/metrics").await?;
        let text = std::str::from_utf8(&answer.body)?;
        let count = text.lines().filter(|line| line.starts_with(RELOADS) && line.contains("success"));
        anyhow::Ok(count.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum::<f64>())
    };
    let before = reloads().await?;
    write_config(file, &config.to_string())?;
    until("the configuration to be read", DEADLINE, async || {
        ensure!(reloads().await? > before, "not yet");
        Ok(())
    })
    .await
}

async fn create(line: &Line, side: Side, bytes: usize, count: usize) -> Result<Limit> {
    let body = Body::generate(side, namespace(bytes), bytes, Payload::Realistic, 5)?;
    let limit = Limit { connections: 8, time: FOREVER, requests: count.div_ceil(8) };
    let shots = cells::create_in(side.collection(namespace(bytes)), body);
    let round = line.load(&shots, FIRST, limit).await;
    ensure!(round.failures.is_empty(), "{}", round.failures[0]);
    Ok(limit)
}

/// Changes an annotation of each, which is how an object comes to be stored under the newest key.
fn patches(side: Side, bytes: usize) -> Shots {
    let collection = side.collection(namespace(bytes));
    Arc::new(move |number| Shot {
        method: Method::PATCH,
        path: format!("{collection}/{}", body::name(number)),
        accept: "application/json",
        body: Some(r#"{"metadata":{"annotations":{"turned":"yes"}}}"#.into()),
    })
}

fn namespace(bytes: usize) -> &'static str {
    if bytes < MB { MANY } else { HEAVY }
}
