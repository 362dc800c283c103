//! What a rehearsal has seen, for people and for programs.

use std::fmt::Write as _;

use jiff::{SignedDuration, Timestamp};
use repot_console::migration::Outage;
use repot_console::text::{columns, duration, one_line};
use repot_tests::landscape::requests::{Count, Failure};
use serde::Serialize;

use crate::machine::Machine;
use crate::view::View;

/// A failure this much before or after a time at which requests may fail belongs to it: times of controllers are whole seconds, and
/// clients keep a connection to the former address for a moment.
const SLACK: SignedDuration = SignedDuration::from_secs(2);
/// A message is no longer than this.
const LONGEST_MESSAGE: usize = 300;

/// Where more steps ran during a gap, it is too long to tell by them what it comes from.
const MOST_STEPS: usize = 4;

/// The report of a rehearsal.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// `live`, `classic`, `forced` or `isolate`.
    pub flow: &'static str,
    /// Round trip between the seeds, in milliseconds.
    pub round_trip_millis: u128,
    /// Bytes that were stored before the flow.
    pub stored_bytes: u64,
    /// Requests a second that were asked for.
    pub requests_per_second: u32,
    /// The fault that was asked for.
    pub fault: Option<String>,
    /// How the flow ended.
    pub ended: String,
    /// How it may end.
    pub may_end: &'static [&'static str],
    /// How busy this machine was.
    pub machine: Machine,
    /// What clients of the Shoot saw.
    pub requests: RequestsReport,
    /// Times at which requests may fail.
    pub windows: Vec<Window>,
    /// The time without an API, as the controllers have recorded it.
    pub api_outage: Option<Outage>,
    /// What the sides have recorded of each step.
    pub steps: Vec<Step>,
    /// What was promised and looked at.
    pub checks: Vec<Proof>,
    /// What nobody looked at.
    pub not_proved: Vec<String>,
    /// Whether all checks hold.
    pub proved: bool,
}

/// What clients of the Shoot saw.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RequestsReport {
    /// Requests that were answered as they should be.
    pub answered: u64,
    /// Requests that were not.
    pub failed: usize,
    /// Those of them that had to be answered: they failed at no time at which requests may fail.
    pub failed_wrongly: usize,
    /// How often a request was repeated because the API server asked for that.
    pub repeated: u64,
    /// The longest time that an answer took, in milliseconds.
    pub slowest_millis: u128,
    /// The longest time from one answer to the next, of all clients together, in milliseconds.
    pub longest_gap_millis: u128,
    /// When that time began.
    pub longest_gap_began: Option<Timestamp>,
    /// Failures by their kind.
    pub failures: Vec<FailureKind>,
}

/// Failures of one kind.
#[derive(Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct FailureKind {
    /// What went wrong, in a few words.
    pub kind: String,
    /// How many there were.
    pub count: usize,
    /// How many of them failed at no time at which requests may fail.
    pub wrongly: usize,
    /// When the first one had failed.
    pub first: Timestamp,
    /// What the first one says.
    pub message: String,
}

/// A time at which requests may fail.
#[derive(Clone, Debug, Serialize)]
pub struct Window {
    /// Why requests may fail then.
    pub why: String,
    /// When this time begins.
    pub from: Timestamp,
    /// When this time ends.
    pub to: Timestamp,
}

/// What is recorded of a step.
#[derive(Debug, Serialize)]
pub struct Step {
    /// Side that it belongs to.
    pub side: &'static str,
    /// Name of the step.
    pub name: String,
    /// State that is recorded last.
    pub state: String,
    /// When it was started, the last time.
    pub started: Option<Timestamp>,
    /// When it ended, the last time.
    pub completed: Option<Timestamp>,
    /// How long it took.
    pub seconds: Option<i64>,
    /// How often it was started.
    pub attempts: i64,
}

/// Something that was promised, and whether it holds.
#[derive(Debug, Serialize)]
pub struct Proof {
    /// What the flow has promised.
    pub what: String,
    /// Whether the promise was kept.
    pub holds: bool,
    /// What was seen of it.
    pub evidence: String,
}

impl Proof {
    /// A check that holds with this evidence, or does not with the error.
    pub fn of(what: &str, outcome: anyhow::Result<String>) -> Self {
        let (holds, evidence) = match outcome {
            Ok(evidence) => (true, evidence),
            Err(error) => (false, format!("{error:#}")),
        };
        Self { what: what.to_owned(), holds, evidence: shorten(&evidence) }
    }
}

impl RequestsReport {
    /// What clients saw, judged by the times at which requests may fail.
    pub fn new(count: &Count, failures: &[Failure], windows: &[Window]) -> Self {
        let mut kinds: Vec<FailureKind> = Vec::new();
        for failure in failures {
            let wrongly = usize::from(!windows.iter().any(|window| window.excuses(failure)));
            match kinds.iter_mut().find(|kind| kind.kind == failure.kind) {
                Some(kind) => (kind.count, kind.wrongly) = (kind.count + 1, kind.wrongly + wrongly),
                None => kinds.push(FailureKind {
                    kind: failure.kind.clone(),
                    count: 1,
                    wrongly,
                    first: failure.ended,
                    message: shorten(&failure.message),
                }),
            }
        }
        Self {
            answered: count.answered,
            failed: failures.len(),
            failed_wrongly: kinds.iter().map(|kind| kind.wrongly).sum(),
            repeated: count.repeated,
            slowest_millis: count.slowest.as_millis(),
            longest_gap_millis: count.longest_gap.as_millis(),
            longest_gap_began: count.gap_began,
            failures: kinds,
        }
    }

