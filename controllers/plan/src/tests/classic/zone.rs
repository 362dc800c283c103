//! The DNS zone: servers that do not answer, refuse writes, or answer differently for a while.

use crate::migration::{
    Side,
    observed::{OwnerId, OwnerRecord},
};

/// From when until when something lasts.
pub(in crate::tests) type Window = (u64, u64);

pub(in crate::tests) fn is_in(window: Window, now: u64) -> bool {
    (window.0..window.1).contains(&now)
}

/// The owner record and the record of the API.
#[derive(Clone, Debug)]
pub(in crate::tests) struct Zone {
    owner: Option<OwnerId>,
    /// The highest epoch that was ever written in this migration.
    highest_epoch: u64,
    /// When all servers answer with the last write.
    owner_agreed_at: u64,
    api: Side,
    api_agreed_at: u64,
    /// How long servers differ after a write.
    pub(in crate::tests) lag: u64,
    /// No server answers, or takes writes.
    pub(in crate::tests) silent: Window,
    /// Servers answer, and refuse writes.
    pub(in crate::tests) read_only: Window,
    /// A record was written whose epoch was not higher than all before it.
    pub(in crate::tests) went_back: bool,
}

impl Zone {
    pub(in crate::tests) fn new(owner: OwnerId) -> Self {
        Self {
            highest_epoch: owner.epoch,
            owner: Some(owner),
            owner_agreed_at: 0,
            api: Side::Source,
            api_agreed_at: 0,
            lag: 0,
            silent: (0, 0),
            read_only: (0, 0),
            went_back: false,
        }
    }

    pub(in crate::tests) fn takes_writes(&self, now: u64) -> bool {
        !is_in(self.silent, now) && !is_in(self.read_only, now)
    }

    /// The record by the last write, whoever sees it.
    pub(in crate::tests) fn owner(&self) -> Option<&OwnerId> {
        self.owner.as_ref()
    }

    /// What all servers answer; `None` where they differ, or do not answer.
    pub(in crate::tests) fn answer(&self, now: u64) -> Option<&Option<OwnerId>> {
        let do_agree = now >= self.owner_agreed_at && !is_in(self.silent, now);
        do_agree.then_some(&self.owner)
    }

    /// Since when all servers give this answer.
    pub(in crate::tests) fn answers_since(&self, now: u64) -> u64 {
        let silent_until = if self.silent.1 <= now { self.silent.1 } else { 0 };
        self.owner_agreed_at.max(silent_until)
    }

    pub(in crate::tests) fn owner_record(&self, now: u64) -> OwnerRecord {
        match self.answer(now) {
            None => OwnerRecord::Unknown,
            Some(None) => OwnerRecord::Absent,
            Some(Some(owner)) => OwnerRecord::Present(owner.clone()),
        }
    }

    /// A record is replaced by one of a higher epoch only, if `guarded`; where there is none, any is written.
    pub(in crate::tests) fn set_owner(&mut self, owner: &OwnerId, now: u64, guarded: bool) {
        let is_newer = self.owner.as_ref().is_none_or(|present| present.epoch < owner.epoch);
        if !self.takes_writes(now) || (guarded && !is_newer) || self.owner.as_ref() == Some(owner) {
            return;
        }
        self.went_back |= owner.epoch <= self.highest_epoch;
        self.highest_epoch = self.highest_epoch.max(owner.epoch);
        (self.owner, self.owner_agreed_at) = (Some(owner.clone()), now + self.lag);
    }

    pub(in crate::tests) fn delete_owner(&mut self, owner: &OwnerId, now: u64) {
        if self.takes_writes(now) && self.owner.as_ref() == Some(owner) {
            (self.owner, self.owner_agreed_at) = (None, now + self.lag);
        }
    }

    /// Where the name of the API leads, by all servers.
    pub(in crate::tests) fn api(&self) -> Side {
        self.api
    }

    pub(in crate::tests) fn is_api_at(&self, side: Side, now: u64) -> bool {
        self.api == side && now >= self.api_agreed_at && !is_in(self.silent, now)
    }

    pub(in crate::tests) fn switch_api(&mut self, side: Side, now: u64) {
        if self.takes_writes(now) && self.api != side {
            (self.api, self.api_agreed_at) = (side, now + self.lag);
        }
    }

    /// A server that a client asks: while they differ, it may be one that has not heard of the last write.
    pub(in crate::tests) fn api_by_one_server(&self, now: u64, is_slow: bool) -> Side {
        match (now < self.api_agreed_at && is_slow, self.api) {
            (false, side) => side,
            (true, Side::Source) => Side::Destination,
            (true, _) => Side::Source,
        }
    }

    /// The sides change places: the next migration goes back.
    pub(in crate::tests) fn swap_sides(&mut self) {
        self.api = if self.api == Side::Source { Side::Destination } else { Side::Source };
    }

    pub(in crate::tests) fn begin(&mut self) {
        self.highest_epoch = self.owner.as_ref().map_or(0, |owner| owner.epoch);
    }
}
