//! `repot status`: where migrations stand.

use std::{
    io::IsTerminal,
    process::ExitCode,
    time::{Duration, Instant},
};

use clap::Args;
use jiff::Timestamp;
use repot_console::{
    durations::Durations,
    garden::{Error, Garden},
    migration::{Migration, StepRecord},
    progress::{Progress, title},
    table::Table,
    text::{columns, duration, one_line},
};
use serde_json::{Value, json};

use super::{Connection, NO, Output, ShootFlags, answer, print};
use crate::run::stop_on_signals;

/// How long between two looks.
const LOOK: Duration = Duration::from_secs(2);
/// How often the garden may not be read, one time after the other.
const READ_FAILURES: u32 = 30;

/// Show where migrations stand.
///
/// Without a name it lists all that have not ended. With one it shows the newest migration of the Shoot on one screen: what it waits for,
/// since when, how long that takes as a rule, what a person can do. On a terminal it is drawn anew until the migration has ended.
/// Exit codes: 0 it has succeeded or is under way, 3 it ended another way, 2 bad usage, 1 failure.
///
///     repot status -A --kubeconfig garden.yaml
///     kubectl repot status alpha -n garden-dev
///     kubectl repot status alpha --output json
#[derive(Args)]
#[command(verbatim_doc_comment)]
pub struct Flags {
    #[command(flatten)]
    target: ShootFlags,
    /// Migrations of all namespaces
    #[arg(short = 'A', long, conflicts_with_all = ["namespace", "shoot", "migration"])]
    all_namespaces: bool,
    /// Print once, also on a terminal
    #[arg(long)]
    once: bool,
    /// Go on until the migration has ended, also where there is no terminal: one line for each change
    #[arg(short, long, conflicts_with = "once")]
    watch: bool,
    /// Give up watching after so long [default: no limit]
    #[arg(long, value_name = "DURATION", value_parser = crate::serving::duration)]
    timeout: Option<Duration>,
    /// Form of the answer
    #[arg(short, long, value_enum, default_value_t = Output::Text)]
    output: Output,
}

/// How a migration is watched.
pub struct Watch {
    /// Whether the screen is drawn anew, where there is one.
    pub redraw: bool,
    pub timeout: Option<Duration>,
    pub output: Output,
    /// Whether the caller goes on only when the migration has succeeded: then a signal is no success.
    pub is_waited_for: bool,
}

pub async fn run(flags: Flags) -> anyhow::Result<ExitCode> {
    let place = flags.target.place.connect().await?;
    let Some(found) = flags.target.find(&place).await? else {
        return list(&place, flags.all_namespaces, flags.output).await;
    };
    let migration = Migration::new(&found);
    let is_screen = std::io::stdout().is_terminal() && matches!(flags.output, Output::Text | Output::Wide);
    if flags.watch || (is_screen && !flags.once && !migration.is_over()) {
        let (timeout, output) = (flags.timeout, flags.output);
        let watch = Watch { redraw: is_screen, timeout, output, is_waited_for: false };
        return follow(&place.garden, &migration.namespace, &migration.name, &watch).await;
    }
    let past = past(&place.garden, &migration).await;
    let now = Timestamp::now();
    let progress = Progress::of(&migration, &past, now);
    answer(flags.output, &object(&migration, &progress), |_| progress.text(&migration, now))?;
    Ok(code(&migration))
}

fn object(migration: &Migration, progress: &Progress) -> Value {
    json!({"migration": migration, "progress": progress})
}

/// How long steps take, as far as the user may read that.
async fn past(garden: &Garden, migration: &Migration) -> Durations {
    let all = garden.migrations(Some(&migration.namespace), None).await.unwrap_or_default();
    Durations::of(&all, migration.mode, migration.executor)
}

fn code(migration: &Migration) -> ExitCode {
    match migration.is_over() && !migration.has_succeeded() {
        true => ExitCode::from(NO),
        false => ExitCode::SUCCESS,
    }
}

async fn list(place: &Connection, all_namespaces: bool, output: Output) -> anyhow::Result<ExitCode> {
    let namespace = (!all_namespaces).then_some(place.namespace.as_str());
    let mut all = place.garden.migrations(namespace, None).await?;
    all.retain(|migration| !migration.is_over());
    answer(output, &json!({"migrations": all}), |wide| table(&all, wide, Timestamp::now()))?;
    Ok(ExitCode::SUCCESS)
}

fn table(all: &[Migration], wide: bool, now: Timestamp) -> String {
    if all.is_empty() {
        return "No migration is under way.\n".to_owned();
    }
    let head = [
        "NAMESPACE",
        "NAME",
        "SHOOT",
        "MODE",
        "FROM",
        "TO",
        "PHASE",
        "FOR",
        if wide { "SAYS" } else { "STEP" },
    ];
    let row = |one: &Migration| {
        let running = one.steps().find(|(_, step)| step.is_running()).map(|(_, step)| step.name.clone());
        let since = one.started().or(one.created);
        [
            one.namespace.clone(),
            one.name.clone(),
            one.shoot.clone(),
            one.mode.name().to_owned(),
            one.source_seed.clone(),
            one.destination_seed.clone(),
            one.phase.clone(),
            since.map(|time| duration(now.duration_since(time).as_secs().max(0))).unwrap_or_default(),
            if wide { one.message.clone() } else { running.unwrap_or_default() },
        ]
    };
    let rows: Vec<[String; 9]> =
        std::iter::once(head.map(str::to_owned)).chain(all.iter().map(row)).collect();
    columns(&rows)
}

