//! Objects of the garden, as the controllers of migrations read and write them.
//!
//! The types follow the schema of `repot_api`: whatever the API server accepts can be read here, since one object that cannot be read
//! would stop the watch of its kind.

mod shoot;

use std::{borrow::Cow, time::Duration};

use kube::{
    ResourceExt,
    api::TypeMeta,
    core::{NamespaceResourceScope, ObjectMeta},
};
use repot_api::names::{CONFIRM_DESTINATION_LOST, CONFIRM_SOURCE_STOPPED, MIGRATION_GROUP, V1ALPHA1};
use repot_apimachinery::time::Time;
use repot_plan::{
    classic,
    flow::Plans,
    forced, live,
    migration::{MigrationFlow, Side, Step, observed::MigrationMode},
    named::Named,
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

pub use shoot::{LastOperation, Shoot, ShootSpec, ShootStatus};

/// Field of the status with the name of the migration that goes on in place of this one.
pub const SUPERSEDED_BY: &str = "supersededBy";

/// Field of the status with the name of the forced migration that goes on from the destination of this one.
pub const CONTINUED_BY: &str = "continuedBy";

/// Field of the status with what a final snapshot holds that came after the destination had begun.
pub const LATE_SNAPSHOT: &str = "lateSnapshot";

/// How much longer than the garden a destination that is lost has recorded nothing. One that runs records something each minute, and
/// the clocks of both may differ.
pub const SILENT: Duration = Duration::from_secs(300);

/// The kind, for messages and references.
pub const KIND: &str = "ControlPlaneMigration";

/// The migration of one control plane. It is written as a whole, so fields that are unknown here are kept.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ControlPlaneMigration {
    /// API version and kind; objects of lists may come without them.
    #[serde(flatten)]
    pub types: Option<TypeMeta>,
    /// Kubernetes metadata of the object.
    pub metadata: ObjectMeta,
    /// What the user asks for.
    #[serde(default)]
    pub spec: MigrationSpec,
    /// What the controllers of the three sides have recorded, by field.
    #[serde(default)]
    pub status: Map<String, Value>,
}

/// Which control plane moves, and how.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct MigrationSpec {
    /// The Shoot, in the same namespace.
    pub shoot_ref: ShootRef,
    /// Name of the seed that hosts the control plane before the migration.
    pub source_seed: String,
    /// Name of the seed that hosts it afterwards.
    pub destination_seed: String,
    /// `Classic`, `Forced` or `Live`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub mode: String,
    /// Who runs the steps: `Repot` or `Gardenlet`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub executor: String,
    /// `Abort` or `Force`, to roll back.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub abort: Option<String>,
    /// Whether to start no further step.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub paused: Option<bool>,
    /// Number of the last request to try again what has failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry: Option<i64>,
    /// Live: whether the source may be given up where the destination does not start beside it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub force_shrink_etcd: Option<bool>,
    /// How long a step may take, as a duration such as `10m`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step_timeout: Option<String>,
    /// Fields that are unknown here.
    #[serde(flatten)]
    pub others: Map<String, Value>,
}

/// The Shoot of a migration.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ShootRef {
    /// Name of the Shoot.
    pub name: String,
    /// UID of the Shoot; empty until the controller of the garden has filled it in.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub uid: String,
}

impl ControlPlaneMigration {
    /// How the control plane moves; `None` where the controllers of this program do not work on it.
    #[must_use]
    pub fn mode(&self) -> Option<MigrationMode> {
        let is_ours = matches!(self.spec.executor.as_str(), "" | "Repot");
        match self.spec.mode.as_str() {
            "" | "Classic" if is_ours => Some(MigrationMode::Classic),
            "Forced" if is_ours => Some(MigrationMode::Forced),
            "Live" if is_ours => Some(MigrationMode::Live),
            _ => None,
        }
    }

    /// The mode of a migration that gardenlets carry out, and that the controllers of this program steer; `None` for any other one.
    #[must_use]
    pub fn gardenlet_mode(&self) -> Option<MigrationMode> {
        let is_steered = self.spec.executor == "Gardenlet";
        match self.spec.mode.as_str() {
            "" | "Classic" if is_steered => Some(MigrationMode::Classic),
            "Forced" if is_steered => Some(MigrationMode::Forced),
            _ => None,
        }
    }

