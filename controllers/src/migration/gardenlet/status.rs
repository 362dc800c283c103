//! What the sides have recorded, as the status of the whole migration. Pure.

use repot_apimachinery::time::Time;
use repot_plan::{
    flow::{LedgerOf, Plans},
    gardenlet::{GardenletMigration, Step},
    ledger::{Record, State},
    migration::Side,
};
use serde_json::{Map, Value, json};

use crate::migration::{api::ControlPlaneMigration, overall, record};

/// The ledger of one side.
pub type Ledger = LedgerOf<GardenletMigration>;

/// Sides that a migration waits for. The source only measures, and may be dead.
const SIDES: [Side; 2] = [Side::Garden, Side::Destination];

/// Whether a step was started and is not reached.
#[must_use]
pub fn is_open(ledger: &Ledger, step: Step) -> bool {
    ledger.state(step) == State::Running
}

/// The status with the ledger of a side; what is unknown here stays.
#[must_use]
pub fn render(
    migration: &ControlPlaneMigration,
    plans: &Plans<GardenletMigration>,
    own: (Side, &Ledger),
) -> Map<String, Value> {
    let committed = plans.newest().point_of_no_return;
    record::render_by(migration, plans, own, |ledgers| whole(ledgers, committed))
}

fn whole(ledgers: &[(Side, &Ledger)], committed: Option<Step>) -> Map<String, Value> {
    let counted: Vec<_> = ledgers.iter().copied().filter(|(side, _)| SIDES.contains(side)).collect();
    let phase = overall::phase(&counted, SIDES.len());
    let (reason, message) = overall::words(&counted, phase);
    let committed = committed.and_then(|step| find(ledgers, step)?.started);
    let fields = json!({
        "phase": overall::name(phase),
        "reason": reason,
        "message": message,
        "pointOfNoReturn": committed.map(Time::to_rfc3339),
        "apiOutage": outage(ledgers),
    });
    let Value::Object(fields) = fields else { return Map::new() };
    fields.into_iter().filter(|(_, value)| !value.is_null()).collect()
}

fn find<'a>(ledgers: &[(Side, &'a Ledger)], step: Step) -> Option<&'a Record> {
    ledgers.iter().find_map(|(_, ledger)| ledger.steps.get(&step))
}

/// Forced: from the confirmation that the source is off; it may have been off for longer, which nobody has measured. Classic: from the
/// moment at which the source had no API server any more.
fn outage(ledgers: &[(Side, &Ledger)]) -> Value {
    let reached = |step| {
        let record = find(ledgers, step).filter(|record| record.state == State::Succeeded);
        record.and_then(|record| record.completed)
    };
    match reached(Step::SourceOff).or_else(|| reached(Step::ApiStopped)) {
        // Who looks at the source may have been away until after the outage.
        Some(from) if reached(Step::ApiServes).is_some_and(|to| to < from) => Value::Null,
        Some(from) => overall::outage_between(from, reached(Step::ApiServes)),
        None => Value::Null,
    }
}

#[cfg(test)]
mod tests {
    use repot_plan::ledger::Phase;

    use super::*;

    fn done(completed: u64) -> Record {
        let (started, completed) = (Some(Time(1)), Some(Time(completed)));
        Record { state: State::Succeeded, started, completed, ..Record::pending() }
    }

    #[test]
    fn outage_lasts_from_the_confirmation_to_the_first_api_server() {
        let mut garden = Ledger { phase: Phase::Running, ..Ledger::default() };
        let mut destination = garden.clone();
        let of = |garden: &Ledger, destination: &Ledger| {
            let sides = [(Side::Garden, garden), (Side::Destination, destination)];
            whole(&sides, Some(Step::RestoreRequested)).remove("apiOutage")
        };
        destination.steps.insert(Step::ApiServes, Record { state: State::Skipped, ..done(90) });
        assert_eq!(of(&garden, &destination), None);
        garden.steps.insert(Step::SourceOff, done(60));
        assert_eq!(of(&garden, &destination), Some(json!({"from": "1970-01-01T00:01:00Z"})));
        destination.steps.insert(Step::ApiServes, done(90));
        assert_eq!(of(&garden, &destination).expect("an outage")["seconds"], 30);
    }

    #[test]
    fn migration_ends_with_garden_and_destination() {
        let ended = Ledger { phase: Phase::Succeeded, ..Ledger::default() };
        let sides = [(Side::Garden, &ended), (Side::Destination, &ended)];
        let phase = |sides: &[(Side, &Ledger)]| whole(sides, None).remove("phase").expect("a phase");
        assert_eq!(phase(&sides), "Succeeded");
        assert_eq!(phase(&sides[..1]), "Running");
        // Nobody waits for the source.
        let running = Ledger { phase: Phase::Running, ..Ledger::default() };
        assert_eq!(phase(&[sides[0], (Side::Source, &running), sides[1]]), "Succeeded");
    }
}
