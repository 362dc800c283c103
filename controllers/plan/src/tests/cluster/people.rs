//! What people do meanwhile: they steer, scale, steal the lock, and delete the HostedEtcd or its whole namespace.

use repot_apimachinery::time::Time;

use super::{Truth, old_set};
use crate::etcd::{
    EtcdLedger, Step,
    observed::{Api, Cluster, Lock},
};

impl Truth {
    /// The operator, another workflow, and somebody who scales the API servers.
    pub(super) fn run_people(&mut self, ledger: &EtcdLedger) {
        let (trouble, now) = (self.trouble.clone(), self.now);
        self.request.cancel |= now >= trouble.cancel_at;
        if now >= trouble.delete_at && self.request.deleting.is_none() {
            self.request.deleting = Some(Time(now));
        }
        self.object_gone |= self.request.deleting.is_some() && !self.request.finalizer;
        self.request.paused = trouble.pause.is_some_and(|(from, to)| (from..to).contains(&now));
        if matches!(self.lock, Lock::Other(_)) && now >= trouble.rival_until {
            self.lock = Lock::Free;
            // Whoever gives the lock back takes the finalizer off first.
            self.released_by_hand |= std::mem::take(&mut self.cluster_finalizer);
            self.hosted_version = self.version();
        }
        if trouble.theft.is_some_and(|(from, _)| now >= from) && self.lock == Lock::Ours {
            self.lock = Lock::Other("EtcdBackup thief".into());
            self.trouble.rival_until = self.trouble.theft.take().map_or(0, |(_, to)| to);
            self.hosted_version = self.version();
        }
        // Between the stop of the API servers and the deletion of the etcd.
        let open = ledger.state(Step::ApiDown) == crate::ledger::State::Succeeded
            && self.sts.as_ref().is_some_and(|sts| sts.deployed.volumes == old_set());
        if self.trouble.intruder && open && ledger.phase == crate::ledger::Phase::Running {
            let replicas = match self.intruded {
                0 if self.rng.percent(15) => 1,
                1 if self.rng.percent(70) => 0,
                _ => return,
            };
            self.intruded += 1;
            let fence = self.api.fence.clone();
            self.set_api(replicas, &fence);
            self.api_change_at = now;
        }
    }

    /// The HostedEtcd goes when no finalizer is left on it. That of the workflow may be removed by hand.
    pub(super) fn run_deletion(&mut self) {
        let (trouble, now) = (self.trouble.clone(), self.now);
        if now >= trouble.cluster_gone_at && self.cluster == Cluster::Present {
            self.cluster = Cluster::Deleting;
            self.hosted_version = self.version();
            if trouble.with_namespace {
                self.delete_namespace();
            }
        }
        if self.cluster_finalizer && trouble.released_by_hand_at.is_some_and(|at| now >= at) {
            (self.cluster_finalizer, self.released_by_hand) = (false, true);
            self.hosted_version = self.version();
        }
        let is_kept = self.cluster_finalizer || now < trouble.kept_until;
        if self.cluster == Cluster::Deleting && !is_kept {
            (self.cluster, self.lock) = (Cluster::Gone, Lock::Free);
            self.hosted_version = self.version();
        }
    }

    /// Everything goes that has no finalizer, volumes too.
    fn delete_namespace(&mut self) {
        self.namespace_deleted = true;
        self.request.deleting.get_or_insert(Time(self.now));
        let (generation, fence) = (self.api.generation, self.api.fence.clone());
        self.api = Api { exists: false, wanted: 0, pods: 0, ready: 0, generation, fence };
        self.api_version = self.version();
        (self.etcd_declared, self.sts) = (false, None);
        self.volumes.clear();
        let gone_at = self.now + self.rng.within(1, 60);
        self.pods.values_mut().for_each(|pods| pods.gone_at = Some(gone_at));
    }
}
