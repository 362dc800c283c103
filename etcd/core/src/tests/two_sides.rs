//! Two sides, one record, and caches, resolvers and clocks in between: never do both serve.

use std::time::Duration;

use repot_apimachinery::time::Time;

use super::{
    ownership::{BEFORE, OURS, THEIRS, mk_facts, record},
    rng::Rng,
};
use crate::{
    handover::Evidence,
    ownership::{Answer, Etcd, Facts, OwnershipHistory, Seen, Verdict, decide},
    timing::Timing,
};

type Decide = fn(&Facts, &Timing, Time) -> (Verdict, Seen);

/// What became of the side that loses ownership.
#[derive(Default)]
struct Ended {
    /// From when on it certainly does not serve.
    at: u64,
    /// When its final snapshot was in the store.
    snapshot: Option<u64>,
}

/// A clock, and by how many millionths it runs too fast.
#[derive(Clone, Copy, Debug)]
struct Clock(i64);

impl Clock {
    /// Often as wrong as it may be.
    fn any(rng: &mut Rng, drift: u64) -> Self {
        let drift = drift as i64;
        Self([-drift, drift, 0, rng.within(0, drift as u64) as i64][rng.within(0, 3) as usize])
    }

    fn rate(self) -> u64 {
        (1_000_000 + self.0) as u64
    }

    /// What it shows at a moment of the world.
    fn shows(self, at: u64) -> Time {
        Time(at * self.rate() / 1_000_000 / 1000)
    }

    /// When it shows this.
    fn comes_to(self, time: Time) -> u64 {
        (time.0 * 1000 * 1_000_000).div_ceil(self.rate())
    }

    /// How long it takes until it has counted this.
    fn counts(self, time: Duration) -> u64 {
        self.comes_to(Time(time.as_secs()))
    }
}

/// A world, in milliseconds: the record changes at one moment, and each look sees some state of the last TTL, or nothing. One side
/// loses ownership, and the other one gets it, with an empty volume. Each counts by a clock of its own, and so does the cache.
struct World {
    seed: u64,
    rng: Rng,
    timing: Timing,
    change: u64,
    cache: Clock,
    /// Whether looks take no time and never fail, and only the old side has a cache: then every second counts.
    calm: bool,
    /// Until when the old side is shown the old record by one cache that was filled just before the change. `None`: it asks many.
    stale_until: Option<u64>,
    /// From when on the old side hears nothing.
    deaf: Option<u64>,
}

/// How wrong clocks may be, in millionths.
const DRIFT: u64 = 10_000;

fn run(seed: u64, drift: u64, old: Decide, new: Decide) -> Result<(), String> {
    let timing = mk_timing(&mut Rng::new(!seed)).check().expect("timing that fits");
    let mut rng = Rng::new(seed);
    let change = rng.within(500_000, 1_500_000);
    let clocks = [(); 3].map(|()| Clock::any(&mut rng, drift));
    let calm = rng.percent(40);
    let stale = clocks[0].counts(timing.ttl);
    let stale_until = rng.percent(50).then(|| (change - rng.within(0, 2000) + stale).max(change));
    // The worst moment is just before its cache forgets the own id.
    let deaf = rng.percent(50).then(|| change + if calm { stale } else { rng.within(0, stale) });
    let mut world = World { seed, rng, timing, change, cache: clocks[0], calm, stale_until, deaf };
    let ended = world.lose(clocks[1], old)?;
    let told = format!("seed {seed}: {timing:?}, clocks {clocks:?}");
    if deaf.is_none() && ended.snapshot.is_none() {
        return Err(format!("{told}: never takes the final snapshot"));
    }
    match world.take_over(clocks[2], &ended, new) {
        Some(begun) if begun < ended.at => {
            Err(format!("{told}: both serve, one until {} and the other one from {begun}", ended.at))
        }
        Some(begun) if begun < change => Err(format!("{told}: begins before the record has changed")),
        Some(_) => Ok(()),
        None => Err(format!("{told}: never begins")),
    }
}

impl World {
    fn see(&mut self, begun: u64) -> Answer {
        let oldest = if self.calm { 0 } else { self.cache.counts(self.timing.ttl) };
        let cached = self.rng.within(0, oldest);
        record(&[if begun.saturating_sub(cached) < self.change { OURS } else { THEIRS }])
    }

    /// How long a look takes.
    fn takes(&mut self, clock: Clock) -> u64 {
        if self.calm { 0 } else { self.rng.within(0, clock.counts(self.timing.timeout)) }
    }

    /// What a look of the old side gives; `trouble`: how often in a hundred it teaches nothing.
    fn hear(&mut self, begun: u64, trouble: u64) -> Answer {
        let found = match self.stale_until {
            Some(until) => record(&[if begun < until { OURS } else { THEIRS }]),
            None => self.see(begun),
        };
        match self.rng.within(0, 99) {
            _ if self.deaf.is_some_and(|deaf| begun > deaf) => Answer::Unresolvable,
            chance if chance < trouble => {
                let troubles = [Answer::Unresolvable, Answer::ContextError, Answer::Slow, record(&[BEFORE])];
                troubles[(chance % 4) as usize].clone()
            }
            _ => found,
        }
    }

