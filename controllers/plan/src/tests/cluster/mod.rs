//! The truth: what API server, StatefulSet, volumes, store and HostedEtcd are, and how they change by themselves and by effects.

mod effects;
mod model;
mod people;
mod trouble;

use std::collections::BTreeMap;

use repot_apimachinery::time::Time;
use repot_etcd_core::{
    backups::{Backup, Taking, Verifying},
    digest::Digest,
    snapshot::Revision,
    volumes::VolumeSet,
};

use super::{rng::Rng, sim};
use crate::etcd::{
    EtcdLedger,
    observed::{Api, Cluster, Deployed, Lock, Observed, Request, Settings, Source, Targets, Wanted},
};

pub(super) use model::{Kind, sound};
pub(super) use trouble::calm;

pub(super) const UID: &str = "uid-1";
pub(super) const REPLICAS: u32 = 2;
pub(super) const NEVER: u64 = u64::MAX;

/// What an etcd or a backup holds: writes in their order, and how many keys with leases have ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Data {
    pub(super) writes: Vec<u32>,
    pub(super) ended: u32,
}

impl Data {
    fn digest(&self) -> Digest {
        let hash =
            self.writes.iter().fold(7_u64, |hash, w| hash.wrapping_mul(31).wrapping_add(u64::from(*w)));
        let keys = self.writes.len();
        Digest {
            revision: Revision(i64::try_from(keys).expect("few") + i64::from(self.ended)),
            keys: keys as u64,
            hash: format!("{hash:x}"),
        }
    }
}

#[derive(Clone, Debug)]
pub(super) struct Store {
    pub(super) data: Option<Data>,
    pub(super) taking: Taking,
    pub(super) verifying: Verifying,
    pub(super) taken_at: u64,
    pub(super) verified_at: Option<u64>,
    pub(super) owner: String,
    pub(super) begun: u64,
}

#[derive(Clone, Debug)]
pub(super) struct Sts {
    pub(super) deployed: Deployed,
    pub(super) from: Option<String>,
    pub(super) version: u64,
}

/// Pods of one set of volumes.
#[derive(Clone, Debug)]
pub(super) struct Pods {
    pub(super) count: u32,
    pub(super) ready_at: u64,
    /// When they are gone, once their StatefulSet is.
    pub(super) gone_at: Option<u64>,
}

/// What goes wrong in this world.
#[derive(Clone, Debug, Default)]
pub(super) struct FaultRates {
    pub(super) calm: bool,
    pub(super) controllers: sim::FaultRates,
    pub(super) backup_fails: u64,
    pub(super) corrupt: u64,
    pub(super) wrong_restore: bool,
    pub(super) no_room: bool,
    pub(super) api_never_up: bool,
    pub(super) old_never_up: bool,
    pub(super) api_lingers: u64,
    pub(super) members_linger: u64,
    pub(super) quorum_lost: Option<(u64, u64)>,
    pub(super) intruder: bool,
    pub(super) cancel_at: u64,
    pub(super) delete_at: u64,
    pub(super) pause: Option<(u64, u64)>,
    pub(super) rival_until: u64,
    /// When somebody takes the lock away from whoever has it, and gives it back.
    pub(super) theft: Option<(u64, u64)>,
    /// When somebody deletes the HostedEtcd.
    pub(super) cluster_gone_at: u64,
    /// Until when somebody else's finalizer keeps it.
    pub(super) kept_until: u64,
    /// When somebody removes the workflow's finalizer from it.
    pub(super) released_by_hand_at: Option<u64>,
    /// Whether it is deleted together with its namespace.
    pub(super) with_namespace: bool,
}

/// The versions of objects that a decision was made on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Versions {
    api: u64,
    sts: Option<u64>,
    hosted: u64,
}

pub(super) struct Truth {
    pub(super) rng: Rng,
    pub(super) now: u64,
    pub(super) trouble: FaultRates,
    pub(super) versions: u64,
    pub(super) api: Api,
    api_version: u64,
    api_change_at: u64,
    api_ready_at: u64,
    pub(super) sts: Option<Sts>,
    pub(super) pods: BTreeMap<VolumeSet, Pods>,
    pub(super) volumes: BTreeMap<VolumeSet, Data>,
    pub(super) store: BTreeMap<String, Store>,
    pub(super) cluster: Cluster,
    pub(super) cluster_finalizer: bool,
    pub(super) released_by_hand: bool,
    pub(super) namespace_deleted: bool,
    etcd_declared: bool,
    pub(super) lock: Lock,
    pub(super) settings: Settings,
    hosted_version: u64,
    pub(super) request: Request,
    /// What another store holds, from which a restore can be asked for.
    pub(super) elsewhere: Option<Data>,
    pub(super) object_gone: bool,
    /// Whatever was acknowledged and has to be there.
    pub(super) must: Vec<u32>,
    writes: u32,
    names: u64,
    intruded: u32,
    /// What the real world did that it must never do.
    pub(super) broken: Option<&'static str>,
}

