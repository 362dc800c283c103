//! A ledger as the status of an object, and back. Whatever is read back decides as what was written.
//!
//! Fields of all flows are [`FIELDS`](crate::ledger::FIELDS); the notes of a flow are further fields beside them, by the flow's own
//! serialisation. A flow with one side stores them at the top of the status, one with several sides each under the name of its side.

use repot_apimachinery::time::Time;
use serde_json::{Map, Value, json};

use crate::{
    flow::{Flow, LedgerOf, Plan, Plans},
    ledger::{FIELDS, Phase, Record, State},
    named::Named,
};

/// A status that no ledger was written to, or not by this program.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A field is missing, or has another type.
    #[error("status.{0} is missing or has the wrong type")]
    Field(String),
    /// A word that is none of the known ones.
    #[error("status.{0} is {1:?}, which is not known here")]
    Word(&'static str, String),
    /// The notes of a flow cannot be read.
    #[error("status.{field} cannot be read: {message}")]
    Notes {
        /// Which field.
        field: &'static str,
        /// What is wrong with it.
        message: String,
    },
    /// Another version of the tables started the flow. It is not read any further.
    #[error("{0}")]
    Version(String),
}

const PHASES: [(Phase, &str); 8] = [
    (Phase::Pending, "Pending"),
    (Phase::Scheduled, "Scheduled"),
    (Phase::Running, "Running"),
    (Phase::RollingBack, "RollingBack"),
    (Phase::Succeeded, "Succeeded"),
    (Phase::RolledBack, "RolledBack"),
    (Phase::Failed, "Failed"),
    (Phase::Cancelled, "Cancelled"),
];

const STATES: [(State, &str); 6] = [
    (State::Pending, "Pending"),
    (State::Running, "Running"),
    (State::Succeeded, "Succeeded"),
    (State::Failed, "Failed"),
    (State::Skipped, "Skipped"),
    (State::RolledBack, "RolledBack"),
];

