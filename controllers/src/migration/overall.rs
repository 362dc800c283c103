//! What the three sides have recorded, as the status of the whole migration. Pure: each side writes it with its own record, under the
//! version of the object, so it always follows from what is stored.

use repot_apimachinery::time::Time;
use repot_plan::{
    flow::LedgerOf,
    ledger::{self, Phase, Record, State},
    migration::{MigrationFlow, Side, Step, observed::MigrationMode},
    named::Named,
};
use serde_json::{Map, Value, json};

/// The ledger of one side.
pub type Ledger = LedgerOf<MigrationFlow>;

/// Whether a step was started and is not reached.
#[must_use]
pub fn is_open(ledger: &Ledger, step: Step) -> bool {
    ledger.state(step) == State::Running
}

/// Fields of the status that [`status`] gives.
pub const FIELDS: [&str; 6] = ["apiOutage", "message", "ownerEpoch", "phase", "pointOfNoReturn", "reason"];

/// The status of the whole, from the ledgers of all sides that have one. Nobody waits for the source of a forced migration, nor for
/// that of one that is superseded.
#[must_use]
pub fn status(ledgers: &[(Side, &Ledger)], mode: MigrationMode, is_superseded: bool) -> Map<String, Value> {
    let sides: &[Side] = match mode {
        MigrationMode::Classic if !is_superseded => Side::ALL,
        MigrationMode::Classic | MigrationMode::Forced => &[Side::Garden, Side::Destination],
    };
    let last = match mode {
        MigrationMode::Classic => Step::MoveCommitted,
        MigrationMode::Forced => Step::OwnerRecordTaken,
    };
    let counted: Vec<_> = ledgers.iter().copied().filter(|(side, _)| sides.contains(side)).collect();
    let phase = phase(&counted, sides.len());
    let (reason, message) = words(&counted, phase);
    let epoch = ledgers.iter().filter_map(|(_, ledger)| ledger.notes.owner_epoch).max();
    let committed = record(ledgers, last).and_then(|record| record.started);
    let fields = json!({
        "phase": name(phase),
        "reason": reason,
        "message": message,
        "ownerEpoch": epoch,
        "pointOfNoReturn": committed.map(Time::to_rfc3339),
        "apiOutage": outage(ledgers),
    });
    let Value::Object(fields) = fields else { return Map::new() };
    fields.into_iter().filter(|(_, value)| !value.is_null()).collect()
}

/// A migration ends when all sides have ended that it waits for.
pub(super) fn phase<S: Ord, N>(ledgers: &[(Side, &ledger::Ledger<S, N>)], sides: usize) -> Phase {
    let all = ledgers.len() == sides;
    let is_any = |phase| ledgers.iter().any(|(_, ledger)| ledger.phase == phase);
    let have_ended = all && ledgers.iter().all(|(_, ledger)| ledger.phase.is_end());
    let goes_back = ledgers.iter().any(|(_, ledger)| ledger.phase.is_rollback());
    match (have_ended, goes_back) {
        (true, _) if is_any(Phase::Failed) => Phase::Failed,
        (true, _) if is_any(Phase::RolledBack) => Phase::RolledBack,
        (true, true) => Phase::Cancelled,
        (true, false) => Phase::Succeeded,
        (false, true) => Phase::RollingBack,
        (false, false) if is_any(Phase::Running) || is_any(Phase::Succeeded) => Phase::Running,
        (false, false) if is_any(Phase::Failed) => Phase::Running,
        (false, false) => Phase::Pending,
    }
}

pub(super) fn name(phase: Phase) -> &'static str {
    match phase {
        Phase::Pending | Phase::Scheduled => "Pending",
        Phase::Running => "Running",
        Phase::RollingBack => "RollingBack",
        Phase::Succeeded => "Succeeded",
        Phase::RolledBack => "RolledBack",
        Phase::Failed => "Failed",
        Phase::Cancelled => "Cancelled",
    }
}

/// The words of the side that has failed, of the one that is in this phase, or of any that says something.
pub(super) fn words<S: Ord, N>(ledgers: &[(Side, &ledger::Ledger<S, N>)], phase: Phase) -> (String, String) {
    let says = |wanted: &dyn Fn(&ledger::Ledger<S, N>) -> bool| {
        let found = ledgers.iter().find(|(_, ledger)| wanted(ledger) && !ledger.message.is_empty());
        found.map(|(side, ledger)| (ledger.reason.clone(), format!("{side}: {}", ledger.message)))
    };
    says(&|ledger| ledger.phase == Phase::Failed)
        .or_else(|| says(&|ledger| ledger.phase == phase))
        .or_else(|| says(&|ledger| !ledger.phase.is_end()))
        .unwrap_or_else(|| (name(phase).to_owned(), String::new()))
}

fn record<'a>(ledgers: &[(Side, &'a Ledger)], step: Step) -> Option<&'a Record> {
    ledgers.iter().find_map(|(_, ledger)| ledger.steps.get(&step))
}

