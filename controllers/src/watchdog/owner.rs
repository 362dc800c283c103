//! Who owns one Shoot, by the owner record that an Etcd of its Namespace names.

use std::{
    fmt,
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use repot_etcd::{
    agent::supervisor::STOP,
    owner::{Settings, freshness::Freshness},
};
use repot_etcd_core::{ownership::Answer, timing::epoch};
use tokio::time::timeout;

use crate::etcd::{api::OwnerCheck, render::record_of_owner};

/// The grace of an owner record is no matter of the proxy; this one fits each timeout.
const GRACE: &str = "1h";
/// The shortest time between two queries that taught nothing.
const PAUSE: Duration = Duration::from_secs(2);

/// How often the owner record is queried, and for how long an answer counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// A write is let through without a query while the last answer is younger than this.
    pub interval: Duration,
    /// Longest duration of one query.
    pub timeout: Duration,
    /// While queries teach nothing, writes are let through until the last answer that named this seed is so old.
    pub max_age: Duration,
}

/// Why a write is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotOwner {
    /// The owner record names somebody else, or nobody.
    Lost {
        /// Values of the record; empty where there is no record.
        values: Vec<String>,
        /// The owner ID of this seed.
        own: String,
    },
    /// The owner record could not be queried for too long.
    Unknown {
        /// Why.
        why: String,
        /// Since when the ownership is not confirmed; `None` where it never was.
        age: Option<Duration>,
    },
}

impl fmt::Display for NotOwner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lost { values, own } if values.is_empty() => {
                write!(f, "there is no owner record, so nobody owns the Shoot; this seed was {own}")
            }
            Self::Lost { values, own } => {
                write!(f, "the owner record names {}, and this seed is {own}", values.join(", "))
            }
            Self::Unknown { why, age: Some(age) } => {
                write!(f, "the owner record was last confirmed {} s ago: {why}", age.as_secs())
            }
            Self::Unknown { why, age: None } => write!(f, "the owner is not known yet: {why}"),
        }
    }
}

/// What an answer means for this seed.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Meaning {
    Own,
    Other(Vec<String>),
    Nothing(String),
}

/// One owner record. Queries are made one at a time, and only when somebody asks.
#[derive(Debug)]
pub struct OwnerRecord {
    settings: Result<Settings, String>,
    /// The Etcd is gone: any later epoch of the same seed counts as this seed, since nobody says the new one.
    is_orphan: bool,
    timing: Timing,
    freshness: Freshness,
    known: Mutex<LastAnswer>,
    query: tokio::sync::Mutex<()>,
}

#[derive(Clone, Debug, Default)]
struct LastAnswer {
    /// When the last query began, and what it gave.
    last: Option<(Instant, Meaning)>,
    /// When the last query began that gave the own ID.
    confirmed: Option<Instant>,
}

impl OwnerRecord {
    /// The record that this Etcd names.
    #[must_use]
    pub fn new(check: &OwnerCheck, timing: Timing) -> Self {
        let seconds = |time: Duration| format!("{}s", time.as_secs().max(1));
        let mut owner = record_of_owner(check);
        owner.timeout = seconds(timing.timeout);
        owner.interval = seconds(timing.interval);
        owner.grace = GRACE.to_owned();
        let settings = Settings::new(&owner, STOP).map_err(|wrong| wrong.join("; "));
        let ttl = settings.as_ref().map_or(Duration::ZERO, |settings| settings.timing.ttl);
        Self::with(settings, timing, Freshness::new(ttl), false, LastAnswer::default())
    }

    fn with(
        settings: Result<Settings, String>,
        timing: Timing,
        freshness: Freshness,
        is_orphan: bool,
        known: LastAnswer,
    ) -> Self {
        let query = tokio::sync::Mutex::new(());
        Self { settings, is_orphan, timing, freshness, known: Mutex::new(known), query }
    }

    /// The same record, of an Etcd that is gone.
    #[must_use]
    pub fn orphaned(&self) -> Self {
        let freshness =
            Freshness::new(self.settings.as_ref().map_or(Duration::ZERO, |settings| settings.timing.ttl));
        Self::with(self.settings.clone(), self.timing, freshness, true, self.known.lock().clone())
    }

