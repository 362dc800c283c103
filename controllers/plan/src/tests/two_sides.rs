//! Two sides, one record, and caches, resolvers and clocks in between: never do both serve.

use std::time::Duration;

use super::{
    ownership::{BEFORE, OURS, THEIRS, mk_facts, record},
    rng::Rng,
};
use crate::{
    etcd::{
        handover::Evidence,
        ownership::{Answer, Etcd, Facts, Past, Seen, Timing, Verdict, decide},
    },
    time::Time,
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

/// A world: the record changes at one moment, and each look sees some state of the last TTL, or nothing. One side loses ownership, and
/// the other one gets it, with an empty volume.
fn run(seed: u64, timing: &Timing, old: Decide, new: Decide) -> Result<(), String> {
    let mut rng = Rng::new(seed);
    let change = rng.within(500, 1500);
    let deaf = rng.percent(30);
    let ended = lose(seed, &mut rng, change, deaf, timing, old)?;
    if !deaf && ended.snapshot.is_none() {
        return Err(format!("seed {seed}: never takes the final snapshot"));
    }
    match take_over(&mut rng, change, &ended, timing, new) {
        Some(begun) if begun < ended.at => {
            Err(format!("seed {seed}: both serve, one until {} and the other one from {begun}", ended.at))
        }
        Some(begun) if begun < change => Err(format!("seed {seed}: begins before the record has changed")),
        Some(_) => Ok(()),
        None => Err(format!("seed {seed}: never begins")),
    }
}

fn see(rng: &mut Rng, begun: u64, change: u64, timing: &Timing) -> Answer {
    let cached = rng.within(0, timing.ttl.as_secs());
    record(&[if begun.saturating_sub(cached) < change { OURS } else { THEIRS }])
}

fn lose(
    seed: u64,
    rng: &mut Rng,
    change: u64,
    deaf: bool,
    timing: &Timing,
    decide: Decide,
) -> Result<Ended, String> {
    let trouble = rng.within(0, 60);
    let (mut facts, mut etcd, mut stops_at) = (mk_facts(Answer::Slow, Etcd::Serves), Etcd::Serves, None);
    facts.seen.confirmed = Some(Time(0));
    let (mut begun, mut until) = (0_u64, timing.lease().as_secs());
    let mut ended = Ended::default();
    while begun < 3000 {
        let took = rng.within(0, timing.timeout.as_secs());
        let found = see(rng, begun, change, timing);
        facts.answer = match rng.within(0, 99) {
            _ if deaf && begun > change => Answer::Unresolvable,
            chance if chance < trouble => {
                let troubles = [Answer::Unresolvable, Answer::ContextError, Answer::Slow, record(&[BEFORE])];
                troubles[(chance % 4) as usize].clone()
            }
            _ => found,
        };
        let now = begun + took;
        if etcd == Etcd::Serves && until <= now {
            stops_at.get_or_insert(until + timing.stop.as_secs());
        }
        if stops_at.is_some_and(|at| at <= now) {
            ended.at = ended.at.max(stops_at.unwrap_or_default());
            (etcd, stops_at) = (Etcd::Stopped, None);
        }
        (facts.begun, facts.etcd) = (Time(begun), etcd);
        let (verdict, seen) = decide(&facts, timing, Time(now));
        facts.seen = seen;
        match verdict {
            // It takes its time, and serves until then.
            Verdict::StopEtcd(why) => {
                stops_at.get_or_insert(now + timing.stop.as_secs());
                if why.reason == "NotOwner" {
                    facts.past = Past::CutOff;
                }
            }
            Verdict::TakeFinalSnapshot(_) if etcd == Etcd::Serves => {
                return Err(format!("seed {seed}: takes the final snapshot of an etcd that serves"));
            }
            Verdict::TakeFinalSnapshot(_) if now < change => {
                return Err(format!("seed {seed}: ends before it has lost"));
            }
            Verdict::TakeFinalSnapshot(_) => {
                ended.snapshot.get_or_insert(now);
                facts.past = Past::FinalSnapshot;
            }
            Verdict::Resume { .. } if facts.past != Past::Sound => {
                return Err(format!("seed {seed}: serves after it was cut off"));
            }
            Verdict::Resume { until: end } | Verdict::Serve { until: end } => {
                (etcd, stops_at, until) = (Etcd::Serves, None, end.0);
            }
            Verdict::StayDown(_) => {}
        }
        // The next look begins an interval later; while etcd ends, at once.
        begun = if stops_at.is_some() { now + 1 } else { (begun + timing.interval.as_secs()).max(now) };
    }
    if etcd == Etcd::Serves {
        ended.at = stops_at.unwrap_or(until + timing.stop.as_secs());
    }
    Ok(ended)
}

/// When the other side begins. It is there before the record changes, or comes later, or is started again.
fn take_over(rng: &mut Rng, change: u64, ended: &Ended, timing: &Timing, decide: Decide) -> Option<u64> {
    let mut facts = mk_facts(Answer::Slow, Etcd::Stopped);
    (facts.own_id, facts.past, facts.seen) = (THEIRS.into(), Past::NoData, Seen::default());
    let mut begun = rng.within(0, change + 500);
    while begun < 20_000 {
        if rng.percent(2) {
            facts.seen = Seen::default();
        }
        let now = begun + rng.within(0, timing.timeout.as_secs());
        facts.answer = see(rng, begun, change, timing);
        if rng.percent(20) {
            facts.answer = Answer::Unresolvable;
        }
        // One of an earlier hand-over is in the store until the newest one is.
        let is_there = ended.snapshot.is_some_and(|at| at <= now);
        let of = Some(if is_there { OURS } else { BEFORE }.to_owned());
        facts.continues = Some(Evidence { final_of: of, ..Evidence::default() });
        facts.begun = Time(begun);
        let (verdict, seen) = decide(&facts, timing, Time(now));
        facts.seen = seen;
        if matches!(verdict, Verdict::Resume { .. }) {
            return Some(now);
        }
        begun = (begun + timing.interval.as_secs()).max(now);
    }
    None
}

fn mk_timing(rng: &mut Rng) -> Timing {
    let mut seconds = |low, high| Duration::from_secs(rng.within(low, high));
    let (ttl, interval, timeout, stop) = (seconds(0, 120), seconds(1, 60), seconds(1, 30), seconds(1, 30));
    Timing { ttl, interval, timeout, stop, grace: timeout + stop }
}

#[test]
fn never_do_both_sides_serve() {
    for seed in 0..20_000 {
        let timing = mk_timing(&mut Rng::new(seed)).check().expect("timing that fits");
        run(seed, &timing, decide, decide).unwrap_or_else(|why| panic!("{why}: {timing:?}"));
    }
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
        "takes the final snapshot before it ends etcd",
        |facts, timing, now| match decide(facts, timing, now) {
            (Verdict::StopEtcd(why), seen) if why.reason == "NotOwner" => {
                (Verdict::TakeFinalSnapshot(why), seen)
            }
            other => other,
        },
        "takes the final snapshot of an etcd that serves",
    ),
    (
        "takes silence for a loss",
        |facts, timing, now| match decide(facts, timing, now) {
            (Verdict::StayDown(why), seen) if facts.past == Past::Sound => {
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
            let facts = Facts { past: Past::Sound, ..facts.clone() };
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
        let why =
            (0..20_000).find_map(|seed| run(seed, &mk_timing(&mut Rng::new(seed)), *faulty, decide).err());
        let why = why.unwrap_or_else(|| panic!("{name}: not caught"));
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
    ("takes any final snapshot for that of this hand-over", |facts, timing, now| {
        let recorded = facts.continues.as_ref().is_some_and(|evidence| evidence.final_of.is_some());
        let evidence = Evidence { recorded, ..Evidence::default() };
        decide(&Facts { continues: Some(evidence), ..facts.clone() }, timing, now)
    }),
];

#[test]
fn the_sides_catch_every_planted_fault_of_the_new_one() {
    for (name, faulty) in FAULTS_OF_THE_NEW {
        let why =
            (0..20_000).find_map(|seed| run(seed, &mk_timing(&mut Rng::new(seed)), decide, *faulty).err());
        let why = why.unwrap_or_else(|| panic!("{name}: not caught"));
        println!("{name}: {why}");
        assert!(why.contains("both serve"), "{name}: {why}");
    }
}
