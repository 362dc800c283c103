//! Which peers are lost, from what they have answered so far. No I/O and no clock here.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use super::endpoints::Peer;

/// After so many checks without an answer, one a second, a peer counts as lost.
const MISSES: u32 = 3;
/// Sleeping between checks, or checking, takes a second. Where either takes longer than this, the process was paused.
const PAUSE: Duration = Duration::from_secs(2);
/// How long after its first mark a Pod is not marked again. It doubles with each further mark, up to [`LONGEST_BACKOFF`].
const BACKOFF: Duration = Duration::from_secs(30);
const LONGEST_BACKOFF: Duration = Duration::from_secs(600);
/// So long after the last mark of a Pod its marks are forgotten.
const MEMORY: Duration = Duration::from_secs(1800);

/// One check of all peers.
pub(super) struct Round<'a> {
    /// When the check ended.
    pub now: Instant,
    /// Time since the previous round and what followed from it.
    pub slept: Duration,
    /// Time from its beginning to its end.
    pub took: Duration,
    /// Whether this server is among the ready endpoints.
    pub is_own_ready: bool,
    /// All other ready endpoints, and whether they answered.
    pub answers: Vec<(&'a Peer, bool)>,
}

/// What was seen of one Pod.
#[derive(Default)]
struct Seen {
    /// Whether it has ever answered this server. A peer that this server never reached may be behind a network policy.
    has_answered: bool,
    misses: u32,
    marks: u32,
    marked: Option<Instant>,
    /// Whether the log has why it was not marked.
    is_logged: bool,
}

impl Seen {
    fn backoff(&self) -> Duration {
        let doubled = BACKOFF.saturating_mul(1 << self.marks.saturating_sub(1).min(8));
        doubled.min(LONGEST_BACKOFF)
    }

    fn may_be_marked(&self, now: Instant) -> bool {
        self.marked.is_none_or(|marked| now.saturating_duration_since(marked) >= self.backoff())
    }

    fn is_forgotten(&self, now: Instant) -> bool {
        self.marked.is_none_or(|marked| now.saturating_duration_since(marked) >= MEMORY)
    }
}

/// Counts answers of peers, by the UIDs of their Pods.
#[derive(Default)]
pub(super) struct Judge(BTreeMap<String, Seen>);

impl Judge {
    /// Takes a round in, and gives the UIDs of peers that are to be marked as not ready.
    ///
    /// There are none where this server cannot tell that it is not the one that is cut off: it is not ready itself, its process
    /// was paused, or there are several peers and none of them answers. A server that marks a Pod makes sure, too, that it
    /// reaches kube-apiserver.
    pub(super) fn round(&mut self, round: &Round<'_>) -> Vec<String> {
        self.forget_absent(round);
        if round.slept > PAUSE || round.took > PAUSE {
            self.0.values_mut().for_each(|seen| seen.misses = 0);
            return Vec::new();
        }
        for (peer, has_answered) in &round.answers {
            let seen = self.0.entry(peer.uid.clone()).or_default();
            if *has_answered {
                (seen.has_answered, seen.misses, seen.is_logged) = (true, 0, false);
            } else {
                seen.misses = seen.misses.saturating_add(1);
            }
        }
        let is_alone = round.answers.len() > 1 && !round.answers.iter().any(|(_, answered)| *answered);
        if !round.is_own_ready || is_alone {
            return Vec::new();
        }
        let is_lost =
            |seen: &Seen| seen.has_answered && seen.misses >= MISSES && seen.may_be_marked(round.now);
        self.0.iter().filter(|(_, seen)| is_lost(seen)).map(|(uid, _)| uid.clone()).collect()
    }

    /// Peers that are not ready any more are not checked; what is known of their marks stays for a while.
    fn forget_absent(&mut self, round: &Round<'_>) {
        self.0.retain(|uid, seen| {
            if round.answers.iter().any(|(peer, _)| &peer.uid == uid) {
                return true;
            }
            (seen.misses, seen.is_logged) = (0, false);
            !seen.is_forgotten(round.now)
        });
        for seen in self.0.values_mut().filter(|seen| seen.is_forgotten(round.now)) {
            (seen.marks, seen.marked) = (0, None);
        }
    }

    /// How many ready peers do not answer.
    pub(super) fn unreachable(&self) -> usize {
        self.0.values().filter(|seen| seen.misses >= MISSES).count()
    }

    /// Takes in that a Pod was marked as not ready.
    pub(super) fn marked(&mut self, uid: &str, now: Instant) {
        if let Some(seen) = self.0.get_mut(uid) {
            (seen.marks, seen.marked, seen.misses) = (seen.marks.saturating_add(1), Some(now), 0);
        }
    }

    /// Takes in that a Pod could not be marked. Whether that is the first time since its last answer.
    pub(super) fn not_marked(&mut self, uid: &str) -> bool {
        self.0.get_mut(uid).is_some_and(|seen| !std::mem::replace(&mut seen.is_logged, true))
    }
}

#[cfg(test)]
#[path = "judge_tests.rs"]
mod tests;
