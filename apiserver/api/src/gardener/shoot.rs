//! A Shoot and a Seed as rules see them: whatever the JSON looks like, a question has an answer.

use std::collections::BTreeSet;

use crate::names::{EMERGENCY_STOP, ISOLATED_ZONE, LIVE_MIGRATE, OPERATION, OPERATION_LIVE_MIGRATE};
use repot_apimachinery::value::{annotation_of, at, is_ending, items_at, parse_bool, text_at};
use serde_json::Value;

use crate::gardener::progress::{Progress, Step};

/// Beginning and end of the description of the last operation when a ControlPlaneMigration was rolled back; its name is between them.
pub const ROLLED_BACK: (&str, &str) = ("ControlPlaneMigration ", " was rolled back.");

/// A Shoot as JSON, with questions that rules ask of it.
#[derive(Clone, Copy, Debug)]
pub struct Shoot<'a>(pub &'a Value);

/// What the two spellings of the trigger say together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trigger {
    /// Neither is there, or the boolean says no.
    Cold,
    /// Live.
    Live,
    /// One says live, the other says no.
    Disagree,
    /// The boolean is none.
    Unreadable,
}

impl<'a> Shoot<'a> {
    /// Where it is to be.
    #[must_use]
    pub fn spec_seed(self) -> Option<&'a str> {
        text_at(self.0, "/spec/seedName")
    }

    /// Name of the Seed it is on, from `status.seedName`; `None` where that is not set.
    #[must_use]
    pub fn status_seed(self) -> Option<&'a str> {
        text_at(self.0, "/status/seedName")
    }

    /// Type and state of the last operation; empty where there is none.
    #[must_use]
    pub fn last_operation(self) -> (&'a str, &'a str) {
        let text = |field| text_at(self.0, field).unwrap_or_default();
        (text("/status/lastOperation/type"), text("/status/lastOperation/state"))
    }

    /// Whether a ControlPlaneMigration was rolled back, and the Shoot has not changed its seed back yet.
    #[must_use]
    pub fn is_rolled_back(self) -> bool {
        let said = text_at(self.0, "/status/lastOperation/description").unwrap_or_default();
        said.starts_with(ROLLED_BACK.0) && said.ends_with(ROLLED_BACK.1)
    }

    /// Whether it is between two seeds: they differ, or one of the two halves of a migration is not over.
    #[must_use]
    pub fn is_moving(self) -> bool {
        let seeds_differ = match (self.spec_seed(), self.status_seed()) {
            (Some(spec), Some(status)) => spec != status,
            _ => false,
        };
        seeds_differ
            || match self.last_operation() {
                ("Migrate", _) => true,
                ("Restore", state) => state != "Succeeded",
                ("LiveMigrate", "Succeeded") => false,
                ("LiveMigrate", state) => !self.is_back_at_source(state),
                _ => false,
            }
    }

    /// Whether gardenlets have begun to move it. Before, it is bound to another seed, and its source has all of it.
    #[must_use]
    pub fn has_begun_to_move(self) -> bool {
        let progress = Progress(self.0);
        self.is_moving()
            && match self.last_operation() {
                ("Migrate", _) => true,
                ("Restore" | "LiveMigrate", state) if state != "Succeeded" => true,
                _ => progress.is_current() || progress.is_past_return(),
            }
    }

    /// Whether gardenlet has not begun to move it, and will not before Gardener calls the destination fit: constraint
    /// `ReadyForMigration`.
    #[must_use]
    pub fn waits_for_destination(self) -> bool {
        let constraint = items_at(self.0, "/status/constraints")
            .iter()
            .find(|one| text_at(one, "/type") == Some("ReadyForMigration"));
        let held_back = constraint.is_some_and(|constraint| text_at(constraint, "/status") != Some("True"));
        held_back && self.is_moving() && !self.has_begun_to_move()
    }

    /// Whether a live migration is over without success: both seeds are one, and no API server and no etcd of a destination took
    /// over, so that this one is the source. While the clean-up runs or is retried it is not over.
    fn is_back_at_source(self, state: &str) -> bool {
        let progress = Progress(self.0);
        let seeds_agree = self.spec_seed().is_some() && self.spec_seed() == self.status_seed();
        seeds_agree
            && matches!(state, "Failed" | "Aborted")
            && !progress.has_removed_members()
            && progress.api_servers() != Step::Done
    }

    /// What the trigger says.
    #[must_use]
    pub fn trigger(self) -> Trigger {
        let paper = annotation_of(self.0, OPERATION) == Some(OPERATION_LIVE_MIGRATE);
        let boolean = annotation_of(self.0, LIVE_MIGRATE);
        match (paper, boolean.map(parse_bool)) {
            (_, Some(None)) => Trigger::Unreadable,
            (true, Some(Some(false))) => Trigger::Disagree,
            (true, _) | (_, Some(Some(true))) => Trigger::Live,
            _ => Trigger::Cold,
        }
    }

    /// What a controller is asked to do, in Gardener's form of a list with `;`.
    pub fn operations(self) -> impl Iterator<Item = &'a str> {
        operations_in(annotation_of(self.0, OPERATION).unwrap_or_default())
    }

    /// Whether a live migration runs. The operation that runs says so; before it has begun the trigger does, or the progress
    /// since the request. Progress of an earlier migration does not make a classic one live.
    #[must_use]
    pub fn is_moving_live(self) -> bool {
        self.is_moving()
            && match self.last_operation() {
                ("LiveMigrate", state) if state != "Succeeded" => true,
                // Repot records a live migration as Migrate, and tells of its steps.
                ("Migrate", _) => Progress(self.0).is_current(),
                ("Restore", state) if state != "Succeeded" => false,
                _ => self.trigger() == Trigger::Live || Progress(self.0).is_current(),
            }
    }

    /// `node`, `zone` or nothing.
    #[must_use]
    pub fn failure_tolerance(self) -> Option<&'a str> {
        text_at(self.0, "/spec/controlPlane/highAvailability/failureTolerance/type")
    }

    /// Zones of the control plane that were asked for.
    #[must_use]
    pub fn pinned_zones(self) -> Vec<&'a str> {
        texts(items_at(self.0, "/spec/controlPlane/zones"))
    }

    /// Whether it sleeps, goes to sleep or wakes up.
    #[must_use]
    pub fn is_asleep(self) -> bool {
        let yes = |pointer| at(self.0, pointer) == Some(&Value::Bool(true));
        yes("/spec/hibernation/enabled") || yes("/status/isHibernated")
    }

    /// Name of its CloudProfile, in the new or the old field.
    #[must_use]
    pub fn cloud_profile(self) -> Option<&'a str> {
        text_at(self.0, "/spec/cloudProfile/name").or_else(|| text_at(self.0, "/spec/cloudProfileName"))
    }

    /// Worker pools: index, name and zones.
    pub fn pools(self) -> impl Iterator<Item = (usize, &'a str, Vec<&'a str>)> {
        items_at(self.0, "/spec/provider/workers").iter().enumerate().map(|(at, pool)| {
            (at, text_at(pool, "/name").unwrap_or_default(), texts(items_at(pool, "/zones")))
        })
    }

    /// All zones of its workers.
    #[must_use]
    pub fn worker_zones(self) -> BTreeSet<&'a str> {
        self.pools().flat_map(|(_, _, zones)| zones).collect()
    }

    /// Phases of the credentials that are being rotated, by name.
    #[must_use]
    pub fn rotations(self) -> Vec<(&'a str, &'a str)> {
        let all = at(self.0, "/status/credentials/rotation").and_then(Value::as_object);
        let phase = |(name, one): (&'a String, &'a Value)| Some((name.as_str(), text_at(one, "/phase")?));
        all.into_iter().flatten().filter_map(phase).collect()
    }

    /// Whether it is on its way out.
    #[must_use]
    pub fn is_ending(self) -> bool {
        is_ending(self.0)
    }

    /// The generation of its spec. Gardener raises it for a reconciliation that is asked for, too.
    #[must_use]
    pub fn generation(self) -> Option<i64> {
        at(self.0, "/metadata/generation").and_then(Value::as_i64)
    }

    /// Whether gardenlet has not begun to work on the latest spec. Without a gardenlet nobody tells, and the answer is no.
    #[must_use]
    pub fn is_unobserved(self) -> bool {
        let observed = at(self.0, "/status/observedGeneration").and_then(Value::as_i64);
        self.generation().zip(observed).is_some_and(|(latest, observed)| latest > observed)
    }

    /// The zone that is isolated: the one that is asked for, or the one of an isolation whose failback is not done.
    #[must_use]
    pub fn isolated_zone(self) -> Option<&'a str> {
        annotation_of(self.0, ISOLATED_ZONE).or_else(|| self.failing_back())
    }

    /// The zone of an isolation in the status whose failback is not done.
    #[must_use]
    pub fn failing_back(self) -> Option<&'a str> {
        let text = |member| text_at(self.0, member);
        let over = text("/status/zoneIsolation/phase") == Some("Failback")
            && text("/status/zoneIsolation/status") == Some("Done");
        text("/status/zoneIsolation/isolatedZoneID").filter(|_| !over)
    }
}

