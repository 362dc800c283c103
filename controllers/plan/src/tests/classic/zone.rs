//! The DNS zone: servers that do not answer, refuse writes, or answer differently for a while.

use crate::migration::{
    Side,
    observed::{OwnerId, OwnerRecord},
};

/// From when until when something lasts.
pub(super) type Window = (u64, u64);

pub(super) fn is_in(window: Window, now: u64) -> bool {
    (window.0..window.1).contains(&now)
}

/// The owner record and the record of the API.
#[derive(Clone, Debug)]
pub(super) struct Zone {
    owner: Option<OwnerId>,
    /// The highest epoch that was ever written in this migration.
    highest_epoch: u64,
    /// When all servers answer with the last write.
    owner_agreed_at: u64,
    api: Side,
    api_agreed_at: u64,
    /// How long servers differ after a write.
    pub(super) lag: u64,
    /// No server answers, or takes writes.
    pub(super) silent: Window,
    /// Servers answer, and refuse writes.
    pub(super) read_only: Window,
    /// A record was written whose epoch was not higher than all before it.
    pub(super) went_back: bool,
}

impl Zone {
    pub(super) fn new(owner: OwnerId) -> Self {
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

    pub(super) fn takes_writes(&self, now: u64) -> bool {
        !is_in(self.silent, now) && !is_in(self.read_only, now)
    }

    /// The record by the last write, whoever sees it.
    pub(super) fn owner(&self) -> Option<&OwnerId> {
        self.owner.as_ref()
    }

    /// What all servers answer; `None` where they differ, or do not answer.
    pub(super) fn answer(&self, now: u64) -> Option<&Option<OwnerId>> {
        let do_agree = now >= self.owner_agreed_at && !is_in(self.silent, now);
        do_agree.then_some(&self.owner)
    }

    /// Since when all servers give this answer.
    pub(super) fn answers_since(&self, now: u64) -> u64 {
        let silent_until = if self.silent.1 <= now { self.silent.1 } else { 0 };
        self.owner_agreed_at.max(silent_until)
    }

    pub(super) fn owner_record(&self, now: u64) -> OwnerRecord {
        match self.answer(now) {
            None => OwnerRecord::Unknown,
            Some(None) => OwnerRecord::Absent,
            Some(Some(owner)) => OwnerRecord::Present(owner.clone()),
        }
    }

    /// A record is replaced by one of a higher epoch only, if `guarded`; where there is none, any is written.
    pub(super) fn set_owner(&mut self, owner: &OwnerId, now: u64, guarded: bool) {
        let is_newer = self.owner.as_ref().is_none_or(|present| present.epoch < owner.epoch);
        if !self.takes_writes(now) || (guarded && !is_newer) || self.owner.as_ref() == Some(owner) {
            return;
        }
        self.went_back |= owner.epoch <= self.highest_epoch;
        self.highest_epoch = self.highest_epoch.max(owner.epoch);
        (self.owner, self.owner_agreed_at) = (Some(owner.clone()), now + self.lag);
    }

    pub(super) fn delete_owner(&mut self, owner: &OwnerId, now: u64) {
        if self.takes_writes(now) && self.owner.as_ref() == Some(owner) {
            (self.owner, self.owner_agreed_at) = (None, now + self.lag);
        }
    }

    /// Where the name of the API leads, by all servers.
    pub(super) fn api(&self) -> Side {
        self.api
    }

    pub(super) fn is_api_at(&self, side: Side, now: u64) -> bool {
        self.api == side && now >= self.api_agreed_at && !is_in(self.silent, now)
    }

    pub(super) fn switch_api(&mut self, side: Side, now: u64) {
        if self.takes_writes(now) && self.api != side {
            (self.api, self.api_agreed_at) = (side, now + self.lag);
        }
    }

    /// A server that a client asks: while they differ, it may be one that has not heard of the last write.
    pub(super) fn api_by_one_server(&self, now: u64, is_slow: bool) -> Side {
        match (now < self.api_agreed_at && is_slow, self.api) {
            (false, side) => side,
            (true, Side::Source) => Side::Destination,
            (true, _) => Side::Source,
        }
    }

    /// The sides change places: the next migration goes back.
    pub(super) fn swap_sides(&mut self) {
        self.api = if self.api == Side::Source { Side::Destination } else { Side::Source };
    }

    pub(super) fn begin(&mut self) {
        self.highest_epoch = self.owner.as_ref().map_or(0, |owner| owner.epoch);
    }
}
