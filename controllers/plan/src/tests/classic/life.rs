//! Time goes by in the simulated clusters: Pods, members, clients, extension controllers and machine controllers.

use super::{clusters::Clusters, zone::is_in};
use crate::{
    migration::{Side, observed::ExtensionOperation},
    tests::rng::Rng,
};

impl Clusters {
    fn break_rule(&mut self, rule: &'static str) {
        self.broken.get_or_insert(rule);
    }

    pub(super) fn run_sites(&mut self) {
        self.run_standby();
        let (record, since) = (self.zone.answer(self.now).cloned(), self.zone.answers_since(self.now));
        for side in [Side::Source, Side::Destination] {
            let now = self.now;
            let mut rng = Rng::new(self.rng.next());
            let site = self.site_mut(side);
            site.controllers.advance(now);
            site.kube_controllers.advance(now);
            site.api.advance(now);
            let taken = site.etcd.advance(record.as_ref().map(|record| (record, since)), now, &mut rng);
            site.final_snapshot = taken.or(site.final_snapshot.take());
        }
        if self.source.etcd.serving && self.destination.etcd.serving {
            self.break_rule("members of two sides could be written");
        }
        let (source, destination) = (&self.source, &self.destination);
        let are_two = source.controllers.running > 0 && destination.controllers.running > 0;
        if are_two || source.kube_controllers.running > 0 && destination.kube_controllers.running > 0 {
            self.break_rule("controllers of two sides act");
        }
        let are_stale = self.is_awake() && self.has_workers() && self.now < self.trouble.leases_stale_until;
        if self.destination.kube_controllers.running > 0 && are_stale {
            self.break_rule("nodes are taken for lost");
        }
    }

    /// A standby has what ends the epoch before its own as soon as it reads that in the bucket of the source, and founds the etcd by itself
    /// when the record names it.
    fn run_standby(&mut self) {
        let is_cut = is_in(self.trouble.bucket_cut, self.now);
        let etcd = &mut self.destination.etcd;
        if self.standby && !is_cut && etcd.fill.is_none() {
            let ended = self.source.final_snapshot.as_ref();
            let ended = ended.filter(|(snapshot, _)| snapshot.epoch + 1 == etcd.own.epoch);
            etcd.fill = ended.map(|(_, data)| data.clone());
        }
    }

    pub(super) fn run_clients(&mut self) {
        if self.now >= self.client.1 {
            let is_slow = self.rng.percent(50);
            self.client = (self.zone.api_by_one_server(self.now, is_slow), self.now + self.api_ttl);
        }
        let (side, now) = (self.client.0, self.now);
        if !self.site(side).is_api_ready(now) || !self.rng.percent(60) {
            return;
        }
        let (next, must) = (self.must.last().copied().unwrap_or_default() + 1, self.must.clone());
        let site = self.site_mut(side);
        let volumes = site.etcd.volumes.clone();
        let Some(data) = site.etcd.data.get_mut(&volumes) else { return };
        // Whoever acknowledges a write has to know all that was acknowledged before.
        let knows_all = *data == must;
        data.push(next);
        self.must.push(next);
        if !knows_all {
            self.break_rule("served without what was acknowledged before");
        }
    }

    /// Extension controllers reconcile, and store another state, until they have migrated.
    pub(super) fn run_extensions(&mut self) {
        let has_migrated = self.source.extensions.is_done(ExtensionOperation::Migrate, self.now);
        if self.source.exists && !has_migrated && self.rng.percent(3) {
            self.source.extension_state += 1;
        }
    }

    /// Machine controllers make VMs, and delete those that they know nothing of.
    pub(super) fn run_machines(&mut self) {
        for side in [Side::Source, Side::Destination] {
            if self.site(side).controllers.running == 0 || !self.has_workers() {
                continue;
            }
            if self.site(side).machines != self.vms {
                self.break_rule("a VM without a Machine was deleted, or a Machine got another VM");
            }
            // One that an extension controller starts alone makes no Machines by itself.
            let are_all = self.site(side).controllers.running > 1;
            if are_all && self.rng.percent(5) && self.site(side).is_api_ready(self.now) {
                self.next_vm += 1;
                let vm = self.next_vm;
                self.vms.insert(vm);
                self.site_mut(side).machines.insert(vm);
            }
        }
    }
}
