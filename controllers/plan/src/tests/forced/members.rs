//! Members that check the owner record, the zone that has it, and the bucket that they store snapshots in.

use crate::{
    migration::observed::OwnerId,
    tests::{classic::site::Workload, rng::Rng},
};

/// TTL of the owner record.
const TTL: u64 = 30;
/// How long a member serves after it began a look that named it.
const BELIEF: u64 = 40;
const GRACE: u64 = 15;
/// What the next owner waits for.
pub(super) const WAIT: u64 = TTL + BELIEF + GRACE;

/// From when until when something lasts.
pub(super) type Window = (u64, u64);

pub(super) fn is_in(window: Window, now: u64) -> bool {
    (window.0..window.1).contains(&now)
}

/// How members are built wrongly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Defect {
    /// The next owner does not wait.
    NoWait,
    /// A member believes an answer for longer than its TTL.
    StaleCache,
    /// A member that starts again serves until DNS tells it not to.
    ResumesAfterLoss,
}

/// The owner record, whose servers differ for a while after a write.
#[derive(Clone, Debug)]
pub(super) struct OwnerZone {
    record: OwnerId,
    before: OwnerId,
    agreed_at: u64,
    /// When the record was written last.
    pub(super) written_at: u64,
    /// How long servers differ after a write.
    pub(super) lag: u64,
    /// When no server answers or takes writes.
    pub(super) silent: Window,
    /// A record was written whose epoch was not higher than the one before.
    pub(super) went_back: bool,
}

impl OwnerZone {
    pub(super) fn new(owner: OwnerId) -> Self {
        let before = owner.clone();
        Self { record: owner, before, agreed_at: 0, written_at: 0, lag: 0, silent: (0, 0), went_back: false }
    }

    /// The record by the last write, whoever sees it.
    pub(super) fn record(&self) -> &OwnerId {
        &self.record
    }

    /// What all servers answer.
    pub(super) fn answer(&self, now: u64) -> Option<&OwnerId> {
        (now >= self.agreed_at && !is_in(self.silent, now)).then_some(&self.record)
    }

    /// What one of them answers to a cache.
    fn one_answer(&self, now: u64, is_slow: bool) -> Option<&OwnerId> {
        let record = if now < self.agreed_at && is_slow { &self.before } else { &self.record };
        (!is_in(self.silent, now)).then_some(record)
    }

    /// A record is replaced by one of a higher epoch only, if `guarded`.
    pub(super) fn write(&mut self, owner: &OwnerId, now: u64, guarded: bool) {
        let is_newer = owner.epoch > self.record.epoch;
        if is_in(self.silent, now) || (guarded && !is_newer) || self.record == *owner {
            return;
        }
        self.went_back |= !is_newer;
        self.before = std::mem::replace(&mut self.record, owner.clone());
        (self.written_at, self.agreed_at) = (now, now + self.lag);
    }
}

/// The bucket of the source.
#[derive(Clone, Debug, Default)]
pub(super) struct Bucket {
    /// What its newest snapshot holds, and when it was stored.
    pub(super) newest: (Vec<u32>, u64),
    /// The final snapshot, and the epoch that it ends.
    pub(super) last: Option<(u64, Vec<u32>)>,
}

/// The members of one seed.
#[derive(Clone, Debug)]
pub(super) struct Members {
    pub(super) workload: Workload,
    pub(super) own: OwnerId,
    pub(super) volumes: String,
    /// What the volumes hold.
    pub(super) content: Option<Vec<u32>>,
    /// The volumes have lost ownership.
    pub(super) is_lost: bool,
    pub(super) serving: bool,
    /// An answer that a cache has, and since when.
    cached: Option<(OwnerId, u64)>,
    /// When the last look began that named these members.
    named_at: Option<u64>,
    /// Since when all servers have named them.
    named_since: Option<u64>,
    /// When the final snapshot is stored.
    stores_at: Option<u64>,
    /// By how many thousandths the clock is slow.
    pub(super) slow: u64,
}

