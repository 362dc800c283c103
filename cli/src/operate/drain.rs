//! `repot drain`: all Shoots of a seed go away.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    num::NonZeroUsize,
    process::ExitCode,
    time::{Duration, Instant},
};

use clap::Args;
use jiff::Timestamp;
use repot_console::{
    drain::{Candidate, Key, Limits, Memory, Progress, Report, ShootAtSeed, candidates, moving_to},
    garden::Garden,
    migration::{Executor, Migration, Mode},
    preview::Move,
    text::one_line,
};
use serde_json::{Value, json};

use super::{
    NO, Output, agree, answer,
    migrate::object,
    plan::{By, Rules},
};
use crate::{garden::GardenFlags, run::stop_on_signals};

const LOOK: Duration = Duration::from_secs(3);
/// How often the garden may not be read, one time after the other.
const READ_FAILURES: u32 = 20;

/// Move all Shoots of a seed to other seeds, some at a time.
///
/// Shoots with a higher number in their annotation migration.gardener.cloud/drain-priority go first. The rules of the webhooks choose among
/// the seeds: those of the same region first, then those with the fewest Shoots. Without --yes it asks on a terminal. Progress goes to standard error, a report to
/// standard output. After Ctrl-C no other Shoot begins; those that have begun go on. The same command goes on from where it was left.
/// Exit codes: 0 all have left, 3 some have not, 2 bad usage, 1 failure.
///
///     repot drain seed-a --live --max-parallel 5 --kubeconfig garden.yaml
///     kubectl repot drain seed-a --to seed-b --to seed-c --selector env=test --yes
#[derive(Args)]
#[command(verbatim_doc_comment)]
pub struct Flags {
    /// The seed that is left
    #[arg(value_name = "SEED", value_parser = crate::operate::name)]
    seed: String,
    /// A destination; more than once for several [default: all seeds that the scheduler sees and that have no taints]
    #[arg(long, value_name = "SEED", value_parser = crate::operate::name)]
    to: Vec<String>,
    /// Without downtime: both seeds serve while the etcd moves
    #[arg(long)]
    live: bool,
    /// Who carries it out
    #[arg(long, value_enum, default_value_t = By::Repot, value_name = "WHO")]
    by: By,
    #[command(flatten)]
    garden: GardenFlags,
    /// Labels of the Shoots [default: all Shoots of the seed]
    #[arg(short = 'l', long, default_value = "", hide_default_value = true, value_name = "LABELS")]
    selector: String,
    /// How many Shoots may be on their way at once
    #[arg(long, default_value = "5", value_name = "COUNT")]
    max_parallel: NonZeroUsize,
    /// How many of them may be on their way to one destination [default: as --max-parallel]
    #[arg(long, value_name = "COUNT")]
    max_parallel_per_destination: Option<NonZeroUsize>,
    /// No other Shoot begins after so many that have failed or were refused
    #[arg(long, default_value = "3", value_name = "COUNT")]
    max_failures: NonZeroUsize,
    /// Begin anew with Shoots whose last migration away from the seed has failed
    #[arg(long)]
    retry_failed: bool,
    /// Ask nothing
    #[arg(long)]
    yes: bool,
    /// Say what would be done, and do nothing
    #[arg(long, conflicts_with = "yes")]
    dry_run: bool,
    /// After so long no other Shoot begins, and the report comes at once; those that have begun go on [default: no limit]
    #[arg(long, value_name = "DURATION", value_parser = crate::serving::duration)]
    timeout: Option<Duration>,
    /// Form of the report
    #[arg(short, long, value_enum, default_value_t = Output::Text)]
    output: Output,
}

/// What is drained, and how.
struct Work {
    garden: Garden,
    seed: String,
    to: Vec<String>,
    selector: String,
    mode: Mode,
    executor: Executor,
    limits: Limits,
    rules: Rules,
}

/// What was read of the garden.
struct Seen {
    all: Vec<Value>,
    shoots: Vec<ShootAtSeed>,
    seeds: Vec<Value>,
    migrations: Vec<Migration>,
}