    fn lose(&mut self, clock: Clock, decide: Decide) -> Result<Ended, String> {
        let (seed, change, timing) = (self.seed, self.change, self.timing);
        let trouble = if self.calm { 0 } else { self.rng.within(0, 60) };
        let (mut facts, mut etcd, mut stops_at) = (mk_facts(Answer::Slow, Etcd::Serves), Etcd::Serves, None);
        facts.seen.confirmed = Some(Time(0));
        let (mut begun, mut until) = (0_u64, clock.counts(timing.lease()));
        // What it does once it has stopped to serve.
        let mut then = Etcd::Stopped;
        let mut ended = Ended::default();
        while begun < 3_000_000 {
            facts.answer = self.hear(begun, trouble);
            let now = begun + self.takes(clock);
            if etcd == Etcd::Serves && until <= now {
                stops_at.get_or_insert(until + clock.counts(timing.stop));
            }
            if stops_at.is_some_and(|at| at <= now) {
                if etcd == Etcd::Serves {
                    ended.at = ended.at.max(stops_at.unwrap_or_default());
                }
                (etcd, stops_at) = (then, None);
            }
            (facts.begun, facts.etcd) = (clock.shows(begun), etcd);
            let (verdict, seen) = decide(&facts, &timing, clock.shows(now));
            facts.seen = seen;
            match verdict {
                // It takes its time, and serves until then.
                Verdict::StopEtcd(_) => {
                    stops_at.get_or_insert(now + clock.counts(timing.stop));
                    then = Etcd::Stopped;
                }
                Verdict::CutOffClients(_) => {
                    stops_at.get_or_insert(now + clock.counts(timing.stop));
                    (then, facts.past) = (Etcd::Private, OwnershipHistory::CutOff);
                }
                Verdict::TakeFinalSnapshot(_) if etcd == Etcd::Serves => {
                    return Err(format!("seed {seed}: takes the final snapshot of an etcd that serves"));
                }
                Verdict::TakeFinalSnapshot(_) if now < change => {
                    return Err(format!("seed {seed}: ends before it has lost"));
                }
                Verdict::TakeFinalSnapshot(_) => {
                    ended.snapshot.get_or_insert(now);
                    (etcd, facts.past) = (Etcd::Stopped, OwnershipHistory::FinalSnapshot);
                }
                Verdict::Resume { .. } if facts.past != OwnershipHistory::Sound => {
                    return Err(format!("seed {seed}: serves after it was cut off"));
                }
                Verdict::Resume { until: end } | Verdict::Serve { until: end } => {
                    (etcd, stops_at, until) = (Etcd::Serves, None, clock.comes_to(end));
                }
                Verdict::StayDown(_) => {}
            }
            // The next look begins an interval later; while etcd ends, at once.
            let next = begun + clock.counts(timing.interval);
            begun = if stops_at.is_some() { now + 1000 } else { next.max(now) };
        }
        if etcd == Etcd::Serves {
            ended.at = stops_at.unwrap_or(until + clock.counts(timing.stop));
        }
        Ok(ended)
    }

    /// When the other side begins. It is there before the record changes, or comes later, or is started again.
    fn take_over(&mut self, clock: Clock, ended: &Ended, decide: Decide) -> Option<u64> {
        let timing = self.timing;
        let mut facts = mk_facts(Answer::Slow, Etcd::Stopped);
        (facts.own_id, facts.past, facts.seen) = (THEIRS.into(), OwnershipHistory::NoData, Seen::default());
        let mut begun = self.rng.within(0, self.change + 500_000);
        while begun < 20_000_000 {
            if !self.calm && begun < self.change + 500_000 && self.rng.percent(2) {
                facts.seen = Seen::default();
            }
            let now = begun + self.takes(clock);
            facts.answer = self.see(begun);
            if !self.calm && self.rng.percent(20) {
                facts.answer = Answer::Unresolvable;
            }
            // One of an earlier hand-over is in the store until the newest one is.
            let is_there = ended.snapshot.is_some_and(|at| at <= now);
            let of = Some(if is_there { OURS } else { BEFORE }.to_owned());
            facts.continues = Some(Evidence { final_of: of, ..Evidence::default() });
            facts.begun = clock.shows(begun);
            let (verdict, seen) = decide(&facts, &timing, clock.shows(now));
            facts.seen = seen;
            if matches!(verdict, Verdict::Resume { .. }) {
                return Some(now);
            }
            begun = (begun + clock.counts(timing.interval)).max(now);
        }
        None
    }
}

