//! Two sides, one record, and caches, resolvers and clocks in between: never do both serve.

use std::time::Duration;

use super::rng::Rng;
use crate::{
    etcd::{
        handover::Evidence,
        ownership::{Answer, Etcd, Facts, Past, Seen, Timing, Verdict, decide, epoch},
    },
    time::Time,
};

const OURS: &str = "seed-a/7";
const THEIRS: &str = "seed-b/8";
/// What a name server says that is behind.
const BEFORE: &str = "seed-c/6";

type Decide = fn(&Facts, &Timing, Time) -> (Verdict, Seen);

const TIMING: Timing = Timing {
    ttl: Duration::from_secs(60),
    interval: Duration::from_secs(30),
    timeout: Duration::from_secs(10),
    stop: Duration::from_secs(15),
    grace: Duration::from_secs(25),
};

fn record(values: &[&str]) -> Answer {
    Answer::Record(values.iter().map(|value| (*value).to_owned()).collect())
}

fn mk_facts(answer: Answer, etcd: Etcd) -> Facts {
    let seen = Seen { confirmed: Some(Time(970)), lost: None, named_since: Some(Time(900)) };
    Facts { answer, begun: Time(1000), own_id: OURS.into(), seen, etcd, past: Past::Sound, continues: None }
}

fn word(verdict: &Verdict) -> (&'static str, &'static str) {
    match verdict {
        Verdict::Serve { .. } => ("serve", ""),
        Verdict::StopEtcd(why) => ("stop", why.reason),
        Verdict::TakeFinalSnapshot(why) => ("snapshot", why.reason),
        Verdict::StayDown(why) => ("down", why.reason),
        Verdict::Resume { .. } => ("resume", ""),
    }
}

#[test]
fn every_answer_has_its_verdict() {
    let other = || record(&[THEIRS]);
    for (answer, etcd, past, age, expected) in [
        (record(&[OURS]), Etcd::Serves, Past::Sound, 30, ("serve", "")),
        (record(&[OURS]), Etcd::Stopped, Past::Sound, 30, ("resume", "")),
        (record(&[OURS]), Etcd::Private, Past::Sound, 30, ("stop", "NotForClients")),
        (record(&[OURS]), Etcd::Stopped, Past::FinalSnapshot, 30, ("down", "FinalSnapshotTaken")),
        // A final snapshot of an earlier life does not stop an etcd that serves.
        (record(&[OURS]), Etcd::Serves, Past::FinalSnapshot, 30, ("serve", "")),
        (other(), Etcd::Serves, Past::Sound, 30, ("stop", "NotOwner")),
        (other(), Etcd::Serves, Past::FinalSnapshot, 30, ("stop", "NotOwner")),
        (other(), Etcd::Stopped, Past::Sound, 30, ("snapshot", "NotOwner")),
        (other(), Etcd::Private, Past::Sound, 30, ("snapshot", "NotOwner")),
        (other(), Etcd::Stopped, Past::FinalSnapshot, 30, ("down", "NotOwner")),
        (record(&[]), Etcd::Serves, Past::Sound, 30, ("stop", "NotOwner")),
        (other(), Etcd::Stopped, Past::NoData, 30, ("down", "NotOwner")),
        (other(), Etcd::Stopped, Past::CutOff, 30, ("snapshot", "NotOwner")),
        (record(&[OURS]), Etcd::Stopped, Past::CutOff, 30, ("down", "CutOff")),
        (record(&[OURS]), Etcd::Stopped, Past::NoData, 30, ("resume", "")),
        // The same seed, and it had lost and regained ownership, or so it says: no matter which.
        (record(&["seed-a/9"]), Etcd::Serves, Past::Sound, 30, ("stop", "NotOwner")),
        (record(&["seed-a"]), Etcd::Serves, Past::Sound, 30, ("stop", "NotOwner")),
        (record(&["seed-b/7"]), Etcd::Serves, Past::Sound, 30, ("stop", "NotOwner")),
        (record(&[OURS]), Etcd::Stopped, Past::AnotherId, 30, ("down", "OwnerIdChanged")),
        (other(), Etcd::Stopped, Past::AnotherId, 30, ("down", "OwnerIdChanged")),
        (other(), Etcd::Serves, Past::AnotherId, 30, ("stop", "NotOwner")),
        (Answer::Slow, Etcd::Stopped, Past::AnotherId, 40, ("down", "OwnerSlow")),
        // A server that is behind.
        (record(&[BEFORE]), Etcd::Serves, Past::Sound, 30, ("serve", "")),
        (record(&[BEFORE]), Etcd::Serves, Past::Sound, 40, ("stop", "OwnerOlder")),
        (record(&[BEFORE]), Etcd::Stopped, Past::NoData, 40, ("down", "OwnerOlder")),
        (record(&[BEFORE, THEIRS]), Etcd::Serves, Past::Sound, 30, ("stop", "NotOwner")),
        (record(&[BEFORE, "seed-b"]), Etcd::Serves, Past::Sound, 30, ("stop", "NotOwner")),
        // Nothing is learnt, and what is known is young enough, or not.
        (Answer::Unresolvable, Etcd::Serves, Past::Sound, 30, ("serve", "")),
        (Answer::Unresolvable, Etcd::Serves, Past::Sound, 40, ("stop", "OwnerUnresolvable")),
        (Answer::Unresolvable, Etcd::Stopped, Past::Sound, 40, ("down", "OwnerUnresolvable")),
        (Answer::ContextError, Etcd::Serves, Past::Sound, 40, ("stop", "OwnerNotAsked")),
        (Answer::Slow, Etcd::Serves, Past::Sound, 40, ("stop", "OwnerSlow")),
        (record(&[OURS, THEIRS]), Etcd::Serves, Past::Sound, 40, ("stop", "OwnerAmbiguous")),
        (record(&[OURS, THEIRS]), Etcd::Serves, Past::Sound, 30, ("serve", "")),
    ] {
        let mut facts = mk_facts(answer, etcd);
        facts.past = past;
        facts.seen.confirmed = Some(Time(1000 - age));
        let (verdict, _) = decide(&facts, &TIMING, Time(1000));
        assert_eq!(word(&verdict), expected, "{facts:?}");
    }
}

