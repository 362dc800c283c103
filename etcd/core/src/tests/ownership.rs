//! What follows from each answer, and from the owner before.

use std::time::Duration;

use repot_apimachinery::time::Time;

use crate::{
    handover::Evidence,
    ownership::{Answer, Etcd, Facts, OwnershipHistory, Seen, Verdict, decide},
    timing::{Timing, epoch},
};

pub(super) const OURS: &str = "seed-a/7";
pub(super) const THEIRS: &str = "seed-b/8";
/// What a name server says that is behind.
pub(super) const BEFORE: &str = "seed-c/6";

const TIMING: Timing = Timing {
    ttl: Duration::from_secs(60),
    interval: Duration::from_secs(30),
    timeout: Duration::from_secs(10),
    stop: Duration::from_secs(15),
    grace: Duration::from_secs(25),
};

pub(super) fn record(values: &[&str]) -> Answer {
    Answer::Record(values.iter().map(|value| (*value).to_owned()).collect())
}

pub(super) fn mk_facts(answer: Answer, etcd: Etcd) -> Facts {
    let seen = Seen { confirmed: Some(Time(970)), lost: None, named_since: Some(Time(900)) };
    Facts {
        answer,
        begun: Time(1000),
        own_id: OURS.into(),
        joined_id: None,
        seen,
        etcd,
        past: OwnershipHistory::Sound,
        continues: None,
    }
}

fn word(verdict: &Verdict) -> (&'static str, &'static str) {
    match verdict {
        Verdict::Serve { .. } => ("serve", ""),
        Verdict::StopEtcd(why) => ("stop", why.reason),
        Verdict::CutOffClients(why) => ("cut off", why.reason),
        Verdict::TakeFinalSnapshot(why) => ("snapshot", why.reason),
        Verdict::StayDown(why) => ("down", why.reason),
        Verdict::Resume { .. } => ("resume", ""),
    }
}

/// A member that has joined the etcd of another owner serves under both ids, and under no third one.
#[test]
fn member_that_has_joined_serves_while_the_record_names_either_owner() {
    let joined = |values: &[&str], etcd, past| {
        let facts = Facts { joined_id: Some(BEFORE.into()), past, ..mk_facts(record(values), etcd) };
        word(&decide(&facts, &TIMING, Time(1000)).0)
    };
    for (values, etcd, past, expected) in [
        (&[BEFORE][..], Etcd::Stopped, OwnershipHistory::NoData, ("resume", "")),
        (&[BEFORE], Etcd::Serves, OwnershipHistory::Sound, ("serve", "")),
        (&[OURS], Etcd::Serves, OwnershipHistory::Sound, ("serve", "")),
        // Somebody is changing the record: what was learnt before counts for its time.
        (&[BEFORE, OURS], Etcd::Serves, OwnershipHistory::Sound, ("serve", "")),
        (&[THEIRS], Etcd::Serves, OwnershipHistory::Sound, ("cut off", "NotOwner")),
        (&["seed-c/7"], Etcd::Serves, OwnershipHistory::Sound, ("cut off", "NotOwner")),
        (&[], Etcd::Serves, OwnershipHistory::Sound, ("cut off", "NotOwner")),
        // Once it has lost ownership, the earlier owner does not give it back.
        (&[BEFORE], Etcd::Stopped, OwnershipHistory::CutOff, ("down", "CutOff")),
        (&[BEFORE], Etcd::Stopped, OwnershipHistory::FinalSnapshot, ("down", "FinalSnapshotTaken")),
        (&[BEFORE], Etcd::Stopped, OwnershipHistory::AnotherId, ("down", "OwnerIdChanged")),
    ] {
        assert_eq!(joined(values, etcd, past), expected, "{values:?} {etcd:?} {past:?}");
    }
}

/// Its own ownership begins when the record names it alone: an earlier owner may serve until then.
#[test]
fn record_of_the_owner_that_was_joined_does_not_count_as_the_own_one() {
    let facts = Facts { joined_id: Some(BEFORE.into()), ..mk_facts(record(&[BEFORE]), Etcd::Serves) };
    let (verdict, seen) = decide(&facts, &TIMING, Time(1000));
    assert_eq!(verdict, Verdict::Serve { until: Time(1000).after(TIMING.lease()) });
    assert_eq!((seen.confirmed, seen.named_since), (Some(Time(1000)), None));
}

