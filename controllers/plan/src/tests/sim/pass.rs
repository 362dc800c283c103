//! One pass of a simulated controller: it decides, records and acts; in between it may crash.

use repot_apimachinery::time::Time;

use super::{Effect, Fate, Model, Observed, PendingEffect, Side, Sim, View, rules};
use crate::{
    flow::{Decision, Evidence, Input, LedgerOf},
    named::Named,
};

impl<M: Model> Sim<M> {
    pub(super) fn reconcile(&mut self, side: Side<M>) -> Result<bool, String> {
        let (observed, seen) = self.model.observe(side);
        if !self.build.remembers {
            self.store.forget(side);
        }
        let mut decision = self.decide(side, &observed, self.store.ledger(side), self.store.others(side));
        rules::decision(self, side, &decision)?;
        M::check_decision(self, side, &observed, &decision)?;
        let version = self.store.version;
        let is_over = self.store.ledger(side).phase.is_end()
            && decision.effects.is_empty()
            && decision.records.is_none();
        self.model.interrupt(side, &observed, self.store.ledgers(), &mut decision);
        self.reconcile_deposed(side, observed, &seen)?;
        if !self.dies() {
            self.carry_out(side, decision, &seen, version)?;
        }
        Ok(is_over)
    }

    fn decide(
        &self,
        side: Side<M>,
        observed: &Observed<M>,
        ledger: &LedgerOf<M::Flow>,
        others: &Evidence<M::Flow>,
    ) -> Decision<M::Flow> {
        let now = Time(self.model.clock(side));
        M::decide(&self.build_of(side), &Input { side, observed, ledger, others, now })
    }

    /// A controller that was replaced, or whose cache is stale, decides on what it saw then. Its records are refused, its effects may
    /// still arrive.
    fn reconcile_deposed(
        &mut self,
        side: Side<M>,
        observed: Observed<M>,
        seen: &M::Seen,
    ) -> Result<(), String> {
        let chance = self.model.trouble().stale;
        if !self.rng.percent(chance) {
            return Ok(());
        }
        let (ledger, others) = (self.store.ledger(side).clone(), self.store.others(side).to_vec());
        let view = View { observed, seen: seen.clone(), ledger, others, version: self.store.version };
        let Some(view) = self.deposed.insert(side, view) else { return Ok(()) };
        let decision = self.decide(side, &view.observed, &view.ledger, &view.others);
        self.carry_out(side, decision, &view.seen, view.version)
    }

    /// Records, and then effects; in between, the controller may crash.
    fn carry_out(
        &mut self,
        side: Side<M>,
        decision: Decision<M::Flow>,
        seen: &M::Seen,
        version: u64,
    ) -> Result<(), String> {
        let Decision { effects, records, .. } = decision;
        if self.build.records_first && !self.record(side, records.as_ref(), version)? {
            return Ok(());
        }
        for effect in effects {
            if self.dies() {
                return Ok(());
            }
            self.act(side, effect, seen.clone());
        }
        if !self.build.records_first {
            self.record(side, records.as_ref(), version)?;
        }
        Ok(())
    }

    fn dies(&mut self) -> bool {
        let chance = self.model.trouble().crash;
        self.rng.percent(chance)
    }

    /// Whether the controller knows that the write was stored.
    fn record(
        &mut self,
        side: Side<M>,
        next: Option<&LedgerOf<M::Flow>>,
        version: u64,
    ) -> Result<bool, String> {
        let Some(next) = next else { return Ok(true) };
        if self.build.versioned && version != self.store.version {
            return Ok(false);
        }
        let chance = self.model.trouble().lost_write;
        let (is_lost, has_arrived) = (self.rng.percent(chance), self.rng.percent(50));
        if !is_lost || has_arrived {
            self.log.push(|| {
                let change = self.store.describe(side, next);
                format!("{} {} records {change}", self.model.now(), side.name())
            });
            self.store.put(&self.build_of(side), side, next)?;
        }
        Ok(!is_lost)
    }

    fn act(&mut self, side: Side<M>, effect: Effect<M>, seen: M::Seen) {
        match self.model.fate(side, &effect) {
            Some(Fate::Lost) => {}
            Some(Fate::Late(after)) => self.send(after, side, effect, seen),
            Some(Fate::Again(times)) => {
                for after in times {
                    self.send(*after, side, effect.clone(), seen.clone());
                }
                self.arrives(side, &effect, &seen);
            }
            None => self.act_by_chance(side, effect, seen),
        }
    }

    fn act_by_chance(&mut self, side: Side<M>, effect: Effect<M>, seen: M::Seen) {
        let trouble = self.model.trouble();
        let (late, twice, lost) = (trouble.late, trouble.twice, trouble.lost_effect);
        let latest = trouble.latest.max(1);
        if self.rng.percent(twice) {
            let after = self.rng.within(1, latest);
            self.send(after, side, effect.clone(), seen.clone());
        }
        if self.rng.percent(lost) {
            return;
        }
        if self.rng.percent(late) {
            let after = self.rng.within(1, latest);
            return self.send(after, side, effect, seen);
        }
        self.arrives(side, &effect, &seen);
    }

    fn send(&mut self, after: u64, side: Side<M>, effect: Effect<M>, seen: M::Seen) {
        let at = self.model.now() + after;
        self.flights.push(PendingEffect { at, side, effect, seen });
    }

    fn arrives(&mut self, side: Side<M>, effect: &Effect<M>, seen: &M::Seen) {
        self.log.push(|| format!("{} {} does {effect:?}", self.model.now(), side.name()));
        self.model.apply(side, effect, seen, self.build.guarded);
    }
}
