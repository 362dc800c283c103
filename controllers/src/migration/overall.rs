//! What the three sides have recorded, as the status of the whole migration. Pure: each side writes it with its own record, under the
//! version of the object, so it always follows from what is stored.

use repot_apimachinery::time::Time;
use repot_plan::{
    flow::LedgerOf,
    ledger::{self, Phase, Record, State, Urgency},
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

/// What other migrations of the same Shoot do, and what somebody says of the destination.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Others {
    /// One goes on in place of this one.
    pub superseded: bool,
    /// One goes on from its destination, which is dead.
    pub continued: bool,
    /// The destination never comes back, as somebody has confirmed.
    pub destination_lost: bool,
}

/// The status of the whole, from the ledgers of all sides that have one. Nobody waits for the source of a forced migration, nor for
/// that of one that is superseded, nor for a destination from which another one goes on, or which is lost while the garden goes back.
#[must_use]
pub fn status(ledgers: &[(Side, &Ledger)], mode: MigrationMode, others: Others) -> Map<String, Value> {
    let is_source_dead = mode == MigrationMode::Forced || others.superseded;
    let goes_back = ledgers.iter().any(|(side, ledger)| *side == Side::Garden && ledger.phase.is_rollback());
    let is_destination_over = others.continued || (others.destination_lost && goes_back);
    let is_counted = |side: &Side| match side {
        Side::Garden => true,
        Side::Source => !is_source_dead,
        Side::Destination => !is_destination_over,
    };
    let sides: Vec<Side> = Side::ALL.iter().copied().filter(is_counted).collect();
    let last = match mode {
        MigrationMode::Classic | MigrationMode::Live => Step::MoveCommitted,
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
        // The API of a live migration is never away.
        "apiOutage": if mode == MigrationMode::Live { Value::Null } else { outage(ledgers) },
    });
    let Value::Object(fields) = fields else { return Map::new() };
    fields.into_iter().filter(|(_, value)| !value.is_null()).collect()
}

