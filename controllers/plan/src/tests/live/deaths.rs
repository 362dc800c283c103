//! A seed that dies for good in a moment that matters, and what a person does then.

use std::collections::BTreeSet;

use super::{
    etcd::MEMBERS,
    world::{Case, World},
};
use crate::{
    flow::LedgerOf,
    ledger::Phase,
    migration::{MigrationFlow, Side, Step},
    tests::{
        classic::zone::{Window, is_in},
        sim::{Ledgers, NEVER},
    },
};

/// Which seed is dead, and what was done about it.
pub(super) struct Deaths {
    /// Since when the source is dead.
    pub(super) source_since: Option<u64>,
    /// Since when the destination is dead.
    pub(super) destination_since: Option<u64>,
    /// When a person confirms that the destination is lost, and which sides are on their way back.
    lost_at: u64,
    going_back: BTreeSet<Side>,
    /// When the forced migration is created, and when it is deleted for a while.
    forced_at: u64,
    unforced: Window,
    /// The controller of the destination comes back when another migration goes on.
    pub(super) comes_back: bool,
    /// The forced migration goes on in place of this one, from the same source.
    pub(super) is_superseded: bool,
    /// The forced migration goes on from the destination of this one.
    pub(super) is_continued: bool,
}

impl Default for Deaths {
    fn default() -> Self {
        Self {
            source_since: None,
            destination_since: None,
            lost_at: NEVER,
            going_back: BTreeSet::new(),
            forced_at: NEVER,
            unforced: (0, 0),
            comes_back: false,
            is_superseded: false,
            is_continued: false,
        }
    }
}

impl World {
    /// Whether nothing of a side runs any more.
    pub(super) fn is_dead(&self, side: Side) -> bool {
        match side {
            Side::Garden => false,
            Side::Source => self.deaths.source_since.is_some(),
            Side::Destination => self.deaths.destination_since.is_some(),
        }
    }

    /// Whether a side goes back without the destination.
    pub(super) fn is_destination_lost(&self, side: Side) -> bool {
        self.now >= self.deaths.lost_at && self.deaths.going_back.contains(&side)
    }

    /// Whether somebody has done what lets a migration go back although its point of no return is passed.
    pub(super) fn may_give_way(&self) -> bool {
        let is_source_given_up = self.deaths.source_since.is_some() && self.now >= self.deaths.forced_at;
        is_source_given_up || (self.deaths.destination_since.is_some() && self.now >= self.deaths.lost_at)
    }

    /// The destination dies when members of it may have joined, or later. A person confirms that, which aborts the migration as well where
    /// it can be aborted.
    pub(super) fn run_death_of_destination(&mut self, ledgers: &Ledgers<World>) {
        let is_late = self.case == Case::DestinationDiesLate;
        let Some(ledger) =
            ledgers.get(&Side::Destination).filter(|_| is_late || self.case == Case::DestinationDies)
        else {
            return;
        };
        let is_committed = ledger.is_started(Step::MoveCommitted);
        let is_near = ledger.is_started(Step::SixMemberEtcdReady) && is_committed == is_late;
        let is_running = ledger.phase == Phase::Running;
        if self.deaths.destination_since.is_none() && is_near && is_running && self.rng.percent(5) {
            self.deaths.destination_since = Some(self.now);
            self.deaths.lost_at = self.now + self.rng.within(0, 3_000);
            self.abort_at = self.abort_at.min(self.deaths.lost_at);
            // The destination is the third side.
            self.faults.cut_off = Some((2, self.now, NEVER));
        }
        let back = ledgers.iter().filter(|(_, ledger)| ledger.phase.is_rollback());
        self.deaths.going_back.extend(back.map(|(side, _)| *side));
        if is_late {
            self.force_without_destination(ledgers);
        }
    }

    /// Some time after a person has confirmed that the destination is lost, a forced migration begins: from the source until the bucket
    /// of the destination has a snapshot, and from the destination when the garden names it and the source has stored its last state.
    fn force_without_destination(&mut self, ledgers: &Ledgers<World>) {
        if self.now < self.deaths.lost_at || self.deaths.is_superseded || !self.rng.percent(30) {
            return;
        }
        let of = |side| ledgers.get(&side);
        let is_reached = |side, step| of(side).is_some_and(|ledger| ledger.is_settled(step));
        let is_moving = of(Side::Garden).is_some_and(|ledger| ledger.is_started(Step::StatusMoved));
        let is_moved = is_reached(Side::Garden, Step::StatusMoved);
        let is_stored = is_reached(Side::Source, Step::MigratedStateSynced);
        self.deaths.is_superseded = !is_moving && !is_reached(Side::Destination, Step::SnapshotStored);
        self.deaths.is_continued |= is_moved && is_stored;
        if self.deaths.is_superseded && self.rng.percent(50) {
            // Its controller comes back after all. What ran there has lost ownership.
            let until = self.now + self.rng.within(10, 2_000);
            self.faults.cut_off = self.faults.cut_off.map(|(side, from, _)| (side, from, until));
            self.deaths.comes_back = true;
        }
    }

    /// Whether somebody has created the forced migration, and not deleted it.
    pub(super) fn is_forced(&self) -> bool {
        self.now >= self.deaths.forced_at && !is_in(self.deaths.unforced, self.now)
    }

    /// The source dies in the moment in which no member can be removed without it. The forced migration supersedes this one some time
    /// after the destination has said that it goes back. Meanwhile somebody may delete it, and create another one.
    pub(super) fn run_death(&mut self, destination: Option<&LedgerOf<MigrationFlow>>) {
        let Some(ledger) = destination.filter(|_| self.case == Case::SourceDies) else { return };
        let is_whole = self.etcd.of(Side::Source) == MEMBERS as usize;
        if self.deaths.source_since.is_none() && ledger.is_started(Step::MoveCommitted) && is_whole {
            self.deaths.source_since = Some(self.now);
            self.deaths.forced_at = self.now + self.rng.within(0, 3_000);
            let deleted_at = self.deaths.forced_at + self.rng.within(0, 300);
            if self.rng.percent(40) {
                self.deaths.unforced = (deleted_at, deleted_at + self.rng.within(10, 900));
            }
            // The source is the second side.
            self.faults.cut_off = Some((1, self.now, NEVER));
        }
        let gives_way = self.is_forced() && ledger.phase.is_rollback();
        self.deaths.is_superseded |= gives_way && self.rng.percent(30);
    }
}
