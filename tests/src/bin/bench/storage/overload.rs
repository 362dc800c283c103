//! Ten times as many requests as a server can answer (P10): lists of 10 MB, and one write of 1 MB in ten.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use repot_tests::states::Payload;
use serde_json::json;

use super::{LISTED, Report, WRITTEN, many};
use crate::body::Body;
use crate::cells;
use crate::load::{Limit, Shot, Shots};
use crate::proc;
use crate::servers::{Servers, Side};

const MB: usize = 1_000_000;
/// Objects of 400 KB that are listed.
const OBJECTS: usize = 24;
const CLOSED: Duration = Duration::from_secs(4);
/// kube-apiserver takes them all in, and what it holds in memory grows with each: so it is asked for a shorter time.
const OFFERED: [(Side, Duration); 2] =
    [(Side::Direct, Duration::from_secs(5)), (Side::Crd, Duration::from_millis(1500))];
const TIMES: f64 = 10.0;

/// The most that each can do, and what is left of it when ten times as much is asked.
pub async fn measure(servers: &mut Servers, report: &mut Report) -> Result<()> {
    for (side, time) in OFFERED {
        many::fill(servers, side, LISTED, OBJECTS, 400_000).await?;
        let shots = mixed(side)?;
        let limit = Limit { connections: 8, time: CLOSED, requests: usize::MAX };
        let peak = servers.line(side).load(&shots, 20_000_000, limit).await;
        for (_, pid) in servers.pids() {
            proc::forget_peak(pid)?;
        }
        let offered = peak.rate() * TIMES;
        let round = servers.line(side).offer(&shots, 30_000_000, offered, time).await;
        let (mut taken, mut refused) = (round.millis.clone(), round.refused_millis.clone());
        taken.sort_by(f64::total_cmp);
        refused.sort_by(f64::total_cmp);
        let told = |status: &str| round.failures.iter().filter(|text| text.contains(status)).count();
        let mut readings = json!({
            "goodputAtPeak": peak.rate(), "failedAtPeak": peak.failures.len(), "firstAtPeak": peak.failures.first(), "offeredSeconds": time.as_secs_f64(),
            "offeredASecond": offered,
            "goodput": round.rate(), "share": round.rate() / peak.rate(), "taken": taken.len(),
            "p99MillisOfTaken": proc::percentile(&taken, 99.0), "refused429": told("HTTP 429"),
            "p50MillisOfRefused": proc::percentile(&refused, 50.0),
            "p99MillisOfRefused": proc::percentile(&refused, 99.0),
            "otherFailures": round.failures.len() - told("HTTP 429"),
            "firstOther": round.failures.iter().find(|text| !text.contains("HTTP 429")),
        });
        for (program, pid) in servers.pids() {
            if Servers::programs(side).contains(&program) {
                readings[format!("{program} peak MiB")] = proc::memory(pid)?.peak.round().into();
            }
        }
        report.add("P10", "ten times the load, LIST of 10 MB and 10 % POST of 1 MB", side.name(), readings);
    }
    Ok(())
}

fn mixed(side: Side) -> Result<Shots> {
    let body = Body::generate(side, WRITTEN, MB, Payload::Realistic, 9)?;
    let creates = cells::create_in(side.collection(WRITTEN), body);
    let path = side.collection(LISTED);
    Ok(Arc::new(move |number| match number % 10 {
        0 => creates(number),
        _ => {
            Shot { method: reqwest::Method::GET, path: path.clone(), accept: "application/json", body: None }
        }
    }))
}
