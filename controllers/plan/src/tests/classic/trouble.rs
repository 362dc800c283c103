//! What goes wrong in a schedule: everything is drawn when a migration begins.

use super::{
    clusters::Clusters,
    people::{self, Interference},
    zone::Window,
};
use crate::{
    migration::{Side, observed::Ignored},
    tests::{
        rng::Rng,
        sim::{FaultRates, NEVER},
    },
};

/// Waits that never end, or end late, and all that happens on the way.
#[derive(Clone, Debug, Default)]
pub(super) struct DrawnFaults {
    pub(super) unfit: bool,
    pub(super) bucket_unreadable: bool,
    pub(super) unresolved: bool,
    pub(super) no_standby: bool,
    pub(super) no_gateways: bool,
    pub(super) machines_differ_until: u64,
    pub(super) leases_stale_until: u64,
    pub(super) source_removed_at: u64,
    /// When the destination cannot read the bucket of the source.
    pub(super) bucket_cut: Window,
    /// When the Service of the API has no address.
    pub(super) unexposed_until: u64,
    /// How often, in percent, something that is asked for does not answer.
    pub(super) flaps: u64,
    /// An extension controller starts the controllers of Machines by itself.
    pub(super) early_controllers: bool,
    /// gardenlet does not honour the annotation that tells it to leave the Shoot alone.
    pub(super) defiant_gardenlet: bool,
    /// Somebody has set that annotation before.
    pub(super) ignored_before: bool,
    /// When a person takes that annotation away.
    pub(super) ignore_removed: Window,
    /// The Seed of the source is being deleted, so annotations of the Shoot are refused.
    pub(super) seed_deleted: bool,
    /// Until when an operation is requested that gardenlet has not taken up.
    pub(super) requested_until: u64,
    /// Until when an operation of gardenlet runs that has begun before.
    pub(super) reconciled_until: u64,
    /// What people do; the last is the first.
    pub(super) interference: Vec<(u64, Interference)>,
    /// Clocks of the sides are ahead by so many seconds.
    pub(super) skew: [u64; 3],
    /// Controllers that stand still: of which side, and when.
    pub(super) pauses: Vec<(usize, Window)>,
    /// Pods that end late, or never.
    pub(super) stuck_until: u64,
    /// When the last of it is over, but for what never ends.
    pub(super) over_at: u64,
}

impl DrawnFaults {
    /// Whether there is something that a person has to end.
    pub(super) fn never_ends(&self) -> bool {
        self.stuck_until == NEVER
    }
}

/// Draws chances and times; a calm schedule has none.
struct Dice<'a> {
    rng: &'a mut Rng,
    is_calm: bool,
    start: u64,
    over_at: u64,
}

impl Dice<'_> {
    fn sometimes(&mut self, chance: u64) -> bool {
        !self.is_calm && self.rng.percent(chance)
    }

    /// The end of something that lasts until then; zero where it does not come about.
    fn until(&mut self, chance: u64, longest: u64) -> u64 {
        if !self.sometimes(chance) {
            return 0;
        }
        let until = self.start + self.rng.within(0, longest);
        self.over_at = self.over_at.max(until);
        until
    }

    /// Something that begins in the migration and lasts for a while; a few last for hours.
    fn window(&mut self, chance: u64) -> Window {
        if !self.sometimes(chance) {
            return (0, 0);
        }
        let from = self.start + self.rng.within(0, 3_000);
        let longest = if self.rng.percent(20) { 20_000 } else { 1_200 };
        let until = from + self.rng.within(10, longest);
        self.over_at = self.over_at.max(until);
        (from, until)
    }
}

