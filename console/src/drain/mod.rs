//! All Shoots of a seed go to other seeds, some at a time. Pure: what is read comes in, and what to begin comes out.

mod seeds;

use std::collections::{BTreeMap, BTreeSet};

use repot_api::names::DRAIN_PRIORITY;
use serde::Serialize;
use serde_json::Value;

use crate::migration::Migration;

pub use seeds::{Candidate, candidates};

/// Namespace and name of a Shoot.
pub type Key = (String, String);

/// How fast, and when to stop.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Most Shoots that are under way at once.
    pub most: usize,
    /// Most of them to one destination.
    pub most_per_destination: usize,
    /// No other one begins after so many have failed or were refused.
    pub failures: usize,
    /// Whether a Shoot begins anew whose last move away has failed before this run.
    pub again: bool,
}

/// A Shoot of the seed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShootAtSeed {
    /// Namespace and name.
    pub key: Key,
    /// The annotation [`DRAIN_PRIORITY`]: Shoots with higher ones go first.
    pub priority: i64,
    /// Whether it is being deleted: then it is left alone.
    pub is_deleted: bool,
}

/// How far a Shoot is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "state", rename_all_fields = "camelCase")]
pub enum Progress {
    /// Nothing was asked for yet.
    Waiting,
    /// Its migration is under way.
    Moving {
        /// Name of the ControlPlaneMigration.
        migration: String,
        /// The destination.
        to: String,
        /// What it waits for.
        message: String,
    },
    /// It is elsewhere.
    Done {
        /// Where.
        to: String,
    },
    /// Its migration has ended, and it is still here.
    Failed {
        /// Name of the ControlPlaneMigration.
        migration: String,
        /// How it ended, and why.
        message: String,
    },
    /// No migration was created.
    Refused {
        /// Why.
        message: String,
    },
    /// It is still here, and left alone.
    Skipped {
        /// Why.
        message: String,
    },
    /// It is not at the seed any more, and no migration away from it has succeeded.
    Gone,
}

/// What a run remembers.
#[derive(Clone, Debug, Default)]
pub struct Memory {
    /// Shoots that were at the seed, with their priorities.
    known: BTreeMap<Key, i64>,
    /// Migrations that had ended when the run began.
    before: Option<BTreeSet<(String, String)>>,
    /// Why Shoots were refused.
    refused: BTreeMap<Key, String>,
    /// Shoots whose migration was created by this run.
    begun: BTreeSet<Key>,
}

/// All Shoots of the run, by key.
pub type Report = BTreeMap<Key, Progress>;

impl ShootAtSeed {
    /// Reads a Shoot; `None` where its control plane is not at this seed, nor on its way from it.
    #[must_use]
    pub fn read(shoot: &Value, seed: &str) -> Option<Self> {
        let text = |pointer: &str| shoot.pointer(pointer).and_then(Value::as_str);
        let is_here = text("/status/seedName").or_else(|| text("/spec/seedName")) == Some(seed);
        let priority =
            shoot["metadata"]["annotations"][DRAIN_PRIORITY].as_str().and_then(|text| text.parse().ok());
        let key = (text("/metadata/namespace")?.to_owned(), text("/metadata/name")?.to_owned());
        is_here.then(|| Self {
            key,
            priority: priority.unwrap_or_default(),
            is_deleted: !shoot["metadata"]["deletionTimestamp"].is_null(),
        })
    }
}

impl Progress {
    /// Whether the Shoot has left the seed and serves.
    #[must_use]
    pub fn has_left(&self) -> bool {
        matches!(self, Self::Done { .. } | Self::Gone)
    }
}

impl Memory {
    /// Remembers why no migration of a Shoot could be created.
    pub fn refuse(&mut self, key: Key, why: String) {
        self.refused.insert(key, why);
    }

    /// Remembers that the migration of a Shoot was created.
    pub fn begin(&mut self, key: Key) {
        self.begun.insert(key);
    }

    /// How far each Shoot is that is at the seed, or was when the run began.
    pub fn progress(
        &mut self,
        seed: &str,
        shoots: &[ShootAtSeed],
        migrations: &[Migration],
        limits: &Limits,
    ) -> Report {
        let ended = || migrations.iter().filter(|one| one.is_over());
        let key = |one: &Migration| (one.namespace.clone(), one.name.clone());
        let before = self.before.get_or_insert_with(|| ended().map(key).collect());
        let newest = newest(seed, migrations, |one| !(limits.again && before.contains(&key(one))));
        self.known.extend(shoots.iter().map(|shoot| (shoot.key.clone(), shoot.priority)));
        let here: BTreeMap<&Key, &ShootAtSeed> = shoots.iter().map(|shoot| (&shoot.key, shoot)).collect();
        let of = |key: &Key| match (here.get(key), newest.get(key), self.refused.get(key)) {
            (Some(shoot), ..) if shoot.is_deleted => {
                Progress::Skipped { message: "it is being deleted".to_owned() }
            }
            (_, Some(one), _) if !one.is_over() => Progress::Moving {
                migration: one.name.clone(),
                to: one.destination_seed.clone(),
                message: one.message.clone(),
            },
            (None, Some(one), _) if one.has_succeeded() => {
                Progress::Done { to: one.destination_seed.clone() }
            }
            (None, None, _) => Progress::Gone,
            (Some(_), _, Some(why)) => Progress::Refused { message: why.clone() },
            (Some(_), Some(one), _) if one.has_succeeded() => Progress::Waiting,
            // Past the point of no return it is at the destination, and needs somebody as much.
            (_, Some(one), _) => Progress::Failed {
                migration: one.name.clone(),
                message: format!("{}: {}", one.phase, one.message),
            },
            // Nobody is overruled who has deleted it.
            (Some(_), None, None) if self.begun.contains(key) => {
                Progress::Refused { message: "its ControlPlaneMigration was deleted".to_owned() }
            }
            (Some(_), None, None) => Progress::Waiting,
        };
        self.known.keys().map(|key| (key.clone(), of(key))).collect()
    }

