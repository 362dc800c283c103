//! One simulated seed: workloads, an etcd whose members check the owner record, and extension controllers.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    migration::observed::{ExtensionOperation, Extensions, FinalSnapshot, OwnerId, Replicas, Workloads},
    tests::{rng::Rng, sim::NEVER},
};

/// Longest time for which a member may believe in an earlier owner record.
pub(super) const OWNER_WAIT: u64 = 90;

/// A workload whose Pods follow its replicas after a while.
#[derive(Clone, Debug, Default)]
pub(in crate::tests) struct Workload {
    /// Replicas that are wanted; `None` where it does not exist.
    pub(in crate::tests) wanted: Option<u32>,
    pub(in crate::tests) running: u32,
    change_at: u64,
    pub(in crate::tests) fence: String,
    pub(in crate::tests) version: u64,
    /// A Pod that should end runs on until then.
    pub(in crate::tests) stuck_until: u64,
}

impl Workload {
    pub(in crate::tests) fn of(replicas: u32) -> Self {
        Self { wanted: Some(replicas), running: replicas, version: 1, ..Self::default() }
    }

    pub(in crate::tests) fn set(&mut self, replicas: Option<u32>, fence: &str, now: u64, rng: &mut Rng) {
        if self.wanted != replicas {
            self.wanted = replicas;
            self.change_at = now + rng.within(1, 60);
        }
        fence.clone_into(&mut self.fence);
        self.version += 1;
    }

    pub(in crate::tests) fn advance(&mut self, now: u64) {
        if now >= self.change_at {
            let wanted = self.wanted.unwrap_or_default();
            let is_stuck = wanted < self.running && now < self.stuck_until;
            self.running = if is_stuck { wanted.max(1) } else { wanted };
        }
    }

    /// By a person, who sets no fence; what does not exist cannot be scaled.
    pub(in crate::tests) fn scale_by_hand(&mut self, replicas: u32, now: u64, rng: &mut Rng) {
        if self.wanted.is_some() {
            let fence = self.fence.clone();
            self.set(Some(replicas), &fence, now, rng);
        }
    }

    /// Its Pods end and come back.
    pub(in crate::tests) fn delete_pods(&mut self, now: u64, rng: &mut Rng) {
        if now >= self.stuck_until {
            self.running = 0;
            self.change_at = self.change_at.max(now + rng.within(5, 60));
        }
    }

    pub(in crate::tests) fn facts(&self, name: &str, ready: bool) -> Workloads {
        let wanted = self.wanted.map(|replicas| (name.to_owned(), replicas));
        Workloads {
            former: wanted.iter().cloned().collect(),
            wanted: wanted.into_iter().collect(),
            pods: self.running,
            ready: if ready { self.running } else { 0 },
            fence: self.fence.clone(),
        }
    }
}

/// Name of the simulated kube-controller-manager.
pub(in crate::tests) const KUBE_NAME: &str = "kube-controller-manager";

/// Two groups of workloads as one.
pub(in crate::tests) fn both(mut one: Workloads, other: Workloads) -> Workloads {
    if !other.wanted.is_empty() && one.fence != other.fence {
        one.fence.clear();
    }
    one.wanted.extend(other.wanted);
    one.former.extend(other.former);
    one.pods += other.pods;
    one.ready += other.ready;
    one
}

/// Replicas of the only workload of a group.
pub(in crate::tests) fn only(replicas: &Replicas) -> Option<u32> {
    replicas.values().next().copied()
}

/// Extension resources, whose controllers do what is requested after a while.
#[derive(Clone, Debug, Default)]
pub(in crate::tests) struct Requests {
    pub(in crate::tests) last: Option<ExtensionOperation>,
    /// An earlier migration has requested it: the resources name the migration.
    is_former: bool,
    done_at: u64,
    pub(in crate::tests) version: u64,
}

