//! One migration as people look at it: times and states of its steps, by side, whatever its mode.

use jiff::Timestamp;
use kube::ResourceExt;
use repot_controllers::migration::api::ControlPlaneMigration;
use repot_plan::{migration::Side, named::Named};
use serde::Serialize;
use serde_json::Value;

/// Most steps of one side that are looked at. Tables have fewer than 60.
const MOST_STEPS: usize = 200;

/// How a control plane moves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum Mode {
    /// The source stops before the destination serves.
    #[default]
    Classic,
    /// The source cannot be reached.
    Forced,
    /// Both serve while the etcd moves member by member.
    Live,
}

/// Who carries a migration out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum Executor {
    /// The controllers of Repot.
    #[default]
    Repot,
    /// The gardenlets, which Repot steers.
    Gardenlet,
}

/// A ControlPlaneMigration.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Migration {
    /// Namespace in the garden.
    pub namespace: String,
    /// Name of the object.
    pub name: String,
    /// The Shoot, in the same namespace.
    pub shoot: String,
    /// How it moves.
    pub mode: Mode,
    /// Who carries it out.
    pub executor: Executor,
    /// The seed that is left.
    pub source_seed: String,
    /// The seed where the control plane goes.
    pub destination_seed: String,
    /// When the object was created.
    pub created: Option<Timestamp>,
    /// `status.phase`; `Pending` where no controller has recorded one.
    pub phase: String,
    /// `status.reason`.
    pub reason: String,
    /// `status.message`.
    pub message: String,
    /// Whether `spec.paused` asks to start no further step.
    pub paused: bool,
    /// `spec.abort`.
    pub abort: Option<String>,
    /// `spec.retry`.
    pub retry: i64,
    /// `spec.forceShrinkEtcd`.
    pub force_shrink_etcd: bool,
    /// Whether members of the source left before the destination served, as `spec.forceShrinkEtcd` asked for.
    pub shrunk: bool,
    /// How long a step may take, as a duration such as `10m`.
    pub step_timeout: Option<String>,
    /// When the point of no return was started.
    pub point_of_no_return: Option<Timestamp>,
    /// When clients could not reach the API.
    pub api_outage: Option<Outage>,
    /// Epoch of the owner record.
    pub owner_epoch: Option<u64>,
    /// The migration that goes on in place of this one, or from its destination.
    pub followed_by: Option<String>,
    /// What each side has recorded; one that has recorded nothing is left out.
    pub sides: Vec<SidePart>,
}

/// A time without an API.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Outage {
    /// When it began.
    pub from: Timestamp,
    /// When it ended; `None` while it lasts.
    pub to: Option<Timestamp>,
    /// How long it was, as the controllers computed it.
    pub seconds: Option<i64>,
}

/// What one side has recorded.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SidePart {
    /// `garden`, `source` or `destination`.
    pub name: &'static str,
    /// How far it is.
    pub phase: String,
    /// Why, for people.
    pub message: String,
    /// When its controller wrote last.
    pub observed: Option<Timestamp>,
    /// Its steps in the order of the tables.
    pub steps: Vec<StepRecord>,
}

/// What is recorded of a step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct StepRecord {
    /// Name of the step.
    pub name: String,
    /// `Pending`, `Running`, `Succeeded`, `Failed`, `Skipped` or `RolledBack`.
    pub state: String,
    /// Why, in one word.
    pub reason: String,
    /// What it waits for, or the evidence that it is reached.
    pub message: String,
    /// When it was started, the last time.
    pub started: Option<Timestamp>,
    /// When it ended.
    pub completed: Option<Timestamp>,
    /// How often it was started.
    pub attempts: i64,
}

impl Mode {
    /// The name as `spec.mode` has it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Classic => "Classic",
            Self::Forced => "Forced",
            Self::Live => "Live",
        }
    }
}

impl Executor {
    /// The name as `spec.executor` has it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Repot => "Repot",
            Self::Gardenlet => "Gardenlet",
        }
    }
}

