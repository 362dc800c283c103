//! ShootStates that are kept up to date (`controllers/src/shootstate`), beside a controller that rewrites whole objects.
//!
//! A garden with Repot and a seed with extension resources run for real. Changes come at a fixed rate; how late they are in the garden
//! is measured by a client of the garden, and not by the controllers.

mod changes;
mod clusters;
mod sides;
pub mod whole;

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Result;
use clap::Args;
use repot_tests::TestEnv;
use serde_json::json;

use crate::proc;
use crate::storage::Report;
use changes::{Changes, Measured};
use clusters::{Clusters, Size};
use sides::{Reading, Side};

/// Options of this part alone.
#[derive(Args, Clone, Debug)]
pub struct Flags {
    /// Shoots of the seed
    #[arg(long, default_value_t = 1_000, value_name = "N")]
    shoots: usize,
    /// Extension resources of a Shoot, each with a state
    #[arg(long, default_value_t = 10, value_name = "N", value_parser = clap::value_parser!(u16).range(2..=100))]
    extensions: u16,
    /// Bytes of a state
    #[arg(long, default_value_t = 100_000, value_name = "N")]
    bytes: usize,
    /// States that change in a second
    #[arg(long, default_value_t = 20, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    rate: u32,
    /// Seconds for which states change, for each side
    #[arg(long, default_value_t = 600, value_name = "N")]
    seconds: u64,
}

/// Measures both sides, one after the other, on the same objects.
///
/// Errors: when a program is missing, a request fails, or a change does not come to the garden.
pub async fn bench(env: &TestEnv, flags: &Flags, repot: &Path) -> Result<Report> {
    let start = Instant::now();
    let mut report = Report { setting: proc::describe_machine(env.path())?, rows: Vec::new() };
    report.setting["asked"] = format!("{flags:?}").into();
    let size = Size { shoots: flags.shoots, extensions: flags.extensions.into(), bytes: flags.bytes };
    let mut clusters = Clusters::start(env).await?;
    clusters.fill(size).await?;
    crate::say(start, "objects are made");
    for side in [Side::Repot, Side::WholeObjects] {
        let running = side.start(env, repot, &clusters).await?;
        clusters.until_states(size).await?;
        running.until_written(size).await?;
        crate::say(start, "all ShootStates are there");
        let before = running.read(&mut clusters).await?;
        let time = Duration::from_secs(flags.seconds);
        let measured = Changes { size, rate: flags.rate, time }.run(&clusters).await?;
        let after = running.read(&mut clusters).await?;
        report.add("shootstate", &describe(flags), side.name(), readings(flags, &before, &after, &measured));
        running.stop();
    }
    report.setting["secondsInAll"] = start.elapsed().as_secs().into();
    Ok(report)
}

fn describe(flags: &Flags) -> String {
    let Flags { shoots, extensions, bytes, rate, seconds } = flags;
    format!("{shoots} Shoots of {extensions} x {bytes} bytes, {rate} changes/s for {seconds} s")
}

/// What a side needed while states changed. CPU is in percent of one core.
fn readings(flags: &Flags, before: &Reading, after: &Reading, measured: &Measured) -> serde_json::Value {
    let seconds = (after.at - before.at).as_secs_f64();
    let changed = f64::from(flags.rate) * flags.seconds as f64 * flags.bytes as f64;
    let cpu = |read: fn(&Reading) -> f64| 100.0 * (read(after) - read(before)) / seconds;
    let mut millis: Vec<f64> = measured.lags.iter().map(|lag| lag.as_secs_f64() * 1000.0).collect();
    millis.sort_by(f64::total_cmp);
    json!({
        "lagP50Millis": proc::percentile(&millis, 50.0), "lagP99Millis": proc::percentile(&millis, 99.0),
        "changesThatWereFollowed": millis.len(), "changesThatWereRepeated": measured.repeated,
        "sentPerChangedByte": (after.sent - before.sent) as f64 / changed,
        "storedPerChangedByte": (after.stored - before.stored) as f64 / changed,
        "cpuOfController": cpu(|one| one.controller_cpu), "cpuOfServer": cpu(|one| one.server_cpu),
        "cpuOfGarden": cpu(|one| one.garden_cpu), "cpuOfSeed": cpu(|one| one.seed_cpu),
        "controllerMiB": after.controller_mib, "serverMiB": after.server_mib,
    })
}
