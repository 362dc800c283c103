//! A person who repairs what made a migration fail, and asks to try again.

use super::{clusters::Clusters, rules::LONGEST};
use crate::{
    ledger::Phase,
    migration::Side,
    named::Named,
    tests::sim::{Ledgers, NEVER},
};

/// How long it takes until somebody looks at a migration that has failed, in seconds.
const PATIENCE: u64 = 3_600;
/// How often somebody tries again.
const RETRIES: u32 = 2;

impl Clusters {
    /// Repairs what never ends by itself, some time after the end, and raises `spec.retry`.
    pub(super) fn run_retries(&mut self, ledgers: &Ledgers<Self>) {
        let dead = self.faults.cut_off.filter(|(.., until)| *until == NEVER).map(|(at, ..)| Side::ALL[at]);
        let mut living = ledgers.iter().filter(|(side, _)| Some(**side) != dead);
        let has_ended = living.all(|(_, ledger)| ledger.phase.is_end());
        let has_failed = has_ended && ledgers.values().any(|ledger| ledger.phase == Phase::Failed);
        self.failed_at = if has_failed { self.failed_at.or(Some(self.now)) } else { None };
        let is_looked_at = self.failed_at.is_some_and(|failed| self.now > failed + PATIENCE);
        if !is_looked_at || self.retry >= RETRIES || self.play.is_some() {
            return;
        }
        if self.failed_at.is_some_and(|failed| failed > self.trouble.over_at + LONGEST) {
            self.broken = Some("ended too late");
        }
        self.faults.cut_off = self.faults.cut_off.filter(|(.., until)| *until != NEVER);
        self.trouble.stuck_until = 0;
        for site in [&mut self.source, &mut self.destination] {
            for workload in [&mut site.controllers, &mut site.api, &mut site.etcd.members] {
                workload.stuck_until = 0;
            }
        }
        self.trouble.over_at = self.now;
        (self.ended_at, self.failed_at) = (None, None);
        self.retry += 1;
    }
}