pub async fn run(flags: Flags) -> anyhow::Result<ExitCode> {
    if flags.live && flags.by == By::Gardenlet {
        return Ok(super::usage("gardenlet knows no live migration; use --by repot, or leave --live out"));
    }
    let garden = Garden::new(flags.garden.connect().await?);
    let most = flags.max_parallel.get();
    let work = Work {
        rules: Rules::new(&garden),
        garden,
        seed: flags.seed.clone(),
        to: flags.to.clone(),
        selector: flags.selector.clone(),
        mode: if flags.live { Mode::Live } else { Mode::Classic },
        executor: if flags.by == By::Repot { Executor::Repot } else { Executor::Gardenlet },
        limits: Limits {
            most,
            most_per_destination: flags.max_parallel_per_destination.map_or(most, NonZeroUsize::get),
            failures: flags.max_failures.get(),
            again: flags.retry_failed,
        },
    };
    let seen = work.read().await?;
    if !seen.seeds.iter().any(|seed| seed["metadata"]["name"] == json!(work.seed)) {
        return Ok(super::usage(&format!("there is no seed {}", work.seed)));
    }
    let mut memory = Memory::default();
    let first = memory.progress(&work.seed, &seen.shoots, &seen.migrations, &work.limits);
    let waiting = first.values().filter(|one| **one == Progress::Waiting).count();
    if flags.dry_run {
        eprint!("{}", work.preview(&seen, &memory, &first).await);
        return report(flags.output, &first);
    }
    let outage =
        if flags.live { "Both seeds serve meanwhile." } else { "The API of each is away for a while." };
    let question = format!("{waiting} Shoots leave seed {}, {most} at a time. {outage}", work.seed);
    if waiting > 0
        && let Err(code) = agree(&question, flags.yes)
    {
        return Ok(code);
    }
    let last = work.to_its_end(memory, flags.timeout).await?;
    report(flags.output, &last)
}

fn report(output: Output, all: &Report) -> anyhow::Result<ExitCode> {
    let line = |((namespace, name), progress): (&Key, &Progress)| {
        let mut line = json!(progress);
        line["namespace"] = json!(namespace);
        line["shoot"] = json!(name);
        line
    };
    answer(output, &json!({"shoots": all.iter().map(line).collect::<Vec<_>>()}), |_| text(all))?;
    let is_settled = |one: &Progress| matches!(one, Progress::Done { .. } | Progress::Skipped { .. });
    Ok(if all.values().all(is_settled) { ExitCode::SUCCESS } else { ExitCode::from(NO) })
}

impl Work {
    async fn read(&self) -> anyhow::Result<Seen> {
        let all = self.garden.list("Shoot", None, &self.selector).await?;
        let shoots = all.iter().filter_map(|shoot| ShootAtSeed::read(shoot, &self.seed)).collect();
        let seeds = self.garden.list("Seed", None, "").await?;
        let migrations = self.garden.migrations(None, None).await?;
        Ok(Seen { all, shoots, seeds, migrations })
    }

    /// Until all have left, or none begins any more and none is on its way, or a signal, or a time.
    async fn to_its_end(&self, mut memory: Memory, timeout: Option<Duration>) -> anyhow::Result<Report> {
        let (stop, begun) = (stop_on_signals()?, Instant::now());
        let (mut told, mut failures) = (Report::new(), 0);
        loop {
            match stop.run_until_cancelled(self.read()).await {
                Some(Ok(seen)) => {
                    failures = 0;
                    let report = memory.progress(&self.seed, &seen.shoots, &seen.migrations, &self.limits);
                    tell(&report, &told);
                    let next = memory.next(&report, &self.limits);
                    if next.is_empty() && !report.values().any(|one| matches!(one, Progress::Moving { .. })) {
                        return Ok(report);
                    }
                    self.begin(&next, &seen, &report, &mut memory).await;
                    told = report;
                }
                // A garden that does not answer for a moment ends nothing.
                Some(Err(error)) if failures < READ_FAILURES => {
                    failures += 1;
                    eprintln!("repot: {error:#}; trying again");
                }
                Some(Err(error)) => return Err(error),
                None => {}
            }
            let is_late = timeout.is_some_and(|timeout| begun.elapsed() >= timeout);
            if is_late || stop.run_until_cancelled(tokio::time::sleep(LOOK)).await.is_none() {
                eprintln!("repot: no other Shoot begins; those that have begun go on");
                return Ok(told);
            }
        }
    }

    async fn begin(&self, next: &[Key], seen: &Seen, report: &Report, memory: &mut Memory) {
        let mut moving = moving_to(report);
        for key in next {
            match self.begin_one(key, seen, &moving).await {
                Ok(Some(to)) => *moving.entry(to).or_default() += 1,
                Ok(None) => {}
                Err(why) => memory.refuse(key.clone(), why),
            }
        }
    }

