//! Where a migration stands, on one screen.

use jiff::Timestamp;
use serde::Serialize;

use crate::{
    durations::Durations,
    migration::{Migration, SidePart, StepRecord},
    table::Table,
    text::{ago, columns, duration},
};

/// A side that has recorded nothing for so long may have no controller. It writes once a minute.
const SILENT_SECONDS: i64 = 180;
/// A step that runs no longer than this, or than twice its usual time, needs nobody.
const LATE_SECONDS: i64 = 120;

/// Where a migration stands.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Progress {
    /// Rows of the table that are reached or left out.
    pub settled: usize,
    /// All rows of the table by which it goes now.
    pub rows: usize,
    /// Steps that run, the one that was started first before the others.
    pub open: Vec<OpenStep>,
    /// Sides that have recorded nothing for three minutes.
    pub silent: Vec<&'static str>,
    /// When it ends, if the steps that are left take as long as in the past: seconds from now.
    pub expected_seconds: Option<i64>,
    /// What a person can ask of it now: commands of `kubectl repot`.
    pub possible: Vec<&'static str>,
}

/// A step that runs.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct OpenStep {
    /// Its side.
    pub side: &'static str,
    /// Its name.
    pub name: String,
    /// How long it runs, in seconds.
    pub seconds: i64,
    /// How long it takes as a rule, in seconds.
    pub usual_seconds: Option<i64>,
    /// How long it is waited for, in words.
    pub waits: String,
    /// What it waits for.
    pub message: String,
    /// How often it was started.
    pub attempts: i64,
}

/// One line about a migration: what moves, from where to where, how far it is.
#[must_use]
pub fn title(migration: &Migration, now: Timestamp) -> String {
    let Migration { mode, source_seed, destination_seed, phase, .. } = migration;
    let mut title =
        format!("{}  {}  {source_seed} -> {destination_seed}  {phase}", migration.key(), mode.name());
    match (migration.total_seconds(), migration.started()) {
        (Some(seconds), _) => title.push_str(&format!(" in {}", duration(seconds))),
        (None, Some(started)) => {
            title.push_str(&format!(" for {}", duration(now.duration_since(started).as_secs().max(0))));
        }
        (None, None) => {}
    }
    if let Some(outage) = &migration.api_outage {
        let lasting = now.duration_since(outage.from).as_secs().max(0);
        match outage.seconds {
            Some(seconds) => title.push_str(&format!(", API outage {}", duration(seconds))),
            None => title.push_str(&format!(", API away for {}", duration(lasting))),
        }
    }
    title
}

impl Progress {
    /// Where it stands at this time; how long it takes follows from the past.
    #[must_use]
    pub fn of(migration: &Migration, past: &Durations, now: Timestamp) -> Self {
        let table = Table::by(migration);
        let goes_back = matches!(migration.phase.as_str(), "RollingBack" | "RolledBack" | "Cancelled");
        let rows = table.as_ref().map_or(&[][..], |table| {
            if goes_back { table.rollback.as_slice() } else { table.forward.as_slice() }
        });
        let is_settled = |step: &str| {
            let record = migration.step(step);
            record.is_some_and(|record| matches!(record.state.as_str(), "Succeeded" | "Skipped"))
        };
        let waits = |step: &str| {
            let row = table.as_ref().and_then(|table| table.row(step));
            row.map(|row| row.waits.clone()).unwrap_or_default()
        };
        let running = migration.steps().filter(|(_, step)| step.is_running() && !migration.is_over());
        let of = |side, step: &StepRecord| {
            let mut open = OpenStep::new(side, step, waits(&step.name), past, now);
            if let Some(table) = table.as_ref().filter(|_| !open.is_late()) {
                open.message = table.without_advice(&step.name, &step.message).to_owned();
            }
            (step.started, open)
        };
        let mut open: Vec<(Option<Timestamp>, OpenStep)> =
            running.map(|(side, step)| of(side, step)).collect();
        open.sort_by_key(|(started, _)| *started);
        Self {
            settled: rows.iter().filter(|row| is_settled(row.step)).count(),
            rows: rows.len(),
            open: open.into_iter().map(|(_, step)| step).collect(),
            silent: silent(migration, now),
            expected_seconds: expected(migration, past, goes_back, now),
            possible: possible(migration),
        }
    }

