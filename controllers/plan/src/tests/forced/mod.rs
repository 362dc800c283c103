//! Simulated forced migrations: a source that is dead, cut off, slow or back after hours, clocks that drift, and caches of DNS that hold
//! old answers.

mod effects;
mod members;
mod observe;
mod owner;
mod rules;
mod world;

use members::Defect;
use world::{Setup, World};

use super::{
    classic::golden,
    sim::{Build, Fault, ends, missed},
};
use crate::{
    flow::{Plan, Plans, Row},
    forced::PLANS,
    ledger::Check,
    migration::{MigrationFlow, Step},
};

/// How many schedules are run, and how many of them in the long form.
const SCHEDULES: u64 = 1_000;
const SOAK: u64 = 100_000;
/// As many schedules as a fault may hide in.
const HIDDEN: u64 = 2_000;

fn sound(setup: Setup) -> Build<World> {
    Build::new(setup, &PLANS)
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
    let ends = ends::<World>(count, |_| sound(Setup::default()));
    for end in ["Succeeded, source is dead ", "Succeeded, source Succeeded ", "RolledBack, ", "Cancelled, "] {
        let found: u64 = ends.iter().filter(|(key, _)| key.starts_with(end)).map(|(_, count)| count).sum();
        assert!(found >= count / 100, "{found} schedules ended in {end}: {ends:#?}");
    }
    let without: u64 =
        ends.iter().filter(|(key, _)| key.contains("without a final")).map(|(_, count)| count).sum();
    assert!(without >= count / 20, "{without} began without a final snapshot: {ends:#?}");
}

fn row(build: &mut Build<World>, step: Step, change: impl Fn(&mut Row<MigrationFlow>)) {
    let mut plan = *build.plans.newest();
    let mut rows = plan.forward.to_vec();
    rows.iter_mut().filter(|row| row.step == step).for_each(change);
    plan.forward = rows.leak();
    let plan: &'static Plan<MigrationFlow> = Box::leak(Box::new(plan));
    build.plans = Box::leak(Box::new(Plans { versions: Box::leak(Box::new([plan])) }));
}

const fn with(defect: Defect) -> Setup {
    Setup { defect: Some(defect) }
}

const FAULTS: &[Fault<World>] = &[
    Fault {
        name: "the members of the destination do not wait",
        setup: with(Defect::NoWait),
        build: |_| {},
        caught: &["members of two sides could be written", "served without what was acknowledged"],
    },
    Fault {
        name: "members believe a cached answer for longer than its TTL",
        setup: with(Defect::StaleCache),
        build: |_| {},
        caught: &["members of two sides could be written", "served without what was acknowledged"],
    },
    Fault {
        name: "members that have lost ownership serve again when they start",
        setup: with(Defect::ResumesAfterLoss),
        build: |_| {},
        caught: &["members of two sides could be written", "served without what was acknowledged"],
    },
    Fault {
        name: "the destination takes the epoch of the source",
        setup: Setup { defect: None },
        build: |b| {
            row(b, Step::OwnerRecordTaken, |row| {
                row.on_start = |context, notes| {
                    notes.owner_epoch = context.at_destination().map(|facts| facts.etcd.epoch);
                };
            });
        },
        caught: &["stuck", "the destination ended as Failed", "served without"],
    },
    Fault {
        name: "takes ownership although nobody has confirmed the loss",
        setup: Setup { defect: None },
        build: |b| row(b, Step::LossConfirmed, |row| row.check = |_| Check::Met("supposed".into())),
        caught: &["takes ownership before the loss is confirmed"],
    },
    Fault {
        name: "restores extensions while those of the source may act",
        setup: Setup { defect: None },
        build: |b| row(b, Step::SourceFenced, |row| row.check = |_| Check::Met("supposed".into())),
        caught: &["restores extensions before the source is fenced"],
    },
    Fault {
        name: "starts controllers while those of the source may act",
        setup: Setup { defect: None },
        build: |b| row(b, Step::SourceControllersFenced, |row| row.check = |_| Check::Met("supposed".into())),
        caught: &["controllers of two sides act"],
    },
    Fault {
        name: "revokes credentials before the owner record names the destination",
        setup: Setup { defect: None },
        build: |b| row(b, Step::SourceQuarantined, |row| row.after = &[Step::MigrationRecorded]),
        caught: &["revokes credentials of a seed that is the owner"],
    },
    Fault {
        name: "believes that credentials are revoked before the command says so",
        setup: Setup { defect: None },
        build: |b| row(b, Step::SourceQuarantined, |row| row.check = |_| Check::Met("supposed".into())),
        caught: &["controllers of two sides act"],
    },
    Fault {
        name: "takes the tunnel for moved although a temporary client is left",
        setup: Setup { defect: None },
        build: |b| row(b, Step::TunnelMoved, |row| row.check = |_| Check::Met("supposed".into())),
        caught: &["a temporary client of the tunnel is left"],
    },
    Fault {
        name: "stops the source before the record names the destination",
        setup: Setup { defect: None },
        build: |b| row(b, Step::SourceControllersStopped, |row| row.after = &[Step::MigrationRecorded]),
        caught: &["touches a source that is the owner", "rolled back, and the source was touched"],
    },
];

#[test]
fn schedules_find_every_planted_fault() {
    let missed = missed(FAULTS.iter(), sound, HIDDEN);
    assert!(missed.is_empty(), "{}", missed.join("\n"));
}
