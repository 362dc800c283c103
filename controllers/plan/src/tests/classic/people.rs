//! People, nodes and extension controllers that interfere.

use super::clusters::Clusters;
use crate::{migration::Side, tests::rng::Rng};

/// What somebody does in the middle of a migration.
#[derive(Clone, Copy, Debug)]
pub(super) enum Interference {
    /// Controllers of the source are scaled by hand.
    ScaleControllers(u32),
    /// API servers of a side are scaled by hand.
    ScaleApi(Side, u32),
    /// The etcd of a side is scaled by hand.
    ScaleEtcd(Side, u32),
    /// All Pods of a side are deleted, as by a drain.
    DeletePods(Side),
    /// The namespace at the destination is deleted.
    DeleteNamespace,
    /// The TTL of the record of the API is changed.
    ChangeTtl(u64),
    /// The Shoot is hibernated, or woken up.
    Hibernate,
}

/// What happens when, in this order.
pub(super) fn draw(rng: &mut Rng, start: u64) -> Vec<(u64, Interference)> {
    let mut times: Vec<u64> = (0..rng.within(1, 4)).map(|_| start + rng.within(0, 3_500)).collect();
    times.sort_unstable_by(|one, other| other.cmp(one));
    times.into_iter().map(|at| (at, draw_one(rng))).collect()
}

fn draw_one(rng: &mut Rng) -> Interference {
    let side = if rng.percent(50) { Side::Source } else { Side::Destination };
    let replicas = u32::try_from(rng.within(0, 3)).unwrap_or_default();
    match rng.within(0, 8) {
        0 | 1 => Interference::ScaleControllers(replicas),
        2 => Interference::ScaleApi(side, replicas),
        3 => Interference::ScaleEtcd(side, replicas),
        4 | 5 => Interference::DeletePods(side),
        6 => Interference::DeleteNamespace,
        7 => Interference::ChangeTtl(rng.within(5, 300)),
        _ => Interference::Hibernate,
    }
}

/// What of the source people have set, so that it is as they want it and not as it was.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SetByHand {
    pub(super) controllers: bool,
    pub(super) api: bool,
    pub(super) etcd: bool,
    pub(super) ttl: bool,
    pub(super) destination: bool,
    pub(super) namespace: bool,
}

impl Clusters {
    /// What is due of the interference.
    pub(super) fn run_people(&mut self, is_begun: bool, is_committed: bool) {
        while self.trouble.interference.last().is_some_and(|(at, _)| *at <= self.now) {
            let Some((_, what)) = self.trouble.interference.pop() else { return };
            // gardenlet carries out what is asked of it while the migration waits for its turn.
            if is_begun || !matches!(what, Interference::Hibernate) {
                self.interfere(what, is_committed);
            }
        }
    }

    fn interfere(&mut self, what: Interference, is_committed: bool) {
        let now = self.now;
        let mut rng = Rng::new(self.rng.next());
        self.note_hand(what);
        self.interfered.push((now, what));
        match what {
            Interference::ScaleControllers(replicas) => {
                self.source.controllers.scale_by_hand(replicas, now, &mut rng);
            }
            Interference::ScaleApi(side, replicas) => {
                self.site_mut(side).api.scale_by_hand(replicas, now, &mut rng);
            }
            Interference::ScaleEtcd(side, replicas) => {
                self.site_mut(side).etcd.members.scale_by_hand(replicas, now, &mut rng);
            }
            Interference::DeletePods(side) => {
                let site = self.site_mut(side);
                for workload in [&mut site.controllers, &mut site.api, &mut site.etcd.members] {
                    workload.delete_pods(now, &mut rng);
                }
            }
            // From the commit on the destination holds what nobody else has.
            Interference::DeleteNamespace if !is_committed && self.destination.exists => {
                self.destination.remove(now, &mut rng);
                self.standby = false;
            }
            Interference::DeleteNamespace => {}
            Interference::ChangeTtl(ttl) => self.api_ttl = ttl,
            // What the migration is about is recorded by then.
            Interference::Hibernate => self.is_hibernation_changed |= self.finalizer,
        }
    }

    fn note_hand(&mut self, what: Interference) {
        let by_hand = &mut self.by_hand;
        match what {
            Interference::ScaleControllers(_) => by_hand.controllers = true,
            Interference::ScaleApi(Side::Source, _) => by_hand.api = true,
            Interference::ScaleEtcd(Side::Source, _) => by_hand.etcd = true,
            Interference::ChangeTtl(_) => by_hand.ttl = true,
            Interference::ScaleApi(..) | Interference::ScaleEtcd(..) => by_hand.destination = true,
            Interference::DeleteNamespace => by_hand.namespace = true,
            Interference::DeletePods(_) | Interference::Hibernate => {}
        }
    }
}