    /// The screen, without a trailing empty line.
    #[must_use]
    pub fn text(&self, migration: &Migration, now: Timestamp) -> String {
        let mut text = title(migration, now) + "\n";
        let mut line = |label: &str, says: &str| text.push_str(&format!("  {label:<12} {says}\n"));
        line(
            "Shoot",
            &format!("{}/{}, executor {}", migration.namespace, migration.shoot, migration.executor.name()),
        );
        line(
            "progress",
            &format!("{} {} of {} steps", bar(self.settled, self.rows), self.settled, self.rows),
        );
        if let Some(seconds) = self.expected_seconds {
            line("expected", &format!("{} more, as the migrations before it took", duration(seconds)));
        }
        if let Some(time) = migration.point_of_no_return {
            line("no return", &format!("past it since {time}"));
        }
        // Steps that run say themselves what they wait for.
        if !migration.message.is_empty() && self.open.is_empty() {
            line("says", &migration.message);
        }
        if let Some(abort) = &migration.abort
            && !migration.is_over()
        {
            line("abort", &format!("asked for ({abort})"));
        }
        if migration.paused {
            line("paused", "no further step starts");
        }
        for side in &self.silent {
            line("silent", &format!("the {side} has recorded nothing lately; does its controller run?"));
        }
        if let Some(other) = &migration.followed_by {
            line("followed by", other);
        }
        if !self.open.is_empty() {
            text.push('\n');
            text.push_str(&self.open_steps());
        }
        if !migration.sides.is_empty() {
            text.push('\n');
            text.push_str(&self.sides(migration, now));
        }
        if !self.possible.is_empty() {
            text.push_str(&format!("\nPossible now: {}\n", self.possible.join(", ")));
        }
        text
    }

    fn open_steps(&self) -> String {
        let head = ["SIDE", "STEP", "RUNS", "USUALLY", "LIMIT", "WAITS FOR"].map(str::to_owned);
        let row = |step: &OpenStep| {
            let attempts =
                if step.attempts > 1 { format!(" (start {})", step.attempts) } else { String::new() };
            [
                step.side.to_owned(),
                step.name.clone() + &attempts,
                duration(step.seconds),
                step.usual_seconds.map_or_else(|| "?".to_owned(), duration),
                step.waits.clone(),
                step.message.clone(),
            ]
        };
        let rows: Vec<[String; 6]> = std::iter::once(head).chain(self.open.iter().map(row)).collect();
        columns(&rows)
    }

    fn sides(&self, migration: &Migration, now: Timestamp) -> String {
        let head = ["SIDE", "PHASE", "WROTE", "SAYS"].map(str::to_owned);
        let row = |side: &SidePart| {
            let seen = side.observed.map_or_else(String::new, |time| ago(time, now));
            let is_said = self.open.iter().any(|step| step.side == side.name);
            let says = if is_said { String::new() } else { side.message.clone() };
            [side.name.to_owned(), side.phase.clone(), seen, says]
        };
        let rows: Vec<[String; 4]> = std::iter::once(head).chain(migration.sides.iter().map(row)).collect();
        columns(&rows)
    }
}

impl OpenStep {
    /// Whether it takes so long that a person may want to do something.
    fn is_late(&self) -> bool {
        self.seconds > LATE_SECONDS.max(2 * self.usual_seconds.unwrap_or_default())
    }

    fn new(side: &'static str, step: &StepRecord, waits: String, past: &Durations, now: Timestamp) -> Self {
        let started = step.started.unwrap_or(now);
        Self {
            side,
            name: step.name.clone(),
            seconds: now.duration_since(started).as_secs().max(0),
            usual_seconds: past.steps.get(&step.name).map(|spread| spread.median_seconds),
            waits,
            message: step.message.clone(),
            attempts: step.attempts,
        }
    }
}

fn silent(migration: &Migration, now: Timestamp) -> Vec<&'static str> {
    let is_silent = |side: &&SidePart| {
        let is_open = matches!(side.phase.as_str(), "Running" | "RollingBack");
        let silence = side.observed.map(|time| now.duration_since(time).as_secs());
        !migration.is_over() && is_open && silence.is_some_and(|seconds| seconds > SILENT_SECONDS)
    };
    migration.sides.iter().filter(is_silent).map(|side| side.name).collect()
}

