//! Simulated live migrations: one etcd with members in two seeds, a link between them that is cut, and clients that ask all the time.

mod deaths;
mod effects;
mod etcd;
mod faults;
mod observe;
mod rules;
mod tunnel;
mod world;

use world::{Case, World};

use super::{
    classic::golden,
    sim::{Build, Fault, ends, missed},
};
use crate::{
    flow::{Plan, Plans, Row},
    ledger::Check,
    live::{PLANS, SHRUNK_PLAN},
    migration::{MigrationFlow, Step, destination, effect::Effect},
};

/// How many schedules are run, and how many of them in the long form.
const SCHEDULES: u64 = 1_000;
const SOAK: u64 = 100_000;
/// As many schedules as a fault may hide in.
const HIDDEN: u64 = 10_000;

fn sound(case: Case) -> Build<World> {
    Build::new(case, &PLANS)
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
    let ends = ends::<World>(count, |_| sound(Case::Near));
    for end in ["Succeeded", "RolledBack", "Cancelled"] {
        let found = ends.get(end).copied().unwrap_or_default();
        assert!(found >= count / 50, "{found} schedules ended in {end}: {ends:#?}");
    }
}

/// The destination serves only where a person gives the source up in time; otherwise the source serves on.
#[test]
fn every_schedule_with_a_source_that_is_given_up_comes_to_a_good_end() {
    let count = golden::schedules(SCHEDULES, SOAK);
    let ends = ends::<World>(count, |_| sound(Case::Far));
    for end in ["Succeeded", "RolledBack", "Cancelled"] {
        let found = ends.get(end).copied().unwrap_or_default();
        assert!(found >= count / 50, "{found} schedules ended in {end}: {ends:#?}");
    }
}

/// A source that dies past the point of no return leaves an etcd without a quorum: then the destination gives way to a forced migration.
#[test]
fn every_schedule_with_a_source_that_dies_past_the_point_of_no_return_comes_to_a_good_end() {
    let count = golden::schedules(SCHEDULES, SOAK);
    let ends = ends::<World>(count, |_| sound(Case::SourceDies));
    let found = ends.get("RolledBack").copied().unwrap_or_default();
    assert!(found >= count / 2, "{found} schedules rolled back: {ends:#?}");
}

/// The source serves on, and its etcd has its members alone.
#[test]
fn every_schedule_with_a_destination_that_never_comes_back_comes_to_a_good_end() {
    let count = golden::schedules(SCHEDULES, SOAK);
    let ends = ends::<World>(count, |_| sound(Case::DestinationDies));
    let found = ["RolledBack", "Cancelled"].map(|end| ends.get(end).copied().unwrap_or_default());
    assert!(found.iter().sum::<u64>() >= count / 2, "{ends:#?}");
}

/// A forced migration begins from whichever bucket has the newest state, and the other seed is not in its way.
#[test]
fn every_schedule_with_a_destination_that_dies_past_the_point_of_no_return_comes_to_a_good_end() {
    let count = golden::schedules(SCHEDULES, SOAK);
    let ends = ends::<World>(count, |_| sound(Case::DestinationDiesLate));
    for end in ["RolledBack", "Failed"] {
        let found = ends.get(end).copied().unwrap_or_default();
        assert!(found >= count / 20, "{found} schedules ended in {end}: {ends:#?}");
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
        setup: Case::Near,
        build: |b| {
            suppose(b, Step::ApiServes);
            suppose(b, Step::TunnelServes);
            change(b, Step::DnsRecordsMigrated, |row| row.after = &[Step::ApiServes, Step::FormerTtlExpired]);
        },
        caught: &["a request failed"],
    },
    Fault {
        name: "starts all kube-apiservers of the destination at once",
        setup: Case::Near,
        build: |b| change(b, Step::ApiServes, |row| row.effects = destination::serve_api),
        caught: &["starts several kube-apiservers at once"],
    },
    Fault {
        name: "leads clients to the destination before it reaches the Shoot",
        setup: Case::Near,
        build: |b| {
            suppose(b, Step::TemporaryClientStarted);
            suppose(b, Step::TunnelServes);
        },
        caught: &["a request failed that needs the tunnel"],
    },
    Fault {
        name: "removes the temporary client of the tunnel before the usual one has reconnected",
        setup: Case::Near,
        build: |b| {
            change(b, Step::TunnelMoved, |row| row.effects = |_| vec![Effect::RemoveTemporaryClient]);
        },
        caught: &["a request failed that needs the tunnel"],
    },
    Fault {
        name: "stops the API of the source while resolvers have its address",
        setup: Case::Near,
        build: |b| change(b, Step::SourceApiStopped, |row| row.after = &[Step::ApiDnsSwitched]),
        caught: &["a request failed"],
    },
    Fault {
        name: "stops the API of the source before the zone names the destination",
        setup: Case::Near,
        build: |b| suppose(b, Step::ApiDnsSwitched),
        caught: &["stops the API to which clients are led", "a request failed"],
    },
    Fault {
        name: "starts controllers while those of the source act",
        setup: Case::Near,
        build: |b| {
            suppose(b, Step::SourceControllersStopped);
            suppose(b, Step::SourceControllersRemoved);
        },
        caught: &["controllers of two sides act"],
    },
    Fault {
        name: "removes members of the source while its API serves",
        setup: Case::Near,
        build: |b| suppose(b, Step::SourceApiStopped),
        caught: &["removes members that kube-apiservers use", "a request failed"],
    },
    Fault {
        name: "takes ownership while members of the source are there",
        setup: Case::Near,
        build: |b| change(b, Step::OwnerRecordTaken, |row| row.after = &[Step::MoveCommitted]),
        caught: &["takes ownership while the source has members"],
    },
    Fault {
        name: "restores the infrastructure while members of the source are there",
        setup: Case::Near,
        build: |b| {
            change(b, Step::InfrastructureRestored, |row| row.after = &[Step::MigratedStateSynced]);
        },
        caught: &["restores the infrastructure while the source has members"],
    },
    Fault {
        name: "goes back without leading clients back",
        setup: Case::Near,
        build: |b| suppose(b, Step::DnsRecordsRestored),
        caught: &["stops the API to which clients are led", "a request failed"],
    },
    Fault {
        name: "goes back while DNS controllers of the destination may write",
        setup: Case::Near,
        build: |b| suppose(b, Step::DestinationDnsReleased),
        caught: &[
            "stops the API to which clients are led",
            "a request failed",
            "servers of the zone answer otherwise",
            // The source waits for ever for a zone that names it.
            "stuck: garden: RollingBack",
        ],
    },
    Fault {
        name: "goes back while resolvers have the address of the destination",
        setup: Case::Near,
        build: |b| suppose(b, Step::DestinationAddressExpired),
        caught: &["a request failed"],
    },
];

const FAULTS_OF_DEATHS: &[Fault<World>] = &[Fault {
    name: "names the destination before its bucket has a snapshot",
    setup: Case::DestinationDiesLate,
    build: |b| {
        change(b, Step::StatusMoved, |row| {
            row.after = &[Step::OwnerRecordTaken, Step::MigratedStateSynced];
        });
    },
    caught: &["continued from a bucket without a snapshot"],
}];

#[test]
fn schedules_find_every_planted_fault() {
    let missed = missed(FAULTS.iter().chain(FAULTS_OF_DEATHS), sound, HIDDEN);
    assert!(missed.is_empty(), "{}", missed.join("\n"));
}
