//! Who may serve, by the owner's DNS record (GEP-7, bad case): what the agent of an etcd does after each look at the record.
//!
//! **The rule** is that of a lease. Whoever has read its own id in the record may serve until the next look is due, and a little
//! longer; whoever has learnt nothing for that long stops, whatever the cause: no answer, a broken context, a slow resolver, an
//! agent that hangs. So the end of the lease is part of the verdict, and is armed as a deadline of the etcd process. The other side
//! need not know why: once the record has named it for [`Timing::wait`], nobody else serves ([`handover`]).
//!
//! A record that names somebody else, or nobody, ends the ownership: clients are cut off *first*, so that a store out of reach cannot
//! keep them served, and then a final snapshot is taken, once. Not knowing is no such end: no snapshot is taken, and when the own id
//! is read again, etcd resumes. After such an end it does not, not even where no final snapshot could be taken: another etcd may
//! have gone on from there, or from an older snapshot. An etcd without data has nothing to lose: it waits until it is the owner.
//!
//! An id is the identity of a seed and an epoch that rises with every change of owners, as in `seed-a/7`. Ids are compared exactly, so
//! a seed that loses ownership and gets it back has another id, also where it did not notice: data that were served as another id are
//! not served. An id of an earlier epoch than the own one comes from a name server that is behind, and nothing is learnt from it. An id
//! without an epoch is compared like any other, and can do neither of the two.
//!
//! A member that has joined the etcd of another owner also serves while the record names that one ([`Facts::joined_id`]): both are one
//! etcd, until the record names the own id.

use repot_api::conditions::Reason;
use repot_apimachinery::time::Time;

use crate::{
    handover::{self, Evidence},
    timing::{Timing, epoch},
};

/// What a look at the record gave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The values of the record; none where there is no such record.
    Record(Vec<String>),
    /// The name could not be resolved.
    Unresolvable,
    /// The look was broken off on our side.
    ContextError,
    /// It took longer than it may.
    Slow,
}

/// What is remembered of earlier looks; it does not survive a restart, and need not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// When the newest look *began* that gave the own id.
    pub confirmed: Option<Time>,
    /// When the newest look began that gave somebody else or nobody, where none since has given the own id.
    pub lost: Option<Time>,
    /// Since when the record is known to name the own id without a break, rounded up; `None` where it was seen to name somebody else
    /// since, an owner of an earlier epoch included.
    pub named_since: Option<Time>,
}

/// Whether etcd runs, and whom it serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Etcd {
    /// It serves clients.
    Serves,
    /// It listens only where the final snapshot is taken from.
    Private,
    /// It does not run.
    Stopped,
}

/// What happened to this etcd before. Unlike [`Seen`] it has to survive a restart, beside the data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OwnershipHistory {
    /// It has no data: it never ran.
    #[default]
    NoData,
    /// Nothing that would keep it from serving.
    Sound,
    /// Its clients were cut off because the record named somebody else, or nobody.
    CutOff,
    /// So they were, and the final snapshot of its data is in the store.
    FinalSnapshot,
    /// Its data were last served as another owner id. Whether another etcd has served in between was not noticed.
    AnotherId,
}

/// What is known at the moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    /// What the look gave.
    pub answer: Answer,
    /// When the look began that gave `answer`.
    pub begun: Time,
    /// The owner id of this etcd, such as `seed-a/7`.
    pub own_id: String,
    /// The owner id of the etcd that this member has joined, where it has joined that of another owner. While the record names that one,
    /// members of both serve as one etcd.
    pub joined_id: Option<String>,
    /// What is remembered of earlier looks at the record.
    pub seen: Seen,
    /// Whether etcd runs at the moment, and whom it serves.
    pub etcd: Etcd,
    /// What happened before, as far as the data and the store tell.
    pub past: OwnershipHistory,
    /// What is known of the owner before, where an etcd without data goes on from its snapshots.
    pub continues: Option<Evidence>,
}

/// What the agent does with etcd after a look at the record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Go on, and end etcd by itself at `until` unless something newer is decided before.
    Serve {
        /// The end of the lease.
        until: Time,
    },
    /// End etcd now, before anything else; look again at once.
    StopEtcd(Reason),
    /// Cut off all clients now, before anything else, and let etcd run on for the final snapshot where that is possible; look again at
    /// once.
    CutOffClients(Reason),
    /// Take the final snapshot of an etcd that no client reaches, started for that where it does not run, and end it.
    TakeFinalSnapshot(Reason),
    /// Do not start etcd.
    StayDown(Reason),
    /// Start etcd and serve, and end it by itself at `until` unless something newer is decided before.
    Resume {
        /// The end of the lease.
        until: Time,
    },
}

