//! A seed that dies for good in a moment that matters, and what a person does then.

use super::{
    etcd::MEMBERS,
    world::{Case, World},
};
use crate::{
    flow::LedgerOf,
    ledger::Phase,
    migration::{MigrationFlow, Side, Step},
    tests::{
        classic::zone::is_in,
        sim::{Ledgers, NEVER},
    },
};

impl World {
    /// Whether nothing of a side runs any more.
    pub(super) fn is_dead(&self, side: Side) -> bool {
        match side {
            Side::Garden => false,
            Side::Source => self.dead_since.is_some(),
            Side::Destination => self.destination_dead_since.is_some(),
        }
    }

    /// Whether a side goes back without the destination.
    pub(super) fn is_destination_lost(&self, side: Side) -> bool {
        self.now >= self.lost_at && self.going_back.contains(&side)
    }

    /// The destination dies when members of it may have joined. A person confirms that, which aborts the migration as well.
    pub(super) fn run_death_of_destination(&mut self, ledgers: &Ledgers<World>) {
        let Some(ledger) = ledgers.get(&Side::Destination).filter(|_| self.case == Case::DestinationDies)
        else {
            return;
        };
        let is_near = ledger.is_started(Step::SixMemberEtcdReady) && !ledger.is_started(Step::MoveCommitted);
        let is_running = ledger.phase == Phase::Running;
        if self.destination_dead_since.is_none() && is_near && is_running && self.rng.percent(5) {
            self.destination_dead_since = Some(self.now);
            self.lost_at = self.now + self.rng.within(0, 3_000);
            self.abort_at = self.abort_at.min(self.lost_at);
            // The destination is the third side.
            self.faults.cut_off = Some((2, self.now, NEVER));
        }
        let back = ledgers.iter().filter(|(_, ledger)| ledger.phase.is_rollback());
        self.going_back.extend(back.map(|(side, _)| *side));
    }

    /// Whether somebody has created the forced migration, and not deleted it.
    pub(super) fn is_forced(&self) -> bool {
        self.now >= self.forced_at && !is_in(self.unforced, self.now)
    }

    /// The source dies in the moment in which no member can be removed without it. The forced migration supersedes this one some time
    /// after the destination has said that it goes back. Meanwhile somebody may delete it, and create another one.
    pub(super) fn run_death(&mut self, destination: Option<&LedgerOf<MigrationFlow>>) {
        let Some(ledger) = destination.filter(|_| self.case == Case::SourceDies) else { return };
        let is_whole = self.etcd.of(Side::Source) == MEMBERS as usize;
        if self.dead_since.is_none() && ledger.is_started(Step::MoveCommitted) && is_whole {
            self.dead_since = Some(self.now);
            self.forced_at = self.now + self.rng.within(0, 3_000);
            let deleted_at = self.forced_at + self.rng.within(0, 300);
            if self.rng.percent(40) {
                self.unforced = (deleted_at, deleted_at + self.rng.within(10, 900));
            }
            // The source is the second side.
            self.faults.cut_off = Some((1, self.now, NEVER));
        }
        self.is_superseded |= self.is_forced() && ledger.phase.is_rollback() && self.rng.percent(30);
    }
}
