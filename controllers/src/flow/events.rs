//! What changed in a ledger, as events.

use repot_plan::{
    flow::{Flow, LedgerOf, Plan},
    ledger::{Phase, State},
    named::Named,
};

use crate::events::EventContent;

/// An event for each step that was started, reached or missed, and for each change of the phase.
#[must_use]
pub fn changes<F: Flow>(plan: &Plan<F>, before: &LedgerOf<F>, next: &LedgerOf<F>) -> Vec<EventContent> {
    let mut events = Vec::new();
    for step in plan.steps() {
        let (old, new) = (before.steps.get(&step), next.steps.get(&step));
        let Some(record) = new.filter(|record| old.map(|old| old.state) != Some(record.state)) else {
            continue;
        };
        let step = step.name();
        let (is_warning, reason) = match record.state {
            State::Running => (false, format!("{step}Begun")),
            State::Succeeded => (false, step.to_owned()),
            State::Failed => (true, format!("{step}Failed")),
            // A row that does not apply was never started.
            State::Skipped => (record.started.is_some(), format!("{step}Skipped")),
            State::Pending | State::RolledBack => continue,
        };
        events.push(event(is_warning, &reason, &record.message));
    }
    if before.phase != next.phase {
        let is_warning = matches!(next.phase, Phase::RollingBack | Phase::RolledBack | Phase::Failed);
        events.push(event(is_warning, &format!("{:?}", next.phase), &next.message));
    }
    events
}

/// An event of a reconcile of a flow.
#[must_use]
pub fn event(is_warning: bool, reason: &str, message: &str) -> EventContent {
    let content = if is_warning { EventContent::warning } else { EventContent::normal };
    content("Reconcile", reason, message)
}
