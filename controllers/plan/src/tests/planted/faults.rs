//! The faults, as changes of the tables and of the controller.

use super::{Fault, at, back_row, row, sound, tables};
use crate::{
    etcd::{effect::Effect, restore},
    flow::{Otherwise, Patience, Plan, Proof},
    ledger::Check,
    tests::sim::Kind,
};

fn met() -> Check {
    Check::Met("supposed".into())
}

/// All of them.
pub(super) const FAULTS: &[Fault] = &[
    Fault {
        name: "takes spec.replicas for API servers that have ended",
        kind: Kind::Migration,
        build: |b| {
            row(b, "ApiDown", |row| {
                row.check = |scene| if scene.world.api.wanted == 0 { met() } else { sound("ApiDown", scene) };
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
        kind: Kind::Migration,
        build: |b| {
            row(b, "ApiDown", |row| {
                row.met = |_, _| {};
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
        kind: Kind::Migration,
        build: |b| row(b, "ApiDown", |row| row.proof = Proof::Latched),
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
        kind: Kind::Migration,
        build: |b| {
            tables(b, |forward, _| {
                let down = forward.remove(at(forward, "ApiDown"));
                // Compared with what the etcd holds, it would be found out.
                let after = at(forward, "BackupVerified");
                forward[after].check = restore::PLAN.forward[2].check;
                forward.insert(after + 1, down);
            });
        },
        caught: &["deletes an etcd without a backup of all of it"],
    },
    Fault {
        name: "trusts a backup that nobody has read",
        kind: Kind::Migration,
        build: |b| {
            row(b, "BackupVerified", |row| {
                row.check = |_| met();
                row.met = |world, notes| notes.proof.clone_from(&world.serving);
            });
        },
        caught: &["deletes an etcd without a backup of all of it", "failed for no reason"],
    },
    Fault {
        name: "verifies the backup of a restore after the deletion",
        kind: Kind::Restore,
        build: |b| {
            tables(b, |forward, _| {
                let verified = forward.remove(at(forward, "BackupVerified"));
                let after = at(forward, "EtcdDeleted") + 1;
                forward.insert(after, verified);
            });
        },
        caught: &["deletes an etcd without a backup of all of it"],
    },
    Fault {
        name: "starts the new etcd beside members that nobody can reach",
        kind: Kind::Migration,
        build: |b| {
            row(b, "EtcdDeleted", |row| {
                row.check =
                    |scene| if scene.world.etcd.is_none() { met() } else { sound("EtcdDeleted", scene) };
            });
            row(b, "EtcdRestored", |row| {
                row.effects = |scene| {
                    let (settings, fence) =
                        (scene.world.settings.clone(), format!("{}/forward", scene.world.request.uid));
                    let from = scene.notes.backup.clone();
                    let new = scene.notes.new.iter();
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
        kind: Kind::Migration,
        build: |b| row(b, "ProvedEqual", |row| row.check = |_| met()),
        caught: &[
            "deletes the old volumes before the new ones serve",
            "served without what was acknowledged before",
            "deletes the last good copy",
        ],
    },
    Fault {
        name: "starts API servers on a restored etcd that has proved nothing",
        kind: Kind::Restore,
        build: |b| row(b, "ProvedEqual", |row| row.check = |_| met()),
        caught: &["restored something else"],
    },
    Fault {
        name: "compares nothing but revisions, which leases move",
        kind: Kind::Migration,
        build: |b| {
            row(b, "ProvedEqual", |row| {
                row.check = |scene| match (&scene.world.serving, &scene.notes.proof) {
                    (Some(etcd), Some(proof)) if etcd.revision == proof.revision => met(),
                    (None, _) => Check::waiting("EtcdUnwell", "no quorum"),
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
        kind: Kind::Migration,
        build: |b| {
            tables(b, |forward, _| {
                let mut release = forward.remove(at(forward, "OldVolumesReleased"));
                release.effects = |scene| {
                    scene
                        .notes
                        .old
                        .iter()
                        .map(|(set, _)| Effect::EnsureNoVolumes { volumes: set.clone() })
                        .collect()
                };
                let before = at(forward, "EtcdRestored");
                forward.insert(before, release);
            });
        },
        caught: &["deletes the old volumes before the new ones serve"],
    },
    Fault {
        name: "deletes the old volumes together with their etcd",
        kind: Kind::Migration,
        build: |b| {
            row(b, "EtcdDeleted", |row| {
                row.effects = |scene| {
                    let old = scene.notes.old.iter().map(|(set, _)| set.clone());
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
        kind: Kind::Migration,
        build: |b| {
            back_row(b, "NewVolumesReleased", |row| {
                row.effects = |scene| {
                    scene
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
        kind: Kind::Migration,
        build: |b| {
            row(b, "ApiUp", |row| row.otherwise = Otherwise::TurnBack);
            b.plan = Box::leak(Box::new(Plan { no_return: None, ..*b.plan }));
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
        kind: Kind::Migration,
        build: |b| {
            back_row(b, "OldEtcdUp", |row| {
                row.check = |scene| match &scene.world.etcd {
                    Some(etcd) if scene.notes.old.as_ref().is_some_and(|(old, _)| *old == etcd.volumes) => {
                        met()
                    }
                    _ => sound("OldEtcdUp", scene),
                };
            });
            back_row(b, "ApiUpAgain", |row| {
                row.check = |scene| {
                    if scene.notes.api_replicas.is_none_or(|replicas| replicas == scene.world.api.wanted) {
                        met()
                    } else {
                        sound("ApiUpAgain", scene)
                    }
                };
            });
        },
        caught: &["went back to no etcd", "went back without API servers"],
    },
    Fault {
        name: "notes how many API servers there were after stopping them",
        kind: Kind::Migration,
        build: |b| {
            row(b, "ApiDown", |row| {
                row.begin = |_, _| {};
                row.met = |world, notes| {
                    notes.api_replicas.get_or_insert(world.api.wanted);
                    notes.api_generation.get_or_insert(world.api.generation);
                };
            });
        },
        caught: &["left API servers stopped", "went back without API servers"],
    },
    Fault {
        name: "begins without the lock",
        kind: Kind::Migration,
        build: |b| {
            row(b, "LockTaken", |row| row.check = |_| met());
        },
        caught: &["acts without the lock"],
    },
    Fault {
        name: "takes another one's lock for its own",
        kind: Kind::Backup,
        build: |b| {
            row(b, "LockTaken", |row| {
                row.check =
                    |scene| if scene.world.request.finalizer { met() } else { sound("LockTaken", scene) };
            });
        },
        caught: &["acts without the lock"],
    },
    Fault {
        name: "takes the lock once and never looks again",
        kind: Kind::Migration,
        build: |b| row(b, "LockTaken", |row| row.proof = Proof::Latched),
        caught: &["acts without the lock"],
    },
    Fault {
        name: "waits for a restore without end",
        kind: Kind::Migration,
        build: |b| row(b, "EtcdRestored", |row| row.patience = Patience::Hours(1_000_000)),
        caught: &["stuck in Running"],
    },
    Fault {
        name: "makes up another name of the backup in each pass",
        kind: Kind::Migration,
        build: |b| {
            row(b, "BackupTaken", |row| {
                row.effects =
                    |scene| vec![Effect::EnsureBackup { name: scene.world.request.fresh_name.clone() }];
            });
        },
        caught: &["failed for no reason"],
    },
    Fault {
        name: "waits without a word",
        kind: Kind::Migration,
        build: |b| {
            row(b, "EtcdRestored", |row| {
                row.advice = "";
                row.check = |scene| match sound("EtcdRestored", scene) {
                    Check::Waiting(_) => Check::waiting("", ""),
                    other => other,
                };
            });
        },
        caught: &["waits without a reason"],
    },
    Fault {
        name: "leaves the new settings behind on the way back",
        kind: Kind::Migration,
        build: |b| tables(b, |_, back| back.retain(|row| row.step != "SettingsPutBack")),
        caught: &["left the new settings"],
    },
    Fault {
        name: "leaves the new etcd in the way",
        kind: Kind::Migration,
        build: |b| tables(b, |_, back| back.retain(|row| row.step != "NewEtcdGone")),
        caught: &["gave up although there was a way"],
    },
    Fault {
        name: "acts whatever has become of what it saw",
        kind: Kind::Migration,
        build: |b| b.guarded = false,
        caught: &[
            "went back to no etcd",
            "went back without API servers",
            "left API servers stopped",
            "left the new settings",
            "keeps the lock",
            "keeps its finalizer on the HostedEtcd",
            "stuck in",
            "deletes an etcd",
            "served without",
        ],
    },
    Fault {
        name: "acts before it has recorded",
        kind: Kind::Migration,
        build: |b| b.records_first = false,
        caught: &["acts before it has recorded"],
    },
    Fault {
        name: "forgets its notes",
        kind: Kind::Migration,
        build: |b| b.remembers = false,
        caught: &["failed for no reason", "went back without API servers"],
    },
];
