//! `repot drain`: all Shoots of a seed go away.

mod report;

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    num::NonZeroUsize,
    process::ExitCode,
    time::{Duration, Instant},
};

use anyhow::Context;
use clap::Args;
use jiff::Timestamp;
use repot_console::{
    drain::{
        Candidate, Key, Limits, Memory, Progress, Report, ShootAtSeed, candidates, have_too_many_failed,
        moving_to, shoots_by_seed,
    },
    garden::{self, Garden},
    migration::{Executor, Migration, Mode},
    moves::{Rules, Ruling, object},
    objects::{SEED, SHOOT},
    preview::Move,
    text::one_line,
};
use serde_json::{Value, json};

use self::report::{named, report, tell, words};
use super::{NO, Output, agree, answer, plan::By};
use crate::{garden::GardenFlags, run::stop_on_signals, webhook::default_settings};

const LOOK: Duration = Duration::from_secs(3);
/// How often the garden may not be read, one time after the other.
const READ_FAILURES: u32 = 20;

/// Move all Shoots of a seed to other seeds, some at a time.
///
/// Shoots with a higher number in their annotation migration.gardener.cloud/drain-priority go first. The rules of the webhooks choose among
/// the seeds: those of the same region first, then those with the fewest Shoots. Without --yes it asks on a terminal. Progress goes to standard error, a report to
/// standard output. After Ctrl-C no other Shoot begins; those that have begun go on. The same command goes on from where it was left.
/// Exit codes: 0 all have left, or would begin with --dry-run; 3 some have not; 2 bad usage; 1 failure.
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
    /// Ask nothing, for scripts
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

/// A migration that was created.
struct Begun {
    migration: String,
    to: String,
}

/// No migration was created.
enum NotBegun {
    /// The rules, or the garden, are against it.
    Refused(String),
    /// The garden could not be asked. In a moment it may be.
    NotNow(String),
}

/// What was read of the garden.
struct Seen {
    /// Shoots with the labels, of all seeds.
    all: Vec<Value>,
    /// How many Shoots each seed has, whatever their labels.
    counts: BTreeMap<String, usize>,
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
        rules: Rules::new(&garden, default_settings()),
        garden,
        seed: flags.seed.clone(),
        to: flags.to.clone(),
        selector: flags.selector.clone(),
        mode: if flags.live { Mode::Live } else { Mode::Classic },
        executor: flags.by.executor(),
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
        return work.preview(&seen, &memory, &first, flags.output).await;
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

impl Work {
    async fn read(&self) -> anyhow::Result<Seen> {
        let all = self.garden.list(&SHOOT, &self.selector).await?;
        let shoots = all.iter().filter_map(|shoot| ShootAtSeed::read(shoot, &self.seed)).collect();
        let seeds = self.garden.list(&SEED, "").await?;
        let migrations = self.garden.migrations(None, None).await?;
        let counts = match self.selector.is_empty() {
            true => shoots_by_seed(&all, &migrations),
            false => shoots_by_seed(&self.garden.list(&SHOOT, "").await?, &migrations),
        };
        Ok(Seen { all, counts, shoots, seeds, migrations })
    }

    /// Until all have left, or none begins any more and none is on its way, or a signal, or a time.
    async fn to_its_end(&self, mut memory: Memory, timeout: Option<Duration>) -> anyhow::Result<Report> {
        let (stop, begun) = (stop_on_signals()?, Instant::now());
        let is_over = || stop.is_cancelled() || timeout.is_some_and(|timeout| begun.elapsed() >= timeout);
        let (mut told, mut failures) = (None, 0);
        loop {
            let failed = match stop.run_until_cancelled(self.read()).await {
                Some(Ok(mut seen)) => {
                    let mut report =
                        memory.progress(&self.seed, &seen.shoots, &seen.migrations, &self.limits);
                    tell(&report, told.as_ref());
                    let next = memory.next(&report, &self.limits);
                    if next.is_empty() && !report.values().any(|one| matches!(one, Progress::Moving { .. })) {
                        return Ok(report);
                    }
                    let begun = self.begin(&next, &mut seen, &mut report, &mut memory, &is_over).await;
                    told = Some(report);
                    begun.err().map(anyhow::Error::msg)
                }
                Some(Err(error)) => Some(error),
                None => None,
            };
            // A garden that does not answer for a moment ends nothing.
            failures = if failed.is_some() { failures + 1 } else { 0 };
            match failed {
                Some(error) if failures > READ_FAILURES => return Err(error),
                Some(error) => eprintln!("repot: {error:#}; trying again"),
                None => {}
            }
            if is_over() || stop.run_until_cancelled(tokio::time::sleep(LOOK)).await.is_none() {
                eprintln!("repot: no other Shoot begins; those that have begun go on");
                return told.context("the Shoots were not read in time");
            }
        }
    }