impl Migration {
    /// Reads the object. Text that others have written loses its control characters; a time that is none is left out.
    #[must_use]
    pub fn new(object: &ControlPlaneMigration) -> Self {
        let status = Value::Object(object.status.clone());
        let spec = &object.spec;
        let phase = text(&status, "phase");
        Self {
            namespace: object.namespace().unwrap_or_default(),
            name: object.name_any(),
            shoot: spec.shoot_ref.name.clone(),
            mode: match spec.mode.as_str() {
                "Live" => Mode::Live,
                "Forced" => Mode::Forced,
                _ => Mode::Classic,
            },
            executor: if spec.executor == "Gardenlet" { Executor::Gardenlet } else { Executor::Repot },
            source_seed: spec.source_seed.clone(),
            destination_seed: spec.destination_seed.clone(),
            created: object.creation_timestamp().map(|time| time.0),
            phase: if phase.is_empty() { "Pending".to_owned() } else { phase },
            reason: text(&status, "reason"),
            message: text(&status, "message"),
            paused: spec.paused == Some(true),
            abort: spec.abort.clone(),
            retry: spec.retry.unwrap_or_default(),
            force_shrink_etcd: spec.force_shrink_etcd == Some(true),
            shrunk: Side::ALL.iter().any(|side| status[side.name()]["shrunk"] == true),
            step_timeout: spec.step_timeout.clone(),
            point_of_no_return: time(&status, "pointOfNoReturn"),
            api_outage: outage(&status["apiOutage"]),
            owner_epoch: status["ownerEpoch"].as_u64(),
            followed_by: object.superseded_by().or(object.continued_by()).map(str::to_owned),
            sides: Side::ALL.iter().filter_map(|side| SidePart::read(side.name(), &status)).collect(),
        }
    }

    /// Whether it has ended.
    #[must_use]
    pub fn is_over(&self) -> bool {
        matches!(self.phase.as_str(), "Succeeded" | "RolledBack" | "Failed" | "Cancelled")
    }

    /// Whether the control plane is at its destination for good.
    #[must_use]
    pub fn has_succeeded(&self) -> bool {
        self.phase == "Succeeded"
    }

    /// All steps with their sides.
    pub fn steps(&self) -> impl Iterator<Item = (&'static str, &StepRecord)> {
        self.sides.iter().flat_map(|side| side.steps.iter().map(|step| (side.name, step)))
    }

    /// The record of a step, whichever side has it.
    #[must_use]
    pub fn step(&self, name: &str) -> Option<&StepRecord> {
        self.steps().map(|(_, step)| step).find(|step| step.name == name)
    }

    /// When its first step was started.
    #[must_use]
    pub fn started(&self) -> Option<Timestamp> {
        self.steps().filter_map(|(_, step)| step.started).min()
    }

    /// When its last step ended; `None` while it runs.
    #[must_use]
    pub fn ended(&self) -> Option<Timestamp> {
        let last = || self.steps().filter_map(|(_, step)| step.completed).max();
        self.is_over().then(last).flatten()
    }

    /// Namespace and name, as people write them.
    #[must_use]
    pub fn key(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }
}

impl SidePart {
    /// Reads what a side has recorded in a status, of a migration or of another flow; `None` where it has recorded nothing.
    #[must_use]
    pub fn read(name: &'static str, status: &Value) -> Option<Self> {
        let part = status.get(name).filter(|part| part.is_object())?;
        let steps = part["steps"].as_array().into_iter().flatten().take(MOST_STEPS);
        Some(Self {
            name,
            phase: text(part, "phase"),
            message: text(part, "message"),
            observed: time(part, "observedTime"),
            steps: steps.map(StepRecord::read).collect(),
        })
    }
}

impl StepRecord {
    pub(crate) fn read(record: &Value) -> Self {
        Self {
            name: text(record, "name"),
            state: text(record, "state"),
            reason: text(record, "reason"),
            message: text(record, "message"),
            started: time(record, "startTime"),
            completed: time(record, "completionTime"),
            attempts: record["attempts"].as_i64().unwrap_or_default(),
        }
    }

