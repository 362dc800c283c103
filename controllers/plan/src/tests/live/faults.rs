//! What goes wrong in a schedule.

use super::world::{Case, World};
use crate::tests::{
    classic::zone::Window,
    sim::{FaultRates, NEVER},
};

/// What goes wrong, drawn at the start.
#[derive(Clone, Debug, Default)]
pub(super) struct DrawnFaults {
    /// The seeds do not reach each other.
    pub(super) link_cut: Window,
    pub(super) leases_stale_until: u64,
    /// The destination has no place for its members.
    pub(super) no_members_until: u64,
    /// Somebody aborts it when clients are led to the destination.
    pub(super) late_abort: bool,
    /// When a person gives the source up.
    pub(super) shrinks_at: u64,
    /// How often, in percent, something that is asked for does not answer.
    pub(super) flaps: u64,
}

impl World {
    fn draw_window(&mut self, chance: u64) -> Window {
        if !self.rng.percent(chance) {
            return (0, 0);
        }
        let from = self.now + self.rng.within(0, 1_200);
        (from, from + self.rng.within(10, 900))
    }

    pub(super) fn draw(&mut self) {
        let no_members_until = match self.rng.percent(10) {
            true => NEVER,
            false => self.draw_window(20).1,
        };
        self.trouble = DrawnFaults {
            link_cut: self.draw_window(20),
            leases_stale_until: self.draw_window(15).1,
            no_members_until,
            late_abort: self.rng.percent(20),
            shrinks_at: match self.case {
                Case::Near | Case::SourceDies | Case::DestinationDies | Case::DestinationDiesLate => NEVER,
                Case::Far => self.now + self.rng.within(0, 2_000),
            },
            flaps: if self.rng.percent(30) { 5 } else { 0 },
        };
        self.zone.silent = self.draw_window(10);
        self.zone.lag = if self.rng.percent(40) { self.rng.within(1, 60) } else { 0 };
        self.abort_at = if self.rng.percent(25) { self.now + self.rng.within(0, 1_500) } else { NEVER };
        let mut rate = |most| self.rng.within(0, most);
        self.faults = FaultRates {
            crash: rate(20),
            lost_write: rate(20),
            lost_effect: rate(20),
            late: rate(30),
            latest: 1_800,
            twice: rate(20),
            stale: rate(40),
            cut_off: None,
        };
    }
}