    /// Returns while this seed owns the Shoot: at once where that was confirmed less than an interval ago, otherwise after a query.
    ///
    /// # Errors
    /// [`NotOwner`].
    pub async fn check(&self) -> Result<(), NotOwner> {
        let settings = match &self.settings {
            Ok(settings) => settings,
            Err(why) => {
                return Err(NotOwner::Unknown { why: format!("spec.backup.ownerCheck: {why}"), age: None });
            }
        };
        if let Some(verdict) = self.verdict(&settings.id, Instant::now()) {
            return verdict;
        }
        let _one_at_a_time = self.query.lock().await;
        let begun = Instant::now();
        if let Some(verdict) = self.verdict(&settings.id, begun) {
            return verdict;
        }
        let meaning = match timeout(self.timing.timeout, settings.look_at_all(&self.freshness)).await {
            Ok((answer, why)) => meaning(answer, why, &settings.id, self.is_orphan),
            Err(_) => Meaning::Nothing(format!("no answer within {:?}", self.timing.timeout)),
        };
        let known = {
            let mut known = self.known.lock();
            match &meaning {
                Meaning::Own => known.confirmed = Some(begun),
                // A later failure to query must not bring the confirmation back.
                Meaning::Other(_) => known.confirmed = None,
                Meaning::Nothing(_) => {}
            }
            known.last = Some((begun, meaning));
            known.clone()
        };
        judge(&known, &settings.id, self.timing, Instant::now())
    }

    /// What is known without a query; `None` where one is due.
    fn verdict(&self, own: &str, now: Instant) -> Option<Result<(), NotOwner>> {
        let known = self.known.lock();
        let (begun, meaning) = known.last.as_ref()?;
        let lifetime = match meaning {
            Meaning::Nothing(_) => self.timing.interval.min(PAUSE),
            Meaning::Own | Meaning::Other(_) => self.timing.interval,
        };
        (now.duration_since(*begun) < lifetime).then(|| judge(&known, own, self.timing, now))
    }

    /// Resolves when this seed has lost the Shoot, or when nobody could tell for too long.
    pub async fn until_lost(&self) -> NotOwner {
        loop {
            if let Err(lost) = self.check().await {
                return lost;
            }
            // The next query is due when the last answer is an interval old; a slow one must not be repeated at once.
            let age = self.known.lock().last.as_ref().map_or(Duration::ZERO, |(begun, _)| begun.elapsed());
            let left = self.timing.interval.saturating_sub(age).max(Duration::from_millis(100));
            tokio::time::sleep(left.min(PAUSE)).await;
        }
    }
}

fn judge(known: &LastAnswer, own: &str, timing: Timing, now: Instant) -> Result<(), NotOwner> {
    let age = known.confirmed.map(|begun| now.duration_since(begun));
    match &known.last {
        Some((_, Meaning::Own)) => {
            let is_young = age.is_some_and(|age| age < timing.max_age);
            is_young
                .then_some(())
                .ok_or_else(|| NotOwner::Unknown { why: "the answer came late".to_owned(), age })
        }
        Some((_, Meaning::Other(values))) => {
            Err(NotOwner::Lost { values: values.clone(), own: own.to_owned() })
        }
        Some((_, Meaning::Nothing(why))) => {
            let is_young = age.is_some_and(|age| age < timing.max_age);
            is_young.then_some(()).ok_or_else(|| NotOwner::Unknown { why: why.clone(), age })
        }
        None => Err(NotOwner::Unknown { why: "it was not queried yet".to_owned(), age }),
    }
}

fn meaning(answer: Answer, why: Option<String>, own: &str, is_orphan: bool) -> Meaning {
    let Answer::Record(values) = answer else {
        return Meaning::Nothing(why.unwrap_or_else(|| "the query failed".to_owned()));
    };
    let seed = |id: &str| id.rsplit_once('/').map(|(seed, _)| seed.to_owned());
    let is_own = |value: &String| {
        let is_later = || epoch(value) > epoch(own) && seed(value).is_some() && seed(value) == seed(own);
        value == own || (is_orphan && is_later())
    };
    match values.as_slice() {
        [value] if is_own(value) => Meaning::Own,
        // A name server that is behind: nothing is learnt from it, as with the agents of etcd.
        [_, ..] if values.iter().all(|value| epoch(value).is_some() && epoch(value) < epoch(own)) => {
            Meaning::Nothing(format!("a name server is behind: it answers with {}", values.join(", ")))
        }
        _ => Meaning::Other(values),
    }
}

#[cfg(test)]
#[path = "tests/owner.rs"]
mod tests;
