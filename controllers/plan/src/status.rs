//! A ledger as the status of the served kinds, and back. Whatever is read back decides as what was written.

use std::time::Duration;

use serde_json::{Map, Value, json};

use crate::{
    etcd::{
        EtcdFlow, Notes,
        world::{Digest, Revision, Settings, Targets, VolumeSet},
    },
    flow::Plan,
    ledger::{Ledger, Phase, Record, State},
    render::steps,
    time::Time,
};

/// Fields of the status that are the ledger's.
pub const FIELDS: [&str; 14] = [
    "apiDownSeconds",
    "backupName",
    "before",
    "completionTime",
    "conditions",
    "message",
    "newVolumes",
    "pausedTime",
    "phase",
    "planVersion",
    "proof",
    "reason",
    "startTime",
    "steps",
];

/// A status that no ledger was written to.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A field is missing, or has another type.
    #[error("status.{0} is missing or has the wrong type")]
    Field(String),
    /// A word that is none of the known ones.
    #[error("status.{0} is {1:?}, which is not known here")]
    Word(&'static str, String),
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

/// How long API servers were stopped, once they are up again, by the records.
#[must_use]
pub fn api_down(ledger: &Ledger<Notes>) -> Option<Duration> {
    let reached = |step: &str| ledger.steps.get(step).filter(|record| record.state == State::Succeeded);
    let up = reached("ApiUp").or_else(|| reached("ApiUpAgain"))?.completed?;
    Some(up.since(ledger.steps.get("ApiDown")?.started?))
}

/// The fields of the status that are the ledger's; a controller replaces all of [`FIELDS`] by them and leaves others alone.
#[must_use]
pub fn to_status(plan: &Plan<EtcdFlow>, ledger: &Ledger<Notes>) -> Value {
    let time = |time: Option<Time>| time.map(Time::to_rfc3339);
    let notes = &ledger.notes;
    let records: Vec<Value> = steps(plan)
        .into_iter()
        .filter_map(|step| ledger.steps.get(step).map(|record| record_to(step, record)))
        .collect();
    let mut status = json!({
        "planVersion": (ledger.version > 0).then_some(ledger.version),
        "phase": word(&PHASES, ledger.phase),
        "reason": ledger.reason,
        "message": ledger.message,
        "startTime": time(ledger.started),
        "completionTime": time(ledger.completed),
        "pausedTime": time(ledger.paused),
        "backupName": notes.backup,
        "proof": notes.proof.as_ref().map(|d| json!({"revision": d.revision.0, "keys": d.keys, "hash": d.hash})),
        "steps": records,
        "conditions": conditions(ledger),
    });
    if !plan.back.is_empty() {
        status["apiDownSeconds"] = json!(api_down(ledger).map(|down| down.as_secs()));
        status["newVolumes"] = json!(notes.new.as_ref().map(|set| &set.0));
        status["before"] = bare(json!({
            "locked": notes.locked,
            "etcdName": notes.targets.as_ref().map(|targets| &targets.etcd),
            "apiServerName": notes.targets.as_ref().map(|targets| &targets.api),
            "served": notes.served,
            "apiReplicas": notes.api_replicas,
            "apiGeneration": notes.api_generation,
            "volumes": notes.old.as_ref().map(|(set, _)| &set.0),
            "etcdSettings": notes.old.as_ref().map(|(_, settings)| settings_to(settings)),
            "settings": notes.old_settings.as_ref().map(settings_to),
        }));
    }
    bare(status)
}

/// Without fields that are null.
fn bare(value: Value) -> Value {
    let Value::Object(fields) = value else { return value };
    Value::Object(fields.into_iter().filter(|(_, value)| !value.is_null()).collect::<Map<_, _>>())
}

fn record_to(step: &str, record: &Record) -> Value {
    bare(json!({
        "name": step,
        "state": word(&STATES, record.state),
        "reason": record.reason,
        "message": record.message,
        "startTime": record.started.map(Time::to_rfc3339),
        "completionTime": record.completed.map(Time::to_rfc3339),
        "attempts": record.attempts,
    }))
}

fn settings_to(settings: &Settings) -> Value {
    json!({"replicas": settings.replicas, "size": settings.size, "storageClassName": settings.storage_class})
}

/// Progressing and Succeeded. Both follow from the ledger, the times of their transitions too.
fn conditions(ledger: &Ledger<Notes>) -> Value {
    let Some(started) = ledger.started else { return Value::Null };
    let since = ledger.completed.filter(|_| ledger.phase.is_end()).unwrap_or(started).to_rfc3339();
    let reason = if ledger.reason.is_empty() { "Unknown" } else { &ledger.reason };
    let condition = |kind: &str, status: &str| json!({"type": kind, "status": status, "reason": reason, "message": ledger.message, "lastTransitionTime": since});
    let (progressing, succeeded) = match ledger.phase {
        Phase::Succeeded => ("False", "True"),
        Phase::RolledBack | Phase::Failed | Phase::Cancelled => ("False", "False"),
        Phase::Pending | Phase::Scheduled => ("False", "Unknown"),
        Phase::Running | Phase::RollingBack => ("True", "Unknown"),
    };
    json!([condition("Progressing", progressing), condition("Succeeded", succeeded)])
}

/// The ledger in a status; one that has not begun where there is none.
///
/// # Errors
/// The field that cannot be read. A workflow with such a status is left alone.
pub fn from_status(status: &Value) -> Result<Ledger<Notes>, Error> {
    if status.get("phase").is_none() {
        return Ok(Ledger::default());
    }
    let at = At(status, "");
    let mut ledger = Ledger {
        version: at.number("planVersion")?.unwrap_or_default(),
        phase: value(&PHASES, "phase", &at.text("phase")?.unwrap_or_default())?,
        reason: at.text("reason")?.unwrap_or_default(),
        message: at.text("message")?.unwrap_or_default(),
        started: at.time("startTime")?,
        completed: at.time("completionTime")?,
        paused: at.time("pausedTime")?,
        ..Ledger::default()
    };
    for record in status.get("steps").and_then(Value::as_array).into_iter().flatten() {
        let at = At(record, "steps.");
        let name = at.text("name")?.ok_or_else(|| Error::Field("steps.name".to_owned()))?;
        ledger.steps.insert(name, record_from(&at)?);
    }
    ledger.notes = notes_from(status, &at)?;
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

fn notes_from(status: &Value, at: &At) -> Result<Notes, Error> {
    let empty = Value::Null;
    let before = At(status.get("before").unwrap_or(&empty), "before.");
    let volumes = before.text("volumes")?.map(VolumeSet);
    let settings =
        before.0.get("etcdSettings").map(|s| settings_from(&At(s, "before.etcdSettings."))).transpose()?;
    Ok(Notes {
        locked: before.flag("locked"),
        targets: before
            .text("etcdName")?
            .zip(before.text("apiServerName")?)
            .map(|(etcd, api)| Targets { etcd, api }),
        served: before.flag("served"),
        backup: at.text("backupName")?,
        proof: status.get("proof").map(|proof| proof_from(&At(proof, "proof."))).transpose()?,
        api_replicas: before.number("apiReplicas")?,
        api_generation: before.number("apiGeneration")?,
        old: volumes.zip(settings),
        new: at.text("newVolumes")?.map(VolumeSet),
        old_settings: before
            .0
            .get("settings")
            .map(|s| settings_from(&At(s, "before.settings.")))
            .transpose()?,
    })
}

fn proof_from(at: &At) -> Result<Digest, Error> {
    let missing = |field: &str| Error::Field(format!("proof.{field}"));
    Ok(Digest {
        revision: Revision(at.number("revision")?.ok_or_else(|| missing("revision"))?),
        keys: at.number("keys")?.ok_or_else(|| missing("keys"))?,
        hash: at.text("hash")?.ok_or_else(|| missing("hash"))?,
    })
}

fn settings_from(at: &At) -> Result<Settings, Error> {
    Ok(Settings {
        replicas: at.number("replicas")?.unwrap_or_default(),
        size: at.text("size")?.unwrap_or_default(),
        storage_class: at.text("storageClassName")?.unwrap_or_default(),
    })
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

    fn flag(&self, field: &str) -> bool {
        self.0.get(field).and_then(Value::as_bool).unwrap_or_default()
    }
}
