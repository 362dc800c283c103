//! Faults that show when somebody deletes the HostedEtcd.

use super::{back_row, plan, row, sound};
use crate::{
    etcd::{Step, backup, effect::Effect, observed::Lock},
    ledger::Check,
    tests::{
        cluster::{Kind, Truth},
        sim::Fault,
    },
};

/// All of them.
pub(super) const FAULTS: &[Fault<Truth>] = &[
    Fault {
        name: "gives up as soon as the HostedEtcd is deleted",
        setup: Kind::Migration,
        build: |b| plan(b, |plan| plan.needs_rollback = |_| false),
        caught: &[
            "lets the HostedEtcd go while its API servers are stopped",
            "went back without API servers",
            "went back to no etcd",
        ],
    },
    Fault {
        name: "begins without a finalizer on the HostedEtcd",
        setup: Kind::Restore,
        build: |b| {
            row(b, Step::LockTaken, |row| {
                row.check = backup::PLAN.forward[1].check;
                row.effects = backup::PLAN.forward[1].effects;
            });
        },
        caught: &["changes an etcd that it does not hold"],
    },
    Fault {
        name: "lets the HostedEtcd go before the way back",
        setup: Kind::Migration,
        build: |b| {
            back_row(b, Step::LockHeld, |row| {
                row.check = |context| {
                    if context.observed.cluster_finalizer {
                        Check::waiting("Releasing", "the finalizer is taken off")
                    } else {
                        sound(Step::LockHeld, context)
                    }
                };
                row.effects = |_| vec![Effect::EnsureClusterFinalizer { present: false }];
            });
        },
        caught: &["lets the HostedEtcd go while its API servers are stopped"],
    },
    Fault {
        name: "goes back only as long as there is a HostedEtcd",
        setup: Kind::Migration,
        build: |b| {
            back_row(b, Step::LockHeld, |row| {
                row.check = |context| {
                    if context.observed.lock == Lock::Free {
                        Check::waiting("TakingLock", "the lock is free")
                    } else {
                        sound(Step::LockHeld, context)
                    }
                };
            });
        },
        caught: &["gave up although there was a way"],
    },
    Fault {
        name: "keeps the finalizer of the HostedEtcd at the end",
        setup: Kind::Migration,
        build: |b| {
            row(b, Step::LockReleased, |row| {
                row.effects = |_| vec![Effect::EnsureLock { held: false }];
            });
        },
        caught: &["keeps its finalizer on the HostedEtcd"],
    },
];
