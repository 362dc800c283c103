//! Faults that show when somebody deletes the HostedEtcd.

use super::{Fault, back_row, row, sound};
use crate::{
    etcd::{effect::Effect, world::Lock},
    flow::Plan,
    ledger::Check,
    tests::sim::Kind,
};

/// All of them.
pub(super) const FAULTS: &[Fault] = &[
    Fault {
        name: "gives up as soon as the HostedEtcd is deleted",
        kind: Kind::Migration,
        build: |b| b.plan = Box::leak(Box::new(Plan { touched: |_| false, ..*b.plan })),
        caught: &[
            "lets the HostedEtcd go while its API servers are stopped",
            "went back without API servers",
            "went back to no etcd",
        ],
    },
    Fault {
        name: "begins without a finalizer on the HostedEtcd",
        kind: Kind::Restore,
        build: |b| {
            row(b, "LockTaken", |row| {
                row.check = crate::etcd::backup::PLAN.forward[1].check;
                row.effects = crate::etcd::backup::PLAN.forward[1].effects;
            });
        },
        caught: &["changes an etcd that it does not hold"],
    },
    Fault {
        name: "lets the HostedEtcd go before the way back",
        kind: Kind::Migration,
        build: |b| {
            back_row(b, "LockHeld", |row| {
                row.check = |scene| {
                    if scene.world.cluster_finalizer {
                        Check::waiting("Releasing", "the finalizer is taken off")
                    } else {
                        sound("LockHeld", scene)
                    }
                };
                row.effects = |_| vec![Effect::EnsureClusterFinalizer { present: false }];
            });
        },
        caught: &["lets the HostedEtcd go while its API servers are stopped"],
    },
    Fault {
        name: "goes back only as long as there is a HostedEtcd",
        kind: Kind::Migration,
        build: |b| {
            back_row(b, "LockHeld", |row| {
                row.check = |scene| {
                    if scene.world.lock == Lock::Free {
                        Check::waiting("TakingLock", "the lock is free")
                    } else {
                        sound("LockHeld", scene)
                    }
                };
            });
        },
        caught: &["gave up although there was a way"],
    },
    Fault {
        name: "keeps the finalizer of the HostedEtcd at the end",
        kind: Kind::Migration,
        build: |b| {
            row(b, "LockReleased", |row| {
                row.effects = |_| vec![Effect::EnsureLock { held: false }];
            });
        },
        caught: &["keeps its finalizer on the HostedEtcd"],
    },
];
