//! When an etcd that goes on from the snapshots of another one may begin.
//!
//! The owner before may still serve when the record has changed: it has not looked yet, or its answers come from a cache. It has
//! ended when the record has named the new owner for [`Timing::wait`]. It has ended sooner where it says so itself: a final snapshot
//! is taken when no member serves clients any more, and names the id whose time it ends. An epoch that was ended so never begins again.

use std::str::FromStr;

use jiff::{SignedDuration, Timestamp};
use repot_api::conditions::Reason;
use repot_apimachinery::time::Time;
use serde::{Deserialize, Serialize};

use crate::{
    snapshot::SnapshotName,
    timing::{Timing, epoch},
};

/// How far apart clocks of two machines may be.
const CLOCKS: SignedDuration = SignedDuration::from_mins(5);

/// What the stores tell of the owner before.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Evidence {
    /// The own id was found to be free to begin, earlier.
    pub recorded: bool,
    /// The id that the newest snapshot of the source ends, where it is a final one and says so.
    pub final_of: Option<String>,
    /// The same of the store into which this etcd writes.
    pub own_final_of: Option<String>,
}

/// Why an etcd may begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cleared {
    /// Nobody was the owner before: epochs begin with 1.
    FirstOwner,
    /// This was found earlier.
    Recorded,
    /// The owner of the epoch before took its final snapshot.
    FinalSnapshot,
    /// The record has named the own id for long enough.
    Waited,
}

impl Cleared {
    /// As it is recorded.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::FirstOwner => "FirstOwner",
            Self::Recorded => "Recorded",
            Self::FinalSnapshot => "FinalSnapshot",
            Self::Waited => "Waited",
        }
    }
}

/// Whether the etcd of this id may begin at `now`; `named_since`: when the record is known to name it, without a break.
///
/// # Errors
/// Why not yet.
pub fn decide(
    own_id: &str,
    named_since: Option<Time>,
    evidence: &Evidence,
    timing: &Timing,
    now: Time,
) -> Result<Cleared, Reason> {
    let Some(since) = named_since else {
        return Err(Reason::new("NotOwner", "the record has not been seen to name the own id"));
    };
    let own = epoch(own_id);
    let ended = evidence.final_of.as_deref().and_then(epoch);
    let last_ended = ended.max(evidence.own_final_of.as_deref().and_then(epoch));
    if let (Some(own), Some(last)) = (own, last_ended)
        && last >= own
    {
        let message = format!(
            "a final snapshot ends epoch {last}, and the own epoch is {own}: another etcd may have gone on from there; give the \
             owner a later epoch"
        );
        return Err(Reason::new("EpochEnded", message));
    }
    if own == Some(1) {
        return Ok(Cleared::FirstOwner);
    }
    // An id without an epoch may be back after somebody else.
    if evidence.recorded && own.is_some() {
        return Ok(Cleared::Recorded);
    }
    // Of an earlier epoch it says nothing: somebody else was the owner in between.
    if ended.is_some() && ended == own.and_then(|own| own.checked_sub(1)) {
        return Ok(Cleared::FinalSnapshot);
    }
    let end = since.after(timing.wait());
    if now < end {
        let message = format!(
            "the owner before may still serve; there is no final snapshot of it, so this etcd begins when the record has named it \
             for {} s, in {} s",
            timing.wait().as_secs(),
            end.since(now).as_secs()
        );
        return Err(Reason::new("PreviousOwnerMayServe", message));
    }
    Ok(Cleared::Waited)
}

/// A hand-over that is over: from then on the etcd of this id may begin.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Handover {
    /// Id of the etcd that may begin.
    pub owner_id: String,
    /// Since when the record was seen to name it.
    pub named_since: Timestamp,
    /// When the etcd was free to begin.
    pub cleared_at: Timestamp,
    /// Why it was: `Waited`, `FinalSnapshot` of the owner before, or `FirstOwner`.
    pub reason: String,
    /// Name of that final snapshot; `None` where the reason is another one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub final_snapshot: Option<String>,
}

impl Handover {
    /// Whether it can be of a hand-over that is over at `now`. It is shown to people and written into a status, and whoever can write
    /// the store can write it.
    #[must_use]
    pub fn makes_sense(&self, now: Timestamp) -> bool {
        let words = [Cleared::FirstOwner, Cleared::FinalSnapshot, Cleared::Waited].map(Cleared::word);
        let times = Timestamp::UNIX_EPOCH <= self.named_since
            && self.named_since <= self.cleared_at
            && self.cleared_at <= now.saturating_add(CLOCKS).unwrap_or(now);
        let names_snapshot =
            self.final_snapshot.as_ref().is_none_or(|name| SnapshotName::from_str(name).is_ok());
        times && words.contains(&self.reason.as_str()) && names_snapshot
    }
}