impl Requests {
    pub(in crate::tests) fn ask(&mut self, operation: ExtensionOperation, now: u64, rng: &mut Rng) {
        if self.is_former || self.last != Some(operation) {
            (self.last, self.is_former) = (Some(operation), false);
            self.done_at = now + rng.within(1, 120);
        }
        self.version += 1;
    }

    /// Another migration begins: what was requested so far does not count as its own.
    pub(super) fn begin(&mut self) {
        self.is_former = self.last.is_some();
    }

    /// The resources are deleted.
    pub(in crate::tests) fn clear(&mut self) {
        *self = Self { version: self.version + 1, ..Self::default() };
    }

    pub(in crate::tests) fn is_done(&self, operation: ExtensionOperation, now: u64) -> bool {
        self.last == Some(operation) && !self.is_former && now >= self.done_at
    }

    pub(in crate::tests) fn facts(&self, now: u64) -> Extensions {
        let pending = if now < self.done_at { vec!["extension".to_owned()] } else { Vec::new() };
        Extensions { requested: self.last.filter(|_| !self.is_former), pending }
    }
}

/// A final snapshot and what it holds.
pub(super) type Stored = (FinalSnapshot, Vec<u32>);

/// The members of one seed.
#[derive(Clone, Debug)]
pub(super) struct Etcd {
    pub(super) members: Workload,
    pub(super) volumes: String,
    pub(super) own: OwnerId,
    /// What each set of volumes holds.
    pub(super) data: BTreeMap<String, Vec<u32>>,
    /// Volumes that lost ownership.
    pub(super) lost: BTreeSet<String>,
    /// The owner record as the members saw it last, and when it changed behind their back.
    seen: Option<Option<OwnerId>>,
    outdated_since: u64,
    /// What empty volumes are filled with, once the members own the etcd.
    pub(super) fill: Option<Vec<u32>>,
    /// A final snapshot that is being stored, and when that is done.
    storing: Option<(u64, Stored)>,
    /// The members cannot serve before this time.
    pub(super) serves_at: u64,
    pub(super) serving: bool,
}

impl Etcd {
    pub(super) fn new(own: OwnerId) -> Self {
        Self {
            members: Workload::default(),
            volumes: String::new(),
            seen: None,
            own,
            data: BTreeMap::new(),
            lost: BTreeSet::new(),
            outdated_since: NEVER,
            fill: None,
            storing: None,
            serves_at: 0,
            serving: false,
        }
    }

    /// That of a control plane that serves.
    pub(super) fn running(own: OwnerId, replicas: u32, data: Vec<u32>) -> Self {
        let data = BTreeMap::from([("first".to_owned(), data)]);
        let members = Workload::of(replicas);
        Self { members, volumes: "first".into(), seen: Some(Some(own.clone())), data, ..Self::new(own) }
    }

    pub(super) fn content(&self) -> Option<&Vec<u32>> {
        self.data.get(&self.volumes)
    }

    fn look(&mut self, (record, since): (&Option<OwnerId>, u64), now: u64, rng: &mut Rng) {
        if self.seen.as_ref() != Some(record) && self.outdated_since == NEVER {
            self.outdated_since = since.min(now);
        }
        let is_late = self.outdated_since != NEVER && now - self.outdated_since >= OWNER_WAIT;
        if self.seen.is_none() || is_late || rng.percent(20) {
            (self.seen, self.outdated_since) = (Some(record.clone()), NEVER);
        }
    }