    /// Whether it was started and has not ended.
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.state == "Running"
    }

    /// How long it took, in seconds; `None` where it has not ended.
    #[must_use]
    pub fn seconds(&self) -> Option<i64> {
        let (from, to) = self.started.zip(self.completed)?;
        Some(to.duration_since(from).as_secs().max(0))
    }
}

fn outage(value: &Value) -> Option<Outage> {
    let from = time(value, "from")?;
    Some(Outage { from, to: time(value, "to"), seconds: value["seconds"].as_i64() })
}

fn text(object: &Value, field: &str) -> String {
    crate::text::one_line(object[field].as_str().unwrap_or_default())
}

fn time(object: &Value, field: &str) -> Option<Timestamp> {
    object[field].as_str()?.parse().ok()
}

#[cfg(test)]
pub(crate) mod tests {
    use serde_json::json;

    use super::*;

    /// A classic migration that has succeeded, with five steps and an outage of 7 s.
    pub(crate) fn classic() -> Value {
        let step = |name: &str, from: &str, to: &str| {
            json!({"name": name, "state": "Succeeded", "reason": "Reached", "message": "evidence", "attempts": 1,
                   "startTime": format!("2026-11-28T05:{from}Z"), "completionTime": format!("2026-11-28T05:{to}Z")})
        };
        json!({
            "metadata": {"name": "alpha-to-b", "namespace": "garden-dev", "creationTimestamp": "2026-11-28T05:14:00Z"},
            "spec": {"shootRef": {"name": "alpha"}, "sourceSeed": "seed-a", "destinationSeed": "seed-b"},
            "status": {
                "phase": "Succeeded",
                "pointOfNoReturn": "2026-11-28T05:15:05Z",
                "apiOutage": {"from": "2026-11-28T05:15:00Z", "to": "2026-11-28T05:15:07Z", "seconds": 7},
                "garden": {"phase": "Succeeded", "steps": [step("TurnTaken", "14:02", "14:04")]},
                "source": {"phase": "Succeeded", "steps": [
                    step("SourceServes", "14:05", "14:10"), step("SourceApiStopped", "15:00", "15:02"),
                ]},
                "destination": {"phase": "Succeeded", "steps": [
                    step("MoveCommitted", "15:05", "15:06"), step("ApiDnsSwitched", "15:06", "15:07"),
                ]},
            },
        })
    }

    pub(crate) fn read(object: Value) -> Migration {
        Migration::new(&serde_json::from_value(object).expect("a migration"))
    }

    #[test]
    fn migration_has_the_times_of_all_sides() {
        let migration = read(classic());
        assert!(migration.is_over() && migration.has_succeeded());
        let seconds = |from: Timestamp, to: Timestamp| to.duration_since(from).as_secs();
        let (from, to) = (migration.started().expect("a start"), migration.ended().expect("an end"));
        assert_eq!(seconds(from, to), 65);
        assert_eq!(migration.step("SourceServes").and_then(StepRecord::seconds), Some(5));
        assert_eq!(migration.api_outage.as_ref().and_then(|outage| outage.seconds), Some(7));
    }

    #[test]
    fn status_of_a_wrong_shape_is_read_as_far_as_it_goes() {
        let object = json!({
            "metadata": {"name": "m"},
            "spec": {"shootRef": {"name": "s"}, "mode": "Strange"},
            "status": {
                "phase": 7, "message": "red\u{1b}[31m", "apiOutage": [], "source": 3,
                "garden": {"steps": [{"name": "A", "startTime": "yesterday"}, 5]},
            },
        });
        let migration = read(object);
        assert_eq!((migration.phase.as_str(), migration.message.as_str()), ("Pending", "red [31m"));
        assert_eq!(migration.started(), None);
        assert_eq!(migration.sides.len(), 1);
    }
}
