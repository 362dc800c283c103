//! The flow's object: the ledgers of all sides under one version.

use std::collections::BTreeMap;

use super::{Build, Ledgers, Model, Side};
use crate::{
    flow::{Flow, LedgerOf},
    named::Named,
    status::{from_status, to_status},
};

/// The ledgers of the other sides.
pub(super) type Others<M> = Vec<(Side<M>, LedgerOf<<M as Model>::Flow>)>;

pub(in crate::tests) struct Store<M: Model> {
    ledgers: Ledgers<M>,
    /// What each side reads of the others.
    others: BTreeMap<Side<M>, Others<M>>,
    pub(super) version: u64,
}

impl<M: Model> Store<M> {
    pub(super) fn new() -> Self {
        let ledgers = Side::<M>::ALL.iter().map(|side| (*side, LedgerOf::<M::Flow>::default())).collect();
        let others = Side::<M>::ALL.iter().map(|side| (*side, Vec::new())).collect();
        Self { ledgers, others, version: 1 }
    }

    /// What a side reads of the others: those that have started.
    pub(in crate::tests) fn others(&self, side: Side<M>) -> &[(Side<M>, LedgerOf<M::Flow>)] {
        &self.others[&side]
    }

    pub(in crate::tests) fn ledgers(&self) -> &Ledgers<M> {
        &self.ledgers
    }

    pub(in crate::tests) fn ledger(&self, side: Side<M>) -> &LedgerOf<M::Flow> {
        &self.ledgers[&side]
    }

    /// A fault: what is remembered is lost.
    pub(super) fn forget(&mut self, side: Side<M>) {
        let ledger = self.ledgers.get_mut(&side).expect("a side");
        ledger.notes = <M::Flow as Flow>::Notes::default();
    }

    /// What changes with a record.
    pub(super) fn describe(&self, side: Side<M>, next: &LedgerOf<M::Flow>) -> String {
        let before = &self.ledgers[&side];
        let new = next.steps.iter().filter(|(step, record)| before.steps.get(step) != Some(record));
        let steps =
            new.map(|(step, record)| format!("{}={:?}({})", step.name(), record.state, record.reason));
        format!("{:?} {} {}", next.phase, next.reason, steps.collect::<Vec<_>>().join(" "))
    }

    /// Stores a ledger as its status, and reads it back: all that is known of it from now on is what the status says.
    pub(super) fn put(
        &mut self,
        build: &Build<M>,
        side: Side<M>,
        next: &LedgerOf<M::Flow>,
    ) -> Result<(), String> {
        let stored = self.read_back(build, side, next)?;
        only_grows(&self.ledgers[&side], &stored)?;
        for (_, seen) in self.others.iter_mut().filter(|(other, _)| **other != side) {
            seen.retain(|(known, _)| *known != side);
            if stored.version > 0 {
                seen.push((side, stored.clone()));
            }
        }
        self.ledgers.insert(side, stored);
        self.version += 1;
        Ok(())
    }

    /// What is read of a ledger that is written.
    fn read_back(
        &self,
        build: &Build<M>,
        side: Side<M>,
        next: &LedgerOf<M::Flow>,
    ) -> Result<LedgerOf<M::Flow>, String> {
        let mut written = next.clone();
        M::forget(build.setup, &mut written.notes);
        // A sign of life is most of what is written, and is tried often enough with other changes.
        let before = &self.ledgers[&side];
        let is_sign_of_life =
            before.steps == next.steps && before.phase == next.phase && before.notes == written.notes;
        if is_sign_of_life && before.message == next.message {
            return Ok(written);
        }
        let plan = build.plans.of(next.version).unwrap_or(build.plans.newest());
        let stored = from_status(build.plans, &to_status(plan, next)).map_err(|error| error.to_string())?;
        let is_same = stored == written;
        if is_same { Ok(stored) } else { Err("a status was not read back as it was written".to_owned()) }
    }
}

/// What is recorded stays recorded. A new run, as of a schedule, starts from nothing.
fn only_grows<S: Named, N>(
    before: &crate::ledger::Ledger<S, N>,
    after: &crate::ledger::Ledger<S, N>,
) -> Result<(), String> {
    if before.started != after.started {
        return Ok(());
    }
    let keeps = before.steps.iter().all(|(step, old)| {
        after.steps.get(step).is_some_and(|new| new.attempts >= old.attempts && new.started >= old.started)
    });
    if keeps && before.version == after.version { Ok(()) } else { Err("a record was lost".to_owned()) }
}
