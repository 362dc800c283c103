//! What people, the provider and its controllers do in the clusters.

use super::world::{ALL, IN_ZONE, Seen, World};
use crate::{
    isolation::{
        effect::Effect,
        observed::{Asked, SubnetFacts},
    },
    tests::sim::NEVER,
};

impl World {
    pub(super) fn run_people(&mut self) {
        // They want the zone back, so they remove it again where it was set after they did so.
        let is_removed = self.now >= self.script.removed_at && self.rng.percent(10);
        if is_removed && self.annotation.take().is_some() {
            self.versions.shoot += 1;
        }
        if self.now >= self.script.machine_again_at && self.others == ALL && !self.is_shoot_deleting() {
            self.script.machine_again_at = NEVER;
            self.open += 1;
        }
        if self.now >= self.script.worker_edited_at && self.left_out.is_some() {
            self.script.worker_edited_at = NEVER;
            self.left_out = None;
            self.asked = Some(Asked::UseZone);
            self.grown_at = self.now;
            self.versions.worker += 1;
        }
        if self.now >= self.script.subnet_deleted_at && self.subnet == SubnetFacts::Ready {
            self.script.subnet_deleted_at = NEVER;
            self.subnet = SubnetFacts::Absent;
            self.versions.subnet += 1;
        }
    }

    /// The controller of the Worker lets other zones grow first, and then ends the machines of the zone.
    pub(super) fn run_worker(&mut self) {
        let leaves = self.asked == Some(Asked::LeaveZone) && self.now >= self.grown_at;
        let is_drained = leaves && self.in_zone() > 0;
        self.drained_since = is_drained.then(|| self.drained_since.unwrap_or(self.now));
        match self.asked {
            Some(Asked::LeaveZone) if self.now >= self.grown_at => {
                self.others = ALL;
                if self.now >= self.ended_at && self.script.drains && self.in_zone() > 0 {
                    (self.open, self.ours, self.by_person) = (0, 0, 0);
                    self.versions.nodes += 1;
                }
            }
            // Machines join through networks that are not cut off.
            Some(Asked::UseZone) if self.now >= self.grown_at && self.subnet == SubnetFacts::Absent => {
                // A request that is late names nodes that are not there any more.
                let joining = IN_ZONE.saturating_sub(self.in_zone());
                self.versions.nodes += u64::from(joining);
                self.open += joining;
                self.others = ALL - IN_ZONE;
            }
            _ => {}
        }
    }

    pub(super) fn run_subnet(&mut self) {
        if self.now < self.subnet_at {
            return;
        }
        match self.subnet {
            SubnetFacts::Pending(_) => self.subnet = SubnetFacts::Ready,
            SubnetFacts::Deleting(_) => self.subnet = SubnetFacts::Absent,
            SubnetFacts::Absent | SubnetFacts::Foreign(_) | SubnetFacts::Ready => {}
        }
    }

    fn ask(&mut self, left_out: Option<&str>, asked: Asked) {
        if self.left_out.as_deref() == left_out && self.asked == Some(asked) && self.in_zone() == 0 {
            return;
        }
        if self.asked != Some(asked) {
            // A provider may need an hour.
            let slow = if self.rng.percent(10) { 3_600 } else { 0 };
            self.grown_at = self.delay() + slow;
        }
        self.ended_at = self.grown_at.max(self.now) + self.rng.within(1, 300);
        self.left_out = left_out.map(str::to_owned);
        self.asked = Some(asked);
        self.versions.worker += 1;
    }

    pub(super) fn apply_to_seed(&mut self, effect: &Effect, may: impl Fn(fn(&Seen) -> u64) -> bool) {
        let answers = self.does_api_answer() && !self.script.is_hibernated;
        match effect {
            Effect::Cordon { .. } if may(|seen| seen.nodes) && answers => {
                self.ours += std::mem::take(&mut self.open);
                self.versions.nodes += 1;
            }
            Effect::Uncordon if may(|seen| seen.nodes) && answers => {
                self.open += std::mem::take(&mut self.ours);
                self.versions.nodes += 1;
            }
            Effect::LeaveZone { zone } if may(|seen| seen.worker) => self.ask(Some(zone), Asked::LeaveZone),
            Effect::UseZone if may(|seen| seen.worker) => self.ask(None, Asked::UseZone),
            Effect::ForceMachines { .. } => {
                // Machines that were ending when it was requested end all the same, whoever has taken the zone back since.
                if may(|seen| seen.worker) && self.others < ALL && self.asked != Some(Asked::UseZone) {
                    self.broken.get_or_insert("machines end before others have grown");
                }
                (self.open, self.ours, self.by_person) = (0, 0, 0);
            }
            Effect::IsolateSubnet { .. } if self.subnet == SubnetFacts::Absent && may(|seen| seen.subnet) => {
                self.subnet = SubnetFacts::Pending("it is being isolated".to_owned());
                self.subnet_at = self.delay();
                self.versions.subnet += 1;
            }
            Effect::ReleaseSubnet if matches!(self.subnet, SubnetFacts::Ready | SubnetFacts::Pending(_)) => {
                self.subnet = SubnetFacts::Deleting("it is being released".to_owned());
                self.subnet_at = self.delay();
                self.versions.subnet += 1;
            }
            _ => {}
        }
    }
}