fn word<T: PartialEq + Copy>(words: &[(T, &'static str)], value: T) -> &'static str {
    words.iter().find(|(v, _)| *v == value).map_or("", |(_, word)| word)
}

fn value<T: Copy>(words: &[(T, &'static str)], field: &'static str, word: &str) -> Result<T, Error> {
    let found = words.iter().find(|(_, w)| *w == word);
    found.map(|(value, _)| *value).ok_or_else(|| Error::Word(field, word.to_owned()))
}

/// The fields that a ledger of any of these versions can have: a controller replaces all of them and leaves others alone.
pub fn fields<F: Flow>(plans: &Plans<F>) -> impl Iterator<Item = &'static str> {
    FIELDS.into_iter().chain(plans.versions.iter().flat_map(|plan| plan.fields.iter().copied()))
}

/// The fields of the status that are the ledger's.
#[must_use]
pub fn to_status<F: Flow>(plan: &Plan<F>, ledger: &LedgerOf<F>) -> Value {
    let time = |time: Option<Time>| time.map(Time::to_rfc3339);
    let records: Vec<Value> = plan
        .steps()
        .into_iter()
        .filter_map(|step| ledger.steps.get(&step).map(|record| record_to(step.name(), record)))
        .collect();
    let mut status = bare(json!({
        "planVersion": (ledger.version > 0).then_some(ledger.version),
        "phase": word(&PHASES, ledger.phase),
        "reason": ledger.reason,
        "message": ledger.message,
        "startTime": time(ledger.started),
        "completionTime": time(ledger.completed),
        "pausedTime": time(ledger.paused),
        "observedTime": time(ledger.observed),
        "failedPhase": ledger.failed_in.map(|phase| word(&PHASES, phase)),
        "retry": (ledger.retry > 0).then_some(ledger.retry),
        "retriedTime": time(ledger.retried),
        "steps": records,
        "conditions": conditions(plan, ledger),
    }));
    status.extend(notes_to(plan, ledger));
    Value::Object(status)
}

/// The notes, and what follows from the ledger, as far as this kind has fields for them.
fn notes_to<F: Flow>(plan: &Plan<F>, ledger: &LedgerOf<F>) -> Map<String, Value> {
    let notes = serde_json::to_value(&ledger.notes).unwrap_or_default();
    let mut fields = bare(notes);
    fields.extend(F::derived(ledger));
    fields.retain(|field, _| plan.fields.contains(&field.as_str()));
    fields
}

/// Fields that are not null.
fn bare(value: Value) -> Map<String, Value> {
    let Value::Object(fields) = value else { return Map::new() };
    fields.into_iter().filter(|(_, value)| !value.is_null()).collect()
}

fn record_to(step: &str, record: &Record) -> Value {
    Value::Object(bare(json!({
        "name": step,
        "state": word(&STATES, record.state),
        "reason": record.reason,
        "message": record.message,
        "startTime": record.started.map(Time::to_rfc3339),
        "completionTime": record.completed.map(Time::to_rfc3339),
        "attempts": record.attempts,
    })))
}

/// Progressing and Succeeded, and those of rows that have one. All of them follow from the ledger, the times of their transitions too.
fn conditions<F: Flow>(plan: &Plan<F>, ledger: &LedgerOf<F>) -> Value {
    let Some(started) = ledger.started else { return Value::Null };
    let since = ledger.completed.filter(|_| ledger.phase.is_end()).unwrap_or(started);
    let whole = |kind: &str, status: &str| condition(kind, status, (&ledger.reason, &ledger.message), since);
    let (progressing, succeeded) = match ledger.phase {
        Phase::Succeeded => ("False", "True"),
        Phase::RolledBack | Phase::Failed | Phase::Cancelled => ("False", "False"),
        Phase::Pending | Phase::Scheduled => ("False", "Unknown"),
        Phase::Running | Phase::RollingBack => ("True", "Unknown"),
    };
    let mut all = vec![whole("Progressing", progressing), whole("Succeeded", succeeded)];
    for row in plan.forward {
        let Some(kind) = row.condition else { continue };
        let record = ledger.steps.get(&row.step).cloned().unwrap_or_else(Record::pending);
        let status = match record.state {
            State::Pending | State::Running => "Unknown",
            State::Succeeded | State::Skipped => "True",
            State::Failed | State::RolledBack => "False",
        };
        let since = record.completed.or(record.started).unwrap_or(started);
        all.push(condition(kind, status, (&record.reason, &record.message), since));
    }
    Value::Array(all)
}

fn condition(kind: &str, status: &str, (reason, message): (&str, &str), since: Time) -> Value {
    let reason = if reason.is_empty() { "Unknown" } else { reason };
    json!({
        "type": kind, "status": status, "reason": reason, "message": message,
        "lastTransitionTime": since.to_rfc3339(),
    })
}

/// The ledger in a status; one that has not started where there is none.
///
/// # Errors
/// [`Error::Version`] where an unknown version of the tables wrote it; else the field that cannot be read. A flow with such a status
/// is left alone.
pub fn from_status<F: Flow>(plans: &Plans<F>, status: &Value) -> Result<LedgerOf<F>, Error> {
    if status.get("phase").is_none() {
        return Ok(LedgerOf::<F>::default());
    }
    let at = At(status, "");
    let version: u32 = at.number("planVersion")?.unwrap_or_default();
    let plan = if version == 0 { Some(plans.newest()) } else { plans.of(version) };
    let plan = plan.ok_or_else(|| Error::Version(plans.unknown(version)))?;
    let mut ledger = LedgerOf::<F> {
        version,
        phase: value(&PHASES, "phase", &at.text("phase")?.unwrap_or_default())?,
        reason: at.text("reason")?.unwrap_or_default(),
        message: at.text("message")?.unwrap_or_default(),
        started: at.time("startTime")?,
        completed: at.time("completionTime")?,
        paused: at.time("pausedTime")?,
        observed: at.time("observedTime")?,
        failed_in: at.text("failedPhase")?.map(|word| value(&PHASES, "failedPhase", &word)).transpose()?,
        retry: at.number("retry")?.unwrap_or_default(),
        retried: at.time("retriedTime")?,
        notes: notes_from(plan, status)?,
        ..LedgerOf::<F>::default()
    };
    for record in status.get("steps").and_then(Value::as_array).into_iter().flatten() {
        let at = At(record, "steps.");
        let name = at.text("name")?.ok_or_else(|| Error::Field("steps.name".to_owned()))?;
        let step = F::Step::parse(&name).ok_or(Error::Word("steps.name", name))?;
        ledger.steps.insert(step, record_from(&at)?);
    }
    Ok(ledger)
}

fn record_from(at: &At) -> Result<Record, Error> {
    Ok(Record {
        state: value(&STATES, "steps.state", &at.text("state")?.unwrap_or_default())?,
        reason: at.text("reason")?.unwrap_or_default(),
        message: at.text("message")?.unwrap_or_default(),
        started: at.time("startTime")?,
        completed: at.time("completionTime")?,
        attempts: at.number("attempts")?.unwrap_or_default(),
    })
}

fn notes_from<F: Flow>(plan: &Plan<F>, status: &Value) -> Result<F::Notes, Error> {
    let of = |names: &[&'static str]| -> Value {
        let known = names.iter().filter_map(|name| Some(((*name).to_owned(), status.get(*name)?.clone())));
        Value::Object(known.collect())
    };
    let error = match serde_json::from_value(of(plan.fields)) {
        Ok(notes) => return Ok(notes),
        Err(error) => error,
    };
    let is_bad = |field: &&&'static str| serde_json::from_value::<F::Notes>(of(&[field])).is_err();
    let field = plan.fields.iter().find(is_bad).copied().unwrap_or("notes");
    Err(unreadable(field, &error))
}

fn unreadable(field: &'static str, error: &serde_json::Error) -> Error {
    Error::Notes { field, message: error.to_string() }
}

/// An object, and the path to it.
struct At<'a>(&'a Value, &'static str);

impl At<'_> {
    fn wrong(&self, field: &str) -> Error {
        Error::Field(format!("{}{field}", self.1))
    }

    fn text(&self, field: &str) -> Result<Option<String>, Error> {
        let text = |value: &Value| value.as_str().map(str::to_owned).ok_or_else(|| self.wrong(field));
        self.0.get(field).map(text).transpose()
    }

    fn time(&self, field: &str) -> Result<Option<Time>, Error> {
        self.text(field)?.map(|text| Time::parse(&text).ok_or_else(|| self.wrong(field))).transpose()
    }

    fn number<T: TryFrom<i64>>(&self, field: &str) -> Result<Option<T>, Error> {
        let number = |value: &Value| {
            value.as_i64().and_then(|number| T::try_from(number).ok()).ok_or_else(|| self.wrong(field))
        };
        self.0.get(field).map(number).transpose()
    }
}