pub(super) fn old_settings() -> Settings {
    Settings { replicas: 3, size: "10Gi".into(), storage_class: "slow".into() }
}

pub(super) fn old_set() -> VolumeSet {
    VolumeSet("data".into())
}

impl Truth {
    pub(super) fn with(mut rng: Rng, trouble: FaultRates) -> Self {
        let writes: Vec<u32> = (1..=u32::try_from(rng.within(1, 5)).expect("few")).collect();
        let data = Data { writes: writes.clone(), ended: 0 };
        let deployed = Deployed { volumes: old_set(), settings: old_settings(), fence: String::new() };
        let pods = Pods { count: 3, ready_at: 0, gone_at: None };
        let rival = trouble.rival_until > 0;
        Self {
            rng,
            now: 1_000_000,
            versions: 10,
            api: Api {
                exists: true,
                wanted: REPLICAS,
                pods: REPLICAS,
                ready: REPLICAS,
                generation: 4,
                fence: String::new(),
            },
            api_version: 1,
            api_change_at: 0,
            api_ready_at: 0,
            sts: Some(Sts { deployed, from: None, version: 2 }),
            pods: BTreeMap::from([(old_set(), pods)]),
            volumes: BTreeMap::from([(old_set(), data)]),
            store: BTreeMap::new(),
            cluster: Cluster::Present,
            cluster_finalizer: false,
            released_by_hand: false,
            namespace_deleted: false,
            etcd_declared: true,
            lock: if rival { Lock::Other("EtcdBackup rival".into()) } else { Lock::Free },
            settings: old_settings(),
            hosted_version: 3,
            request: Request {
                uid: UID.into(),
                step_timeout: std::time::Duration::from_secs(600),
                settings: Wanted { storage_class: Some("fast".into()), ..Wanted::default() },
                ..Request::default()
            },
            elsewhere: None,
            object_gone: false,
            writes: writes.len() as u32,
            must: writes,
            names: 0,
            intruded: 0,
            broken: None,
            trouble,
        }
    }

    /// A sound backup from before, which a restore can name; what came after it is in the old etcd alone.
    pub(super) fn add_backup(&mut self, name: &str) {
        let data = self.volumes[&old_set()].clone();
        let corrupt = self.rng.percent(self.trouble.corrupt);
        let store = Store {
            data: (!corrupt).then_some(data),
            taking: Taking::Stored,
            verifying: Verifying::Open,
            taken_at: 0,
            verified_at: None,
            owner: "another".into(),
            begun: 5,
        };
        self.store.insert(name.into(), store);
        self.request.source = Some(Source::Named(name.into()));
        for _ in 0..3 {
            self.write(&old_set());
        }
    }

    /// The same in a store that is not the etcd's own.
    pub(super) fn add_store(&mut self) {
        self.elsewhere = Some(self.volumes[&old_set()].clone());
        self.request.source = Some(Source::Store { trouble: None });
        for _ in 0..3 {
            self.write(&old_set());
        }
    }

    fn version(&mut self) -> u64 {
        self.versions += 1;
        self.versions
    }

    fn has_quorum(&self, set: &VolumeSet) -> bool {
        let lost = self.trouble.quorum_lost.is_some_and(|(from, to)| (from..to).contains(&self.now));
        let dead = self.trouble.old_never_up
            && *set == old_set()
            && self.sts.as_ref().is_some_and(|sts| !sts.deployed.fence.is_empty());
        let up = self.pods.get(set).is_some_and(|pods| pods.ready_at <= self.now);
        up && !lost && !dead && self.volumes.contains_key(set)
    }

    /// The set whose members answer.
    pub(super) fn serving(&self) -> Option<&VolumeSet> {
        let set = &self.sts.as_ref()?.deployed.volumes;
        self.has_quorum(set).then_some(set)
    }

