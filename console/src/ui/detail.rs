//! One migration with all that is known of it.

use jiff::Timestamp;
use repot_controllers::migration::api::ControlPlaneMigration;
use serde_json::{Value, json};

use super::{requests, state::State, tracks::tracks};
use crate::{migration::Migration, progress::Progress, table::Table, text::one_line};

/// Most names of keys of a late snapshot, as many as the API server stores.
const MOST_KEYS: usize = 100;

/// The migration as the page shows it.
pub(super) fn detail(object: &ControlPlaneMigration, state: &State, now: Timestamp) -> Value {
    let migration = Migration::new(object);
    let status = Value::Object(object.status.clone());
    let past = state.durations(migration.mode, migration.executor);
    let progress = Progress::of(&migration, &past, now);
    json!({
        "now": now,
        "started": migration.started(), "ended": migration.ended(), "over": migration.is_over(),
        "seconds": migration.total_seconds(),
        "tracks": tracks(&migration, &status),
        "table": Table::by(&migration),
        "durations": past,
        "progress": progress,
        "requests": requests::possible(&migration),
        "loss": loss(&status["destination"]["loss"]),
        "finalSnapshot": snapshot(&status["source"]["finalSnapshot"]),
        "lateSnapshot": late(&status["lateSnapshot"]),
        "migration": migration,
    })
}

/// Only what is shown: an object of the garden may hold anything.
fn picked(object: &Value, texts: &[&str], numbers: &[&str]) -> Value {
    if !object.is_object() {
        return Value::Null;
    }
    let texts = texts.iter().filter_map(|field| Some((*field, json!(one_line(object[*field].as_str()?)))));
    let numbers = numbers.iter().filter_map(|field| Some((*field, json!(object[*field].as_i64()?))));
    Value::Object(texts.chain(numbers).map(|(field, value)| (field.to_owned(), value)).collect())
}

fn loss(object: &Value) -> Value {
    picked(object, &["snapshot", "time"], &["epoch", "revision"])
}

fn snapshot(object: &Value) -> Value {
    picked(object, &["name"], &["epoch", "revision"])
}

fn late(object: &Value) -> Value {
    let texts = ["name", "state", "message", "history"];
    let mut late = picked(object, &texts, &["revision", "heldRevision", "created", "updated", "deleted"]);
    if late.is_object() {
        let keys = object["keys"].as_array().into_iter().flatten().filter_map(Value::as_str);
        late["keys"] = json!(keys.take(MOST_KEYS).map(one_line).collect::<Vec<_>>());
    }
    late
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::migration::tests::classic;

    #[test]
    fn detail_has_what_the_page_shows() {
        let mut object = classic();
        object["status"]["lateSnapshot"] = json!({"name": "s", "state": "Reported", "created": 2, "keys": ["/registry/a\u{1b}"], "secret": "x"});
        let object = serde_json::from_value(object).expect("a migration");
        let detail = detail(&object, &State::new(), Timestamp::now());
        assert_eq!((&detail["seconds"], &detail["over"]), (&json!(65), &json!(true)));
        let wanted = json!({"name": "s", "state": "Reported", "created": 2, "keys": ["/registry/a "]});
        assert_eq!(detail["lateSnapshot"], wanted);
        assert_eq!(detail["loss"], Value::Null);
        assert_eq!(detail["requests"], json!([]));
        assert!(detail["table"]["forward"].as_array().is_some_and(|rows| rows.len() > 20));
    }
}
