//! Faults of the tables of a classic migration, and of its controllers.

use super::clusters::{Clusters, Kind, Setup};
use crate::{
    flow::{OnFailure, Plan, Plans, Row},
    ledger::Check,
    migration::{MigrationFlow, Step, effect::Effect, observed::Operation},
    tests::sim::{Build, Fault},
};

fn plan(build: &mut Build<Clusters>, change: impl Fn(&mut Plan<MigrationFlow>)) {
    let mut plan = *build.plans.newest();
    change(&mut plan);
    let plan: &'static Plan<MigrationFlow> = Box::leak(Box::new(plan));
    build.plans = Box::leak(Box::new(Plans { versions: Box::leak(Box::new([plan])) }));
}

fn changed(
    rows: &[Row<MigrationFlow>],
    step: Step,
    change: impl Fn(&mut Row<MigrationFlow>),
) -> &'static [Row<MigrationFlow>] {
    let mut rows = rows.to_vec();
    rows.iter_mut().filter(|row| row.step == step).for_each(change);
    rows.leak()
}

fn row(build: &mut Build<Clusters>, step: Step, change: impl Fn(&mut Row<MigrationFlow>)) {
    plan(build, |plan| {
        plan.forward = changed(plan.forward, step, &change);
        plan.rollback = changed(plan.rollback, step, &change);
    });
}

/// A step counts as reached whatever is observed.
fn believe(build: &mut Build<Clusters>, step: Step) {
    row(build, step, |row| row.check = |_| Check::Met("supposed".into()));
}