    pub(super) fn look(&mut self) -> (Observed, Versions) {
        self.names += 1;
        self.request.fresh_name = format!("n-{}", self.names);
        let deployed = self.sts.as_ref().map(|sts| sts.deployed.clone());
        let serving = self.serving().cloned();
        let backup = |s: &Store| Backup {
            owner: s.owner.clone(),
            time: Time(s.begun),
            taking: s.taking.clone(),
            verifying: s.verifying.clone(),
        };
        let world = Observed {
            request: self.request.clone(),
            cluster: self.cluster,
            targets: Targets { etcd: "main".into(), api: "kube-apiserver".into() },
            cluster_finalizer: self.cluster_finalizer,
            etcd_declared: self.etcd_declared,
            lock: self.lock.clone(),
            settings: self.settings.clone(),
            api: self.api.clone(),
            pods: self.pods.iter().map(|(set, pods)| (set.clone(), pods.count)).collect(),
            ready: serving.as_ref().map_or(0, |_| deployed.as_ref().map_or(0, |d| d.settings.replicas)),
            serving: serving.and_then(|set| self.volumes.get(&set)).map(Data::digest),
            etcd: deployed,
            volumes: self.volumes.keys().cloned().collect(),
            backups: self.store.iter().map(|(name, s)| (name.clone(), backup(s))).collect(),
        };
        let sts = self.sts.as_ref().map(|sts| sts.version);
        (world, Versions { api: self.api_version, sts, hosted: self.hosted_version })
    }

    fn write(&mut self, set: &VolumeSet) {
        self.writes += 1;
        let Some(data) = self.volumes.get_mut(set) else { return };
        // Whoever acknowledges a write has to know all that was acknowledged before.
        if data.writes != self.must {
            self.broken.get_or_insert("served without what was acknowledged before");
        }
        data.writes.push(self.writes);
        self.must.push(self.writes);
    }

    /// Time goes by.
    pub(super) fn pass(&mut self, ledger: &EtcdLedger) {
        self.now += if self.rng.percent(10) { 300 } else { self.rng.within(1, 20) };
        self.run_api();
        self.run_members();
        self.run_store();
        self.run_people(ledger);
        self.run_deletion();
        self.run_clients();
    }

    fn run_api(&mut self) {
        if self.api.pods != self.api.wanted && self.now >= self.api_change_at {
            self.api.pods = self.api.wanted;
        }
        let blocked = self.trouble.api_never_up && !self.api.fence.is_empty();
        let up = self.now >= self.api_ready_at && !blocked && self.serving().is_some();
        self.api.ready = if up { self.api.pods } else { 0 };
    }

    fn run_members(&mut self) {
        let now = self.now;
        self.pods.retain(|_, pods| pods.gone_at.is_none_or(|at| at > now));
        let Some(sts) = self.sts.clone() else { return };
        let (set, count) = (sts.deployed.volumes, sts.deployed.settings.replicas);
        if !self.pods.contains_key(&set) && (set == old_set() || !self.trouble.no_room) {
            let ready_at = now + self.rng.within(10, 200);
            self.pods.insert(set.clone(), Pods { count, ready_at, gone_at: None });
        }
        if !self.volumes.contains_key(&set) && self.pods.contains_key(&set) {
            let backup = sts.from.as_ref().and_then(|name| self.store.get(name));
            let mut data = backup.and_then(|store| store.data.clone()).unwrap_or_default();
            if self.trouble.wrong_restore {
                data.writes.pop();
            }
            self.volumes.insert(set.clone(), data);
        }
        if let Some(pods) = self.pods.get_mut(&set) {
            pods.gone_at = None;
            pods.count = count;
        }
    }

    fn run_store(&mut self) {
        let (fails, corrupt, now) = (self.trouble.backup_fails, self.trouble.corrupt, self.now);
        for store in self.store.values_mut() {
            let times = match &store.taking {
                Taking::Failed(times, _) => *times,
                Taking::Running | Taking::Stored => 0,
            };
            if store.taking != Taking::Stored && store.taken_at <= now && store.taken_at > 0 {
                store.taken_at = 0;
                store.taking = Taking::Stored;
                if self.rng.percent(fails) {
                    store.taking = Taking::Failed(times + 1, "the store has no room".into());
                } else if self.rng.percent(corrupt) {
                    store.data = None;
                }
            }
            if store.verified_at.is_some_and(|at| at <= now) {
                let damaged = || Verifying::Corrupt("the hash differs".into());
                store.verifying =
                    store.data.as_ref().map_or_else(damaged, |data| Verifying::Sound(data.digest()));
            }
        }
    }

    fn run_clients(&mut self) {
        let running: Vec<VolumeSet> =
            self.pods.iter().filter(|(set, _)| self.has_quorum(set)).map(|(set, _)| set.clone()).collect();
        if running.len() > 1 {
            self.broken.get_or_insert("two etcds could be written");
        }
        for set in running {
            if self.rng.percent(20) {
                self.volumes.get_mut(&set).into_iter().for_each(|data| data.ended += 1);
            }
            if self.api.pods > 0 && self.rng.percent(60) {
                self.write(&set);
            }
        }
    }
}