/// What to do at `now`, and what to remember.
#[must_use]
pub fn decide(facts: &Facts, timing: &Timing, now: Time) -> (Verdict, Seen) {
    let seen = remember(facts, timing, now);
    let until = seen.confirmed.map_or(Time(0), |begun| begun.after(timing.lease()));
    let confirmed = now < until;
    let verdict = match (seen.lost.is_some(), confirmed, facts.etcd) {
        (true, _, Etcd::Serves) => Verdict::CutOffClients(lost("the record names another owner")),
        // Nothing is lost with it either: it may be the next owner, started early.
        (true, ..) if facts.past == OwnershipHistory::NoData => {
            Verdict::StayDown(lost("the record names another owner so far, and there are no data to save"))
        }
        (true, ..) if facts.past == OwnershipHistory::FinalSnapshot => {
            Verdict::StayDown(lost("the record names another owner, and the final snapshot is taken"))
        }
        // A snapshot of them would be of an earlier epoch than the last one.
        (_, true, Etcd::Private | Etcd::Stopped) | (true, ..)
            if facts.past == OwnershipHistory::AnotherId =>
        {
            Verdict::StayDown(Reason::new(
                "OwnerIdChanged",
                "the data were served as another owner id, and another etcd may have gone on since then; restore from the newest \
                 backup of the last owner",
            ))
        }
        (true, ..) => Verdict::TakeFinalSnapshot(lost("the record names another owner")),
        (false, true, Etcd::Serves) => Verdict::Serve { until },
        (false, true, _) if facts.past == OwnershipHistory::FinalSnapshot => Verdict::StayDown(Reason::new(
            "FinalSnapshotTaken",
            "another etcd may have gone on from the final snapshot; restore from the newest backup of the last owner",
        )),
        (false, true, _) if facts.past == OwnershipHistory::CutOff => Verdict::StayDown(Reason::new(
            "CutOff",
            "another etcd may have gone on from an older snapshot; restore from the newest backup of the last owner",
        )),
        (false, true, Etcd::Private) => {
            Verdict::StopEtcd(Reason::new("NotForClients", "it runs for a snapshot only"))
        }
        (false, true, Etcd::Stopped) => match waits(facts, &seen, timing, now) {
            Some(why) => Verdict::StayDown(why),
            None => Verdict::Resume { until },
        },
        (false, false, Etcd::Serves | Etcd::Private) => Verdict::StopEtcd(unknown(facts)),
        (false, false, Etcd::Stopped) => Verdict::StayDown(unknown(facts)),
    };
    (verdict, seen)
}

/// Why an etcd that goes on from the snapshots of another one does not begin yet.
fn waits(facts: &Facts, seen: &Seen, timing: &Timing, now: Time) -> Option<Reason> {
    let evidence = facts.continues.as_ref().filter(|_| facts.past == OwnershipHistory::NoData)?;
    handover::decide(&facts.own_id, seen.named_since, evidence, timing, now).err()
}

fn remember(facts: &Facts, timing: &Timing, now: Time) -> Seen {
    let seen = facts.seen;
    // Looks may overtake each other: what began before the newest one that taught something teaches nothing.
    if seen.confirmed.max(seen.lost).is_some_and(|newest| facts.begun < newest) {
        return seen;
    }
    match &facts.answer {
        Answer::Record(values) if *values == [facts.own_id.clone()] => {
            // Without an epoch, somebody else may have been the owner while nothing was learnt.
            let gap = seen.confirmed.map(|last| facts.begun.since(last));
            let unbroken = epoch(&facts.own_id).is_some() || gap.is_some_and(|gap| gap <= timing.lease());
            let named_since = seen.named_since.filter(|_| unbroken).or(Some(Time(now.0 + 1)));
            Seen { confirmed: Some(facts.begun), lost: None, named_since }
        }
        // One etcd, of which this member is a part: its quorum decides on writes, whoever is the owner of it. Nobody waits for the end of
        // another owner because of that.
        Answer::Record(values) if is_joined(values, facts) => {
            Seen { confirmed: Some(facts.begun), lost: None, named_since: None }
        }
        // Ours among others: somebody is changing it. Nothing is learnt from that.
        Answer::Record(values) if values.contains(&facts.own_id) => seen,
        // A server that is behind, or a record that was put back: then its owner may serve for as long once more.
        Answer::Record(values) if are_older(values, &facts.own_id) => Seen { named_since: None, ..seen },
        Answer::Record(_) => Seen { confirmed: None, lost: Some(facts.begun), named_since: None },
        Answer::Unresolvable | Answer::ContextError | Answer::Slow => seen,
    }
}

/// Whether the record names the owner of the etcd that this member has joined, and nobody else.
fn is_joined(values: &[String], facts: &Facts) -> bool {
    facts.joined_id.as_ref().is_some_and(|id| values == std::slice::from_ref(id))
}

/// Whether a server that is behind shows owners from before the own epoch.
fn are_older(values: &[String], own_id: &str) -> bool {
    let own = epoch(own_id);
    !values.is_empty() && values.iter().all(|value| epoch(value).is_some_and(|epoch| Some(epoch) < own))
}

fn lost(message: &str) -> Reason {
    Reason::new("NotOwner", message)
}

fn unknown(facts: &Facts) -> Reason {
    match &facts.answer {
        Answer::Record(values) if are_older(values, &facts.own_id) && !is_joined(values, facts) => {
            Reason::new(
                "OwnerOlder",
                "the record names an owner of an earlier epoch; see whether a name server is behind, or the record was not changed yet",
            )
        }
        Answer::Record(values) if *values == [facts.own_id.clone()] || is_joined(values, facts) => {
            Reason::new("OwnerStale", "the record named us, but that is longer ago than an answer counts")
        }
        Answer::Record(_) => Reason::new("OwnerAmbiguous", "the record names us and others"),
        Answer::Unresolvable => Reason::new("OwnerUnresolvable", "the record cannot be resolved; see DNS"),
        Answer::ContextError => Reason::new("OwnerNotAsked", "the look at the record was broken off"),
        Answer::Slow => Reason::new("OwnerSlow", "the record is not answered in time; see DNS"),
    }
}
