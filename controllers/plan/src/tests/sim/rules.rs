//! What must hold in every schedule of every flow.

use super::{Model, Side, Sim};
use crate::{
    flow::{Decision, Row},
    ledger::{Phase, State},
    named::Named,
};

pub(in crate::tests) fn hold(condition: bool, rule: &str) -> Result<(), String> {
    if condition { Ok(()) } else { Err(rule.to_owned()) }
}

/// Of a decision.
pub(super) fn decision<M: Model>(
    sim: &Sim<M>,
    side: Side<M>,
    decision: &Decision<M::Flow>,
) -> Result<(), String> {
    let (ledger, effects) = (sim.store.ledger(side), &decision.effects);
    let plans = sim.build_of(side).plans;
    let plan = plans.of(ledger.version).unwrap_or(plans.newest());
    let rows = if ledger.phase == Phase::RollingBack { plan.rollback } else { plan.forward };
    let is_recorded = |row: &Row<M::Flow>| row.side == side && ledger.state(row.step) == State::Running;
    // What is kept up in a flow that was tried again is recorded by the number of the retry.
    let is_recorded = ledger.phase.is_end() || ledger.retry > 0 || rows.iter().any(is_recorded);
    let acts = effects.iter().any(|effect| !M::is_report(effect));
    hold(!acts || is_recorded, "acts without a recorded decision")?;
    let is_late = sim.build.records_first || decision.records.is_none();
    hold(effects.is_empty() || is_late, "acts before it has recorded")?;
    let waits = decision.records.as_ref().unwrap_or(ledger);
    let mut records = waits.steps.values().filter(|record| record.state == State::Running);
    let is_explained = records.all(|record| !record.reason.is_empty() && !record.message.is_empty());
    hold(is_explained, "waits without a reason")?;
    let is_silent = waits.phase != Phase::Pending && waits.reason.is_empty();
    hold(!is_silent || !waits.message.is_empty(), "waits without a reason")
}

/// At all times: all sides agree on one outcome.
pub(super) fn always<M: Model>(sim: &Sim<M>) -> Result<(), String> {
    let ledgers = || sim.store.ledgers().values();
    if Side::<M>::ALL.len() == 1 {
        return Ok(());
    }
    let is_back = ledgers().any(|ledger| ledger.phase.is_rollback());
    let is_past = ledgers().any(|ledger| {
        let plan = sim.plan_of(ledger.version);
        plan.and_then(|plan| plan.point_of_no_return).is_some_and(|step| ledger.is_started(step))
    });
    hold(!is_back || !is_past || sim.model.may_withdraw(), "rolls back past the point of no return")?;
    let has_succeeded = ledgers().any(|ledger| ledger.phase == Phase::Succeeded);
    hold(!is_back || !has_succeeded, "one side succeeds and another one rolls back")
}

/// When nothing happens any more.
pub(super) fn at_the_end<M: Model>(sim: &Sim<M>) -> Result<(), String> {
    let is_over = |side: &Side<M>| sim.store.ledger(*side).phase.is_end() || sim.is_dead(*side);
    let mut open = Side::<M>::ALL.iter().filter(|side| !is_over(side));
    match open.next() {
        Some(side) if !sim.model.is_gone() => Err(format!("the {} never ends", side.name())),
        _ => Ok(()),
    }
}
