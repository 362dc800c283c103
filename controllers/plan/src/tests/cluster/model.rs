//! Hosted etcds as a model of the simulation.

use repot_apimachinery::time::Time;

use super::{FaultRates, Truth, Versions, trouble};
use crate::{
    etcd::{
        EtcdFlow, Notes, Side,
        backup::{self, Spec},
        effect::Effect,
        migration,
        observed::Observed,
        restore,
    },
    flow::{self, Decision, Input},
    tests::{
        check,
        rng::Rng,
        sim::{self, Build, Ledgers, Model, Sim},
    },
};

/// Which workflow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::tests) enum Kind {
    Backup,
    Restore,
    Migration,
}

/// The controllers of a kind, without any fault.
pub(in crate::tests) fn sound(kind: Kind) -> Build<Truth> {
    let plans = match kind {
        Kind::Backup => &backup::PLANS,
        Kind::Restore => &restore::PLANS,
        Kind::Migration => &migration::PLANS,
    };
    Build::new(kind, plans)
}

impl Model for Truth {
    type Flow = EtcdFlow;
    type Setup = Kind;
    type Seen = Versions;

    fn new(kind: Kind, mut rng: Rng) -> Self {
        let trouble: FaultRates = trouble::any(&mut rng);
        let mut truth = Self::with(rng, trouble);
        if kind == Kind::Restore {
            if truth.rng.percent(50) {
                truth.add_backup("from");
            } else {
                truth.add_store();
            }
        }
        truth
    }

    fn trouble(&self) -> &sim::FaultRates {
        &self.trouble.controllers
    }

    fn now(&self) -> u64 {
        self.now
    }

    fn is_gone(&self) -> bool {
        self.object_gone
    }

    fn advance(&mut self, ledgers: &Ledgers<Self>) {
        self.pass(&ledgers[&Side::Seed]);
    }

    fn observe(&mut self, _: Side) -> (Observed, Versions) {
        self.look()
    }

    fn apply(&mut self, _: Side, effect: &Effect, seen: &Versions, guarded: bool) {
        self.change(effect, seen, guarded);
    }

    fn decide(build: &Build<Self>, input: &Input<'_, EtcdFlow>) -> Decision<EtcdFlow> {
        let spec = Spec { schedule: None, retention: None, delete_backups: false, created: Time(0) };
        match build.setup {
            Kind::Backup => backup::decide_by(build.plans, &spec, input),
            Kind::Restore | Kind::Migration => flow::decide(build.plans, input),
        }
    }

    fn forget(kind: Kind, notes: &mut Notes) {
        if kind == Kind::Backup {
            (notes.locked, notes.served, notes.targets) = (false, false, None);
        }
    }

    fn check_decision(
        sim: &Sim<Self>,
        _: Side,
        observed: &Observed,
        decision: &Decision<EtcdFlow>,
    ) -> Result<(), String> {
        check::decision(sim, observed, decision)
    }

    fn check(sim: &mut Sim<Self>) -> Result<(), String> {
        check::always(sim)
    }

    fn check_end(sim: &Sim<Self>) -> Result<(), String> {
        check::at_the_end(sim)
    }

    fn end(sim: &Sim<Self>) -> String {
        format!("{:?} {:?}", sim.build.setup, sim.ledger().phase)
    }
}
