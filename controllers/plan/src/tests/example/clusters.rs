//! Two fake clusters, a bucket and a record: what the flow changes, and what happens by itself.

use super::flow::{Effect, LEASE, Mode, Move, Observed, Side};
use crate::{
    flow::{Abort, Decision},
    tests::{
        example::rules,
        rng::Rng,
        sim::{FaultRates, Ledgers, Model, NEVER, Sim},
    },
};

/// How many writers there are before the move.
pub(super) const WRITERS: u32 = 2;

/// Versions of the objects that a decision was made on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen {
    writers: u64,
    copy: u64,
}

pub(super) struct Clusters {
    rng: Rng,
    pub(super) mode: Mode,
    pub(super) now: u64,
    pub(super) trouble: FaultRates,
    pub(super) is_calm: bool,
    abort_at: u64,
    /// The copy never becomes ready.
    pub(super) no_room: bool,
    /// The server of the destination starts only then.
    pub(super) server_starts_at: u64,
    is_large: bool,
    /// Writers of the source: wanted, running, and who set the number.
    pub(super) writers: (u32, u32, &'static str),
    writers_change_at: u64,
    versions: Seen,
    pub(super) data: Vec<u32>,
    pub(super) is_released: bool,
    bucket: Vec<u32>,
    pub(super) owner: (Side, u64),
    /// Until when the source may believe that it is the owner.
    lease_until: u64,
    pub(super) copy: Option<Vec<u32>>,
    pub(super) server: bool,
    /// All that was acknowledged and has to be there.
    pub(super) must: Vec<u32>,
    /// What the clusters did that they must never do.
    pub(super) broken: Option<&'static str>,
}

impl Clusters {
    fn does_source_serve(&self) -> bool {
        let is_alive = self.writers.1 > 0 && !self.is_released;
        is_alive && (self.owner.0 == Side::Source || self.now < self.lease_until)
    }

    pub(super) fn does_destination_serve(&self) -> bool {
        self.server && self.now >= self.server_starts_at
    }

    fn run_clients(&mut self) {
        let (source, destination) = (self.does_source_serve(), self.does_destination_serve());
        if source && destination {
            self.broken.get_or_insert("two sides could be written");
        }
        if !(source || destination) || !self.rng.percent(60) {
            return;
        }
        let data = if source { Some(&mut self.data) } else { self.copy.as_mut() };
        let Some(data) = data else { return };
        // Whoever acknowledges a write has to know all that was acknowledged before.
        if *data != self.must {
            self.broken.get_or_insert("served without what was acknowledged before");
        }
        let write = self.must.last().copied().unwrap_or_default() + 1;
        data.push(write);
        self.must.push(write);
    }

    fn set_writers(&mut self, count: u32, fence: &'static str) {
        if self.writers.0 != count {
            self.writers.0 = count;
            self.writers_change_at = self.now + self.rng.within(1, 60);
        }
        self.writers.2 = fence;
        self.versions.writers += 1;
    }

    fn set_copy(&mut self, copy: Option<Vec<u32>>) {
        self.copy = copy;
        self.versions.copy += 1;
    }

    fn set_owner(&mut self, owner: (Side, u64), guarded: bool) {
        // A record of an earlier epoch is refused.
        if guarded && owner.1 <= self.owner.1 {
            return;
        }
        if self.owner.0 == Side::Source && owner.0 == Side::Destination {
            self.lease_until = self.now + LEASE.as_secs();
        }
        self.owner = owner;
    }

    fn start_server(&mut self) {
        if !self.server && self.mode == Mode::Forced {
            // What the dead source did not export is given up, from this moment on.
            self.must = self.copy.clone().unwrap_or_default();
        }
        self.server_starts_at =
            if self.server { self.server_starts_at } else { self.now.max(self.server_starts_at) };
        self.server = true;
    }
}

impl Model for Clusters {
    type Flow = Move;
    type Setup = Mode;
    type Seen = Seen;