impl Members {
    pub(super) fn new(own: OwnerId, workload: Workload, content: Option<Vec<u32>>) -> Self {
        Self {
            workload,
            own,
            volumes: String::new(),
            content,
            is_lost: false,
            serving: false,
            cached: None,
            named_at: None,
            named_since: None,
            stores_at: None,
            slow: 0,
        }
    }

    /// Members of the source ask a cache. Without a zone they get no answer.
    pub(super) fn look(&mut self, zone: Option<&OwnerZone>, now: u64, defect: Option<Defect>, rng: &mut Rng) {
        self.workload.advance(now);
        if self.workload.running == 0 {
            self.stop(defect);
            return;
        }
        let ttl = if defect == Some(Defect::StaleCache) { 20 * TTL } else { TTL };
        self.cached.take_if(|(_, at)| now - *at >= ttl);
        if self.cached.is_none() || (rng.percent(20) && defect != Some(Defect::StaleCache)) {
            let answer = zone.and_then(|zone| zone.one_answer(now, rng.percent(50)));
            self.cached = answer.map(|owner| (owner.clone(), now)).or(self.cached.take());
        }
        match &self.cached {
            Some((owner, _)) if *owner == self.own => self.named_at = Some(now),
            Some((owner, _)) if owner.epoch > self.own.epoch && !self.is_lost => {
                (self.is_lost, self.stores_at) = (true, Some(now + rng.within(0, 60)));
            }
            None if defect == Some(Defect::ResumesAfterLoss) => self.named_at = Some(now),
            Some(_) | None => {}
        }
        let belief = BELIEF * (1_000 + self.slow) / 1_000;
        let is_believed = self.named_at.is_some_and(|at| now - at < belief);
        self.serving = is_believed && !self.is_lost && self.content.is_some();
    }

    fn stop(&mut self, defect: Option<Defect>) {
        (self.serving, self.cached, self.named_at, self.named_since) = (false, None, None, None);
        self.is_lost &= defect != Some(Defect::ResumesAfterLoss);
    }

    /// Members of the source store deltas while they serve, and the final snapshot when they have lost ownership.
    pub(super) fn store(&mut self, bucket: &mut Bucket, now: u64, rng: &mut Rng) {
        let content = self.content.clone().unwrap_or_default();
        if self.serving && rng.percent(30) {
            bucket.newest = (content.clone(), now);
        }
        if self.stores_at.take_if(|at| now >= *at).is_some() {
            bucket.last = Some((self.own.epoch, content));
        }
    }

    /// Members of the destination ask all servers of the zone, and found their etcd when the owner before has ended. Whether they have just
    /// done so without a final snapshot.
    pub(super) fn found(
        &mut self,
        zone: &OwnerZone,
        bucket: Option<&Bucket>,
        now: u64,
        defect: Option<Defect>,
    ) -> bool {
        self.workload.advance(now);
        if self.workload.running == 0 {
            self.stop(None);
            return false;
        }
        match zone.answer(now) {
            Some(owner) if *owner == self.own => {
                self.named_since.get_or_insert(now);
                self.named_at = Some(now);
            }
            Some(_) | None => self.named_since = None,
        }
        let is_founded = self.content.is_some();
        let (Some(since), Some(bucket), false) = (self.named_since, bucket, is_founded) else {
            self.serving = is_founded && self.named_at.is_some_and(|at| now - at < BELIEF);
            return false;
        };
        let last = bucket.last.as_ref().filter(|(epoch, _)| epoch + 1 == self.own.epoch);
        // The clock may be fast by as much as that of the source is slow.
        let waited = (now - since) * (1_000 + self.slow) / 1_000;
        let has_waited = waited > WAIT + WAIT / 40 || defect == Some(Defect::NoWait);
        self.content = match last {
            Some((_, content)) => Some(content.clone()),
            None if has_waited => Some(bucket.newest.0.clone()),
            None => None,
        };
        self.serving = self.content.is_some();
        self.serving && last.is_none()
    }
}
