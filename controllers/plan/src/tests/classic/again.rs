//! Another migration of the same Shoot: once more after a rollback, or back after a success.

use super::{clusters::Clusters, people::SetByHand};
use crate::{
    ledger::Phase,
    migration::{Side, observed::Operation},
    tests::sim::{Ledgers, NEVER},
};

/// Migrations of one Shoot at most.
const MIGRATIONS: u32 = 3;

impl Clusters {
    /// Whether another migration follows, now that nothing happens any more.
    pub(super) fn comes_again(&mut self, ledgers: &Ledgers<Self>) -> bool {
        let is_dead = self.faults.cut_off.is_some_and(|(_, _, until)| until == NEVER);
        let have_all = |phases: &[Phase]| ledgers.values().all(|ledger| phases.contains(&ledger.phase));
        // What a person has to remove first is left to that person.
        let has_moved = have_all(&[Phase::Succeeded]) && self.source.left().is_empty();
        let is_back = have_all(&[Phase::RolledBack, Phase::Cancelled]);
        let can_come = (has_moved || is_back) && !is_dead && !self.finalizer && self.play.is_none();
        can_come && self.migrations < MIGRATIONS && self.rng.percent(50)
    }

    pub(super) fn begin_again(&mut self, goes_back: bool) {
        if goes_back {
            std::mem::swap(&mut self.source, &mut self.destination);
            std::mem::swap(&mut self.from, &mut self.to);
            self.zone.swap_sides();
            let other = if self.client.0 == Side::Source { Side::Destination } else { Side::Source };
            self.client.0 = other;
        }
        for site in [&mut self.source, &mut self.destination] {
            for requests in [&mut site.dns_records, &mut site.infrastructure, &mut site.extensions] {
                requests.begin();
            }
        }
        self.migrations += 1;
        self.retry = 0;
        self.operation = Operation::Other;
        self.spec_seed = self.to.to_owned();
        self.migration_version += 1;
        (self.copied, self.final_copied, self.standby) = (None, None, false);
        (self.source_backup_entry, self.machine_guard) = (false, false);
        self.is_hibernation_changed = false;
        // What people have set at the source they have set for good; the rest is as the table left it.
        let SetByHand { api, etcd, destination, .. } = self.by_hand;
        let is_theirs = goes_back && destination;
        self.by_hand = SetByHand {
            api: api || is_theirs,
            etcd: etcd || is_theirs,
            destination: false,
            namespace: false,
            ..self.by_hand
        };
        self.former_ttl = self.api_ttl;
        (self.away_until, self.ended_at) = ([0; 3], None);
        self.zone.begin();
        self.draw_trouble();
    }
}