/// A migration ends when all sides have ended that it waits for.
pub(super) fn phase<S: Ord, N>(ledgers: &[(Side, &ledger::Ledger<S, N>)], sides: usize) -> Phase {
    let all = ledgers.len() == sides;
    let is_any = |phase| ledgers.iter().any(|(_, ledger)| ledger.phase == phase);
    // One that has failed goes on as soon as it sees that the garden follows a request to try again.
    let garden = ledgers.iter().find(|(side, ledger)| *side == Side::Garden && ledger.phase != Phase::Failed);
    let retry = garden.map_or(0, |(_, garden)| garden.retry);
    let has_ended = |ledger: &ledger::Ledger<S, N>| {
        ledger.phase.is_end() && (ledger.phase != Phase::Failed || ledger.retry >= retry)
    };
    let have_ended = all && ledgers.iter().all(|(_, ledger)| has_ended(ledger));
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

/// The words of the side that has failed, of the one that is in this phase, or of any that says something; of several, the most urgent.
pub(super) fn words<S: Ord, N>(ledgers: &[(Side, &ledger::Ledger<S, N>)], phase: Phase) -> (String, String) {
    let says = |wanted: &dyn Fn(&ledger::Ledger<S, N>) -> bool| {
        let all = ledgers.iter().rev().filter(|(_, ledger)| wanted(ledger) && !ledger.message.is_empty());
        // Of equals the last is found, which is the first of the sides.
        let found = all.max_by_key(|(_, ledger)| Urgency::of(&ledger.reason));
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

/// From the last answer of the API servers of the source, or the request to stop them where nobody saw it, or the moment at which a destination took ownership from one that does not
/// answer, until clients reach an API again.
fn outage(ledgers: &[(Side, &Ledger)]) -> Value {
    let begun = |step| record(ledgers, step).and_then(|record| record.started);
    let told = [Step::SourceApiStopped, Step::OwnerRecordTaken].into_iter().filter_map(begun).min();
    let mut answered = ledgers.iter().filter_map(|(_, ledger)| ledger.notes.api_answered_time.as_deref());
    let from = answered.find_map(Time::parse).max(told);
    let Some(from) = from else { return Value::Null };
    let end = [Step::ApiDnsSwitched, Step::SourceApiRestored];
    let end = end.into_iter().filter_map(|step| record(ledgers, step));
    let to = end.filter(|record| record.state == State::Succeeded).find_map(|record| record.completed);
    // Clocks differ: a time that cannot be is not believed.
    let written = ledgers.iter().find_map(|(_, ledger)| ledger.notes.api_dns_written_time.as_deref());
    let written = written.and_then(Time::parse).filter(|written| (from..).contains(written));
    let to = to.map(|to| written.unwrap_or(to).min(to));
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
    fn side_that_is_going_to_be_tried_again_keeps_the_migration_open() {
        let of = |garden: Phase| {
            let garden = Ledger { retry: 1, ..ledger(garden, "") };
            let (source, destination) = (ledger(Phase::Failed, ""), ledger(Phase::Succeeded, ""));
            phase(&[(Side::Garden, &garden), (Side::Source, &source), (Side::Destination, &destination)], 3)
        };
        assert_eq!(of(Phase::Succeeded), Phase::Running);
        assert_eq!(of(Phase::RolledBack), Phase::RollingBack);
        assert_eq!(of(Phase::Failed), Phase::Failed);
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
        assert_eq!(status(&sides, MigrationMode::Forced, Others::default())["phase"], "Succeeded");
        assert_eq!(status(&sides, MigrationMode::Classic, Others::default())["phase"], "Running");
        let superseded = Others { superseded: true, ..Others::default() };
        assert_eq!(status(&sides, MigrationMode::Classic, superseded)["phase"], "Succeeded");
    }

    #[test]
    fn nobody_waits_for_a_destination_that_is_lost_once_the_garden_goes_back() {
        let lost = Others { destination_lost: true, ..Others::default() };
        let ends = |garden: Phase, source: Phase| {
            let (garden, source) = (ledger(garden, ""), ledger(source, ""));
            let running = ledger(Phase::Running, "");
            let sides = [(Side::Garden, &garden), (Side::Source, &source), (Side::Destination, &running)];
            status(&sides, MigrationMode::Live, lost)["phase"].clone()
        };
        assert_eq!(ends(Phase::Cancelled, Phase::Cancelled), "Cancelled");
        assert_eq!(ends(Phase::Cancelled, Phase::RollingBack), "RollingBack");
        // Past the point of no return the destination alone decides.
        assert_eq!(ends(Phase::Succeeded, Phase::Succeeded), "Running");
    }

    #[test]
    fn nobody_waits_for_a_destination_from_which_another_migration_goes_on() {
        let (failed, running) = (ledger(Phase::Failed, "another goes on"), ledger(Phase::Running, "serves"));
        let sides = [(Side::Garden, &failed), (Side::Source, &failed), (Side::Destination, &running)];
        let continued = Others { continued: true, ..Others::default() };
        assert_eq!(status(&sides, MigrationMode::Classic, continued)["phase"], "Failed");
        assert_eq!(status(&sides, MigrationMode::Classic, Others::default())["phase"], "Running");
    }

    #[test]
    fn outage_lasts_from_the_stop_of_the_source_to_the_switch_of_dns() {
        let (mut source, mut destination) = (ledger(Phase::Running, ""), ledger(Phase::Running, ""));
        let of = |source: &Ledger, destination: &Ledger| {
            status(
                &[(Side::Source, source), (Side::Destination, destination)],
                MigrationMode::Classic,
                Others::default(),
            )
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
    fn message_is_the_most_urgent_one() {
        let of = |garden: &str, source: &str, destination: &str| {
            let [garden, source, destination] = [garden, source, destination]
                .map(|reason| Ledger { reason: reason.to_owned(), ..ledger(Phase::Running, reason) });
            let all = [(Side::Garden, &garden), (Side::Source, &source), (Side::Destination, &destination)];
            status(&all, MigrationMode::Classic, Others::default())["message"].clone()
        };
        assert_eq!(of("WaitingForOtherSide", "Stopping", "NotConfirmed"), "destination: NotConfirmed");
        assert_eq!(of("WaitingForOtherSide", "Stopping", "Copying"), "source: Stopping");
        assert_eq!(of("WaitingForOtherSide", "WaitingForOtherSide", "Copying"), "destination: Copying");
        assert_eq!(of("Writing", "Stopping", "Copying"), "garden: Writing");
    }

    #[test]
    fn message_is_that_of_the_side_that_failed() {
        let (garden, source) = (ledger(Phase::Running, "waits"), ledger(Phase::Failed, "broken"));
        let status = status(
            &[(Side::Garden, &garden), (Side::Source, &source)],
            MigrationMode::Classic,
            Others::default(),
        );
        assert_eq!(status["message"], "source: broken");
    }
}
