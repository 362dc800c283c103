//! Many objects and many watchers: records in etcd, chunks in an object store, one Repot.
//!
//! What grows with what: rows are taken at moments, each with the memory of Repot and etcd, the database of etcd, and the object
//! store.

mod fill;
mod reads;
mod report;
mod servers;
pub mod watchers;

use std::time::{Duration, Instant};

use anyhow::Result;
use clap::Args;
use repot_tests::TestEnv;

use self::servers::Servers;
use self::watchers::Watch;
use crate::proc;

pub use self::report::Report;

/// Options of this part alone.
#[derive(Args, Clone, Debug)]
pub struct Flags {
    /// Objects of 100 KB
    #[arg(long, default_value_t = 10_000, value_name = "N")]
    small: usize,
    /// Objects of 5 MB
    #[arg(long, default_value_t = 1_000, value_name = "N")]
    large: usize,
    /// Watchers of metadata, and as many of objects of 1 KB
    #[arg(long, default_value_t = 1_000, value_name = "N")]
    watchers: usize,
    /// Watchers of whole objects of 100 KB
    #[arg(long, default_value_t = 100, value_name = "N")]
    full_watchers: usize,
    /// Seconds that each sort of watchers is watched
    #[arg(long, default_value_t = 20, value_name = "N")]
    seconds: u64,
}

/// Runs everything.
///
/// Errors: when a program is missing or a request fails.
pub async fn bench(env: &TestEnv, flags: &Flags) -> Result<Report> {
    let start = Instant::now();
    let mut servers = Servers::start(env).await?;
    let mut report = Report { setting: proc::describe_machine(env.path())?, rows: Vec::new() };
    report.setting["asked"] = format!("{flags:?}").into();
    servers.row(&mut report, "empty", serde_json::json!({})).await?;
    for (what, namespace, count, bytes) in [
        ("objects of 100 KB", servers::SMALL, flags.small, 100_000),
        ("objects of 5 MB", servers::LARGE, flags.large, 5_000_000),
    ] {
        let filled = fill::fill(&servers, namespace, count, bytes).await?;
        servers.row(&mut report, &format!("{count} {what} created"), filled).await?;
        crate::say(start, what);
    }
    let restarted = reads::restart(&mut servers, flags.small > 0).await?;
    servers.row(&mut report, "started again", restarted).await?;
    let listed = reads::lists(&servers).await?;
    servers.row(&mut report, "metadata and tables listed", listed).await?;
    crate::say(start, "lists");
    fill::tiny(&servers).await?;
    fill::fill(&servers, servers::WATCHED, 1, 100_000).await?;
    let (many, few) = (flags.watchers, flags.full_watchers);
    for watch in [
        Watch {
            what: "metadata",
            path: servers::collection(servers::TINY),
            metadata: true,
            one: false,
            count: many,
            writes: 20 * flags.seconds,
            every: Duration::from_millis(50),
        },
        Watch {
            what: "objects of 1 KB",
            path: servers::collection(servers::TINY),
            metadata: false,
            one: false,
            count: many,
            writes: 20 * flags.seconds,
            every: Duration::from_millis(50),
        },
        Watch {
            what: "objects of 100 KB",
            path: servers::collection(servers::WATCHED),
            metadata: false,
            one: false,
            count: few,
            writes: flags.seconds,
            every: Duration::from_secs(1),
        },
    ] {
        let seen = watchers::watch(&|| servers.api(), &watch).await?;
        let Watch { what, count, every, .. } = watch;
        let moment = format!("{count} watchers of {what}, a write every {every:?}");
        servers.row(&mut report, &moment, seen).await?;
        crate::say(start, &moment);
    }
    report.setting["loadAfter"] = proc::load().into();
    report.setting["secondsInAll"] = start.elapsed().as_secs().into();
    Ok(report)
}