/// Shows a migration until it has ended, a signal, or a time.
pub async fn follow(garden: &Garden, namespace: &str, name: &str, watch: &Watch) -> anyhow::Result<ExitCode> {
    let (stop, begun) = (stop_on_signals()?, Instant::now());
    let (mut failures, mut told, mut past) = (0, Told::default(), None);
    loop {
        match stop.run_until_cancelled(garden.migration(namespace, name)).await {
            Some(Ok(found)) => {
                failures = 0;
                let migration = Migration::new(&found);
                if past.is_none() {
                    past = Some(self::past(garden, &migration).await);
                }
                told.show(&migration, past.as_ref().unwrap_or(&Durations::default()), watch)?;
                if migration.is_over() {
                    if watch.output == Output::Json || watch.output == Output::Yaml {
                        answer(watch.output, &migration, |_| String::new())?;
                    }
                    return Ok(code(&migration));
                }
            }
            Some(Err(error @ Error::Missing(_))) => {
                eprintln!("repot: {error} any more: somebody has deleted it, and it rolls back or has ended");
                return Ok(ExitCode::from(NO));
            }
            // A garden that does not answer for a moment ends nothing.
            Some(Err(error)) if failures < READ_FAILURES => {
                failures += 1;
                eprintln!("repot: {:#}; trying again", anyhow::Error::from(error));
            }
            Some(Err(error)) => return Err(error.into()),
            None => {}
        }
        let is_late = watch.timeout.is_some_and(|timeout| begun.elapsed() >= timeout);
        let is_stopped = stop.run_until_cancelled(tokio::time::sleep(LOOK)).await.is_none();
        if is_late || is_stopped {
            eprintln!("repot: migration {namespace}/{name} goes on; see `repot status` and `repot abort`");
            let is_no = is_late || watch.is_waited_for;
            return Ok(if is_no { ExitCode::from(NO) } else { ExitCode::SUCCESS });
        }
    }
}

/// What is told of a step that has changed. One that was taken back keeps its times and its message, which say nothing of that.
fn line(migration: &Migration, side: &str, step: &StepRecord) -> String {
    let is_back = step.state == "RolledBack";
    let observed = migration.sides.iter().find(|part| part.name == side).and_then(|part| part.observed);
    let time = if is_back { observed } else { step.completed.or(step.started) };
    let time = time.map(|time| time.to_string()).unwrap_or_default();
    let table = Table::by(migration).filter(|_| step.state != "Failed");
    let says = table.as_ref().map_or(&*step.message, |table| table.without_advice(&step.name, &step.message));
    match is_back {
        true => format!("{time} {side:11} {} {}", step.name, step.state),
        false => format!("{time} {side:11} {} {}: {}", step.name, step.state, one_line(says)),
    }
}

/// What was shown last.
#[derive(Default)]
struct Told {
    lines: usize,
    steps: Vec<(String, String)>,
    phase: String,
}

impl Told {
    fn show(&mut self, migration: &Migration, past: &Durations, watch: &Watch) -> anyhow::Result<()> {
        let is_screen = watch.redraw && std::io::stdout().is_terminal();
        if is_screen && matches!(watch.output, Output::Text | Output::Wide) {
            let now = Timestamp::now();
            return self.redraw(&Progress::of(migration, past, now).text(migration, now));
        }
        self.tell(migration);
        Ok(())
    }

    /// Draws over what was drawn before.
    fn redraw(&mut self, text: &str) -> anyhow::Result<()> {
        // What does not fit on the screen could not be drawn over.
        let (width, height) = (super::width() as usize, super::height().saturating_sub(1));
        let lines = text.lines().take(height);
        let cut: Vec<String> = lines.map(|line| line.chars().take(width).collect()).collect();
        let up = if self.lines > 0 { format!("\x1b[{}A", self.lines) } else { String::new() };
        let lines: String = cut.iter().map(|line| format!("\x1b[2K{line}\n")).collect();
        self.lines = cut.len();
        print(&format!("{up}{lines}\x1b[J"))
    }

    /// One line on standard error for each step that has changed.
    fn tell(&mut self, migration: &Migration) {
        for (side, step) in migration.steps() {
            let seen = (step.name.clone(), step.state.clone());
            if step.state == "Pending" || self.steps.contains(&seen) {
                continue;
            }
            eprintln!("{}", line(migration, side, step));
            self.steps.retain(|(name, _)| *name != step.name);
            self.steps.push(seen);
        }
        if self.phase != migration.phase {
            self.phase.clone_from(&migration.phase);
            eprintln!("{}", title(migration, Timestamp::now()));
        }
    }
}
