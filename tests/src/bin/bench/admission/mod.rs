//! The webhook beside its peers: a server that only reads the body, and a ValidatingAdmissionPolicy in the same kube-apiserver.
//!
//! What is asked is the same everywhere: may this Shoot's zone be isolated? Through kube-apiserver it is a dry run, so that
//! neither etcd nor conflicts are measured, and a third namespace, in which nobody is asked, tells what is left of the rest.

mod objects;
mod report;
mod servers;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::Result;
use repot_tests::TestEnv;
use serde_json::Value;

use self::servers::Servers;
use crate::load::{Limit, Line, Round, Shots};
use crate::proc;

pub use self::report::Report;

/// Bytes of a Shoot. The smallest makes a review of 2.4 KB.
const SIZES: [usize; 3] = [1_000, 100_000, 1_000_000];
/// Connections: one, some, and as many as published measurements of other webhooks have.
const CONNECTIONS: [usize; 3] = [1, 8, 50];
/// The load generator itself, among the programs.
const LOADER: &str = "load generator";

/// How much to measure.
#[derive(Clone, Copy, Debug)]
pub struct Scale {
    /// Rounds of each contestant of a cell.
    pub rounds: usize,
    /// Time of a round.
    pub time: Duration,
}

/// One who answers, in one cell.
struct Contestant {
    name: &'static str,
    line: Line,
    shots: Shots,
    /// Whose CPU time an answer costs.
    programs: &'static [&'static str],
    rounds: Vec<Round>,
    cpu: BTreeMap<&'static str, f64>,
}

/// Runs everything, or the cells whose names contain `only`.
///
/// Errors: when servers do not start, or one of them gives a wrong answer before the clock starts.
pub async fn bench(env: &TestEnv, scale: Scale, only: Option<&str>) -> Result<Report> {
    let start = Instant::now();
    let mut setting = proc::describe_machine(env.path())?;
    let mut servers = Servers::start(env, CONNECTIONS.into_iter().max().unwrap_or(1)).await?;
    crate::say(start, "servers are up");
    let mut report = Report::default();
    report.remember("idle", servers.webhook_pid())?;
    for (direct, bytes) in [true, false].into_iter().flat_map(|direct| SIZES.map(|bytes| (direct, bytes))) {
        for connections in CONNECTIONS {
            let what = if direct { "review" } else { "dry-run PATCH" };
            let cell = format!("{what} of {} KB, c={connections}", bytes / 1000);
            if only.is_some_and(|text| !cell.contains(text)) {
                continue;
            }
            let mut sides =
                if direct { servers.direct(bytes).await? } else { servers.through(bytes).await? };
            let limit = Limit { connections, time: scale.time, requests: usize::MAX };
            measure(&mut servers, &mut sides, limit, scale.rounds).await;
            report.add(&cell, &sides);
            crate::say(start, &cell);
        }
        if direct {
            let moment = format!("after reviews of Shoots of {} KB", bytes / 1000);
            report.remember(&moment, servers.webhook_pid())?;
        }
    }
    crate::say_unless_stopped(servers.stop().await);
    setting["loadAfter"] = proc::load().into();
    setting["rounds"] = scale.rounds.into();
    setting["millisecondsOfARound"] = (scale.time.as_millis() as u64).into();
    setting["reviewBytes"] = SIZES.map(|bytes| objects::review(bytes).to_string().len()).to_vec().into();
    report.setting = setting;
    Ok(report)
}

/// All take turns, so that what happens to the machine happens to all of them.
async fn measure(servers: &mut Servers, sides: &mut [Contestant], limit: Limit, rounds: usize) {
    for side in sides.iter() {
        side.line.load(&side.shots, 0, Limit { time: limit.time / 4, ..limit }).await;
    }
    let count = sides.len();
    for turn in 0..rounds * count {
        let side = &mut sides[(turn + turn / count) % count];
        let before = cpu(servers);
        let round = side.line.load(&side.shots, 0, limit).await;
        for (program, seconds) in cpu(servers) {
            *side.cpu.entry(program).or_default() +=
                seconds - before.get(program).copied().unwrap_or(seconds);
        }
        side.rounds.push(round);
    }
}

fn cpu(servers: &mut Servers) -> BTreeMap<&'static str, f64> {
    let all = servers.pids().into_iter().chain([(LOADER, std::process::id())]);
    all.map(|(program, pid)| (program, proc::cpu_seconds(pid))).collect()
}

impl Contestant {
    fn new(name: &'static str, line: Line, shots: Shots, programs: &'static [&'static str]) -> Self {
        Self { name, line, shots, programs, rounds: Vec::new(), cpu: BTreeMap::new() }
    }

    /// Milliseconds of all answers, sorted.
    fn millis(&self) -> Vec<f64> {
        let mut all: Vec<f64> = self.rounds.iter().flat_map(|round| round.millis.clone()).collect();
        all.sort_by(f64::total_cmp);
        all
    }

    /// Answers a second in the middle round.
    fn rate(&self) -> f64 {
        let mut rates: Vec<f64> = self.rounds.iter().map(Round::rate).collect();
        rates.sort_by(f64::total_cmp);
        proc::percentile(&rates, 50.0)
    }

    /// Milliseconds of CPU time that an answer costs each of the programs.
    fn cpu_millis(&self) -> Vec<(&'static str, f64)> {
        let answers = self.rounds.iter().map(|round| round.millis.len()).sum::<usize>().max(1) as f64;
        let of = |program: &&'static str| {
            (*program, self.cpu.get(program).copied().unwrap_or(0.0) * 1000.0 / answers)
        };
        self.programs.iter().map(of).collect()
    }

    fn failures(&self) -> Vec<&String> {
        self.rounds.iter().flat_map(|round| &round.failures).collect()
    }
}

/// A field of an answer, for checks.
fn at<'a>(value: &'a Value, pointer: &str) -> &'a Value {
    value.pointer(pointer).unwrap_or(&Value::Null)
}