    /// The destination of the migration that was created; `None` where all that would fit have as many as they may have.
    async fn begin_one(
        &self,
        key: &Key,
        seen: &Seen,
        moving: &BTreeMap<String, usize>,
    ) -> Result<Option<String>, String> {
        let Some(to) = self.destination(key, seen, moving).await? else { return Ok(None) };
        let asked = Move {
            namespace: key.0.clone(),
            shoot: key.1.clone(),
            source_seed: self.seed.clone(),
            destination_seed: to.clone(),
            mode: self.mode,
            executor: self.executor,
        };
        let new = object(&asked, None, None, Timestamp::now()).map_err(|error| format!("{error:#}"))?;
        let created = self.garden.create(&key.0, &new, false).await;
        created.map_err(|error| format!("{:#}", anyhow::Error::from(error)))?;
        Ok(Some(to))
    }

    /// The first seed that the rules allow.
    async fn destination(
        &self,
        key: &Key,
        seen: &Seen,
        moving: &BTreeMap<String, usize>,
    ) -> Result<Option<String>, String> {
        let is_it = |shoot: &&Value| {
            shoot["metadata"]["namespace"] == json!(key.0) && shoot["metadata"]["name"] == json!(key.1)
        };
        let shoot = seen.all.iter().find(is_it).ok_or("it was not read")?;
        let mut reasons = Vec::new();
        let mut is_full = false;
        for Candidate { name, against } in candidates(&seen.seeds, &self.seed, &self.to, &counts(&seen.all)) {
            if let Some(why) = against {
                reasons.push(format!("{name}: {why}"));
                continue;
            }
            if moving.get(&name).copied().unwrap_or_default() >= self.limits.most_per_destination {
                is_full = true;
                continue;
            }
            match self.rules.ask(shoot, &name, self.mode == Mode::Live).await {
                Ok(answer) if answer.is_allowed() => return Ok(Some(name)),
                Ok(answer) => reasons.push(format!("{name}: {}", one_line(&answer.text()))),
                Err(why) => reasons.push(format!("{name}: {why}")),
            }
        }
        if is_full {
            return Ok(None);
        }
        let none = "there is no other seed".to_owned();
        Err(if reasons.is_empty() { none } else { format!("no seed can take it: {}", reasons.join("; ")) })
    }

    async fn preview(&self, seen: &Seen, memory: &Memory, report: &Report) -> String {
        let all = Limits { most: usize::MAX, ..self.limits.clone() };
        let mut text = String::new();
        for key in memory.next(report, &all) {
            let to = self.destination(&key, seen, &BTreeMap::new()).await;
            let to = to.map_or_else(|why| why, |to| to.unwrap_or_default());
            let _ = writeln!(text, "{}/{} -> {to}", key.0, key.1);
        }
        text
    }
}

/// How many Shoots each seed has.
fn counts(shoots: &[Value]) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for seed in shoots.iter().filter_map(|shoot| shoot["spec"]["seedName"].as_str()) {
        *counts.entry(seed.to_owned()).or_default() += 1;
    }
    counts
}

/// What has changed since it was told last.
fn tell(all: &Report, told: &Report) {
    let done = all.values().filter(|one| matches!(one, Progress::Done { .. })).count();
    for (key, progress) in all {
        if told.get(key) != Some(progress) && *progress != Progress::Waiting {
            eprintln!("{done}/{} {}/{} {}", all.len(), key.0, key.1, words(progress));
        }
    }
}

fn words(progress: &Progress) -> String {
    match progress {
        Progress::Waiting => "not begun".to_owned(),
        Progress::Moving { migration, to, message } => format!("on its way to {to} ({migration}): {message}"),
        Progress::Done { to } => format!("is at {to}"),
        Progress::Failed { migration, message } => format!("has failed ({migration}): {message}"),
        Progress::Refused { message } => format!("refused: {message}"),
        Progress::Skipped { message } => format!("left alone: {message}"),
    }
}

fn text(all: &Report) -> String {
    let width =
        all.keys().map(|(namespace, name)| namespace.len() + name.len() + 1).max().unwrap_or_default();
    let mut text = String::new();
    for ((namespace, name), progress) in all {
        let shoot = format!("{namespace}/{name}");
        let _ = writeln!(text, "{shoot:width$}  {}", one_line(&words(progress)));
    }
    let done = all.values().filter(|one| matches!(one, Progress::Done { .. })).count();
    let _ = writeln!(text, "{done} of {} Shoots have left", all.len());
    text
}