/// All of them.
pub(super) const FAULTS: &[Fault<Clusters>] = &[
    Fault {
        name: "starts the source again while members of the destination may serve",
        setup: Setup::of(Kind::Awake),
        build: |b| {
            believe(b, Step::DestinationFenced);
            believe(b, Step::DestinationStopped);
        },
        caught: &["members of two sides could be written"],
    },
    Fault {
        name: "moves a Shoot although gardenlet reconciles it",
        setup: Setup::of(Kind::Awake),
        build: |b| believe(b, Step::GardenletExcluded),
        caught: &["migrates a Shoot that gardenlet reconciles"],
    },
    Fault {
        name: "never lets gardenlet reconcile the Shoot again",
        setup: Setup::of(Kind::Awake),
        build: |b| {
            row(b, Step::OperationSucceeded, |row| {
                row.effects = |_| vec![Effect::EnsureOperation { operation: Operation::Restored }]
            })
        },
        caught: &["failed although there was a way"],
    },
    Fault {
        name: "starts the source again on its former volumes",
        setup: Setup::of(Kind::Awake),
        build: |b| {
            row(b, Step::SourceEtcdRestored, |row| {
                row.on_start = |_, notes| notes.volumes = Some("first".into())
            });
        },
        caught: &["failed although there was a way"],
    },
    Fault {
        name: "starts the source again without a final snapshot",
        setup: Setup::of(Kind::Awake),
        build: |b| believe(b, Step::SourceOwnershipEnded),
        caught: &["failed although there was a way", "rolled back without", "served without"],
    },
    Fault {
        name: "sends clients to the destination before the migration is committed",
        setup: Setup::of(Kind::Awake),
        build: |b| row(b, Step::ApiDnsSwitched, |row| row.after = &[Step::EtcdServes]),
        caught: &["sends clients to the destination before"],
    },
    Fault {
        name: "rolls back after clients were sent to the destination",
        setup: Setup::of(Kind::Awake),
        build: |b| {
            plan(b, |plan| plan.point_of_no_return = None);
            row(b, Step::ApiDnsSwitched, |row| row.on_failure = OnFailure::RollBack);
        },
        caught: &[
            "removes a destination that clients may use",
            "failed although there was a way",
            "a VM without a Machine was deleted",
            "controllers of two sides act",
            "rolled back, and clients go to the destination",
            "rolled back without all writes",
            "served without what was acknowledged",
            "one side succeeds and another one rolls back",
            "members of two sides",
        ],
    },
    Fault {
        name: "starts kube-controller-manager before nodes have renewed their Leases",
        setup: Setup::of(Kind::Awake),
        build: |b| row(b, Step::KubeControllersStarted, |row| row.after = &[Step::ApiDnsSwitched]),
        caught: &["nodes are taken for lost"],
    },
    Fault {
        name: "starts machine controllers before the Machines are there",
        setup: Setup::of(Kind::Awake),
        build: |b| row(b, Step::ControllersStarted, |row| row.after = &[Step::ExtensionsRestored]),
        caught: &[
            "a VM without a Machine was deleted",
            "succeeded without controllers",
            "would replace nodes",
        ],
    },
    Fault {
        name: "restores Machines that were carried while their controllers ran",
        setup: Setup::of(Kind::Awake),
        build: |b| {
            believe(b, Step::FinalStateSynced);
            believe(b, Step::MigratedStateSynced);
            believe(b, Step::MachinesUnchanged);
        },
        caught: &["a VM without a Machine was deleted", "succeeded without the last state of extensions"],
    },
    Fault {
        name: "restores extensions from a state that was carried while they ran",
        setup: Setup::of(Kind::Awake),
        build: |b| believe(b, Step::MigratedStateSynced),
        caught: &["succeeded without the last state of extensions"],
    },
    Fault {
        name: "does not give the Etcd of a hibernated Shoot its owner and its snapshot",
        setup: Setup::of(Kind::Hibernated),
        build: |b| {
            believe(b, Step::EtcdServes);
            believe(b, Step::EtcdComplete);
        },
        caught: &["succeeded without all writes"],
    },
    Fault {
        name: "takes a destination for stopped whose Etcd was not written",
        setup: Setup::of(Kind::Awake),
        build: |b| {
            row(b, Step::DestinationStopped, |row| row.effects = |_| Vec::new());
            believe(b, Step::DestinationStopped);
        },
        caught: &[
            "members of two sides could be written",
            "failed although",
            "rolled back, and something is left",
        ],
    },
    Fault {
        name: "does not wait for the machine controllers of the source",
        setup: Setup::of(Kind::Awake),
        build: |b| {
            for step in [Step::SourceControllersStopped, Step::SourceControllersRemoved] {
                believe(b, step);
                row(b, step, |row| row.effects = |_| Vec::new());
            }
        },
        caught: &[
            "controllers of two sides act",
            "a VM without a Machine",
            "rolled back without controllers",
        ],
    },
    Fault {
        name: "restores extensions that still act at the source",
        setup: Setup::of(Kind::Awake),
        build: |b| {
            row(b, Step::MigratedStateSynced, |row| row.after = &[Step::MoveCommitted]);
        },
        caught: &["extension controllers of two sides act"],
    },
    Fault {
        name: "removes the source at once",
        setup: Setup::of(Kind::Awake),
        build: |b| row(b, Step::SourceRemoved, |row| row.after = &[Step::MoveCommitted]),
        caught: &["removes the source too early"],
    },
    Fault {
        name: "takes the epoch that has ended",
        setup: Setup::of(Kind::Awake),
        build: |b| {
            row(b, Step::OwnerRecordTaken, |row| row.on_start = |_, notes| notes.owner_epoch = Some(1))
        },
        caught: &["the owner record got an epoch"],
    },
    Fault {
        name: "takes the epoch that has ended when it rolls back",
        setup: Setup::of(Kind::Awake),
        build: |b| {
            row(b, Step::OwnerRecordRestored, |row| row.on_start = |_, notes| notes.owner_epoch = Some(1))
        },
        caught: &["the owner record got an epoch", "failed although there was a way"],
    },
    Fault {
        name: "leaves the source as it is",
        setup: Setup::of(Kind::Awake),
        build: |b| believe(b, Step::SourceRemoved),
        caught: &["succeeded, and something is left at the source"],
    },
    Fault {
        name: "waits for a dead side for a week",
        setup: Setup::of(Kind::Awake),
        build: |b| {
            plan(b, |plan| plan.committed_side_limit = std::time::Duration::from_secs(7 * 24 * 3600));
        },
        caught: &["ended too late"],
    },
    Fault {
        name: "does not put the etcd of a hibernated Shoot to sleep",
        setup: Setup::of(Kind::Hibernated),
        build: |b| believe(b, Step::SourceEtcdAsleep),
        caught: &["rolled back with other members"],
    },
    Fault {
        name: "stores records whatever others have stored",
        setup: Setup::of(Kind::Awake),
        build: |b| b.versioned = false,
        caught: &[
            "rolls back past the point of no return",
            "one side succeeds and another",
            "a record was lost",
        ],
    },
    Fault {
        name: "acts whatever has become of what it saw",
        setup: Setup::of(Kind::Awake),
        build: |b| b.guarded = false,
        caught: &[
            "rolled back",
            "members of two sides",
            "served without",
            "controllers of two sides",
            "succeeded",
            "failed",
            "the owner record got an epoch",
        ],
    },
    Fault {
        name: "acts before it has recorded",
        setup: Setup::of(Kind::Awake),
        build: |b| b.records_first = false,
        caught: &["acts before it has recorded"],
    },
    Fault {
        name: "waits for a dead side without end",
        setup: Setup::of(Kind::Awake),
        build: |b| {
            plan(b, |plan| {
                plan.side_limit = std::time::Duration::MAX;
                plan.committed_side_limit = std::time::Duration::MAX;
            });
        },
        caught: &["stuck"],
    },
];