    /// Begins with these Shoots, until it is over or too many have failed. The report says of each what came of it, since no other
    /// reading may follow.
    ///
    /// Errors: the garden could not be asked about some, which wait.
    async fn begin(
        &self,
        next: &[Key],
        seen: &mut Seen,
        report: &mut Report,
        memory: &mut Memory,
        is_over: &impl Fn() -> bool,
    ) -> Result<(), String> {
        let mut moving = moving_to(report);
        for key in next {
            if is_over() || have_too_many_failed(report, &self.limits) {
                break;
            }
            let progress = match self.begin_one(key, seen, &moving).await {
                Ok(Some(Begun { migration, to })) => {
                    *moving.entry(to.clone()).or_default() += 1;
                    *seen.counts.entry(to.clone()).or_default() += 1;
                    memory.begin(key.clone());
                    Progress::Moving { migration, to, message: "it was created".to_owned() }
                }
                Ok(None) => continue,
                // It will be the same for the others.
                Err(NotBegun::NotNow(why)) => return Err(format!("{}/{}: {why}", key.0, key.1)),
                Err(NotBegun::Refused(message)) => {
                    memory.refuse(key.clone(), message.clone());
                    Progress::Refused { message }
                }
            };
            report.insert(key.clone(), progress);
        }
        Ok(())
    }

    /// The migration that was created; `None` where all that would fit have as many as they may have.
    async fn begin_one(
        &self,
        key: &Key,
        seen: &Seen,
        moving: &BTreeMap<String, usize>,
    ) -> Result<Option<Begun>, NotBegun> {
        let Some(to) = self.destination(key, seen, moving).await? else { return Ok(None) };
        let asked = Move {
            namespace: key.0.clone(),
            shoot: key.1.clone(),
            source_seed: self.seed.clone(),
            destination_seed: to.clone(),
            mode: self.mode,
            executor: self.executor,
        };
        let refused = |error: serde_json::Error| NotBegun::Refused(error.to_string());
        let new = object(&asked, None, None, Timestamp::now()).map_err(refused)?;
        // Where the answer is lost, the next look finds the migration.
        let created = self.garden.create(&key.0, &new, false).await.map_err(NotBegun::of)?;
        Ok(Some(Begun { migration: created.metadata.name.unwrap_or_default(), to }))
    }

    /// The first seed that the rules allow.
    async fn destination(
        &self,
        key: &Key,
        seen: &Seen,
        moving: &BTreeMap<String, usize>,
    ) -> Result<Option<String>, NotBegun> {
        let is_it = |shoot: &&Value| {
            shoot["metadata"]["namespace"] == json!(key.0) && shoot["metadata"]["name"] == json!(key.1)
        };
        let not_read = || NotBegun::NotNow("it was not read".to_owned());
        let shoot = seen.all.iter().find(is_it).ok_or_else(not_read)?;
        let (mut reasons, mut not_asked, mut is_full) = (Vec::new(), None, false);
        for Candidate { name, against } in candidates(&seen.seeds, &self.seed, &self.to, &seen.counts) {
            if let Some(why) = against {
                reasons.push(format!("{name}: {why}"));
                continue;
            }
            if moving.get(&name).copied().unwrap_or_default() >= self.limits.most_per_destination {
                is_full = true;
                continue;
            }
            match self.rules.ask(shoot, &name, self.mode == Mode::Live).await {
                Ruling::Asked(answer) if answer.is_allowed() => return Ok(Some(name)),
                Ruling::Asked(answer) => reasons.push(format!("{name}: {}", one_line(&answer.text()))),
                Ruling::NotAsked(why) => not_asked = Some(format!("the rules could not be asked: {why}")),
                // This one has a Shoot, and is not forced.
                Ruling::NoShoot | Ruling::Forced => return Ok(Some(name)),
            }
        }
        match not_asked {
            _ if is_full => Ok(None),
            Some(why) => Err(NotBegun::NotNow(why)),
            None if reasons.is_empty() => Err(NotBegun::Refused("there is no other seed".to_owned())),
            None => Err(NotBegun::Refused(format!("no seed can take it: {}", reasons.join("; ")))),
        }
    }

    /// What would be done: where each Shoot would go, or why it would not.
    async fn preview(
        &self,
        seen: &Seen,
        memory: &Memory,
        report: &Report,
        output: Output,
    ) -> anyhow::Result<ExitCode> {
        let all = Limits { most: usize::MAX, ..self.limits.clone() };
        let mode = self.mode.name();
        let (mut text, mut lines, mut is_fine) = (String::new(), Vec::new(), true);
        let begins = memory.next(report, &all);
        for (key, progress) in report {
            let shoot = format!("{}/{}", key.0, key.1);
            if !begins.contains(key) {
                is_fine &= progress.has_left() || matches!(progress, Progress::Moving { .. });
                let _ = writeln!(text, "{shoot}  {}", one_line(&words(progress)));
                lines.push(named(json!(progress), key));
                continue;
            }
            let (to, against) = match self.destination(key, seen, &BTreeMap::new()).await {
                Ok(to) => (to, None),
                Err(NotBegun::Refused(why) | NotBegun::NotNow(why)) => (None, Some(why)),
            };
            is_fine &= against.is_none();
            let says =
                against.clone().unwrap_or_else(|| format!("-> {}, {mode}", to.as_deref().unwrap_or("?")));
            let _ = writeln!(text, "{shoot}  {}", one_line(&says));
            lines.push(named(json!({"state": "Waiting", "to": to, "mode": mode, "against": against}), key));
        }
        let _ =
            writeln!(text, "{} of {} Shoots would begin; nothing was changed", begins.len(), report.len());
        answer(output, &json!({"shoots": lines}), |_| text)?;
        Ok(if is_fine { ExitCode::SUCCESS } else { ExitCode::from(NO) })
    }
}

impl NotBegun {
    fn of(error: garden::Error) -> Self {
        if error.is_transient() { Self::NotNow(error.to_string()) } else { Self::Refused(error.to_string()) }
    }
}