    /// All versions of the tables of its mode.
    #[must_use]
    pub fn plans(&self) -> &'static Plans<MigrationFlow> {
        match self.mode() {
            Some(MigrationMode::Forced) => &forced::PLANS,
            Some(MigrationMode::Live) => &live::PLANS,
            Some(MigrationMode::Classic) | None => &classic::PLANS,
        }
    }

    /// The highest epoch of the owner record that it has recorded.
    #[must_use]
    pub fn owner_epoch(&self) -> Option<u64> {
        self.status.get("ownerEpoch").and_then(Value::as_u64)
    }

    /// Name of the migration that goes on in place of this one, if one does.
    #[must_use]
    pub fn superseded_by(&self) -> Option<&str> {
        self.status.get(SUPERSEDED_BY).and_then(Value::as_str).filter(|name| !name.is_empty())
    }

    /// Name of the forced migration that goes on from the destination of this one, if one does.
    #[must_use]
    pub fn continued_by(&self) -> Option<&str> {
        self.status.get(CONTINUED_BY).and_then(Value::as_str).filter(|name| !name.is_empty())
    }

    /// Whether the source has stored all that it had, and nobody there acts on the infrastructure any more.
    #[must_use]
    pub fn is_source_done(&self) -> bool {
        let is_reached = |side, step| self.step(side, step).is_some_and(|step| step["state"] == "Succeeded");
        match self.mode() {
            Some(MigrationMode::Forced) => {
                self.annotations().get(CONFIRM_SOURCE_STOPPED) == Some(&self.spec.source_seed)
                    || is_reached(Side::Destination, Step::SourceControllersFenced)
                    || is_reached(Side::Garden, Step::SourceQuarantined)
                    || is_reached(Side::Source, Step::SourceControllersStopped)
            }
            Some(MigrationMode::Classic | MigrationMode::Live) | None => {
                is_reached(Side::Source, Step::MigratedStateSynced)
            }
        }
    }

    /// Whether somebody has confirmed that the destination of a live migration never comes back.
    #[must_use]
    pub fn is_destination_lost(&self) -> bool {
        let confirmed = self.annotations().get(CONFIRM_DESTINATION_LOST);
        self.mode() == Some(MigrationMode::Live) && confirmed == Some(&self.spec.destination_seed)
    }

    /// Whether the garden says that a forced migration could begin, but for a live one that may give way to it, or is being told to end.
    #[must_use]
    pub fn waits_for_another(&self) -> bool {
        let garden = self.status.get(Side::Garden.name());
        let reason = garden.and_then(|part| part.get("reason")?.as_str());
        matches!(reason, Some("OtherMayGoOn" | "SettingFinalizer" | "Superseding"))
    }

    /// Whether the garden has let it begin.
    #[must_use]
    pub fn has_taken_turn(&self) -> bool {
        let steps = self.status.get(Side::Garden.name()).and_then(|part| part.get("steps")?.as_array());
        // One that an earlier program has begun has other steps alone.
        let is_begun = |step: &Value| match step["name"] == Step::TurnTaken.name() {
            true => step["state"] == "Succeeded",
            false => step["state"] != "Pending",
        };
        steps.is_some_and(|steps| steps.iter().any(is_begun))
    }

    /// Whether other migrations go first, as the garden says.
    #[must_use]
    pub fn is_queued(&self) -> bool {
        let garden = self.status.get(Side::Garden.name());
        garden.and_then(|part| part.get("reason")?.as_str()) == Some("Queued")
    }

    /// Whether the etcd of the source has lost ownership, so that a rollback gave it other volumes.
    #[must_use]
    pub fn has_ended_ownership(&self) -> bool {
        self.status.get("source").and_then(|part| part.get("ownershipEnded")?.as_bool()) == Some(true)
    }

    /// Whether a side has succeeded, by its own part of the status.
    #[must_use]
    pub fn has_side_succeeded(&self, side: Side) -> bool {
        self.status.get(side.name()).and_then(|part| part.get("phase")?.as_str()) == Some("Succeeded")
    }

    /// Whether a side has ended, by its own part of the status.
    #[must_use]
    pub fn has_side_ended(&self, side: Side) -> bool {
        let phase = self.status.get(side.name()).and_then(|part| part.get("phase")?.as_str());
        matches!(phase, Some("Succeeded" | "RolledBack" | "Failed" | "Cancelled"))
    }

    /// Whether the destination may have served clients: from then on it holds what the source does not. Where its etcd was lost with
    /// the source before that, or another migration goes on in place of it, it rolls back all the same.
    #[must_use]
    pub fn has_committed(&self) -> bool {
        let is_started = |step: &Value| step["startTime"].is_string();
        let part = self.status.get(Side::Destination.name());
        let word = |field: &str| part.and_then(|part| part.get(field)?.as_str());
        let goes_back = matches!(word("phase"), Some("RollingBack" | "RolledBack"))
            || (word("phase") == Some("Failed") && word("failedPhase") == Some("RollingBack"));
        let is_committed = self.step(Side::Destination, Step::MoveCommitted).is_some_and(is_started);
        is_committed && !goes_back && self.superseded_by().is_none() && !self.is_destination_given_up()
    }

    /// Whether somebody has confirmed that the destination never comes back, before its bucket had a snapshot. From then on its controllers
    /// may act on Machines, and the garden names it in the Shoot.
    #[must_use]
    pub fn may_give_destination_up(&self) -> bool {
        let is_started = |step: &Value| step["startTime"].is_string();
        let is_named = self.step(Side::Garden, Step::StatusMoved).is_some_and(is_started);
        let stored = self.step(Side::Destination, Step::SnapshotStored);
        self.is_destination_lost() && !is_named && stored.is_none_or(|step| step["state"] != "Succeeded")
    }

    /// The same of a destination that records nothing any more, while the garden does. One that goes on is not lost, whatever somebody
    /// confirms. One that has failed records nothing either, until the garden has followed a request to try again.
    fn is_destination_given_up(&self) -> bool {
        let retry = |side: Side| {
            let part = self.status.get(side.name());
            part.and_then(|part| part.get("retry")?.as_u64()).unwrap_or_default()
        };
        let is_asked =
            !self.has_side_ended(Side::Destination) || retry(Side::Garden) > retry(Side::Destination);
        self.is_silent(Side::Destination) && is_asked && self.may_give_destination_up()
    }

    /// Whether a side records nothing any more, while the garden does.
    #[must_use]
    pub fn is_silent(&self, side: Side) -> bool {
        let observed = |side: Side| {
            let part = self.status.get(side.name());
            part.and_then(|part| part.get("observedTime")?.as_str()).and_then(Time::parse)
        };
        match (observed(Side::Garden), observed(side)) {
            (Some(garden), Some(other)) => garden.since(other) >= SILENT,
            _ => false,
        }
    }

    /// Whether `status.seedName` of the Shoot was set to the destination.
    #[must_use]
    pub fn has_moved_status(&self) -> bool {
        self.step(Side::Garden, Step::StatusMoved).is_some_and(|step| step["state"] == "Succeeded")
    }

    /// Whether the garden works on the step in which the credentials of the source are revoked.
    #[must_use]
    pub fn is_source_to_be_quarantined(&self) -> bool {
        let step = self.step(Side::Garden, Step::SourceQuarantined);
        step.is_some_and(|step| step["state"] == "Running")
            && self.mode() == Some(MigrationMode::Forced)
            && !self.has_side_ended(Side::Garden)
            && self.superseded_by().is_none()
    }

    /// Whether the API of the Shoot is away, and waits for this side: first the source stores its final snapshot, then the destination
    /// serves, and sends clients there.
    #[must_use]
    pub fn does_outage_wait_for(&self, side: Side) -> bool {
        let has_started =
            |side, step| self.step(side, step).is_some_and(|step| step["startTime"].is_string());
        let has_ended =
            |side, step| self.step(side, step).is_some_and(|step| step["completionTime"].is_string());
        if self.mode() == Some(MigrationMode::Live) {
            return false;
        }
        let is_handed_over = has_ended(Side::Source, Step::FinalSnapshotTaken);
        match side {
            Side::Garden => false,
            Side::Source => has_started(Side::Source, Step::SourceApiStopped) && !is_handed_over,
            Side::Destination => is_handed_over && !has_ended(Side::Destination, Step::ApiDnsSwitched),
        }
    }

    /// The record of a step as it is stored; `None` where it was not started.
    fn step(&self, side: Side, step: Step) -> Option<&Value> {
        let steps = self.status.get(side.name())?.get("steps")?.as_array()?;
        steps.iter().find(|record| record["name"] == step.name())
    }

    /// Whether the migration as a whole has ended, by what the controller of the garden has recorded.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        matches!(self.phase(), Some("Succeeded" | "RolledBack" | "Failed" | "Cancelled"))
    }

    /// How far the migration as a whole has come, by what is stored.
    #[must_use]
    pub fn phase(&self) -> Option<&str> {
        self.status.get("phase").and_then(Value::as_str)
    }

    /// Whether the migration as a whole has failed, and waits for a person.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        self.phase() == Some("Failed")
    }
}

impl kube::Resource for ControlPlaneMigration {
    type DynamicType = ();
    type Scope = NamespaceResourceScope;

    fn kind((): &()) -> Cow<'_, str> {
        KIND.into()
    }

    fn group((): &()) -> Cow<'_, str> {
        MIGRATION_GROUP.into()
    }

    fn version((): &()) -> Cow<'_, str> {
        V1ALPHA1.into()
    }

    fn plural((): &()) -> Cow<'_, str> {
        "controlplanemigrations".into()
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}
