//! Simulated forced migrations by gardenlet: a source that dies, or that somebody says is off while it writes on, and the gardenlet of the
//! destination, which is woken by generations alone.

mod classic;
mod effects;
mod rules;
mod stand_in;
mod world;

use world::World;

use super::{
    classic::golden,
    sim::{Build, Fault, Model, ends, missed},
};
use crate::{
    flow::{Plan, Plans, Row},
    gardenlet::{GardenletMigration, PLANS, Step, effect::Effect, observed::Facts},
    ledger::Check,
};

/// How many schedules are run, and how many of them in the long form.
const SCHEDULES: u64 = 1_000;
const SOAK: u64 = 100_000;
/// As many schedules as a fault may hide in.
const HIDDEN: u64 = 3_000;

fn sound((): ()) -> Build<World> {
    Build::new((), &PLANS)
}

#[test]
fn tables_have_a_sound_form() {
    for plan in PLANS.versions {
        assert_eq!(plan.problems(), [""; 0], "version {}", plan.version);
    }
}

#[test]
fn every_schedule_comes_to_a_good_end() {
    let count = golden::schedules(SCHEDULES, SOAK);
    let ends = ends::<World>(count, |_| sound(()));
    for end in ["Succeeded", "RolledBack", "Cancelled"] {
        let found: u64 = ends.iter().filter(|(key, _)| key.starts_with(end)).map(|(_, count)| count).sum();
        assert!(found >= count / 100, "{found} schedules ended in {end}: {ends:#?}");
    }
    let caught: u64 = ends.iter().filter(|(key, _)| key.contains("wrote on")).map(|(_, count)| count).sum();
    assert!(caught >= count / 100, "{caught} sources wrote on: {ends:#?}");
}

fn plan<M: Model<Flow = GardenletMigration>>(
    build: &mut Build<M>,
    change: impl Fn(&mut Plan<GardenletMigration>),
) {
    let mut plan = *build.plans.newest();
    change(&mut plan);
    let plan: &'static Plan<GardenletMigration> = Box::leak(Box::new(plan));
    build.plans = Box::leak(Box::new(Plans { versions: Box::leak(Box::new([plan])) }));
}

fn row<M: Model<Flow = GardenletMigration>>(
    build: &mut Build<M>,
    step: Step,
    change: impl Fn(&mut Row<GardenletMigration>),
) {
    let changed = |rows: &[Row<GardenletMigration>]| {
        let mut rows = rows.to_vec();
        rows.iter_mut().filter(|row| row.step == step).for_each(&change);
        &*rows.leak()
    };
    plan(build, |plan| (plan.forward, plan.rollback) = (changed(plan.forward), changed(plan.rollback)));
}

fn suppose<M: Model<Flow = GardenletMigration>>(build: &mut Build<M>, step: Step) {
    row(build, step, |row| row.check = |_| Check::Met("supposed".into()));
}

const FAULTS: &[Fault<World>] = &[
    Fault {
        name: "binds the Shoot although nobody has confirmed that the source is off",
        setup: (),
        build: |b| suppose(b, Step::SourceOff),
        caught: &["binds before the source is confirmed to be off"],
    },
    Fault {
        name: "binds the Shoot although nobody has confirmed the loss",
        setup: (),
        build: |b| {
            row(b, Step::LossConfirmed, |row| {
                row.check = |context| match &context.observed.facts {
                    Facts::Destination(facts) if facts.source_newest.is_some() => {
                        Check::Met("supposed".into())
                    }
                    _ => Check::waiting("NoSnapshot", "none is known"),
                };
            });
        },
        caught: &["binds before the loss is confirmed"],
    },
    Fault {
        name: "believes that a source is off which writes on",
        setup: (),
        build: |b| {
            row(b, Step::SnapshotsCopied, |row| {
                row.check = |context| match &context.observed.facts {
                    Facts::Destination(facts) if facts.copied.is_some() => Check::Met("copied".into()),
                    _ => Check::waiting("Copying", "the Job runs"),
                };
            });
        },
        caught: &["binds although the source writes"],
    },
    Fault {
        name: "requests a restore without backups",
        setup: (),
        build: |b| suppose(b, Step::SnapshotsCopied),
        caught: &["binds without the backups", "restores without the backups"],
    },
    Fault {
        name: "requests a restore without a ShootState",
        setup: (),
        build: |b| suppose(b, Step::StateEnsured),
        caught: &["binds without the ShootState", "restores without a ShootState"],
    },
    Fault {
        name: "moves the BackupEntry after the Shoot",
        setup: (),
        build: |b| {
            row(b, Step::RestoreRequested, |row| row.after = &[Step::SeedBound]);
            row(b, Step::BackupEntryMoved, |row| row.after = &[Step::RestoreRequested]);
            plan(b, |plan| {
                let mut rows = plan.forward.to_vec();
                let of = |step| rows.iter().position(|row| row.step == step).expect("a row");
                let (entry, shoot) = (of(Step::BackupEntryMoved), of(Step::RestoreRequested));
                rows.swap(entry, shoot);
                plan.forward = rows.leak();
            });
        },
        caught: &["nobody is woken for the BackupEntry"],
    },
    Fault {
        name: "writes the status of a Shoot that is not bound",
        setup: (),
        build: |b| {
            suppose(b, Step::SeedBound);
            suppose(b, Step::BackupEntryMoved);
            row(b, Step::RestoreRequested, |row| {
                row.check = |_| Check::waiting("Requesting", "it is being written");
                row.effects = |_| vec![Effect::RequestRestore { seed: "seed-b".into() }];
            });
        },
        caught: &["requests a restore of a Shoot that is not bound"],
    },
    Fault {
        name: "rolls back without a fence",
        setup: (),
        build: |b| {
            row(b, Step::SeedNameRestored, |row| {
                row.check = |context| match &context.observed.facts {
                    Facts::Garden(facts) if facts.shoot.spec_seed.as_deref() == Some("seed-a") => {
                        Check::Met("it names the source".into())
                    }
                    _ => Check::waiting("Binding", "it is being written"),
                };
            });
        },
        caught: &["rolled back, and the Shoot names the destination"],
    },
    Fault {
        name: "acts whatever has become of what it saw",
        setup: (),
        build: |b| b.guarded = false,
        caught: &[
            "rolled back, and",
            "the restore is requested twice",
            "succeeded, and the BackupEntry is elsewhere",
        ],
    },
    Fault {
        name: "acts before it has recorded",
        setup: (),
        build: |b| b.records_first = false,
        caught: &["acts before it has recorded"],
    },
    Fault {
        name: "stores records whatever others have stored",
        setup: (),
        build: |b| b.versioned = false,
        caught: &[
            "rolls back past the point of no return",
            "one side succeeds and another",
            "a record was lost",
        ],
    },
];

#[test]
fn schedules_find_every_planted_fault() {
    let missed = missed(FAULTS.iter(), sound, HIDDEN);
    assert!(missed.is_empty(), "{}", missed.join("\n"));
}