    /// The check that no request failed that had to be answered.
    pub fn proof(&self) -> Proof {
        let (answered, failed) = (self.answered, self.failed);
        let outcome = match self.failed_wrongly {
            0 if failed == 0 => Ok(format!("{answered} answered, none failed")),
            0 => Ok(format!("{answered} answered, {failed} failed at times at which they may")),
            wrongly => Err(anyhow::anyhow!("{wrongly} of {} failed", answered + failed as u64)),
        };
        Proof::of("no request failed that had to be answered", outcome)
    }
}

impl Window {
    /// Whether a request ran in this time, for a part of it at least.
    fn excuses(&self, failure: &Failure) -> bool {
        let (from, to) = (self.from.saturating_sub(SLACK), self.to.saturating_add(SLACK));
        match (from, to) {
            (Ok(from), Ok(to)) => failure.ended >= from && failure.begun <= to,
            _ => false,
        }
    }
}

impl Step {
    /// Those that a flow has recorded, but for those that were never started.
    pub fn all(view: &View) -> Vec<Self> {
        let started = view.steps().filter(|(_, step)| step.started.is_some());
        let of = |(side, step): (&'static str, &repot_console::migration::StepRecord)| Self {
            side,
            name: step.name.clone(),
            state: step.state.clone(),
            started: step.started,
            completed: step.completed,
            seconds: step.seconds(),
            attempts: step.attempts,
        };
        started.map(of).collect()
    }

    /// Whether it ran at some time from `from` to `to`. Its times are whole seconds.
    fn overlaps(&self, from: Timestamp, to: Option<Timestamp>) -> bool {
        let second = SignedDuration::from_secs(1);
        let ended = self.completed.and_then(|time| time.saturating_add(second).ok());
        self.started.is_some_and(|started| to.is_none_or(|to| started <= to))
            && ended.is_none_or(|ended| ended >= from)
    }
}

impl Report {
    /// The report for people, with the timeline as text.
    pub fn text(&self, timeline: &str) -> String {
        let mut text = format!("{timeline}\n");
        // Writing to a String does not fail.
        let _ = writeln!(text, "{}", self.setting());
        let _ = writeln!(text, "It ended as {}; it may end as {}.\n", self.ended, self.may_end.join(" or "));
        text.push_str(&self.requests_text());
        let head = if self.proved { "Proved" } else { "Not all that was promised was seen" };
        let _ = writeln!(text, "\n{head}:");
        for check in &self.checks {
            let mark = if check.holds { "yes" } else { "NO " };
            let _ = writeln!(text, "  {mark}  {}: {}", check.what, check.evidence);
        }
        if !self.proved && self.machine.was_busy() {
            text.push_str(
                "\nThis machine had much more to do than it can: what failed may come from that alone.\n",
            );
        }
        text.push_str("\nNot proved:\n");
        for line in &self.not_proved {
            let _ = writeln!(text, "  {line}");
        }
        text
    }

    fn setting(&self) -> String {
        let mut text = format!("Round trip between the seeds {} ms", self.round_trip_millis);
        let _ = write!(text, ", {} MB stored before", self.stored_bytes / 1_000_000);
        let _ = write!(text, ", {} requests a second", self.requests_per_second);
        match &self.fault {
            Some(fault) => text + &format!(", fault {fault}."),
            None => text + ", no fault.",
        }
    }

    /// The longest time without an answer, and what ran then.
    fn gap_text(&self) -> String {
        let RequestsReport { longest_gap_millis: millis, longest_gap_began: began, .. } = &self.requests;
        let mut text = format!("{millis} ms from one answer to the next");
        let Some(began) = *began else { return text };
        let _ = write!(text, ", from {began:.3}");
        let length = SignedDuration::from_millis(i64::try_from(*millis).unwrap_or(i64::MAX));
        let running =
            self.steps.iter().filter(|step| step.overlaps(began, began.saturating_add(length).ok()));
        let running: Vec<String> = running.map(|step| format!("{} {}", step.side, step.name)).collect();
        match running.len() {
            0 => text + " (no step ran)",
            1..=MOST_STEPS => text + &format!(" ({})", running.join(", ")),
            count => text + &format!(" ({count} steps ran)"),
        }
    }

    fn requests_text(&self) -> String {
        let RequestsReport { answered, failed, failed_wrongly, repeated, slowest_millis, .. } =
            &self.requests;
        let outage = self.api_outage.as_ref().map_or_else(
            || "none".to_owned(),
            |outage| outage.seconds.map_or_else(|| "has not ended".to_owned(), duration),
        );
        let rows = [
            ("Requests answered", answered.to_string()),
            ("Requests failed", format!("{failed}, {failed_wrongly} of them wrongly")),
            ("Repeated as asked", repeated.to_string()),
            ("Slowest answer", format!("{slowest_millis} ms")),
            ("Longest gap", self.gap_text()),
            ("API outage", outage),
            ("This machine", self.machine.text()),
        ];
        let mut text = columns(&rows.map(|(name, value)| [name.to_owned(), value]));
        for kind in &self.requests.failures {
            let FailureKind { kind, count, wrongly, first, message } = kind;
            let _ = writeln!(
                text,
                "  {kind}: {count}, {wrongly} of them wrongly; the first at {first}: {message}"
            );
        }
        for window in &self.windows {
            let Window { why, from, to } = window;
            let _ = writeln!(text, "  requests may fail from {from} to {to}: {why}");
        }
        text
    }
}

/// Text of others in one line of limited length.
fn shorten(text: &str) -> String {
    let line = one_line(text);
    match line.char_indices().nth(LONGEST_MESSAGE) {
        Some((end, _)) => format!("{}...", &line[..end]),
        None => line,
    }
}

#[cfg(test)]
mod tests;
