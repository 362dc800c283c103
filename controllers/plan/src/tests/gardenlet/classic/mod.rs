//! Simulated classic migrations by gardenlet: both gardenlets answer, or come back; they work as slowly as they like, and Repot binds the
//! Shoot at a good moment or not at all.

mod world;

use world::World;

use super::{golden, plan, row, suppose};
use crate::{
    gardenlet::{CLASSIC_PLANS, Step, effect::Effect, observed::Facts},
    ledger::Check,
    tests::sim::{Build, Fault, ends, missed},
};

const SCHEDULES: u64 = 1_000;
const SOAK: u64 = 100_000;
const HIDDEN: u64 = 3_000;

fn sound((): ()) -> Build<World> {
    Build::new((), &CLASSIC_PLANS)
}

#[test]
fn classic_tables_have_a_sound_form() {
    for plan in CLASSIC_PLANS.versions {
        assert_eq!(plan.problems(), [""; 0], "version {}", plan.version);
    }
}

#[test]
fn every_schedule_of_a_classic_migration_comes_to_a_good_end() {
    let count = golden::schedules(SCHEDULES, SOAK);
    let ends = ends::<World>(count, |_| sound(()));
    for end in ["Succeeded", "RolledBack", "Cancelled"] {
        let found: u64 = ends.iter().filter(|(key, _)| key.starts_with(end)).map(|(_, count)| count).sum();
        assert!(found >= count / 200, "{found} schedules ended in {end}: {ends:#?}");
    }
    let large: u64 = ends.iter().filter(|(key, _)| key.contains("too large")).map(|(_, count)| count).sum();
    assert!(large >= count / 100, "{large} ShootStates were too large: {ends:#?}");
}

const FAULTS: &[Fault<World>] = &[
    Fault {
        name: "binds before the snapshots are copied",
        setup: (),
        build: |b| suppose(b, Step::SnapshotsCopiedAhead),
        caught: &["binds before the snapshots are copied"],
    },
    Fault {
        name: "binds in the middle of an operation of gardenlet",
        setup: (),
        build: |b| {
            suppose(b, Step::ShootIdle);
            row(b, Step::SeedBound, |row| {
                row.effects = |context| match &context.observed.facts {
                    Facts::Garden(facts) if facts.shoot.spec_seed.as_deref() == Some("seed-a") => {
                        vec![Effect::BindShoot { seed: "seed-b".into() }]
                    }
                    _ => Vec::new(),
                };
            });
        },
        caught: &["binds in the middle of an operation"],
    },
    Fault {
        name: "binds although gardenlet could not write the ShootState",
        setup: (),
        build: |b| suppose(b, Step::StateFits),
        caught: &["binds although the ShootState is too large"],
    },
    Fault {
        name: "does not ask whether the binding is accepted",
        setup: (),
        build: |b| {
            suppose(b, Step::SeedsReady);
            suppose(b, Step::BindingAccepted);
        },
        caught: &["binds although it would be refused"],
    },
    Fault {
        name: "takes the last operation of an earlier migration for its own",
        setup: (),
        build: |b| {
            suppose(b, Step::MigrateSucceeded);
            row(b, Step::RestoreSucceeded, |row| {
                row.check = |context| match &context.observed.facts {
                    Facts::Garden(facts)
                        if facts
                            .shoot
                            .last_operation
                            .as_ref()
                            .is_some_and(|last| last.kind == "Restore" && last.state == "Succeeded") =>
                    {
                        Check::Met("restored".into())
                    }
                    _ => Check::waiting("Restoring", "words"),
                };
            });
        },
        caught: &["succeeded before gardenlet has restored"],
    },
    Fault {
        name: "binds whatever has become of the Shoot",
        setup: (),
        build: |b| {
            suppose(b, Step::ShootIdle);
            row(b, Step::SeedBound, |row| {
                row.effects = |_| vec![Effect::BindShoot { seed: "seed-b".into() }];
            });
        },
        caught: &["takes the Shoot away from another seed", "binds in the middle of an operation"],
    },
    Fault {
        name: "rolls back when gardenlet may have begun",
        setup: (),
        build: |b| plan(b, |plan| plan.point_of_no_return = None),
        caught: &["rolled back, and the Shoot names the destination"],
    },
    Fault {
        name: "acts before it has recorded",
        setup: (),
        build: |b| b.records_first = false,
        caught: &["acts before it has recorded"],
    },
];

#[test]
fn schedules_find_every_planted_fault_of_a_classic_migration() {
    let missed = missed(FAULTS.iter(), sound, HIDDEN);
    assert!(missed.is_empty(), "{}", missed.join("\n"));
}
