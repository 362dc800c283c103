//! `status.lastOperation` of the Shoot. Pure.

use repot_plan::classic::observed::Operation;
use serde_json::{Value, json};

use crate::migration::api::LastOperation;

/// The last operation that tells of this migration; `percent` is how far it is.
#[must_use]
pub fn render(operation: Operation, migration: &str, now: &str) -> Option<Value> {
    let (kind, state, progress) = words(operation)?;
    Some(json!({
        "type": kind, "state": state, "progress": progress, "lastUpdateTime": now,
        "description": description(migration),
    }))
}

/// How far the last operation tells of this migration.
#[must_use]
pub fn read(found: Option<&LastOperation>, migration: &str) -> Operation {
    let Some(found) = found.filter(|found| found.description == description(migration)) else {
        return Operation::Other;
    };
    let all = [Operation::Migrating, Operation::Restoring, Operation::Restored, Operation::Aborted];
    let is = |operation: &Operation| {
        words(*operation).is_some_and(|(kind, state, _)| found.kind == kind && found.state == state)
    };
    all.into_iter().find(is).unwrap_or(Operation::Other)
}

fn words(operation: Operation) -> Option<(&'static str, &'static str, i32)> {
    match operation {
        Operation::Other => None,
        Operation::Migrating => Some(("Migrate", "Processing", 10)),
        Operation::Restoring => Some(("Restore", "Processing", 90)),
        Operation::Restored => Some(("Restore", "Succeeded", 100)),
        Operation::Aborted => Some(("Migrate", "Aborted", 0)),
    }
}

fn description(migration: &str) -> String {
    format!("ControlPlaneMigration {migration} moves the control plane.")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operation_is_read_as_it_was_written_and_only_by_its_migration() {
        for operation in
            [Operation::Migrating, Operation::Restoring, Operation::Restored, Operation::Aborted]
        {
            let json = render(operation, "m", "2026-01-01T00:00:00Z").expect("an operation");
            let found: LastOperation = serde_json::from_value(json).expect("an operation");
            assert_eq!(read(Some(&found), "m"), operation);
            assert_eq!(read(Some(&found), "other"), Operation::Other);
        }
        assert_eq!(render(Operation::Other, "m", ""), None);
        assert_eq!(read(None, "m"), Operation::Other);
    }
}
