//! What storage promises beside single requests: many objects, `kill -9`, watches, overload, keys, and what rests.
//!
//! Numbers of goals (P6 …) are those of the project's table of goals. Contestants are those of the main benchmark: a CRD whose
//! kube-apiserver seals with secretbox, Repot with its embedded store, and Repot on the same etcd.

mod keys;
mod many;
mod overload;
mod recovery;
mod report;
mod rest;
mod sealing;
mod watches;

use std::time::{Duration, Instant};

use anyhow::Result;
use clap::Args;
use repot_tests::TestEnv;

use crate::proc;
use crate::servers::{Servers, Side};

pub use self::report::Report;

/// Namespaces.
const MANY: &str = "many";
const HEAVY: &str = "heavy";
const WATCHED: &str = "watched";
const LISTED: &str = "listed";
const WRITTEN: &str = "written";
const STORED: &str = "stored";
const NAMESPACES: [&str; 6] = [MANY, HEAVY, WATCHED, LISTED, WRITTEN, STORED];

/// Who keeps objects.
const KEEPERS: [Side; 3] = [Side::Direct, Side::SameEtcd, Side::Crd];
/// How long a server may give memory back before it is read: part of what is measured, not a wait for a condition.
const SETTLE: Duration = Duration::from_secs(5);
/// Connections of a server's clients; the most of any part.
const CONNECTIONS: usize = 64;

/// Options of this part alone.
#[derive(Args, Clone, Debug)]
pub struct Flags {
    /// Objects of 1 KB
    #[arg(long, default_value_t = 10_000, value_name = "N")]
    many: usize,
    /// Objects of 1 MB in Repot's embedded store when it is killed
    #[arg(long, default_value_t = 2_000, value_name = "N")]
    heavy: usize,
    /// How often Repot is killed
    #[arg(long, default_value_t = 20, value_name = "N")]
    kills: usize,
    /// Seconds that watchers watch, each number of them
    #[arg(long, default_value_t = 8, value_name = "N")]
    seconds: u64,
    /// Only watches of objects of so many bytes
    #[arg(long, value_name = "N")]
    watch_bytes: Option<usize>,
    /// Only so many watchers
    #[arg(long, value_name = "N")]
    watchers: Option<usize>,
}

/// Runs everything, or what `only` names.
///
/// Errors: when a program is missing or a request fails that has to succeed.
pub async fn bench(env: &TestEnv, flags: &Flags, rounds: usize, only: Option<&str>) -> Result<Report> {
    let start = Instant::now();
    let mut servers = Servers::start(env, &NAMESPACES, CONNECTIONS).await?;
    let mut report = Report { setting: proc::describe_machine(env.path())?, rows: Vec::new() };
    report.setting["asked"] = format!("{flags:?}, {rounds} rounds").into();
    let wanted = |part: &str| only.is_none_or(|text| part.contains(text));
    for part in ["rest", "many", "watches", "sealing", "keys", "recovery", "overload"] {
        if !wanted(part) {
            continue;
        }
        match part {
            "rest" => rest::measure(env, &mut servers, &mut report).await?,
            "many" => many::measure(&mut servers, flags, rounds, &mut report).await?,
            "watches" => watches::measure(&mut servers, flags, &mut report).await?,
            "sealing" => sealing::measure(env, &mut servers, rounds, &mut report).await?,
            "keys" => keys::measure(env, &mut servers, flags, &mut report).await?,
            "recovery" => recovery::measure(&mut servers, flags, &mut report).await?,
            _ => overload::measure(&mut servers, &mut report).await?,
        }
        crate::say(start, part);
    }
    report.setting["loadAfter"] = proc::load().into();
    report.setting["secondsInAll"] = start.elapsed().as_secs().into();
    Ok(report)
}