#[test]
fn every_answer_has_its_verdict() {
    let other = || record(&[THEIRS]);
    for (answer, etcd, past, age, expected) in [
        (record(&[OURS]), Etcd::Serves, OwnershipHistory::Sound, 30, ("serve", "")),
        (record(&[OURS]), Etcd::Stopped, OwnershipHistory::Sound, 30, ("resume", "")),
        (record(&[OURS]), Etcd::Private, OwnershipHistory::Sound, 30, ("stop", "NotForClients")),
        (record(&[OURS]), Etcd::Stopped, OwnershipHistory::FinalSnapshot, 30, ("down", "FinalSnapshotTaken")),
        // A final snapshot of an earlier life does not stop an etcd that serves.
        (record(&[OURS]), Etcd::Serves, OwnershipHistory::FinalSnapshot, 30, ("serve", "")),
        (other(), Etcd::Serves, OwnershipHistory::Sound, 30, ("cut off", "NotOwner")),
        (other(), Etcd::Serves, OwnershipHistory::FinalSnapshot, 30, ("cut off", "NotOwner")),
        (other(), Etcd::Stopped, OwnershipHistory::Sound, 30, ("snapshot", "NotOwner")),
        (other(), Etcd::Private, OwnershipHistory::Sound, 30, ("snapshot", "NotOwner")),
        (other(), Etcd::Stopped, OwnershipHistory::FinalSnapshot, 30, ("down", "NotOwner")),
        (record(&[]), Etcd::Serves, OwnershipHistory::Sound, 30, ("cut off", "NotOwner")),
        (other(), Etcd::Stopped, OwnershipHistory::NoData, 30, ("down", "NotOwner")),
        (other(), Etcd::Stopped, OwnershipHistory::CutOff, 30, ("snapshot", "NotOwner")),
        (record(&[OURS]), Etcd::Stopped, OwnershipHistory::CutOff, 30, ("down", "CutOff")),
        (record(&[OURS]), Etcd::Stopped, OwnershipHistory::NoData, 30, ("resume", "")),
        // The same seed, and it had lost and regained ownership, or so it says: no matter which.
        (record(&["seed-a/9"]), Etcd::Serves, OwnershipHistory::Sound, 30, ("cut off", "NotOwner")),
        (record(&["seed-a"]), Etcd::Serves, OwnershipHistory::Sound, 30, ("cut off", "NotOwner")),
        (record(&["seed-b/7"]), Etcd::Serves, OwnershipHistory::Sound, 30, ("cut off", "NotOwner")),
        (record(&[OURS]), Etcd::Stopped, OwnershipHistory::AnotherId, 30, ("down", "OwnerIdChanged")),
        (other(), Etcd::Stopped, OwnershipHistory::AnotherId, 30, ("down", "OwnerIdChanged")),
        (other(), Etcd::Serves, OwnershipHistory::AnotherId, 30, ("cut off", "NotOwner")),
        (Answer::Slow, Etcd::Stopped, OwnershipHistory::AnotherId, 40, ("down", "OwnerSlow")),
        // A server that is behind.
        (record(&[BEFORE]), Etcd::Serves, OwnershipHistory::Sound, 30, ("serve", "")),
        (record(&[BEFORE]), Etcd::Serves, OwnershipHistory::Sound, 40, ("stop", "OwnerOlder")),
        (record(&[BEFORE]), Etcd::Stopped, OwnershipHistory::NoData, 40, ("down", "OwnerOlder")),
        (record(&[BEFORE, THEIRS]), Etcd::Serves, OwnershipHistory::Sound, 30, ("cut off", "NotOwner")),
        (record(&[BEFORE, "seed-b"]), Etcd::Serves, OwnershipHistory::Sound, 30, ("cut off", "NotOwner")),
        // Nothing is learnt, and what is known is young enough, or not.
        (Answer::Unresolvable, Etcd::Serves, OwnershipHistory::Sound, 30, ("serve", "")),
        (Answer::Unresolvable, Etcd::Serves, OwnershipHistory::Sound, 40, ("stop", "OwnerUnresolvable")),
        (Answer::Unresolvable, Etcd::Stopped, OwnershipHistory::Sound, 40, ("down", "OwnerUnresolvable")),
        (Answer::ContextError, Etcd::Serves, OwnershipHistory::Sound, 40, ("stop", "OwnerNotAsked")),
        (Answer::Slow, Etcd::Serves, OwnershipHistory::Sound, 40, ("stop", "OwnerSlow")),
        (record(&[OURS, THEIRS]), Etcd::Serves, OwnershipHistory::Sound, 40, ("stop", "OwnerAmbiguous")),
        (record(&[OURS, THEIRS]), Etcd::Serves, OwnershipHistory::Sound, 30, ("serve", "")),
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
    // A fortieth more, for clocks.
    assert_eq!(TIMING.wait(), Duration::from_secs(60 + 30 + 25 + 3));
    let short = Timing { grace: Duration::from_secs(24), ..TIMING };
    assert_eq!(short.check().map_err(|why| why.reason), Err("GraceTooShort"));
    let never = Timing { interval: Duration::ZERO, ..TIMING };
    assert_eq!(never.check().map_err(|why| why.reason), Err("NoInterval"));
}

#[test]
fn who_goes_on_from_snapshots_begins_when_the_owner_before_has_ended() {
    let final_of = |id: &str| Evidence { final_of: Some(id.to_owned()), ..Evidence::default() };
    let own_final_of = |id: &str| Evidence { own_final_of: Some(id.to_owned()), ..Evidence::default() };
    let nothing = Evidence::default();
    let recorded = Evidence { recorded: true, ..Evidence::default() };
    // The wait is 118 seconds.
    for (own_id, named_since, evidence, expected) in [
        ("seed-a/7", Some(882), nothing.clone(), ("resume", "")),
        ("seed-a/7", Some(883), nothing.clone(), ("down", "PreviousOwnerMayServe")),
        ("seed-a", Some(883), nothing.clone(), ("down", "PreviousOwnerMayServe")),
        ("seed-a", Some(882), nothing.clone(), ("resume", "")),
        // This very look is the first one that gives the own id.
        ("seed-a/7", None, nothing.clone(), ("down", "PreviousOwnerMayServe")),
        ("seed-a/1", None, nothing, ("resume", "")),
        ("seed-a/7", None, recorded.clone(), ("resume", "")),
        ("seed-a", None, recorded, ("down", "PreviousOwnerMayServe")),
        ("seed-a/7", None, final_of("seed-b/6"), ("resume", "")),
        ("seed-a/7", None, final_of("seed-b/5"), ("down", "PreviousOwnerMayServe")),
        // What was ended does not begin again, not even on new volumes.
        ("seed-a/7", Some(500), final_of("seed-a/7"), ("down", "EpochEnded")),
        ("seed-a/7", Some(500), final_of("seed-b/8"), ("down", "EpochEnded")),
        ("seed-a/7", Some(500), own_final_of("seed-a/7"), ("down", "EpochEnded")),
        ("seed-a/7", None, Evidence { recorded: true, ..own_final_of("seed-a/7") }, ("down", "EpochEnded")),
        ("seed-a/1", None, own_final_of("seed-a/1"), ("down", "EpochEnded")),
        (
            "seed-a/7",
            None,
            Evidence { final_of: Some("seed-b/6".into()), ..own_final_of("seed-a/5") },
            ("resume", ""),
        ),
        ("seed-a/7", None, final_of("seed-b"), ("down", "PreviousOwnerMayServe")),
        ("seed-a", None, final_of("seed-b"), ("down", "PreviousOwnerMayServe")),
        ("seed-a/0", None, final_of("seed-b"), ("down", "PreviousOwnerMayServe")),
    ] {
        let confirmed = named_since.map(|_| Time(960));
        let seen = Seen { confirmed, lost: None, named_since: named_since.map(Time) };
        let mut facts =
            Facts { seen, own_id: own_id.to_owned(), ..mk_facts(record(&[own_id]), Etcd::Stopped) };
        (facts.past, facts.continues) = (OwnershipHistory::NoData, Some(evidence));
        let (verdict, seen) = decide(&facts, &TIMING, Time(1000));
        assert_eq!(word(&verdict), expected, "{facts:?}");
        assert_eq!(seen.named_since, Some(Time(named_since.unwrap_or(1001))));
        // Data that are there are its own.
        facts.past = OwnershipHistory::Sound;
        assert_eq!(word(&decide(&facts, &TIMING, Time(1000)).0), ("resume", ""));
        // Nothing was learnt for longer than a lease. Only an epoch tells that nobody else had it meanwhile.
        let seen = Seen { confirmed: Some(Time(959)), named_since: Some(Time(500)), ..Seen::default() };
        let (_, seen) = decide(&Facts { seen, ..facts.clone() }, &TIMING, Time(1000));
        let since = if epoch(own_id).is_some() { 500 } else { 1001 };
        assert_eq!(seen.named_since, Some(Time(since)), "{own_id}");
        // The owner before may have been put back for a while.
        if epoch(own_id) == Some(7) {
            facts.answer = record(&["seed-b/6"]);
            let (_, seen) = decide(&facts, &TIMING, Time(1000));
            assert_eq!((seen.named_since, seen.confirmed), (None, facts.seen.confirmed));
        }
        // Another name in between, and it begins anew.
        facts.answer = record(&["seed-c/9"]);
        assert_eq!(decide(&facts, &TIMING, Time(1000)).1.named_since, None);
    }
}
