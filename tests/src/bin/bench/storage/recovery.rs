//! `kill -9` in the middle of writes, and how long until somebody is served again (P8).

use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use repot_tests::http::Api;
use repot_tests::states::Payload;
use serde_json::{Value, json};

use super::{Flags, HEAVY, MANY, Report, WRITTEN, many};
use crate::body::{self, Body};
use crate::cells;
use crate::load::{FOREVER, Limit};
use crate::proc;
use crate::servers::{Servers, Side};

const MB: usize = 1_000_000;
/// How long writers write before the kill: each time a little longer, so that it meets them elsewhere.
const BETWEEN: Duration = Duration::from_millis(250);
const STEP: Duration = Duration::from_millis(37);
/// Between two tries to be served.
const AGAIN: Duration = Duration::from_millis(1);
const PATIENCE: Duration = Duration::from_secs(60);
/// kube-apiserver is killed so often: its starts differ little.
const PEER_KILLS: usize = 3;

/// Kills Repot with a large store, and kube-apiserver with small objects only.
pub async fn measure(servers: &mut Servers, flags: &Flags, report: &mut Report) -> Result<()> {
    many::fill(servers, Side::Direct, HEAVY, flags.heavy, MB).await?;
    for side in [Side::Direct, Side::Crd] {
        // One that is there whatever else was measured.
        many::fill(servers, side, WRITTEN, 1, MB).await?;
    }
    let mut millis = Vec::new();
    for kill in 0..flags.kills {
        write_until_killed(servers, kill).await?;
        servers.repot().process().restart()?;
        millis.push(served(servers.line(Side::Direct).api(), Side::Direct).await?);
    }
    let what = format!(
        "served again after kill -9 during writes, {} objects of 1 MB and those of {MANY}, {:.1} GiB at rest",
        flags.heavy,
        proc::disk_bytes(servers.data_dirs()[0].1) as f64 / f64::from(1 << 30)
    );
    report.add("P8", &what, Side::Direct.name(), readings(millis));
    let mut millis = Vec::new();
    for _ in 0..PEER_KILLS {
        servers.garden().apiserver().kill();
        servers.garden().apiserver().restart()?;
        millis.push(served(servers.line(Side::Crd).api(), Side::Crd).await?);
    }
    servers.garden().wait_until_ready().await?;
    let what = "served again after kill -9 of kube-apiserver alone, objects of 1 KB only";
    report.add("P8", what, Side::Crd.name(), readings(millis));
    Ok(())
}

fn readings(mut millis: Vec<f64>) -> Value {
    millis.sort_by(f64::total_cmp);
    json!({ "kills": millis.len(), "p50Millis": proc::percentile(&millis, 50.0), "worstMillis": millis.last() })
}

async fn write_until_killed(servers: &mut Servers, kill: usize) -> Result<()> {
    let body = Body::generate(Side::Direct, HEAVY, MB, Payload::Realistic, kill as u64)?;
    let shots = cells::create_in(Side::Direct.collection(HEAVY), body);
    let line = servers.line(Side::Direct).clone();
    let first = 1_000_000 * (kill as u64 + 1);
    let limit = Limit { connections: 4, time: FOREVER, requests: usize::MAX };
    let writers = tokio::spawn(async move { line.load(&shots, first, limit).await });
    tokio::time::sleep(BETWEEN + STEP * kill as u32).await;
    servers.repot().kill();
    writers.abort();
    Ok(())
}

/// Milliseconds until an object is answered, from now.
async fn served(api: &Api, side: Side) -> Result<f64> {
    let begun = Instant::now();
    let path = format!("{}/{}", side.collection(WRITTEN), body::name(0));
    while begun.elapsed() < PATIENCE {
        if api.get(&path).await.is_ok_and(|answer| answer.status == 200) {
            return Ok(begun.elapsed().as_secs_f64() * 1000.0);
        }
        tokio::time::sleep(AGAIN).await;
    }
    bail!("{} serves nothing after {PATIENCE:?}", side.name())
}
