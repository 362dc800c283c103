//! One etcd with members in two seeds, and what the operators of both do with it: one change of membership at a time.

use std::collections::BTreeMap;

use crate::{
    migration::{Side, observed::Joining},
    tests::{classic::site::Workload, rng::Rng},
};

/// Members of each seed.
pub(super) const MEMBERS: u32 = 3;
/// Voters of the destination while those of the source are there: the etcd has an odd number of them.
const VOTERS_BESIDE_SOURCE: usize = 2;

/// The Etcd of one seed.
#[derive(Clone, Debug, Default)]
pub(super) struct EtcdObject {
    /// `spec.replicas`; `None` where there is no Etcd.
    pub(super) replicas: Option<u32>,
    pub(super) pods: Workload,
    pub(super) volumes: String,
    pub(super) epoch: u64,
    pub(super) fence: String,
    /// Whether `bootstrapWithExistingCluster` is set, and whether it ever was.
    pub(super) joins: bool,
    pub(super) has_joined: bool,
    /// Whether members are to be removed that are none of this Etcd.
    pub(super) removes_lost: bool,
    /// Whether members are known by addresses that other seeds reach, and when they run so.
    pub(super) is_exposed: bool,
    pub(super) settled_at: u64,
    /// Since when the Services and DNS names of the members exist, and when other seeds reach them.
    pub(super) exposure: Option<u64>,
    pub(super) version: u64,
}

impl EtcdObject {
    pub(super) fn expose(&mut self, now: u64, rng: &mut Rng) {
        match self.exposure {
            None => self.exposure = Some(now + rng.within(1, 60)),
            Some(reached_at) if now >= reached_at && !self.is_exposed => {
                (self.is_exposed, self.settled_at) = (true, now + rng.within(5, 120));
            }
            Some(_) => {}
        }
    }

    pub(super) fn hide(&mut self, now: u64, rng: &mut Rng) {
        if self.is_exposed {
            (self.is_exposed, self.settled_at) = (false, now + rng.within(5, 120));
        } else if now >= self.settled_at {
            self.exposure = None;
        }
    }
}

/// Members by seed and place, and whether they vote.
#[derive(Clone, Debug)]
pub(super) struct SharedEtcd {
    pub(super) members: BTreeMap<(Side, u32), bool>,
    pub(super) content: Vec<u32>,
    change_at: u64,
}

impl SharedEtcd {
    pub(super) fn new(content: Vec<u32>) -> Self {
        let members = (0..MEMBERS).map(|at| ((Side::Source, at), true)).collect();
        Self { members, content, change_at: 0 }
    }

    /// How many members of a side are in the etcd.
    pub(super) fn of(&self, side: Side) -> usize {
        self.members.keys().filter(|(of, _)| *of == side).count()
    }

    fn voters(&self, side: Side) -> usize {
        self.members.iter().filter(|((of, _), votes)| *of == side && **votes).count()
    }

    fn voters_up(&self, side: Side, pods: u32) -> usize {
        let up = self.members.iter().filter(|((of, at), votes)| *of == side && **votes && *at < pods);
        up.count()
    }

    /// Whether members of a side are part of a quorum: `pods` of the source and of the destination run.
    pub(super) fn serves(&self, side: Side, pods: (u32, u32), is_cut: bool) -> bool {
        let of = |one: Side| if one == Side::Source { pods.0 } else { pods.1 };
        let other = if side == Side::Source { Side::Destination } else { Side::Source };
        let own = self.voters_up(side, of(side));
        let far = if is_cut { 0 } else { self.voters_up(other, of(other)) };
        let all = self.voters(Side::Source) + self.voters(Side::Destination);
        own > 0 && 2 * (own + far) > all
    }

    pub(super) fn joining(&self, etcd: &EtcdObject) -> Joining {
        let is_whole = self.of(Side::Destination) == MEMBERS as usize;
        match (etcd.has_joined && is_whole, self.of(Side::Source)) {
            (true, 0) => Joining::Released,
            (true, _) => Joining::Joined,
            (false, _) => Joining::Apart,
        }
    }

    /// One change by the operator of the destination, if one is due.
    pub(super) fn run_operator(&mut self, etcd: &EtcdObject, has_quorum: bool, now: u64, rng: &mut Rng) {
        if now < self.change_at || !has_quorum || !etcd.has_joined {
            return;
        }
        self.change_at = now + rng.within(3, 40);
        let wanted = etcd.replicas.unwrap_or_default();
        if wanted == 0 {
            // Without members here the others stay as they were.
            if self.of(Side::Source) > 0
                && let Some(last) = self.last(Side::Destination)
            {
                self.members.remove(&last);
            }
            return;
        }
        let (own, running) = (self.of(Side::Destination), etcd.pods.running);
        if own < wanted as usize && running as usize > own {
            let place = u32::try_from(own).unwrap_or_default();
            self.members.insert((Side::Destination, place), false);
            return;
        }
        let most =
            if etcd.joins && self.of(Side::Source) > 0 { VOTERS_BESIDE_SOURCE } else { MEMBERS as usize };
        let is_learner = |(place, votes): &(&(Side, u32), &bool)| place.0 == Side::Destination && !**votes;
        let learner = self.members.iter().find(is_learner).map(|(place, _)| *place);
        let may_vote = self.voters_up(Side::Destination, MEMBERS) < most;
        if let Some(place) = learner.filter(|_| may_vote) {
            self.members.insert(place, true);
            return;
        }
        if !etcd.joins
            && let Some(last) = self.last(Side::Source)
        {
            self.members.remove(&last);
        }
    }

    /// One member of a destination that never comes back is removed by the operator of the source, if a change is due.
    pub(super) fn remove_lost(&mut self, now: u64, rng: &mut Rng) {
        if now < self.change_at {
            return;
        }
        self.change_at = now + rng.within(3, 40);
        if let Some(last) = self.last(Side::Destination) {
            self.members.remove(&last);
        }
    }

    fn last(&self, side: Side) -> Option<(Side, u32)> {
        self.members.keys().filter(|(of, _)| *of == side).max().copied()
    }
}