    fn new(mode: Mode, mut rng: Rng) -> Self {
        let is_calm = rng.percent(10);
        let mut trouble = FaultRates::default();
        if !is_calm {
            trouble = FaultRates {
                crash: rng.within(0, 20),
                lost_write: rng.within(0, 20),
                lost_effect: rng.within(0, 20),
                late: rng.within(0, 30),
                latest: 900,
                twice: rng.within(0, 20),
                stale: rng.within(0, 40),
                cut_off: None,
            };
            let from = 1_000 + rng.within(0, 1_500);
            if rng.percent(30) {
                let until = if rng.percent(20) { NEVER } else { from + rng.within(60, 5_000) };
                trouble.cut_off = Some((usize::from(rng.percent(50)), from, until));
            }
        }
        if mode == Mode::Forced {
            trouble.cut_off = Some((0, 0, NEVER));
        }
        let unless_calm = |rng: &mut Rng, chance| !is_calm && rng.percent(chance);
        let abort_at = if unless_calm(&mut rng, 25) { 1_000 + rng.within(0, 2_500) } else { NEVER };
        let no_room = unless_calm(&mut rng, 10);
        let server_starts_at = if unless_calm(&mut rng, 10) { 1_000 + rng.within(0, 6_000) } else { 0 };
        let is_large = rng.percent(50);
        Self {
            rng,
            mode,
            now: 1_000,
            trouble,
            is_calm,
            abort_at,
            no_room,
            server_starts_at,
            is_large,
            writers: (WRITERS, WRITERS, "user"),
            writers_change_at: 0,
            versions: Seen { writers: 1, copy: 1 },
            data: vec![1, 2],
            is_released: false,
            bucket: vec![1],
            owner: (Side::Source, 1),
            lease_until: NEVER,
            copy: None,
            server: false,
            must: vec![1, 2],
            broken: None,
        }
    }

    fn trouble(&self) -> &FaultRates {
        &self.trouble
    }

    fn now(&self) -> u64 {
        self.now
    }

    fn is_gone(&self) -> bool {
        false
    }

    fn advance(&mut self, _: &Ledgers<Self>) {
        self.now += if self.rng.percent(5) { 120 } else { self.rng.within(1, 20) };
        if self.writers.0 != self.writers.1 && self.now >= self.writers_change_at {
            self.writers.1 = self.writers.0;
        }
        // Backups go on by themselves, and are always a bit behind.
        if self.does_source_serve() && self.rng.percent(30) {
            self.bucket.clone_from(&self.data);
        }
        self.run_clients();
    }

    fn observe(&mut self, side: Side) -> (Observed, Seen) {
        let is_complete = self.bucket == self.data;
        let exported = match (side, self.mode) {
            (Side::Source, _) => is_complete.then_some(self.bucket.len()),
            (Side::Destination, _) => Some(self.bucket.len()),
        };
        let observed = Observed {
            mode: self.mode,
            abort: if self.now >= self.abort_at { Abort::Abort } else { Abort::None },
            is_abort_locked: false,
            is_large: self.is_large,
            writers: (self.writers.0, self.writers.1, self.writers.2.to_owned()),
            owner: Some(self.owner),
            exported,
            copied: self.copy.as_ref().map(Vec::len).filter(|_| !self.no_room || side == Side::Source),
            serves: self.does_destination_serve(),
            is_released: self.is_released,
        };
        (observed, self.versions)
    }

    fn apply(&mut self, _: Side, effect: &Effect, seen: &Seen, guarded: bool) {
        let may_write = !guarded || seen.writers == self.versions.writers;
        let may_copy = !guarded || seen.copy == self.versions.copy;
        match effect {
            Effect::Writers { count, fence } if may_write => self.set_writers(*count, fence),
            Effect::Export => self.bucket.clone_from(&self.data),
            Effect::WarmCopy | Effect::Copy if may_copy && !self.server => {
                self.set_copy(Some(self.bucket.clone()));
            }
            Effect::NoCopy if may_copy && !self.server => self.set_copy(None),
            Effect::Owner { side, epoch } => self.set_owner((*side, *epoch), guarded),
            Effect::Server => self.start_server(),
            Effect::Released => self.is_released = true,
            Effect::Writers { .. } | Effect::WarmCopy | Effect::Copy | Effect::NoCopy => {}
        }
    }

    fn check_decision(
        sim: &Sim<Self>,
        _: Side,
        _: &Observed,
        decision: &Decision<Move>,
    ) -> Result<(), String> {
        rules::decision(&sim.model, decision)
    }

    fn check(sim: &mut Sim<Self>) -> Result<(), String> {
        sim.model.broken.map_or(Ok(()), |broken| Err(broken.to_owned()))
    }

    fn check_end(sim: &Sim<Self>) -> Result<(), String> {
        rules::at_the_end(sim)
    }

    fn end(sim: &Sim<Self>) -> String {
        let ledger = sim.store.ledger(Side::Destination);
        let version = if ledger.version > 1 { " by version 2" } else { "" };
        format!("{:?} {:?}{version}", sim.build.setup, ledger.phase)
    }
}