fn mk_timing(rng: &mut Rng) -> Timing {
    let often = [rng.percent(30), rng.percent(30)];
    let mut seconds = |low, high| Duration::from_secs(rng.within(low, high));
    let ttl = if often[0] { seconds(300, 600) } else { seconds(0, 120) };
    let interval = if often[1] { seconds(1, 1) } else { seconds(1, 60) };
    let (timeout, stop) = (seconds(1, 30), seconds(1, 30));
    Timing { ttl, interval, timeout, stop, grace: timeout + stop }
}

/// The first world, of many, in which something is wrong.
fn first_fault(drift: u64, old: Decide, new: Decide) -> Option<String> {
    (0..20_000).find_map(|seed| run(seed, drift, old, new).err())
}

#[test]
fn never_do_both_sides_serve() {
    assert_eq!(first_fault(DRIFT, decide, decide), None);
}

#[test]
fn clocks_that_are_more_wrong_than_is_promised_are_noticed() {
    let why = first_fault(4 * DRIFT, decide, decide).expect("a world in which clocks matter");
    assert!(why.contains("both serve"), "{why}");
}

/// Name, the wrong planner, and what is said of it.
const FAULTS: &[(&str, Decide, &str)] = &[
    (
        "goes on while nobody answers",
        |facts, timing, now| match decide(facts, timing, now) {
            (Verdict::StopEtcd(why), seen) if why.reason == "OwnerUnresolvable" => {
                (Verdict::Serve { until: now.after(timing.lease()) }, seen)
            }
            other => other,
        },
        "both serve",
    ),
    (
        "takes the final snapshot before it cuts off clients",
        |facts, timing, now| match decide(facts, timing, now) {
            (Verdict::CutOffClients(why), seen) => (Verdict::TakeFinalSnapshot(why), seen),
            other => other,
        },
        "takes the final snapshot of an etcd that serves",
    ),
    (
        "takes silence for a loss",
        |facts, timing, now| match decide(facts, timing, now) {
            (Verdict::StayDown(why), seen) if facts.past == OwnershipHistory::Sound => {
                (Verdict::TakeFinalSnapshot(why), seen)
            }
            other => other,
        },
        "ends before it has lost",
    ),
    (
        "takes a name server that is behind for a loss",
        |facts, timing, now| {
            let is_behind = facts.answer == record(&[BEFORE]);
            let answer = if is_behind { record(&[THEIRS]) } else { facts.answer.clone() };
            decide(&Facts { answer, ..facts.clone() }, timing, now)
        },
        "ends before it has lost",
    ),
    (
        "resumes after it was cut off",
        |facts, timing, now| {
            let facts = Facts { past: OwnershipHistory::Sound, ..facts.clone() };
            decide(&facts, timing, now)
        },
        "serves after it was cut off",
    ),
    (
        "counts from the answer instead of the question",
        |facts, timing, now| {
            decide(
                &Facts { begun: now, ..facts.clone() },
                &Timing { interval: timing.interval * 3, ..*timing },
                now,
            )
        },
        "both serve",
    ),
    (
        "takes no final snapshot",
        |facts, timing, now| match decide(facts, timing, now) {
            (Verdict::TakeFinalSnapshot(why), seen) => (Verdict::StayDown(why), seen),
            other => other,
        },
        "never takes the final snapshot",
    ),
];

#[test]
fn the_sides_catch_every_planted_fault() {
    for (name, faulty, caught) in FAULTS {
        let why = first_fault(DRIFT, *faulty, decide).unwrap_or_else(|| panic!("{name}: not caught"));
        println!("{name}: {why}");
        assert!(why.contains(caught), "{name}: {why}");
    }
}

/// The same of the side that takes over.
const FAULTS_OF_THE_NEW: &[(&str, Decide)] = &[
    ("begins at once", |facts, timing, now| {
        let facts = Facts { continues: None, ..facts.clone() };
        decide(&facts, timing, now)
    }),
    ("forgets the cache", |facts, timing, now| {
        let timing = Timing { ttl: Duration::ZERO, ..*timing };
        decide(facts, &timing, now)
    }),
    ("makes no allowance for clocks", |facts, timing, now| {
        // The longest TTL for which the wait is what it would be without one.
        let exact = timing.ttl + timing.interval + timing.grace;
        let mut timing = *timing;
        while timing.wait() > exact && !timing.ttl.is_zero() {
            timing.ttl -= Duration::from_secs(1);
        }
        decide(facts, &timing, now)
    }),
    ("takes any final snapshot for that of this hand-over", |facts, timing, now| {
        let recorded = facts.continues.as_ref().is_some_and(|evidence| evidence.final_of.is_some());
        let evidence = Evidence { recorded, ..Evidence::default() };
        decide(&Facts { continues: Some(evidence), ..facts.clone() }, timing, now)
    }),
];

#[test]
fn the_sides_catch_every_planted_fault_of_the_new_one() {
    for (name, faulty) in FAULTS_OF_THE_NEW {
        let why = first_fault(DRIFT, decide, *faulty).unwrap_or_else(|| panic!("{name}: not caught"));
        println!("{name}: {why}");
        assert!(why.contains("both serve"), "{name}: {why}");
    }
}
