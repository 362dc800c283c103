//! Many schedules of isolations of a zone.

mod faults;
mod provider;
mod rules;
mod script;
mod world;

use world::World;

use super::sim::{Build, missed, schedules};
use crate::isolation::{PLAN, PLANS};

/// As many schedules as a fault may hide in.
const SCHEDULES: u64 = 20_000;

fn sound((): ()) -> Build<World> {
    Build::new((), &PLANS)
}

#[test]
fn table_has_a_sound_form() {
    assert_eq!(PLAN.problems(), [""; 0]);
}

#[test]
fn every_schedule_comes_to_a_good_end() {
    let (count, ends) = schedules::<World>(2, |_| sound(()));
    for end in ["isolated Succeeded", "called off Succeeded"] {
        let found = ends.get(end).copied().unwrap_or_default();
        assert!(found >= count / 20, "{found} schedules ended in {end}: {ends:#?}");
    }
}

#[test]
fn schedules_find_every_planted_fault() {
    let missed = missed(faults::FAULTS.iter(), sound, SCHEDULES);
    assert!(missed.is_empty(), "{}", missed.join("\n"));
}
