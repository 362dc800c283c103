//! The ledger of one side becomes a part of the status, under the version that was read.

use kube::{
    Api, ResourceExt,
    api::{Patch, PatchParams, PostParams, TypeMeta},
};
use repot_plan::{
    flow::{Flow, LedgerOf, Plans},
    migration::Side,
    named::Named,
    status,
};
use serde_json::{Map, Value, json};

use super::{
    api::ControlPlaneMigration,
    error::{Error, Result},
    names::MANAGER,
    overall::{self, Ledger, Others},
};

/// The part of the status that belongs to a side; an object without fields where it has none yet.
#[must_use]
pub fn part(migration: &ControlPlaneMigration, side: Side) -> Value {
    migration.status.get(side.name()).cloned().unwrap_or_else(|| Value::Object(Map::new()))
}

/// The status with the ledger of a side; what is unknown here stays.
#[must_use]
pub fn render(migration: &ControlPlaneMigration, side: Side, next: &Ledger) -> Map<String, Value> {
    let mode = migration.mode().unwrap_or_default();
    let others = Others {
        superseded: migration.superseded_by().is_some(),
        continued: migration.continued_by().is_some(),
        destination_lost: migration.is_destination_lost(),
    };
    render_by(migration, migration.plans(), (side, next), |ledgers| overall::status(ledgers, mode, others))
}

/// The same by the tables of any flow of these sides; `whole` gives the fields of all sides together.
#[must_use]
pub fn render_by<F: Flow<Side = Side>>(
    migration: &ControlPlaneMigration,
    plans: &Plans<F>,
    (side, next): (Side, &LedgerOf<F>),
    whole: impl FnOnce(&[(Side, &LedgerOf<F>)]) -> Map<String, Value>,
) -> Map<String, Value> {
    let mut own = match part(migration, side) {
        Value::Object(own) => own,
        _ => Map::new(),
    };
    status::fields(plans).for_each(|field| drop(own.remove(field)));
    let plan = plans.of(next.version).unwrap_or(plans.newest());
    if let Value::Object(ledger) = status::to_status(plan, next) {
        own.extend(ledger);
    }
    let mut all = migration.status.clone();
    all.insert(side.name().to_owned(), Value::Object(own));
    overall::FIELDS.iter().for_each(|field| drop(all.remove(*field)));
    let others = Side::ALL.iter().filter(|other| **other != side && all.contains_key(other.name()));
    let others: Vec<(Side, LedgerOf<F>)> = others
        .filter_map(|other| Some((*other, status::from_status(plans, &part(migration, *other)).ok()?)))
        .collect();
    let mut ledgers: Vec<(Side, &LedgerOf<F>)> =
        others.iter().map(|(side, ledger)| (*side, ledger)).collect();
    ledgers.push((side, next));
    ledgers.sort_by_key(|(side, _)| *side);
    all.extend(whole(&ledgers));
    all.insert("observedGeneration".to_owned(), migration.metadata.generation.into());
    all
}

/// Stores the ledger of a side, and gives the object as it is then.
///
/// # Errors
/// [`Error::Write`]; a conflict where somebody changed the object since it was read, and then nothing was stored.
pub async fn record(
    all: &Api<ControlPlaneMigration>,
    migration: &ControlPlaneMigration,
    side: Side,
    next: &Ledger,
) -> Result<ControlPlaneMigration> {
    store(all, migration, render(migration, side, next)).await
}

/// Stores a status, and gives the object as it is then.
///
/// # Errors
/// As [`record`].
pub async fn store(
    all: &Api<ControlPlaneMigration>,
    migration: &ControlPlaneMigration,
    status: Map<String, Value>,
) -> Result<ControlPlaneMigration> {
    let changed = ControlPlaneMigration {
        types: Some(TypeMeta::resource::<ControlPlaneMigration>()),
        status,
        ..migration.clone()
    };
    let params = PostParams { field_manager: Some(MANAGER.to_owned()), ..PostParams::default() };
    let stored = all.replace_status(&migration.name_any(), &params, &changed).await;
    stored.map_err(Error::write("record the ledger"))
}

/// Says in the status why a migration is left alone, and changes nothing else of it.
///
/// # Errors
/// [`Error::Write`].
pub async fn leave_alone(
    all: &Api<ControlPlaneMigration>,
    migration: &ControlPlaneMigration,
    message: &str,
) -> Result<()> {
    if migration.status.get("message").and_then(Value::as_str) == Some(message) {
        return Ok(());
    }
    let patch = json!({
        "metadata": {"resourceVersion": migration.resource_version()}, "status": {"message": message},
    });
    let params = PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() };
    let outcome = all.patch_status(&migration.name_any(), &params, &Patch::Merge(patch)).await;
    outcome.map(drop).map_err(Error::write("say in its status why the migration is left alone"))
}

#[cfg(test)]
mod tests {
    use repot_apimachinery::time::Time;
    use repot_plan::ledger::Phase;

    use super::*;

    #[test]
    fn side_writes_its_own_part_and_the_whole_and_keeps_the_rest() {
        let source = json!({"planVersion": 1, "phase": "Running", "message": "stops", "ownerEpoch": 3});
        let migration: ControlPlaneMigration = serde_json::from_value(json!({
            "metadata": {"name": "m", "generation": 4},
            "status": {"source": source, "unknown": 7, "garden": {"other": 1, "reason": "old"}},
        }))
        .expect("a migration");
        let next = Ledger { version: 1, phase: Phase::Running, started: Some(Time(5)), ..Ledger::default() };
        let status = render(&migration, Side::Garden, &next);
        assert_eq!(status["source"], source);
        assert_eq!(status["unknown"], 7);
        assert_eq!(status["garden"]["other"], 1);
        assert_eq!(status["garden"]["phase"], "Running");
        assert_eq!(status["garden"]["reason"], "");
        assert_eq!((&status["phase"], &status["ownerEpoch"]), (&json!("Running"), &json!(3)));
        assert_eq!(status["observedGeneration"], 4);
    }
}