impl Clusters {
    /// Draws what goes wrong in the migration that begins now.
    pub(super) fn draw_trouble(&mut self) {
        let mut rng = Rng::new(self.rng.next());
        let start = self.now;
        let mut dice = Dice { rng: &mut rng, is_calm: self.is_calm, start, over_at: start };
        self.trouble = draw(&mut dice);
        self.gardenlet.ignored = if self.trouble.ignored_before { Ignored::ByOther } else { Ignored::No };
        self.destination.api_ready_at = dice.until(12, 8_000);
        self.destination.etcd.serves_at = dice.until(12, 8_000);
        self.queued_until = dice.until(12, 8_000);
        self.zone.silent = dice.window(8);
        self.zone.read_only = dice.window(8);
        self.zone.lag = if dice.sometimes(30) { dice.rng.within(1, 120) } else { 0 };
        let abort_at = dice.until(20, 4_000);
        self.abort_at = if abort_at == 0 { NEVER } else { abort_at };
        self.is_forced = dice.sometimes(50);
        self.draw_stuck(&mut dice);
        self.trouble.over_at = dice.over_at;
        self.faults = if self.is_calm { FaultRates::default() } else { faults(&mut rng, start) };
        if let Some((_, _, until)) = self.faults.cut_off.filter(|(.., until)| *until != NEVER) {
            self.trouble.over_at = self.trouble.over_at.max(until);
        }
        self.begun_at = start;
    }

    /// Pods of one workload that do not end when they are told to.
    fn draw_stuck(&mut self, dice: &mut Dice) {
        for site in [&mut self.source, &mut self.destination] {
            for workload in [&mut site.controllers, &mut site.api, &mut site.etcd.members] {
                workload.stuck_until = 0;
            }
        }
        if !dice.sometimes(12) {
            return;
        }
        let until = if dice.rng.percent(15) { NEVER } else { dice.until(100, 20_000) };
        let side = if dice.rng.percent(50) { Side::Source } else { Side::Destination };
        let which = dice.rng.within(0, 2);
        let site = self.site_mut(side);
        let workload = match which {
            0 => &mut site.controllers,
            1 => &mut site.api,
            _ => &mut site.etcd.members,
        };
        workload.stuck_until = until;
        self.trouble.stuck_until = until;
    }
}

fn draw(dice: &mut Dice) -> DrawnFaults {
    let mut trouble = DrawnFaults {
        unfit: dice.sometimes(2),
        bucket_unreadable: dice.sometimes(2),
        unresolved: dice.sometimes(2),
        no_standby: dice.sometimes(10),
        no_gateways: dice.sometimes(20),
        machines_differ_until: dice.until(8, 12_000),
        leases_stale_until: dice.until(8, 12_000),
        source_removed_at: dice.until(8, 12_000),
        bucket_cut: dice.window(8),
        unexposed_until: dice.until(8, 4_000),
        flaps: if dice.sometimes(30) { 5 } else { 0 },
        early_controllers: dice.sometimes(20),
        defiant_gardenlet: dice.sometimes(3),
        ignored_before: dice.sometimes(10),
        ignore_removed: dice.window(4),
        seed_deleted: dice.sometimes(5),
        requested_until: dice.until(5, 1_200),
        reconciled_until: dice.until(8, 1_200),
        ..DrawnFaults::default()
    };
    if dice.sometimes(25) {
        trouble.skew = [0; 3].map(|_: u64| dice.rng.within(0, 240));
    }
    if dice.sometimes(25) {
        trouble.interference = people::draw(dice.rng, dice.start);
    }
    if dice.sometimes(20) {
        let side = usize::try_from(dice.rng.within(0, 2)).unwrap_or_default();
        let from = dice.start + dice.rng.within(0, 3_000);
        trouble.pauses.push((side, (from, from + dice.rng.within(600, 3_600))));
    }
    trouble
}

fn faults(rng: &mut Rng, start: u64) -> FaultRates {
    let mut faults = FaultRates {
        crash: rng.within(0, 20),
        lost_write: rng.within(0, 20),
        lost_effect: rng.within(0, 20),
        late: rng.within(0, 30),
        latest: if rng.percent(20) { 5_400 } else { 900 },
        twice: rng.within(0, 20),
        stale: rng.within(0, 40),
        cut_off: None,
    };
    if rng.percent(20) {
        let from = start + rng.within(0, 3_000);
        let until = if rng.percent(25) { NEVER } else { from + rng.within(60, 5_000) };
        let side = usize::try_from(rng.within(0, 2)).unwrap_or_default();
        faults.cut_off = Some((side, from, until));
    }
    faults
}