    /// The Shoots that may begin now, in their order: the highest priority first, then by name. Empty where too many have failed.
    #[must_use]
    pub fn next(&self, report: &Report, limits: &Limits) -> Vec<Key> {
        let moving = report.values().filter(|one| matches!(one, Progress::Moving { .. })).count();
        if have_too_many_failed(report, limits) {
            return Vec::new();
        }
        let waiting = report.iter().filter(|(_, progress)| **progress == Progress::Waiting);
        let mut waiting: Vec<&Key> = waiting.map(|(key, _)| key).collect();
        waiting
            .sort_by_key(|key| (std::cmp::Reverse(self.known.get(*key).copied().unwrap_or_default()), *key));
        waiting.into_iter().take(limits.most.saturating_sub(moving)).cloned().collect()
    }
}

/// Whether so many have failed or were refused that no other one begins.
#[must_use]
pub fn have_too_many_failed(report: &Report, limits: &Limits) -> bool {
    let is_failed = |one: &&Progress| matches!(one, Progress::Failed { .. } | Progress::Refused { .. });
    report.values().filter(is_failed).count() >= limits.failures
}

/// How many Shoots each seed has, or will have when the migrations that are under way have succeeded.
#[must_use]
pub fn shoots_by_seed(shoots: &[Value], migrations: &[Migration]) -> BTreeMap<String, usize> {
    let open = migrations.iter().filter(|one| !one.is_over());
    let leads: BTreeMap<(&str, &str), &str> =
        open.map(|one| ((&*one.namespace, &*one.shoot), &*one.destination_seed)).collect();
    let mut counts = BTreeMap::new();
    for shoot in shoots {
        let text = |pointer: &str| shoot.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
        let key = (text("/metadata/namespace"), text("/metadata/name"));
        let seed = leads.get(&key).copied().unwrap_or_else(|| text("/spec/seedName"));
        *counts.entry(seed.to_owned()).or_default() += 1;
    }
    counts
}

/// How many migrations lead to each destination.
#[must_use]
pub fn moving_to(report: &Report) -> BTreeMap<String, usize> {
    let mut all = BTreeMap::new();
    for progress in report.values() {
        if let Progress::Moving { to, .. } = progress {
            *all.entry(to.clone()).or_default() += 1;
        }
    }
    all
}

