//! A flow as it is seen from outside: how far its steps are.

use anyhow::{Context as _, Result};
use jiff::Timestamp;
use repot_console::migration::{Migration, Outage, SidePart, StepRecord};
use repot_console::timeline::{Chart, Detail, lanes};
use serde_json::Value;

/// Sides of an isolation.
const SIDES_OF_ISOLATION: [&str; 2] = ["garden", "seed"];

/// A ControlPlaneMigration or a ZoneIsolation.
pub struct View {
    /// `status.phase`, and of an isolation `status.status` behind it.
    pub phase: String,
    /// Text of `status.message`, for people.
    pub message: String,
    /// What its sides have recorded.
    pub sides: Vec<SidePart>,
    /// Whether it has ended.
    pub is_over: bool,
    migration: Option<Migration>,
    name: String,
}

impl View {
    /// Reads it from a ControlPlaneMigration.
    pub fn of_migration(object: &Value) -> Result<Self> {
        let object = serde_json::from_value(object.clone()).context("the migration has another form")?;
        let migration = Migration::new(&object);
        Ok(Self {
            phase: migration.phase.clone(),
            message: migration.message.clone(),
            sides: migration.sides.clone(),
            is_over: migration.is_over(),
            name: migration.key(),
            migration: Some(migration),
        })
    }

    /// Reads it from a ZoneIsolation.
    pub fn of_isolation(object: &Value) -> Self {
        let status = &object["status"];
        let text = |value: &Value| repot_console::text::one_line(value.as_str().unwrap_or_default());
        let phase = format!("{} {}", text(&status["phase"]), text(&status["status"]));
        Self {
            is_over: phase == "Failback Done",
            phase,
            message: text(&status["message"]),
            sides: SIDES_OF_ISOLATION.iter().filter_map(|side| SidePart::read(side, status)).collect(),
            migration: None,
            name: format!("{}/{}", text(&object["metadata"]["namespace"]), text(&object["metadata"]["name"])),
        }
    }

    /// All steps with their sides.
    pub fn steps(&self) -> impl Iterator<Item = (&'static str, &StepRecord)> {
        self.sides.iter().flat_map(|side| side.steps.iter().map(|step| (side.name, step)))
    }

    /// Whether a step was started, whatever became of it.
    pub fn has_started(&self, step: &str) -> bool {
        self.steps().any(|(_, record)| record.name == step && record.started.is_some())
    }

    /// Whether it goes back, or says that a step takes too long.
    pub fn has_given_up(&self) -> bool {
        self.phase == "RollingBack" || self.phase.ends_with(" Failed")
    }

    /// The time without an API that the controllers have recorded.
    pub fn outage(&self) -> Option<&Outage> {
        self.migration.as_ref()?.api_outage.as_ref()
    }

    /// When a step ended.
    pub fn completed(&self, step: &str) -> Option<Timestamp> {
        self.steps().find(|(_, record)| record.name == step)?.1.completed
    }

    /// The steps that run, in one line.
    pub fn running(&self) -> String {
        let running = self.steps().filter(|(_, step)| step.is_running());
        let running: Vec<_> = running.map(|(_, step)| step.name.as_str()).collect();
        running.join(", ")
    }

    /// Its steps as bars.
    pub fn chart(&self, now: Timestamp) -> Chart<'_> {
        match &self.migration {
            Some(migration) => Chart::of(migration, Detail::Applied, now),
            None => Chart {
                title: format!("{}  {}", self.name, self.phase),
                lanes: lanes(&self.sides, Detail::Applied, None),
                outage: None,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn isolation_is_read_with_the_steps_of_both_sides() {
        let step = |name: &str| {
            json!({"name": name, "state": "Succeeded", "startTime": "2026-11-28T05:14:00Z",
                   "completionTime": "2026-11-28T05:14:03Z"})
        };
        let object = json!({
            "metadata": {"namespace": "garden-dev", "name": "alpha-1"},
            "status": {
                "phase": "Failback", "status": "Done", "message": "all\u{1b} is well",
                "garden": {"steps": [step("IsolationRecorded")]}, "seed": {"steps": [step("ZoneKnown")]},
            },
        });
        let view = View::of_isolation(&object);
        assert!(view.is_over && view.has_started("ZoneKnown") && !view.has_given_up());
        assert_eq!(view.message, "all  is well");
        let sides: Vec<_> = view.steps().map(|(side, _)| side).collect();
        assert_eq!(sides, ["garden", "seed"]);
        let now = "2026-11-28T06:00:00Z".parse().expect("a time");
        let chart = repot_console::timeline::text_of(
            &view.chart(now),
            80,
            repot_console::timeline::Charset::Ascii,
            now,
        );
        assert!(chart.contains("seed        ZoneKnown"), "{chart}");
    }

    #[test]
    fn migration_that_goes_back_has_given_up_and_is_not_over() {
        let object = json!({
            "metadata": {"name": "m", "namespace": "n"}, "spec": {"shootRef": {"name": "s"}, "mode": "Live"},
            "status": {"phase": "RollingBack", "source": {"steps": [{"name": "A", "state": "Running"}]}},
        });
        let view = View::of_migration(&object).expect("a migration");
        assert!(view.has_given_up() && !view.is_over);
        assert_eq!((view.running().as_str(), view.has_started("A")), ("A", false));
    }
}
