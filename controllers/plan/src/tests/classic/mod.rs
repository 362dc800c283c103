//! Simulated classic migrations: a garden and two seeds, whose controllers crash, are cut off and act on stale caches.

mod clusters;
mod effects;
mod faults;
mod observe;
mod rules;
mod site;

use clusters::{Clusters, Kind};

use super::sim::{Build, missed, schedules};
use crate::classic::PLANS;

/// As many schedules as a fault may hide in.
const SCHEDULES: u64 = 2_000;

fn kind(seed: u64) -> Kind {
    match seed % 5 {
        0 => Kind::Hibernated,
        1 => Kind::Workerless,
        _ => Kind::Awake,
    }
}

fn sound(kind: Kind) -> Build<Clusters> {
    Build::new(kind, &PLANS)
}

#[test]
fn tables_have_a_sound_form() {
    for plan in PLANS.versions {
        assert_eq!(plan.problems(), [""; 0], "version {}", plan.version);
    }
}

#[test]
fn every_schedule_comes_to_a_good_end() {
    let (count, ends) = schedules::<Clusters>(8, |seed| sound(kind(seed)));
    for end in [
        "Awake Succeeded",
        "Awake RolledBack",
        "Awake Cancelled",
        "Hibernated Succeeded",
        "Workerless Succeeded",
    ] {
        let found = ends.get(end).copied().unwrap_or_default();
        assert!(found >= count / 100, "{found} schedules ended in {end}: {ends:#?}");
    }
}

#[test]
fn schedules_find_every_planted_fault() {
    let missed = missed(faults::FAULTS.iter(), sound, SCHEDULES);
    assert!(missed.is_empty(), "{}", missed.join("\n"));
}
