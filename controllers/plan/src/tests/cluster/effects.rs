//! How effects change the truth.

use repot_etcd_core::{
    backups::{Taking, Verifying},
    volumes::VolumeSet,
};

use super::{Store, Sts, Truth, UID, Versions};
use crate::etcd::{
    effect::Effect,
    observed::{Cluster, Deployed, Lock},
};

impl Truth {
    /// Whether a decision on these versions may still change things: an actor that does not look at versions always may.
    pub(in crate::tests) fn change(&mut self, effect: &Effect, seen: &Versions, guarded: bool) {
        let api = self.api.exists && (!guarded || seen.api == self.api_version);
        let hosted = self.cluster != Cluster::Gone && (!guarded || seen.hosted == self.hosted_version);
        let sts = self.etcd_declared && (!guarded || seen.sts == self.sts.as_ref().map(|sts| sts.version));
        match effect {
            Effect::EnsureFinalizer { present } => {
                if !*present || self.request.deleting.is_none() {
                    self.request.finalizer = *present;
                }
            }
            Effect::EnsureClusterFinalizer { present } if hosted => {
                // One that is being deleted takes no finalizer any more.
                if !*present || self.cluster == Cluster::Present {
                    self.cluster_finalizer = *present;
                    self.hosted_version = self.version();
                }
            }
            Effect::EnsureLock { held } if hosted => self.set_lock(*held),
            Effect::EnsureApi { replicas, fence } if api => self.set_api(*replicas, fence),
            Effect::EnsureBackup { name } => self.begin_backup(name),
            Effect::EnsureVerified { name } => self.begin_verification(name),
            Effect::EnsureEtcd { volumes, settings, from, fence } if sts => {
                let deployed =
                    Deployed { volumes: volumes.clone(), settings: settings.clone(), fence: fence.clone() };
                self.set_etcd(deployed, from.clone());
            }
            Effect::EnsureNoEtcd { volumes } if sts => self.delete_etcd(volumes),
            Effect::EnsureSettings { settings } if hosted => {
                self.settings = settings.clone();
                self.hosted_version = self.version();
            }
            Effect::EnsureNoVolumes { volumes } => {
                if !self.pods.contains_key(volumes) {
                    self.volumes.remove(volumes);
                }
            }
            Effect::EnsureNoBackups { names } => names.iter().for_each(|name| drop(self.store.remove(name))),
            Effect::EnsureClusterFinalizer { .. }
            | Effect::EnsureLock { .. }
            | Effect::EnsureApi { .. }
            | Effect::EnsureEtcd { .. }
            | Effect::EnsureNoEtcd { .. }
            | Effect::EnsureSettings { .. } => {}
        }
    }

    fn set_lock(&mut self, held: bool) {
        match (&self.lock, held) {
            (Lock::Free, true) => self.lock = Lock::Ours,
            (Lock::Ours, false) => self.lock = Lock::Free,
            _ => return,
        }
        self.hosted_version = self.version();
    }

    pub(super) fn set_api(&mut self, replicas: u32, fence: &str) {
        if self.api.wanted != replicas {
            self.api.generation += 1;
            self.api.wanted = replicas;
            let ending = self.rng.within(1, 60) + self.trouble.api_lingers;
            self.api_change_at = self.now + if replicas == 0 { ending } else { 0 };
            self.api_ready_at = self.now + self.rng.within(5, 60);
        }
        fence.clone_into(&mut self.api.fence);
        self.api_version = self.version();
    }

    fn begin_backup(&mut self, name: &str) {
        // Of another store it is copied, whatever the etcd does.
        let own = self.serving().map(|set| self.volumes[set].clone());
        let Some(data) = self.elsewhere.clone().or(own) else { return };
        let (taken_at, data) = (self.now + self.rng.within(5, 200), Some(data));
        match self.store.get_mut(name) {
            None => {
                let store = Store {
                    data,
                    taking: Taking::Running,
                    verifying: Verifying::Open,
                    taken_at,
                    verified_at: None,
                    owner: UID.into(),
                    begun: self.now,
                };
                self.store.insert(name.to_owned(), store);
            }
            Some(store) if matches!(store.taking, Taking::Failed(..)) => {
                store.data = data;
                store.taken_at = taken_at;
            }
            Some(_) => {}
        }
    }

    fn begin_verification(&mut self, name: &str) {
        let at = self.now + self.rng.within(5, 100);
        if let Some(store) = self.store.get_mut(name).filter(|store| store.taking == Taking::Stored) {
            store.verified_at.get_or_insert(at);
        }
    }

    fn set_etcd(&mut self, deployed: Deployed, from: Option<String>) {
        let version = self.version();
        match &mut self.sts {
            Some(sts) if sts.deployed.volumes != deployed.volumes => {}
            Some(sts) if sts.deployed == deployed => {}
            Some(sts) => (sts.deployed, sts.version) = (deployed, version),
            None => self.sts = Some(Sts { deployed, from, version }),
        }
    }

    fn delete_etcd(&mut self, volumes: &VolumeSet) {
        if self.sts.as_ref().is_some_and(|sts| sts.deployed.volumes == *volumes) {
            self.sts = None;
            let gone_at = self.now + self.rng.within(1, 60) + self.trouble.members_linger;
            if let Some(pods) = self.pods.get_mut(volumes) {
                pods.gone_at = Some(gone_at);
            }
        }
    }
}