/// From the moment at which the API servers of the source were asked to stop, or a destination took ownership from one that does not
/// answer, until clients reach an API again.
fn outage(ledgers: &[(Side, &Ledger)]) -> Value {
    let begun = |step| record(ledgers, step).and_then(|record| record.started);
    let from = [Step::SourceApiStopped, Step::OwnerRecordTaken].into_iter().filter_map(begun).min();
    let Some(from) = from else { return Value::Null };
    let end = [Step::ApiDnsSwitched, Step::SourceApiRestored];
    let end = end.into_iter().filter_map(|step| record(ledgers, step));
    let to = end.filter(|record| record.state == State::Succeeded).find_map(|record| record.completed);
    outage_between(from, to)
}

/// An outage that may not have ended.
pub(super) fn outage_between(from: Time, to: Option<Time>) -> Value {
    json!({
        "from": from.to_rfc3339(),
        "to": to.map(Time::to_rfc3339),
        "seconds": to.map(|to| to.since(from).as_secs()),
    })
    .as_object()
    .map(|fields| fields.iter().filter(|(_, value)| !value.is_null()))
    .map_or(Value::Null, |fields| fields.map(|(key, value)| (key.clone(), value.clone())).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ledger(phase: Phase, message: &str) -> Ledger {
        Ledger { phase, message: message.to_owned(), ..Ledger::default() }
    }

    fn done(started: u64, completed: u64) -> Record {
        let (started, completed) = (Some(Time(started)), Some(Time(completed)));
        Record { state: State::Succeeded, started, completed, ..Record::pending() }
    }

    fn phase_of(garden: Phase, source: Phase, destination: Phase) -> Phase {
        let [garden, source, destination] = [garden, source, destination].map(|phase| ledger(phase, ""));
        phase(&[(Side::Garden, &garden), (Side::Source, &source), (Side::Destination, &destination)], 3)
    }

    #[test]
    fn migration_ends_when_all_sides_have_ended() {
        use Phase::{Cancelled, Failed, Pending, RolledBack, RollingBack, Running, Succeeded};
        assert_eq!(phase_of(Pending, Pending, Pending), Pending);
        assert_eq!(phase_of(Running, Pending, Pending), Running);
        assert_eq!(phase_of(Running, Succeeded, Succeeded), Running);
        assert_eq!(phase_of(Succeeded, Succeeded, Succeeded), Succeeded);
        assert_eq!(phase_of(Running, RolledBack, Running), RollingBack);
        assert_eq!(phase_of(RolledBack, Cancelled, RolledBack), RolledBack);
        assert_eq!(phase_of(Cancelled, Cancelled, Cancelled), Cancelled);
        assert_eq!(phase_of(Failed, Succeeded, Running), Running);
        assert_eq!(phase_of(Failed, Succeeded, Succeeded), Failed);
    }

    #[test]
    fn side_that_has_not_begun_keeps_the_migration_open() {
        let succeeded = ledger(Phase::Succeeded, "");
        assert_eq!(phase(&[(Side::Garden, &succeeded), (Side::Source, &succeeded)], 3), Phase::Running);
    }

    #[test]
    fn nobody_waits_for_the_source_of_a_forced_migration() {
        let (ended, running) = (ledger(Phase::Succeeded, ""), ledger(Phase::Running, "stops"));
        let sides = [(Side::Garden, &ended), (Side::Source, &running), (Side::Destination, &ended)];
        assert_eq!(status(&sides, MigrationMode::Forced, false)["phase"], "Succeeded");
        assert_eq!(status(&sides, MigrationMode::Classic, false)["phase"], "Running");
        assert_eq!(status(&sides, MigrationMode::Classic, true)["phase"], "Succeeded");
    }

    #[test]
    fn outage_lasts_from_the_stop_of_the_source_to_the_switch_of_dns() {
        let (mut source, mut destination) = (ledger(Phase::Running, ""), ledger(Phase::Running, ""));
        let of = |source: &Ledger, destination: &Ledger| {
            status(&[(Side::Source, source), (Side::Destination, destination)], MigrationMode::Classic, false)
                .remove("apiOutage")
        };
        assert_eq!(of(&source, &destination), None);
        source.steps.insert(Step::SourceApiStopped, done(100, 103));
        assert_eq!(of(&source, &destination), Some(json!({"from": "1970-01-01T00:01:40Z"})));
        destination.steps.insert(Step::ApiDnsSwitched, done(110, 117));
        let outage = of(&source, &destination).expect("an outage");
        assert_eq!(outage["seconds"], 17);
    }

    #[test]
    fn message_is_that_of_the_side_that_failed() {
        let (garden, source) = (ledger(Phase::Running, "waits"), ledger(Phase::Failed, "broken"));
        let status =
            status(&[(Side::Garden, &garden), (Side::Source, &source)], MigrationMode::Classic, false);
        assert_eq!(status["message"], "source: broken");
    }
}