/// The newest migration of each Shoot that leads away from the seed.
fn newest<'a>(
    seed: &str,
    migrations: &'a [Migration],
    counts: impl Fn(&Migration) -> bool,
) -> BTreeMap<Key, &'a Migration> {
    let mut newest: BTreeMap<Key, &Migration> = BTreeMap::new();
    for one in migrations.iter().filter(|one| one.source_seed == seed && counts(one)) {
        let key = (one.namespace.clone(), one.shoot.clone());
        let entry = newest.entry(key).or_insert(one);
        if (entry.created, &entry.name) < (one.created, &one.name) {
            *entry = one;
        }
    }
    newest
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::migration::tests::read;

    fn limits() -> Limits {
        Limits { most: 2, most_per_destination: 2, failures: 2, again: false }
    }

    fn shoot(name: &str, priority: &str) -> ShootAtSeed {
        let object = json!({
            "metadata": {"namespace": "p", "name": name, "annotations": {DRAIN_PRIORITY: priority}},
            "spec": {"seedName": "a"}, "status": {"seedName": "a"},
        });
        ShootAtSeed::read(&object, "a").expect("a Shoot of the seed")
    }

    fn migration(shoot: &str, number: u32, phase: &str) -> Migration {
        read(json!({
            "metadata": {"namespace": "p", "name": format!("{shoot}-{number}"),
                         "creationTimestamp": format!("2026-11-28T05:00:0{number}Z")},
            "spec": {"shootRef": {"name": shoot}, "sourceSeed": "a", "destinationSeed": "b"},
            "status": {"phase": phase, "message": "says"},
        }))
    }

    fn key(name: &str) -> Key {
        ("p".to_owned(), name.to_owned())
    }

    #[test]
    fn higher_priority_goes_first_and_no_more_than_may_at_once() {
        let shoots = [shoot("a", ""), shoot("b", "7"), shoot("c", "-1"), shoot("d", "x")];
        let mut memory = Memory::default();
        let report = memory.progress("a", &shoots, &[], &limits());
        assert_eq!(memory.next(&report, &limits()), [key("b"), key("a")]);
        let report = memory.progress("a", &shoots, &[migration("b", 1, "Running")], &limits());
        assert_eq!(memory.next(&report, &limits()), [key("a")]);
        assert_eq!(moving_to(&report), BTreeMap::from([("b".to_owned(), 1)]));
    }

    #[test]
    fn nothing_begins_when_too_many_have_failed() {
        let shoots = [shoot("a", ""), shoot("b", ""), shoot("c", "")];
        let mut memory = Memory::default();
        memory.refuse(key("a"), "no seed fits".to_owned());
        let report = memory.progress("a", &shoots, &[migration("b", 1, "RolledBack")], &limits());
        assert_eq!(report[&key("a")], Progress::Refused { message: "no seed fits".to_owned() });
        let failed = Progress::Failed { migration: "b-1".to_owned(), message: "RolledBack: says".to_owned() };
        assert_eq!(report[&key("b")], failed);
        assert!(memory.next(&report, &limits()).is_empty());
        let more = Limits { failures: 3, ..limits() };
        assert_eq!(memory.next(&report, &more), [key("c")]);
    }

    #[test]
    fn shoot_that_has_left_is_done_and_one_that_failed_before_may_begin_again() {
        let mut memory = Memory::default();
        let again = Limits { again: true, ..limits() };
        let report = memory.progress("a", &[shoot("a", "")], &[migration("a", 1, "Failed")], &again);
        assert_eq!(report[&key("a")], Progress::Waiting);
        let both = [migration("a", 1, "Failed"), migration("a", 2, "Failed")];
        let report = memory.progress("a", &[shoot("a", "")], &both, &again);
        assert!(matches!(&report[&key("a")], Progress::Failed { migration, .. } if migration == "a-2"));
        let both = [migration("a", 1, "Failed"), migration("a", 3, "Succeeded")];
        let report = memory.progress("a", &[], &both, &again);
        assert_eq!(report[&key("a")], Progress::Done { to: "b".to_owned() });
    }

    #[test]
    fn shoot_that_is_elsewhere_after_a_failure_has_failed_and_holds_others_up() {
        let mut memory = Memory::default();
        let both = [shoot("a", ""), shoot("b", "")];
        memory.progress("a", &both, &[migration("a", 1, "Running")], &limits());
        let one = Limits { failures: 1, ..limits() };
        let report = memory.progress("a", &[shoot("b", "")], &[migration("a", 1, "Failed")], &one);
        assert!(matches!(&report[&key("a")], Progress::Failed { migration, .. } if migration == "a-1"));
        assert!(!report[&key("a")].has_left() && memory.next(&report, &one).is_empty());
        let report = memory.progress("a", &[shoot("b", "")], &[], &one);
        assert!(report[&key("a")] == Progress::Gone && report[&key("a")].has_left());
    }

    #[test]
    fn seeds_count_the_shoots_that_are_on_their_way_to_them() {
        let at = |name: &str, seed: &str| json!({"metadata": {"namespace": "p", "name": name}, "spec": {"seedName": seed}});
        let shoots = [at("a", "a"), at("x", "a"), at("y", "c")];
        let migrations = [migration("a", 1, "Running"), migration("x", 1, "Failed")];
        let counts = shoots_by_seed(&shoots, &migrations);
        assert_eq!(
            counts,
            BTreeMap::from([("a", 1), ("b", 1), ("c", 1)].map(|(seed, count)| (seed.to_owned(), count)))
        );
    }

    #[test]
    fn migration_that_somebody_has_deleted_is_not_created_again() {
        let mut memory = Memory::default();
        memory.begin(key("a"));
        let report = memory.progress("a", &[shoot("a", "")], &[], &limits());
        let refused = Progress::Refused { message: "its ControlPlaneMigration was deleted".to_owned() };
        assert_eq!(report[&key("a")], refused);
        assert!(memory.next(&report, &limits()).is_empty());
    }

    #[test]
    fn shoots_of_other_seeds_and_those_being_deleted_do_not_move() {
        let elsewhere = json!({"metadata": {"namespace": "p", "name": "x"}, "status": {"seedName": "b"}, "spec": {"seedName": "a"}});
        assert_eq!(ShootAtSeed::read(&elsewhere, "a"), None);
        let mut memory = Memory::default();
        let deleted = ShootAtSeed { is_deleted: true, ..shoot("a", "") };
        let report = memory.progress("a", &[deleted], &[], &limits());
        assert!(memory.next(&report, &limits()).is_empty(), "{report:?}");
        assert!(!report[&key("a")].has_left());
    }
}
