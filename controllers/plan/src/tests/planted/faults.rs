//! The faults, as changes of the tables and of the controller.

use super::{at, back_row, plan, row, sound, tables};
use crate::{
    etcd::{Step, effect::Effect, restore},
    flow::{OnFailure, Proof, Timeout},
    ledger::Check,
    tests::{
        cluster::{Kind, Truth},
        sim::Fault,
    },
};

fn met() -> Check {
    Check::Met("supposed".into())
}

/// All of them.
pub(super) const FAULTS: &[Fault<Truth>] = &[
    Fault {
        name: "takes spec.replicas for API servers that have ended",
        setup: Kind::Migration,
        build: |b| {
            row(b, Step::ApiDown, |row| {
                row.check = |context| {
                    if context.observed.api.wanted == 0 { met() } else { sound(Step::ApiDown, context) }
                };
            });
        },
        caught: &[
            "deletes an etcd in use",
            "deletes an etcd without a backup of all of it",
            "failed for no reason",
        ],
    },
    Fault {
        name: "does not see that API servers came back and went again",
        setup: Kind::Migration,
        build: |b| {
            row(b, Step::ApiDown, |row| {
                row.on_done = |_, _| {};
            });
        },
        caught: &[
            "deletes the last good copy",
            "served without what was acknowledged before",
            "lost what was acknowledged",
            "deletes the old volumes before the new ones serve",
        ],
    },
    Fault {
        name: "sees API servers end once and never looks again",
        setup: Kind::Migration,
        build: |b| row(b, Step::ApiDown, |row| row.proof = Proof::Latched),
        caught: &[
            "deletes the last good copy",
            "served without what was acknowledged before",
            "deletes an etcd in use",
            "lost what was acknowledged",
            "deletes the old volumes before the new ones serve",
            "gave up although there was a way",
        ],
    },
    Fault {
        name: "takes the backup while API servers write",
        setup: Kind::Migration,
        build: |b| {
            tables(b, |forward, _| {
                let down = forward.remove(at(forward, Step::ApiDown));
                // Compared with what the etcd holds, it would be found out.
                let after = at(forward, Step::BackupVerified);
                forward[after].check = restore::PLAN.forward[2].check;
                forward.insert(after + 1, down);
            });
        },
        caught: &["deletes an etcd without a backup of all of it"],
    },
    Fault {
        name: "trusts a backup that nobody has read",
        setup: Kind::Migration,
        build: |b| {
            row(b, Step::BackupVerified, |row| {
                row.check = |_| met();
                row.on_done = |context, notes| notes.proof.clone_from(&context.observed.serving);
            });
        },
        caught: &["deletes an etcd without a backup of all of it", "failed for no reason"],
    },
    Fault {
        name: "verifies the backup of a restore after the deletion",
        setup: Kind::Restore,
        build: |b| {
            tables(b, |forward, _| {
                let verified = forward.remove(at(forward, Step::BackupVerified));
                let after = at(forward, Step::EtcdDeleted) + 1;
                forward.insert(after, verified);
            });
        },
        caught: &["deletes an etcd without a backup of all of it"],
    },
    Fault {
        name: "starts the new etcd beside members that nobody can reach",
        setup: Kind::Migration,
        build: |b| {
            row(b, Step::EtcdDeleted, |row| {
                row.check = |context| {
                    if context.observed.etcd.is_none() { met() } else { sound(Step::EtcdDeleted, context) }
                };
            });
            row(b, Step::EtcdRestored, |row| {
                row.effects = |context| {
                    let (settings, fence) = (
                        context.observed.settings.clone(),
                        format!("{}/forward", context.observed.request.uid),
                    );
                    let from = context.notes.backup.clone();
                    let new = context.notes.new.iter();
                    new.map(|set| Effect::EnsureEtcd {
                        volumes: set.clone(),
                        settings: settings.clone(),
                        from: from.clone(),
                        fence: fence.clone(),
                    })
                    .collect()
                };
            });
        },
        caught: &["starts an etcd beside another", "two etcds could be written"],
    },
    Fault {
        name: "starts API servers on an etcd that has proved nothing",
        setup: Kind::Migration,
        build: |b| row(b, Step::ProvedEqual, |row| row.check = |_| met()),
        caught: &[
            "deletes the old volumes before the new ones serve",
            "served without what was acknowledged before",
            "deletes the last good copy",
        ],
    },
    Fault {
        name: "starts API servers on a restored etcd that has proved nothing",
        setup: Kind::Restore,
        build: |b| row(b, Step::ProvedEqual, |row| row.check = |_| met()),
        caught: &["restored something else"],
    },
    Fault {
        name: "compares nothing but revisions, which leases move",
        setup: Kind::Migration,
        build: |b| {
            row(b, Step::ProvedEqual, |row| {
                row.check = |context| match (&context.observed.serving, &context.notes.proof) {
                    (Some(etcd), Some(proof)) if etcd.revision == proof.revision => met(),
                    (None, _) => Check::waiting("NoQuorum", "no quorum"),
                    _ => Check::blocked("NotEqual", "the revisions differ"),
                };
            });
        },
        caught: &[
            "failed for no reason",
            "served without what was acknowledged before",
            "deletes the last good copy",
        ],
    },
    Fault {
        name: "deletes the old volumes before the new ones are filled",
        setup: Kind::Migration,
        build: |b| {
            tables(b, |forward, _| {
                let mut release = forward.remove(at(forward, Step::OldVolumesReleased));
                release.effects = |context| {
                    context
                        .notes
                        .old
                        .iter()
                        .map(|(set, _)| Effect::EnsureNoVolumes { volumes: set.clone() })
                        .collect()
                };
                let before = at(forward, Step::EtcdRestored);
                forward.insert(before, release);
            });
        },
        caught: &["deletes the old volumes before the new ones serve"],
    },
    Fault {
        name: "deletes the old volumes together with their etcd",
        setup: Kind::Migration,
        build: |b| {
            row(b, Step::EtcdDeleted, |row| {
                row.effects = |context| {
                    let old = context.notes.old.iter().map(|(set, _)| set.clone());
                    old.flat_map(|volumes| {
                        [
                            Effect::EnsureNoEtcd { volumes: volumes.clone() },
                            Effect::EnsureNoVolumes { volumes },
                        ]
                    })
                    .collect()
                };
            });
        },
        caught: &["destroys two things at once"],
    },
    Fault {
        name: "deletes the old volumes on the way back",
        setup: Kind::Migration,
        build: |b| {
            back_row(b, Step::NewVolumesReleased, |row| {
                row.effects = |context| {
                    context
                        .notes
                        .old
                        .iter()
                        .map(|(set, _)| Effect::EnsureNoVolumes { volumes: set.clone() })
                        .collect()
                };
            });
        },
        caught: &["deletes the volumes that serve"],
    },
    Fault {
        name: "goes back after API servers have written to the new etcd",
        setup: Kind::Migration,
        build: |b| {
            row(b, Step::ApiUp, |row| row.on_failure = OnFailure::RollBack);
            plan(b, |plan| plan.point_of_no_return = None);
        },
        caught: &[
            "lost what was acknowledged",
            "served without what was acknowledged before",
            "went back without all data",
            "deletes the last good copy",
            "gave up although there was a way",
        ],
    },
    Fault {
        name: "takes the way back without a fence",
        setup: Kind::Migration,
        build: |b| {
            back_row(b, Step::OldEtcdUp, |row| {
                row.check = |context| match &context.observed.etcd {
                    Some(etcd) if context.notes.old.as_ref().is_some_and(|(old, _)| *old == etcd.volumes) => {
                        met()
                    }
                    _ => sound(Step::OldEtcdUp, context),
                };
            });
            back_row(b, Step::ApiUpAgain, |row| {
                row.check = |context| {
                    if context
                        .notes
                        .api_replicas
                        .is_none_or(|replicas| replicas == context.observed.api.wanted)
                    {
                        met()
                    } else {
                        sound(Step::ApiUpAgain, context)
                    }
                };
            });
        },
        caught: &["went back to no etcd", "went back without API servers"],
    },
    Fault {
        name: "notes how many API servers there were after stopping them",
        setup: Kind::Migration,
        build: |b| {
            row(b, Step::ApiDown, |row| {
                row.on_start = |_, _| {};
                row.on_done = |context, notes| {
                    notes.api_replicas.get_or_insert(context.observed.api.wanted);
                    notes.api_generation.get_or_insert(context.observed.api.generation);
                };
            });
        },
        caught: &["left API servers stopped", "went back without API servers"],
    },
    Fault {
        name: "begins without the lock",
        setup: Kind::Migration,
        build: |b| {
            row(b, Step::LockTaken, |row| row.check = |_| met());
        },
        caught: &["acts without the lock"],
    },
    Fault {
        name: "takes another one's lock for its own",
        setup: Kind::Backup,
        build: |b| {
            row(b, Step::LockTaken, |row| {
                row.check = |context| {
                    if context.observed.request.finalizer { met() } else { sound(Step::LockTaken, context) }
                };
            });
        },
        caught: &["acts without the lock"],
    },
    Fault {
        name: "takes the lock once and never looks again",
        setup: Kind::Migration,
        build: |b| row(b, Step::LockTaken, |row| row.proof = Proof::Latched),
        caught: &["acts without the lock"],
    },
    Fault {
        name: "waits for a restore without end",
        setup: Kind::Migration,
        build: |b| row(b, Step::EtcdRestored, |row| row.timeout = Timeout::Hours(1_000_000)),
        caught: &["stuck: seed: Running"],
    },
    Fault {
        name: "makes up another name of the backup in each pass",
        setup: Kind::Migration,
        build: |b| {
            row(b, Step::BackupTaken, |row| {
                row.effects = |context| {
                    vec![Effect::EnsureBackup { name: context.observed.request.fresh_name.clone() }]
                };
            });
        },
        caught: &["failed for no reason"],
    },
    Fault {
        name: "waits without a word",
        setup: Kind::Migration,
        build: |b| {
            row(b, Step::EtcdRestored, |row| {
                row.advice = "";
                row.check = |context| match sound(Step::EtcdRestored, context) {
                    Check::Waiting(_) => Check::waiting("", ""),
                    other => other,
                };
            });
        },
        caught: &["waits without a reason"],
    },
    Fault {
        name: "leaves the new settings behind on the way back",
        setup: Kind::Migration,
        build: |b| tables(b, |_, back| back.retain(|row| row.step != Step::SettingsPutBack)),
        caught: &["left the new settings"],
    },
    Fault {
        name: "leaves the new etcd in the way",
        setup: Kind::Migration,
        build: |b| tables(b, |_, back| back.retain(|row| row.step != Step::NewEtcdGone)),
        caught: &["gave up although there was a way"],
    },
    Fault {
        name: "acts whatever has become of what it saw",
        setup: Kind::Migration,
        build: |b| b.guarded = false,
        caught: &[
            "went back to no etcd",
            "went back without API servers",
            "left API servers stopped",
            "left the new settings",
            "keeps the lock",
            "keeps its finalizer on the HostedEtcd",
            "stuck:",
            "deletes an etcd",
            "served without",
        ],
    },
    Fault {
        name: "acts before it has recorded",
        setup: Kind::Migration,
        build: |b| b.records_first = false,
        caught: &["acts before it has recorded"],
    },
    Fault {
        name: "forgets its notes",
        setup: Kind::Migration,
        build: |b| b.remembers = false,
        caught: &["failed for no reason", "went back without API servers"],
    },
];
