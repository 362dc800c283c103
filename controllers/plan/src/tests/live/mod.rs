//! Simulated live migrations: one etcd with members in two seeds, a link between them that is cut, and clients that ask all the time.

mod effects;
mod etcd;
mod observe;
mod rules;
mod world;

use world::{Distance, World};

use super::{
    classic::golden,
    sim::{Build, Fault, ends, missed},
};
use crate::{
    flow::{Plan, Plans, Row},
    ledger::Check,
    live::{PLANS, SHRUNK_PLAN},
    migration::{MigrationFlow, Step},
};

/// How many schedules are run, and how many of them in the long form.
const SCHEDULES: u64 = 1_000;
const SOAK: u64 = 100_000;
/// As many schedules as a fault may hide in.
const HIDDEN: u64 = 2_000;

fn sound(distance: Distance) -> Build<World> {
    Build::new(distance, &PLANS)
}

#[test]
fn tables_have_a_sound_form() {
    for plan in PLANS.versions.iter().copied().chain([&SHRUNK_PLAN]) {
        assert_eq!(plan.problems(), [""; 0], "version {}", plan.version);
    }
}

#[test]
fn every_schedule_comes_to_a_good_end() {
    let count = golden::schedules(SCHEDULES, SOAK);
    let ends = ends::<World>(count, |_| sound(Distance::Near));
    for end in ["Succeeded", "RolledBack", "Cancelled"] {
        let found = ends.get(end).copied().unwrap_or_default();
        assert!(found >= count / 50, "{found} schedules ended in {end}: {ends:#?}");
    }
}

/// The destination serves only where a person gives the source up in time; otherwise the source serves on.
#[test]
fn every_schedule_with_a_source_that_is_given_up_comes_to_a_good_end() {
    let count = golden::schedules(SCHEDULES, SOAK);
    let ends = ends::<World>(count, |_| sound(Distance::Far));
    for end in ["Succeeded", "RolledBack", "Cancelled"] {
        let found = ends.get(end).copied().unwrap_or_default();
        assert!(found >= count / 50, "{found} schedules ended in {end}: {ends:#?}");
    }
}

fn change(build: &mut Build<World>, step: Step, change: impl Fn(&mut Row<MigrationFlow>)) {
    let mut plan = *build.plans.newest();
    let (mut forward, mut rollback) = (plan.forward.to_vec(), plan.rollback.to_vec());
    forward.iter_mut().chain(&mut rollback).filter(|row| row.step == step).for_each(change);
    (plan.forward, plan.rollback) = (forward.leak(), rollback.leak());
    let plan: &'static Plan<MigrationFlow> = Box::leak(Box::new(plan));
    build.plans = Box::leak(Box::new(Plans { versions: Box::leak(Box::new([plan])) }));
}

fn suppose(build: &mut Build<World>, step: Step) {
    change(build, step, |row| row.check = |_| Check::Met("supposed".into()));
}

const FAULTS: &[Fault<World>] = &[
    Fault {
        name: "leads clients to the destination before it serves",
        setup: Distance::Near,
        build: |b| suppose(b, Step::ApiServes),
        caught: &["a request failed"],
    },
    Fault {
        name: "stops the API of the source while resolvers have its address",
        setup: Distance::Near,
        build: |b| change(b, Step::SourceApiStopped, |row| row.after = &[Step::ApiDnsSwitched]),
        caught: &["a request failed"],
    },
    Fault {
        name: "stops the API of the source before the zone names the destination",
        setup: Distance::Near,
        build: |b| suppose(b, Step::ApiDnsSwitched),
        caught: &["stops the API to which clients are led", "a request failed"],
    },
    Fault {
        name: "starts controllers while those of the source act",
        setup: Distance::Near,
        build: |b| {
            suppose(b, Step::SourceControllersStopped);
            suppose(b, Step::SourceControllersRemoved);
        },
        caught: &["controllers of two sides act"],
    },
    Fault {
        name: "removes members of the source while its API serves",
        setup: Distance::Near,
        build: |b| suppose(b, Step::SourceApiStopped),
        caught: &["removes members that kube-apiservers use", "a request failed"],
    },
    Fault {
        name: "takes ownership while members of the source are there",
        setup: Distance::Near,
        build: |b| change(b, Step::OwnerRecordTaken, |row| row.after = &[Step::MoveCommitted]),
        caught: &["takes ownership while the source has members"],
    },
    Fault {
        name: "goes back without leading clients back",
        setup: Distance::Near,
        build: |b| suppose(b, Step::DnsRecordsRestored),
        caught: &["stops the API to which clients are led", "a request failed"],
    },
    Fault {
        name: "goes back while DNS controllers of the destination may write",
        setup: Distance::Near,
        build: |b| suppose(b, Step::DestinationDnsReleased),
        caught: &[
            "stops the API to which clients are led",
            "a request failed",
            "servers of the zone answer otherwise",
        ],
    },
    Fault {
        name: "goes back while resolvers have the address of the destination",
        setup: Distance::Near,
        build: |b| suppose(b, Step::DestinationAddressExpired),
        caught: &["a request failed"],
    },
];

#[test]
fn schedules_find_every_planted_fault() {
    let missed = missed(FAULTS.iter(), sound, HIDDEN);
    assert!(missed.is_empty(), "{}", missed.join("\n"));
}