    /// Members look at the owner record, which all servers answer since a time, at the latest after [`OWNER_WAIT`]. One that was replaced ends their ownership for ever, with a
    /// final snapshot. While no server of the zone answers (`None`), they go by what they saw last.
    pub(super) fn advance(
        &mut self,
        record: Option<(&Option<OwnerId>, u64)>,
        now: u64,
        rng: &mut Rng,
    ) -> Option<Stored> {
        self.members.advance(now);
        if self.members.running == 0 {
            // Members that start look at the record before they do anything.
            (self.serving, self.seen, self.outdated_since) = (false, None, NEVER);
            return None;
        }
        if let Some(record) = record {
            self.look(record, now, rng);
        }
        // Members that have just started, and cannot ask, wait.
        let Some(seen) = &self.seen else {
            self.serving = false;
            return None;
        };
        let is_owner = seen.as_ref() == Some(&self.own);
        if let Some(fill) = self.fill.as_ref().filter(|_| is_owner && self.content().is_none()) {
            self.data.insert(self.volumes.clone(), fill.clone());
        }
        let was_owner = self.content().is_some();
        let ends = !is_owner && was_owner && !self.lost.contains(&self.volumes);
        if ends {
            self.lost.insert(self.volumes.clone());
        }
        let may_serve = is_owner && !self.lost.contains(&self.volumes) && now >= self.serves_at;
        self.serving = may_serve && self.content().is_some();
        if ends {
            let data = self.content().cloned().unwrap_or_default();
            let (epoch, revision) = (self.own.epoch, u64::try_from(data.len()).unwrap_or_default());
            let snapshot = FinalSnapshot { name: format!("final-{epoch}"), revision, epoch };
            self.storing = Some((now + rng.within(0, 60), (snapshot, data)));
        }
        self.storing.take_if(|(at, _)| now >= *at).map(|(_, stored)| stored)
    }
}

/// One seed.
#[derive(Clone, Debug)]
pub(super) struct SeedState {
    pub(super) controllers: Workload,
    /// kube-controller-manager and kube-scheduler of a destination.
    pub(super) kube_controllers: Workload,
    pub(super) api: Workload,
    pub(super) etcd: Etcd,
    pub(super) dns_records: Requests,
    pub(super) infrastructure: Requests,
    pub(super) extensions: Requests,
    pub(super) workers: Requests,
    /// Machine objects.
    pub(super) machines: BTreeSet<u32>,
    /// State that extension controllers store, such as that of terraform; it changes until they have migrated.
    pub(super) extension_state: u32,
    /// Whether there are objects of the Shoot, and how often they were deleted.
    pub(super) exists: bool,
    pub(super) version: u64,
    /// The API servers are not ready before this time.
    pub(super) api_ready_at: u64,
    /// The final snapshot in this side's bucket.
    pub(super) final_snapshot: Option<Stored>,
}

impl SeedState {
    pub(super) fn new(etcd: Etcd) -> Self {
        Self {
            controllers: Workload::default(),
            kube_controllers: Workload::default(),
            api: Workload::default(),
            etcd,
            dns_records: Requests::default(),
            infrastructure: Requests::default(),
            extensions: Requests::default(),
            workers: Requests::default(),
            machines: BTreeSet::new(),
            extension_state: 0,
            exists: false,
            version: 1,
            api_ready_at: 0,
            final_snapshot: None,
        }
    }

    pub(super) fn is_api_ready(&self, now: u64) -> bool {
        self.api.running > 0 && self.etcd.serving && now >= self.api_ready_at
    }

    /// What is left of the Shoot.
    pub(super) fn left(&self) -> Vec<String> {
        let pods = self.controllers.running
            + self.kube_controllers.running
            + self.api.running
            + self.etcd.members.running;
        if self.exists || pods > 0 { vec!["Namespace".to_owned()] } else { Vec::new() }
    }

    /// Everything of the Shoot is deleted, and so are the volumes of its etcd.
    pub(super) fn remove(&mut self, now: u64, rng: &mut Rng) {
        for workload in
            [&mut self.controllers, &mut self.kube_controllers, &mut self.api, &mut self.etcd.members]
        {
            workload.set(None, "", now, rng);
        }
        self.machines.clear();
        (self.etcd.fill, self.etcd.storing) = (None, None);
        self.etcd.data.clear();
        for requests in
            [&mut self.dns_records, &mut self.infrastructure, &mut self.extensions, &mut self.workers]
        {
            requests.clear();
        }
        self.exists = false;
        self.version += 1;
    }
}