/// What is left of the usual time; nothing where it takes longer already.
fn expected(migration: &Migration, past: &Durations, goes_back: bool, now: Timestamp) -> Option<i64> {
    let started = migration.started().filter(|_| !migration.is_over() && !goes_back)?;
    let left = past.total?.median_seconds - now.duration_since(started).as_secs();
    (left > 0).then_some(left)
}

fn possible(migration: &Migration) -> Vec<&'static str> {
    use crate::steer::{Request, change};
    let all = [
        ("abort", Request::Abort),
        ("abort --force", Request::ForceAbort),
        ("pause", Request::Pause),
        ("resume", Request::Resume),
        ("retry", Request::Retry),
        ("force-shrink", Request::ForceShrink),
    ];
    // What is asked for before `ApiServes` runs is obeyed then. Nobody needs it before.
    let is_early = !migration.step("ApiServes").is_some_and(StepRecord::is_running);
    let is_one = |request: Request| {
        change(request, migration).is_ok() && !(request == Request::ForceShrink && is_early)
    };
    all.into_iter().filter(|(_, request)| is_one(*request)).map(|(name, _)| name).collect()
}

fn bar(settled: usize, rows: usize) -> String {
    const WIDTH: usize = 24;
    let filled = (settled * WIDTH).checked_div(rows).unwrap_or_default().min(WIDTH);
    format!("[{}{}]", "#".repeat(filled), ".".repeat(WIDTH - filled))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::migration::{
        Executor, Mode,
        tests::{classic, read},
    };

    fn running() -> Migration {
        let mut object = classic();
        object["status"]["phase"] = json!("Running");
        object["status"]["apiOutage"] = json!({"from": "2026-11-28T05:15:00Z"});
        object["status"]["message"] = json!("destination: ApiServes: no Pod is ready");
        object["status"]["source"]["phase"] = json!("Running");
        object["status"]["source"]["observedTime"] = json!("2026-11-28T05:10:00Z");
        let step = &mut object["status"]["destination"]["steps"][1];
        step["state"] = json!("Running");
        step["attempts"] = json!(2);
        let row = Table::of(Mode::Classic, Executor::Repot).expect("a table");
        let advice = row.row("ApiDnsSwitched").expect("a row").advice;
        step["message"] = json!(format!("the record still names the source; {advice}"));
        read(object)
    }

    fn now() -> Timestamp {
        "2026-11-28T05:15:22Z".parse().expect("a time")
    }

    #[test]
    fn screen_says_what_is_waited_for_and_what_can_be_done() {
        let past = Durations::of(&[read(classic())], Default::default(), Default::default());
        let migration = running();
        let text = Progress::of(&migration, &past, now()).text(&migration, now());
        let expected = "\
garden-dev/alpha-to-b  Classic  seed-a -> seed-b  Running for 1m20s, API away for 22s
  Shoot        garden-dev/alpha, executor Repot
  progress     [##......................] 4 of ROWS steps
  no return    past it since 2026-11-28T05:15:05Z
  silent       the source has recorded nothing lately; does its controller run?

SIDE         STEP                      RUNS  USUALLY  LIMIT  WAITS FOR
destination  ApiDnsSwitched (start 2)  16s   1s       24 h   the record still names the source

SIDE         PHASE      WROTE      SAYS
garden       Succeeded
source       Running    5m22s ago
destination  Succeeded
";
        let rows = Table::of(migration.mode, migration.executor).expect("a table").forward.len();
        let expected = expected.replace("ROWS", &rows.to_string());
        assert_eq!(text, expected, "\n{text}");
    }

    #[test]
    fn step_that_takes_long_says_what_a_person_can_do() {
        let past = Durations::default();
        let late = now().saturating_add(jiff::SignedDuration::from_mins(3)).expect("a time");
        let message = |now| Progress::of(&running(), &past, now).open[0].message.clone();
        assert_eq!(message(now()), "the record still names the source");
        assert!(message(late).starts_with("the record still names the source; "));
    }

    #[test]
    fn migration_that_is_over_has_nothing_open() {
        let migration = read(classic());
        let progress = Progress::of(&migration, &Durations::default(), now());
        assert!(progress.open.is_empty() && progress.silent.is_empty() && progress.possible.is_empty());
        assert_eq!(progress.expected_seconds, None);
    }
}