#[test]
fn an_epoch_is_the_number_after_the_last_slash() {
    let epochs = [
        "seed-a/7",
        "a/b/18446744073709551615",
        "seed-a",
        "seed-a/",
        "a/+7",
        "a/7b",
        "a/18446744073709551616",
    ];
    assert_eq!(epochs.map(epoch), [Some(7), Some(u64::MAX), None, None, None, None, None]);
}

#[test]
fn an_agent_that_has_never_asked_does_not_start_etcd() {
    let mut facts = mk_facts(Answer::Unresolvable, Etcd::Stopped);
    facts.seen = Seen::default();
    assert_eq!(word(&decide(&facts, &TIMING, Time(1000)).0), ("down", "OwnerUnresolvable"));
    facts.answer = record(&[OURS]);
    assert_eq!(decide(&facts, &TIMING, Time(1000)).0, Verdict::Resume { until: Time(1040) });
}

#[test]
fn a_look_that_was_overtaken_teaches_nothing() {
    let mut facts = mk_facts(record(&[OURS]), Etcd::Stopped);
    facts.seen = Seen { lost: Some(Time(1001)), ..Seen::default() };
    let (verdict, seen) = decide(&facts, &TIMING, Time(1002));
    assert_eq!((word(&verdict), seen), (("snapshot", "NotOwner"), facts.seen));
}

#[test]
fn timing_that_breaks_the_promise_is_refused() {
    assert!(TIMING.check().is_ok());
    assert_eq!(TIMING.wait(), Duration::from_secs(60 + 30 + 25));
    let short = Timing { grace: Duration::from_secs(24), ..TIMING };
    assert_eq!(short.check().map_err(|why| why.reason), Err("GraceTooShort"));
    let never = Timing { interval: Duration::ZERO, ..TIMING };
    assert_eq!(never.check().map_err(|why| why.reason), Err("NoInterval"));
}

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
        facts.continues = Some(Evidence { recorded: false, final_of: of });
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

#[test]
fn who_goes_on_from_snapshots_begins_when_the_owner_before_has_ended() {
    let final_of = |id: &str| Evidence { final_of: Some(id.to_owned()), ..Evidence::default() };
    let nothing = Evidence::default();
    let recorded = Evidence { recorded: true, ..Evidence::default() };
    // The wait is 115 seconds.
    for (own_id, named_since, evidence, expected) in [
        ("seed-a/7", Some(885), nothing.clone(), ("resume", "")),
        ("seed-a/7", Some(886), nothing.clone(), ("down", "PreviousOwnerMayServe")),
        ("seed-a", Some(886), nothing.clone(), ("down", "PreviousOwnerMayServe")),
        ("seed-a", Some(885), nothing.clone(), ("resume", "")),
        // This very look is the first one that gives the own id.
        ("seed-a/7", None, nothing.clone(), ("down", "PreviousOwnerMayServe")),
        ("seed-a/1", None, nothing, ("resume", "")),
        ("seed-a/7", None, recorded, ("resume", "")),
        ("seed-a/7", None, final_of("seed-b/6"), ("resume", "")),
        ("seed-a/7", None, final_of("seed-b/5"), ("down", "PreviousOwnerMayServe")),
        ("seed-a/7", None, final_of("seed-a/7"), ("down", "PreviousOwnerMayServe")),
        ("seed-a/7", None, final_of("seed-b"), ("down", "PreviousOwnerMayServe")),
        ("seed-a", None, final_of("seed-b"), ("down", "PreviousOwnerMayServe")),
        ("seed-a/0", None, final_of("seed-b/0"), ("down", "PreviousOwnerMayServe")),
    ] {
        let seen = Seen { confirmed: None, lost: None, named_since: named_since.map(Time) };
        let mut facts =
            Facts { seen, own_id: own_id.to_owned(), ..mk_facts(record(&[own_id]), Etcd::Stopped) };
        (facts.past, facts.continues) = (Past::NoData, Some(evidence));
        let (verdict, seen) = decide(&facts, &TIMING, Time(1000));
        assert_eq!(word(&verdict), expected, "{facts:?}");
        assert_eq!(seen.named_since, Some(Time(named_since.unwrap_or(1001))));
        // Data that are there are its own.
        facts.past = Past::Sound;
        assert_eq!(word(&decide(&facts, &TIMING, Time(1000)).0), ("resume", ""));
        // Another name in between, and it begins anew.
        facts.answer = record(&["seed-c/9"]);
        assert_eq!(decide(&facts, &TIMING, Time(1000)).1.named_since, None);
    }
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
        let evidence = Evidence { recorded, final_of: None };
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
