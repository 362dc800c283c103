//! Many small objects (P6, P7): creating them, memory with them, lists without payload.

use anyhow::Result;
use repot_tests::http::send;
use repot_tests::states::Payload;
use reqwest::Method;
use serde_json::json;
use std::time::Instant;

use super::{Flags, KEEPERS, MANY, Report, SETTLE};
use crate::body::Body;
use crate::cells;
use crate::load::{FOREVER, Limit};
use crate::proc;
use crate::servers::{Servers, Side};

const BYTES: usize = 1_000;
const WRITERS: usize = 8;
const METADATA: &str = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
const TABLE: &str = "application/json;as=Table;g=meta.k8s.io;v=v1";

/// Fills all sides, reads their memory, and lists in turns.
pub async fn measure(servers: &mut Servers, flags: &Flags, rounds: usize, report: &mut Report) -> Result<()> {
    for side in KEEPERS {
        let round = fill(servers, side, MANY, flags.many, BYTES).await?;
        tokio::time::sleep(SETTLE).await;
        let what = format!("{} objects of 1 KB created by {WRITERS} at once", flags.many);
        let mut readings = json!({ "objectsASecond": round });
        for (program, pid) in servers.pids() {
            if Servers::programs(side).contains(&program) {
                readings[format!("{program} MiB")] = proc::memory(pid)?.now.round().into();
            }
        }
        report.add("P7", &what, side.name(), readings);
    }
    for (what, accept, query) in [
        ("metadata of all", METADATA, ""),
        ("table of all", TABLE, ""),
        ("table as kubectl asks, a page of 500", TABLE, "?limit=500"),
    ] {
        let mut millis = KEEPERS.map(|_| Vec::new());
        for _ in 0..rounds.max(3) {
            for (side, millis) in KEEPERS.into_iter().zip(&mut millis) {
                millis.push(list(servers, side, accept, query).await?);
            }
        }
        for (side, mut millis) in KEEPERS.into_iter().zip(millis) {
            millis.sort_by(f64::total_cmp);
            let readings =
                json!({ "p50Millis": proc::percentile(&millis, 50.0), "worstMillis": millis.last() });
            report.add("P6", what, side.name(), readings);
        }
    }
    Ok(())
}

/// Creates so many realistic objects of so many bytes, by [`WRITERS`] at once; objects a second.
pub async fn fill(servers: &Servers, side: Side, namespace: &str, count: usize, bytes: usize) -> Result<f64> {
    let body = Body::generate(side, namespace, bytes, Payload::Realistic, 5)?;
    let shots = cells::create_in(side.collection(namespace), body);
    let limit = Limit { connections: WRITERS, time: FOREVER, requests: count.div_ceil(WRITERS) };
    let round = servers.line(side).load(&shots, 0, limit).await;
    anyhow::ensure!(round.failures.is_empty(), "{}: {}", side.name(), round.failures[0]);
    Ok(round.rate())
}

async fn list(servers: &Servers, side: Side, accept: &str, query: &str) -> Result<f64> {
    let begun = Instant::now();
    let path = format!("{}{query}", side.collection(MANY));
    let answer = send(servers.line(side).api().request(Method::GET, &path).header("accept", accept)).await?;
    anyhow::ensure!(answer.status == 200, "{} answers {}", answer.request, answer.status);
    Ok(begun.elapsed().as_secs_f64() * 1000.0)
}
