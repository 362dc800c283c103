//! Snapshots beside the tools of etcd and etcd-backup-restore: taken, copied and restored, on one disk, in turns.
//!
//! Each run of a side is a process of its own with a place of its own, and what it made is looked at before it counts.

mod contest;
mod copies;
mod fixture;
mod notice;
mod report;
mod restores;
mod takeover;
mod takes;

use std::path::Path;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use clap::Args;
use repot_tests::{TestEnv, binaries};

use self::contest::Ground;
use self::fixture::World;
use crate::proc;

pub use self::report::Report;

const MB: usize = 1_000_000;

/// Options of this part alone.
#[derive(Args, Clone, Debug)]
pub struct Flags {
    /// Bytes of the database, such as 200MB or 1GB
    #[arg(long, default_value = "200MB", value_name = "SIZE", value_parser = parse_size)]
    size: usize,
    /// Small snapshots that are copied
    #[arg(long, default_value_t = 300, value_name = "N")]
    objects: usize,
    /// Events that are replayed, of 4 KB each [default: one for each 10 KB of --size]
    #[arg(long, value_name = "N")]
    events: Option<usize>,
    /// Sizes of etcds that another seed takes over
    #[arg(long, default_value = "20MB,200MB", value_delimiter = ',', value_name = "SIZES", value_parser = parse_size)]
    takeover_sizes: Vec<usize>,
    /// How often each of them is taken over, with a standby and without
    #[arg(long, default_value_t = 3, value_name = "N")]
    takeovers: usize,
}

/// The programs that take part.
struct Programs {
    repot: std::path::PathBuf,
    etcd: std::path::PathBuf,
    etcdctl: std::path::PathBuf,
    etcdutl: std::path::PathBuf,
    /// Left out where it was not built.
    etcdbrctl: Option<std::path::PathBuf>,
}

/// What all parts share.
struct Bench<'a> {
    env: &'a TestEnv,
    programs: Programs,
    flags: Flags,
    ground: Ground,
    only: Option<&'a str>,
    start: Instant,
    report: Report,
}

/// Runs everything, or the cells whose names contain `only`.
///
/// Errors: when a program is missing, fails, or leaves something else behind than it should.
pub async fn bench(
    env: &TestEnv,
    flags: Flags,
    repot: &Path,
    rounds: usize,
    only: Option<&str>,
) -> Result<Report> {
    let setting = proc::describe_machine(env.path())?;
    let ground = Ground::new(env.make_dir("ground")?, rounds);
    let mut bench = Bench {
        env,
        programs: Programs::find(repot)?,
        flags,
        ground,
        only,
        start: Instant::now(),
        report: Report { setting, rows: Vec::new() },
    };
    takeover::bench(&mut bench).await?;
    let world = World::start(&bench).await?;
    bench.say("etcd is filled");
    takes::bench(&mut bench, &world).await?;
    copies::bench(&mut bench, &world).await?;
    restores::bench(&mut bench, &world).await?;
    notice::bench(&mut bench, &world).await?;
    bench.describe(&world, rounds).await?;
    Ok(bench.report)
}

impl Bench<'_> {
    fn wants(&self, cell: &str) -> bool {
        self.only.is_none_or(|text| cell.contains(text))
    }

    fn say(&self, what: &str) {
        crate::say(self.start, what);
    }

    fn etcdbrctl(&self) -> Option<&Path> {
        self.programs.etcdbrctl.as_deref()
    }

    async fn describe(&mut self, world: &World, rounds: usize) -> Result<()> {
        let etcdbrctl = if self.programs.etcdbrctl.is_some() { "present" } else { "left out: not built" };
        for (name, value) in [
            ("loadAfter", proc::load().into()),
            ("rounds", rounds.into()),
            ("etcd", crate::versions(&self.programs.repot).await?),
            ("etcdbrctl", etcdbrctl.into()),
            ("databaseBytes", world.db_bytes()?.into()),
            ("smallSnapshots", world.describe_small()?.into()),
            ("secondsInAll", self.start.elapsed().as_secs().into()),
        ] {
            self.report.setting[name] = value;
        }
        Ok(())
    }
}

impl Flags {
    fn events(&self) -> usize {
        self.events.unwrap_or(self.size / 10_000).max(100)
    }
}

impl Programs {
    fn find(repot: &Path) -> Result<Self> {
        let etcdbrctl = binaries::find("etcdbrctl");
        if let Err(error) = &etcdbrctl {
            eprintln!("etcdbrctl takes no part (tests/go/build etcdbrctl): {error:#}");
        }
        Ok(Self {
            repot: repot.to_owned(),
            etcd: binaries::find("etcd")?,
            etcdctl: binaries::find("etcdctl")?,
            etcdutl: binaries::find("etcdutl")?,
            etcdbrctl: etcdbrctl.ok(),
        })
    }
}

/// Bytes of a text such as `200MB`.
fn parse_size(text: &str) -> Result<usize> {
    let split = text.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(text.len());
    let (digits, unit) = text.split_at(split);
    let unit = match unit {
        "MB" => MB,
        "GB" => 1000 * MB,
        other => anyhow::bail!("{other:?} is neither MB nor GB"),
    };
    let bytes = digits.parse::<usize>().context("a number is missing")?.checked_mul(unit);
    let bytes = bytes.context("it is too large")?;
    ensure!((10 * MB..=6000 * MB).contains(&bytes), "it is not between 10MB and 6GB");
    Ok(bytes)
}
