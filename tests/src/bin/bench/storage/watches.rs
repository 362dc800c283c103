//! From a write to the events of watchers (P9), with one among them who reads nothing.

use std::time::Duration;

use anyhow::{Result, ensure};
use repot_tests::http::Api;
use repot_tests::states::Payload;
use reqwest::Method;

use super::{Flags, KEEPERS, Report, WATCHED};
use crate::body::Body;
use crate::load::Line;
use crate::proc;
use crate::scale::watchers::{self, Watch};
use crate::servers::{Servers, Side};

/// Watchers, whether of one object or of its collection, bytes of the object, milliseconds from one write to the next. The last cases
/// send a gigabyte with each write.
const CASES: [(usize, bool, usize, u64); 7] = [
    (1, false, 1_000, 50),
    (100, false, 1_000, 50),
    (1_000, false, 1_000, 50),
    (1, false, 1_000_000, 500),
    (100, false, 1_000_000, 1_000),
    (1_000, false, 1_000_000, 15_000),
    (1_000, true, 1_000_000, 15_000),
];
/// The fewest writes of a case.
const WRITES: u64 = 3;

/// Each case with each side, one after another.
pub async fn measure(servers: &mut Servers, flags: &Flags, report: &mut Report) -> Result<()> {
    let wanted = |bytes: usize, count: usize| {
        flags.watch_bytes.is_none_or(|wanted| wanted == bytes)
            && flags.watchers.is_none_or(|wanted| wanted == count)
    };
    let cases = CASES.into_iter().enumerate().filter(|(_, (count, _, bytes, _))| wanted(*bytes, *count));
    for (at, (count, one, bytes, millis)) in cases {
        for side in KEEPERS {
            // The list of one object is how the watcher finds what is written, so each case has it for itself.
            let name = write_one(servers.line(side).api(), side, at as u64, bytes).await?;
            let access = servers.access(side);
            let connect = || Line::new(&access, 1).map(|line| line.api().clone());
            let slow = connect()?;
            let path = side.collection(WATCHED);
            let unread = slow.request(Method::GET, &format!("{path}?watch=true")).send().await?;
            ensure!(unread.status().is_success(), "{} answers {}", side.name(), unread.status());
            let (writes, every) =
                ((flags.seconds * 1_000 / millis).max(WRITES), Duration::from_millis(millis));
            let watch = Watch { what: "objects", path, metadata: false, one, count, writes, every };
            let pids: Vec<u32> = pids(servers, side).collect();
            pids.iter().try_for_each(|pid| proc::forget_peak(*pid))?;
            let cpu = || pids.iter().map(|pid| proc::cpu_seconds(*pid)).sum::<f64>();
            let (before, own) = (cpu(), proc::cpu_seconds(std::process::id()));
            let mut readings = watchers::watch(&connect, &watch).await?;
            let (spent, own) = (cpu() - before, proc::cpu_seconds(std::process::id()) - own);
            let events = readings["events"].as_f64().unwrap_or_default().max(1.0);
            readings["serverCpuMicrosPerEvent"] = (spent * 1e6 / events).round().into();
            readings["loaderCpuMicrosPerEvent"] = (own * 1e6 / events).round().into();
            drop(unread);
            let peaks = pids.iter().map(|pid| proc::memory(*pid).map(|memory| memory.peak));
            readings["peakMiB"] = peaks.sum::<Result<f64>>()?.round().into();
            let of = if one { "one object" } else { "a collection" };
            let what = format!("{count} watchers of {of}, {bytes} bytes, a write every {every:?}");
            report.add("P9", &what, side.name(), readings);
            let gone = format!("{}/{name}", watch.path);
            servers.line(side).api().request(Method::DELETE, &gone).send().await?.error_for_status()?;
        }
    }
    Ok(())
}

/// Processes that work for a side.
fn pids(servers: &mut Servers, side: Side) -> impl Iterator<Item = u32> {
    let all = servers.pids().into_iter();
    all.filter(move |(program, _)| Servers::programs(side).contains(program)).map(|(_, pid)| pid)
}

async fn write_one(api: &Api, side: Side, number: u64, bytes: usize) -> Result<String> {
    let body = Body::generate(side, WATCHED, bytes, Payload::Realistic, 3)?.with(number);
    let request =
        api.request(Method::POST, &side.collection(WATCHED)).header("content-type", "application/json");
    request.body(body).send().await?.error_for_status()?;
    Ok(crate::body::name(number))
}