/// A Seed as JSON, with questions that rules ask of it.
#[derive(Clone, Copy, Debug)]
pub struct Seed<'a>(pub &'a Value);

impl<'a> Seed<'a> {
    /// Name of the Seed; empty where it has none.
    #[must_use]
    pub fn name(self) -> &'a str {
        text_at(self.0, "/metadata/name").unwrap_or_default()
    }

    /// Type of its provider.
    #[must_use]
    pub fn provider(self) -> Option<&'a str> {
        text_at(self.0, "/spec/provider/type")
    }

    /// Region of its provider; `None` where that is not set.
    #[must_use]
    pub fn region(self) -> Option<&'a str> {
        text_at(self.0, "/spec/provider/region")
    }

    /// Zones of its provider; empty where none are set.
    #[must_use]
    pub fn zones(self) -> Vec<&'a str> {
        texts(items_at(self.0, "/spec/provider/zones"))
    }

    /// Version of its gardenlet.
    #[must_use]
    pub fn version(self) -> Option<&'a str> {
        text_at(self.0, "/status/gardener/version")
    }

    /// Status of a condition; `Unknown` where there is none.
    #[must_use]
    pub fn condition(self, kind: &str) -> &'a str {
        let found = items_at(self.0, "/status/conditions").iter().find(|c| text_at(c, "/type") == Some(kind));
        found.and_then(|condition| text_at(condition, "/status")).unwrap_or("Unknown")
    }

    /// Whether backups go somewhere.
    #[must_use]
    pub fn has_backup(self) -> bool {
        at(self.0, "/spec/backup").is_some_and(Value::is_object)
    }

    /// Everything that keeps it from working properly, as short sentences.
    #[must_use]
    pub fn health_problems(self) -> Vec<String> {
        let mut conditions = vec!["GardenletReady", "SeedSystemComponentsHealthy"];
        if self.has_backup() {
            conditions.push("BackupBucketsReady");
        }
        let ill = conditions.into_iter().map(|kind| (kind, self.condition(kind)));
        let mut health_problems: Vec<String> = ill
            .filter(|(_, status)| *status != "True")
            .map(|(kind, is)| format!("condition {kind} is {is}"))
            .collect();
        // Gardens without extension controllers do not tell; Gardener itself goes by the two conditions above.
        if self.condition("ExtensionsReady") == "False" {
            health_problems.push("condition ExtensionsReady is False".to_owned());
        }
        if annotation_of(self.0, EMERGENCY_STOP) == Some("true") {
            health_problems.push(format!("annotation {EMERGENCY_STOP} stops all reconciliations of Shoots"));
        }
        let generation = at(self.0, "/metadata/generation").and_then(Value::as_i64);
        let observed = at(self.0, "/status/observedGeneration").and_then(Value::as_i64);
        if generation > observed {
            health_problems.push("its gardenlet has not seen its latest spec".to_owned());
        }
        health_problems
    }
}

/// The operations in the value of an annotation, which Gardener separates by `;`.
pub fn operations_in(value: &str) -> impl Iterator<Item = &str> {
    value.split(';').map(str::trim).filter(|operation| !operation.is_empty())
}

fn texts(items: &[Value]) -> Vec<&str> {
    items.iter().filter_map(Value::as_str).collect()
}
