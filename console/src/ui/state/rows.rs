//! What the page shows of a migration, a Shoot and a Seed. Text that others have written loses its control characters.

use serde_json::{Value, json};

use crate::{
    migration::{Migration, StepRecord},
    table::Table,
    text::one_line,
};

/// Most characters of a text in a row.
const MOST_TEXT: usize = 600;
/// Most conditions of an object that are not as they should be.
const MOST_CONDITIONS: usize = 10;

/// A text of an object.
pub(super) fn text(object: &Value, pointer: &str) -> String {
    let text = object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    one_line(text).chars().take(MOST_TEXT).collect()
}

/// Conditions that are not `True`, of those that should be.
pub(super) fn problems(object: &Value) -> Vec<Value> {
    let all = object.pointer("/status/conditions").and_then(Value::as_array);
    let is_problem = |condition: &&Value| condition["status"].as_str().is_some_and(|status| status != "True");
    let of = |condition: &Value| {
        json!({
            "type": text(condition, "/type"), "status": text(condition, "/status"),
            "reason": text(condition, "/reason"), "message": text(condition, "/message"),
        })
    };
    all.into_iter().flatten().filter(is_problem).take(MOST_CONDITIONS).map(of).collect()
}

/// The row of a ControlPlaneMigration.
pub(super) fn migration(one: &Migration) -> Value {
    let table = Table::by(one);
    let goes_back = matches!(one.phase.as_str(), "RollingBack" | "RolledBack" | "Cancelled");
    let rows =
        table.as_ref().map_or(&[][..], |table| if goes_back { &table.rollback } else { &table.forward });
    let is_settled = |step: &str| {
        let record = one.step(step);
        record.is_some_and(|record| matches!(record.state.as_str(), "Succeeded" | "Skipped"))
    };
    let open = one.steps().filter(|(_, step)| step.is_running() && !one.is_over());
    let open: Vec<Value> = open.take(8).map(|(side, step)| open_step(side, step)).collect();
    json!({
        "namespace": one.namespace, "name": one.name, "shoot": one.shoot, "mode": one.mode, "executor": one.executor,
        "from": one.source_seed, "to": one.destination_seed, "phase": one.phase, "reason": one.reason,
        "message": one.message.chars().take(MOST_TEXT).collect::<String>(), "paused": one.paused, "over": one.is_over(),
        "created": one.created, "started": one.started(), "ended": one.ended(), "seconds": one.total_seconds(),
        "outage": one.api_outage, "noReturn": one.point_of_no_return, "epoch": one.owner_epoch,
        "settled": rows.iter().filter(|row| is_settled(row.step)).count(), "steps": rows.len(), "open": open,
        "followedBy": one.followed_by.as_deref().map(one_line),
    })
}

fn open_step(side: &str, step: &StepRecord) -> Value {
    json!({"side": side, "name": step.name, "started": step.started})
}

/// The migration as it is kept: without the messages of one that has ended, which are most of it.
pub(super) fn kept(mut migration: Migration) -> Migration {
    if migration.is_over() {
        migration.message = String::new();
        for side in &mut migration.sides {
            side.message = String::new();
            for step in &mut side.steps {
                (step.message, step.reason) = (String::new(), String::new());
            }
        }
    }
    migration
}

/// The row of a Shoot.
pub(super) fn shoot(object: &Value) -> Value {
    let at = |pointer: &str| text(object, pointer);
    let operation = json!({
        "type": at("/status/lastOperation/type"), "state": at("/status/lastOperation/state"),
        "description": at("/status/lastOperation/description"),
        "progress": object.pointer("/status/lastOperation/progress").and_then(Value::as_i64),
    });
    json!({
        "namespace": at("/metadata/namespace"), "name": at("/metadata/name"),
        "seed": at("/spec/seedName"), "statusSeed": at("/status/seedName"),
        "technicalID": at("/status/technicalID"), "provider": at("/spec/provider/type"), "region": at("/spec/region"),
        "version": at("/spec/kubernetes/version"), "purpose": at("/spec/purpose"),
        "hibernated": object.pointer("/status/hibernated").and_then(Value::as_bool).unwrap_or_default(),
        "deleting": object.pointer("/metadata/deletionTimestamp").is_some_and(|time| !time.is_null()),
        "operation": operation, "problems": problems(object),
    })
}

/// The row of a Seed.
pub(super) fn seed(object: &Value) -> Value {
    let at = |pointer: &str| text(object, pointer);
    json!({
        "name": at("/metadata/name"), "provider": at("/spec/provider/type"), "region": at("/spec/provider/region"),
        "deleting": object.pointer("/metadata/deletionTimestamp").is_some_and(|time| !time.is_null()),
        "problems": problems(object),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::migration::tests::{classic, read};

    #[test]
    fn row_of_a_migration_says_where_it_stands() {
        let mut object = classic();
        object["status"]["phase"] = json!("Running");
        object["status"]["destination"]["steps"][1]["state"] = json!("Running");
        let row = migration(&read(object));
        assert_eq!((&row["settled"], &row["over"]), (&json!(4), &json!(false)));
        assert_eq!(row["open"][0]["name"], "ApiDnsSwitched");
        assert_eq!(row["outage"]["seconds"], 7);
    }

    #[test]
    fn texts_of_others_are_cleaned_and_cut() {
        let long = "x".repeat(5000);
        let object = json!({
            "metadata": {"name": "a\u{1b}[2J", "namespace": "n"},
            "status": {"lastOperation": {"description": long}, "conditions": [
                {"type": "APIServerAvailable", "status": "False", "message": "\u{202e}down"},
                {"type": "Fine", "status": "True"}, 7,
            ]},
        });
        let row = shoot(&object);
        assert_eq!(row["name"], "a [2J");
        assert_eq!(row["operation"]["description"].as_str().map(str::len), Some(MOST_TEXT));
        assert_eq!(row["problems"][0]["message"], " down");
        assert_eq!(row["problems"].as_array().map(Vec::len), Some(1));
    }

    #[test]
    fn migration_that_has_ended_is_kept_without_messages() {
        let kept = kept(read(classic()));
        assert!(kept.steps().all(|(_, step)| step.message.is_empty() && step.completed.is_some()));
    }
}
