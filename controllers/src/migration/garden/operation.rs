//! `status.lastOperation` of the Shoot. Pure.

use repot_api::gardener::shoot::ROLLED_BACK;
use repot_plan::migration::observed::{FormerOperation, Operation};
use serde_json::{Value, json};

use crate::migration::api::LastOperation;

/// The last operation that tells of this migration; `former` is the one before it. `None` where nothing is to be told.
#[must_use]
pub fn render(
    operation: Operation,
    former: Option<&FormerOperation>,
    migration: &str,
    now: &str,
) -> Option<Value> {
    let reconciled = || ("Reconcile".to_owned(), "Succeeded".to_owned());
    let ((kind, state), progress, description) = match operation {
        Operation::Former => {
            let before = former.map(|former| (former.kind.clone(), former.state.clone()));
            (before.unwrap_or_else(reconciled), 100, rolled_back(migration))
        }
        other => {
            let (kind, state, progress) = words(other)?;
            ((kind.to_owned(), state.to_owned()), progress, description(migration))
        }
    };
    Some(json!({
        "type": kind, "state": state, "progress": progress, "lastUpdateTime": now, "description": description,
    }))
}

/// How far the last operation tells of this migration.
#[must_use]
pub fn read(found: Option<&LastOperation>, migration: &str) -> Operation {
    if found.is_some_and(|found| found.description == rolled_back(migration)) {
        return Operation::Former;
    }
    let Some(found) = found.filter(|found| found.description == description(migration)) else {
        return Operation::Other;
    };
    let all = [Operation::Migrating, Operation::Restoring, Operation::Restored];
    let is = |operation: &Operation| {
        words(*operation).is_some_and(|(kind, state, _)| found.kind == kind && found.state == state)
    };
    all.into_iter().find(is).unwrap_or(Operation::Other)
}

/// Whether a migration of Repot has written the last operation, whichever it was.
#[must_use]
pub fn is_by_repot(found: Option<&LastOperation>) -> bool {
    let (before, after) = ROLLED_BACK;
    let is_between =
        |text: &str, before: &str, after: &str| text.starts_with(before) && text.ends_with(after);
    found.is_some_and(|found| {
        let text = found.description.as_str();
        is_between(text, MOVES.0, MOVES.1) || is_between(text, before, after)
    })
}

fn words(operation: Operation) -> Option<(&'static str, &'static str, i32)> {
    match operation {
        Operation::Other | Operation::Former => None,
        Operation::Migrating => Some(("Migrate", "Processing", 10)),
        Operation::Restoring => Some(("Restore", "Processing", 90)),
        Operation::Restored => Some(("Restore", "Succeeded", 100)),
    }
}

/// Before and after the name of the migration.
const MOVES: (&str, &str) = ("ControlPlaneMigration ", " moves the control plane.");

fn description(migration: &str) -> String {
    let (before, after) = MOVES;
    format!("{before}{migration}{after}")
}

fn rolled_back(migration: &str) -> String {
    let (before, after) = ROLLED_BACK;
    format!("{before}{migration}{after}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operation_is_read_as_it_was_written_and_only_by_its_migration() {
        for operation in [Operation::Migrating, Operation::Restoring, Operation::Restored, Operation::Former]
        {
            let json = render(operation, None, "m", "2026-01-01T00:00:00Z").expect("an operation");
            let found: LastOperation = serde_json::from_value(json).expect("an operation");
            assert_eq!(read(Some(&found), "m"), operation);
            assert_eq!(read(Some(&found), "other"), Operation::Other);
        }
        assert_eq!(render(Operation::Other, None, "m", ""), None);
        assert_eq!(read(None, "m"), Operation::Other);
    }

    #[test]
    fn rollback_writes_back_what_was_before() {
        let former = FormerOperation { kind: "Create".to_owned(), state: "Error".to_owned() };
        let of = |former| render(Operation::Former, former, "m", "").expect("an operation");
        assert_eq!(
            (&of(Some(&former))["type"], &of(Some(&former))["state"]),
            (&json!("Create"), &json!("Error"))
        );
        assert_eq!((&of(None)["type"], &of(None)["state"]), (&json!("Reconcile"), &json!("Succeeded")));
    }
}
