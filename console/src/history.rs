//! What migrations a Shoot has been through, for people: when, how long its API was away, and what was lost.

use std::fmt::Write as _;

use jiff::Timestamp;
use kube::ResourceExt;
use repot_controllers::migration::api::ControlPlaneMigration;
use serde::Serialize;
use serde_json::Value;

use crate::{
    garden::{self, Garden},
    migration::Migration,
    text::{duration, one_line},
};

/// One migration of a Shoot, as it is stored.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Entry {
    /// Name of the ControlPlaneMigration in its namespace.
    pub name: String,
    /// How it moves: `Classic`, `Forced` or `Live`.
    pub mode: String,
    /// Who carries it out: `Repot` or `Gardenlet`.
    pub executor: String,
    /// The seed that was left, or should have been.
    pub source_seed: String,
    /// The seed where the control plane went.
    pub destination_seed: String,
    /// When the object was created.
    pub created: Option<Timestamp>,
    /// From its first step to its end, in seconds; `None` where it has not ended.
    pub seconds: Option<i64>,
    /// `status.phase`; empty where no controller has recorded one.
    pub phase: String,
    /// Text of `status.message`, empty where there is none.
    pub message: String,
    /// `status.apiOutage`: `from`, `to`, `seconds`; null where there was none, or where it is not known.
    pub api_outage: Value,
    /// What a person has confirmed to lose, `status.destination.loss`: the newest snapshot that the destination began with.
    pub loss: Value,
    /// `status.lateSnapshot`: what the source stored too late, by the names of keys.
    pub late_snapshot: Value,
    /// The migration that went on in place of this one, or from its destination.
    pub followed_by: Option<String>,
}

/// Reads the migrations of a Shoot, the oldest first.
///
/// # Errors
/// Those of the API server, also where it does not serve the kind.
pub async fn read(garden: &Garden, namespace: &str, shoot: &str) -> garden::Result<Vec<Entry>> {
    let found = garden.objects(Some(namespace), Some(shoot)).await?;
    let mut entries: Vec<Entry> = found.iter().map(Entry::new).collect();
    entries.sort_by(|a, b| (a.created, &a.name).cmp(&(b.created, &b.name)));
    Ok(entries)
}

impl Entry {
    fn new(migration: &ControlPlaneMigration) -> Self {
        let or = |text: &str, default: &str| if text.is_empty() { default } else { text }.to_owned();
        let field = |name: &str| migration.status.get(name).cloned().unwrap_or_default();
        let text = |name: &str| field(name).as_str().unwrap_or_default().to_owned();
        let spec = &migration.spec;
        Self {
            name: migration.name_any(),
            mode: or(&spec.mode, "Classic"),
            executor: or(&spec.executor, "Repot"),
            source_seed: spec.source_seed.clone(),
            destination_seed: spec.destination_seed.clone(),
            created: migration.creation_timestamp().map(|time| time.0),
            seconds: Migration::new(migration).total_seconds(),
            phase: text("phase"),
            message: text("message"),
            api_outage: field("apiOutage"),
            loss: migration.status.get("destination").map(|part| part["loss"].clone()).unwrap_or_default(),
            late_snapshot: field("lateSnapshot"),
            followed_by: migration.superseded_by().or(migration.continued_by()).map(str::to_owned),
        }
    }

    /// The entry as lines of text, with at most so many names of keys.
    fn write(&self, text: &mut String, keys: usize) {
        let created = self.created.map_or_else(|| "?".to_owned(), |time| time.to_string());
        let phase = if self.phase.is_empty() { "not begun" } else { &self.phase };
        let (from, to) = (&self.source_seed, &self.destination_seed);
        // Writing to a String does not fail.
        let _ =
            writeln!(text, "{}", one_line(&format!("{}  {}  {from} -> {to}  {phase}", self.name, self.mode)));
        let mut line = |what: &str, says: &str| {
            let _ = writeln!(text, "  {what:<13} {}", one_line(says));
        };
        line("created", &format!("{created}, executor {}", self.executor));
        if let Some(seconds) = self.seconds {
            line("took", &duration(seconds));
        }
        if !self.message.is_empty() {
            line("message", &self.message);
        }
        if let Some(seconds) = self.api_outage["seconds"].as_i64() {
            let at = |end: &str| self.api_outage[end].as_str().unwrap_or("?").to_owned();
            line("outage", &format!("{seconds} s, from {} to {}", at("from"), at("to")));
        }
        if let Some(snapshot) = self.loss["snapshot"].as_str() {
            let (revision, time) = (&self.loss["revision"], self.loss["time"].as_str().unwrap_or("?"));
            line("confirmed", &format!("to lose what follows revision {revision} of {time} ({snapshot})"));
        }
        if let Some(other) = &self.followed_by {
            line("followed by", other);
        }
        self.write_late(text, keys);
    }

    fn write_late(&self, text: &mut String, keys: usize) {
        let late = &self.late_snapshot;
        let Some(state) = late["state"].as_str() else { return };
        let (name, revision) = (late["name"].as_str().unwrap_or("?"), &late["revision"]);
        let says = match state {
            "Contained" => "the destination has everything that it holds".to_owned(),
            "Reported" => {
                let count = |what: &str| late[what].as_u64().unwrap_or_default();
                let (created, updated, deleted) = (count("created"), count("updated"), count("deleted"));
                let held = &late["heldRevision"];
                format!(
                    "after revision {held} it has {created} keys created, {updated} updated, {deleted} deleted"
                )
            }
            other => format!("{other} {}", late["message"].as_str().unwrap_or_default()),
        };
        let _ = writeln!(text, "  {:<13} {name}, revision {revision}: {}", "late snapshot", one_line(&says));
        let names: Vec<&str> =
            late["keys"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        for key in names.iter().take(keys) {
            let _ = writeln!(text, "  {:<13} {}", "", one_line(key));
        }
        if state != "Reported" {
            return;
        }
        if let Some(rest) = names.len().checked_sub(keys).filter(|rest| *rest > 0) {
            let _ = writeln!(text, "  {:<13} and {rest} more: --keys", "");
        }
        if let (Some(history), Some(held)) = (late["history"].as_str(), late["heldRevision"].as_i64()) {
            let command = format!("repot snapshots changes --history {history} --after {held} --store …");
            let _ = writeln!(text, "  {:<13} all names: {command}", "");
        }
    }
}

/// All entries as text, each with at most so many names of keys.
#[must_use]
pub fn text(entries: &[Entry], keys: usize) -> String {
    let mut text = String::new();
    for (at, entry) in entries.iter().enumerate() {
        if at > 0 {
            text.push('\n');
        }
        entry.write(&mut text, keys);
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn entry(object: &Value) -> Entry {
        Entry::new(&serde_json::from_value(object.clone()).expect("a migration"))
    }

    fn forced() -> Value {
        json!({
            "metadata": {"name": "alpha-forced", "creationTimestamp": "2026-11-28T05:14:02Z"},
            "spec": {
                "shootRef": {"name": "alpha"}, "sourceSeed": "seed-a", "destinationSeed": "seed-b", "mode": "Forced",
            },
            "status": {
                "phase": "Succeeded", "message": "",
                "apiOutage": {"from": "2026-11-28T05:14:16Z", "to": "2026-11-28T05:14:27Z", "seconds": 11},
                "destination": {"loss": {
                    "snapshot": "Incr-1", "revision": 277, "time": "2026-11-28T05:14:12Z", "epoch": 1,
                }},
                "lateSnapshot": {
                    "state": "Reported", "name": "Full-344.final", "revision": 344, "heldRevision": 277,
                    "history": "late-47ce", "created": 2, "updated": 0, "deleted": 1,
                    "keys": ["/registry/configmaps/default/a", "/registry/b\u{1b}[2J", "/registry/c"],
                },
            },
        })
    }

    #[test]
    fn text_says_what_was_lost_and_where_all_names_are() {
        let said = text(&[entry(&forced())], 2);
        let wanted = "\
alpha-forced  Forced  seed-a -> seed-b  Succeeded
  created       2026-11-28T05:14:02Z, executor Repot
  outage        11 s, from 2026-11-28T05:14:16Z to 2026-11-28T05:14:27Z
  confirmed     to lose what follows revision 277 of 2026-11-28T05:14:12Z (Incr-1)
  late snapshot Full-344.final, revision 344: after revision 277 it has 2 keys created, 0 updated, 1 deleted
                /registry/configmaps/default/a
                /registry/b [2J
                and 1 more: --keys
                all names: repot snapshots changes --history late-47ce --after 277 --store …
";
        assert_eq!(said, wanted);
    }

    #[test]
    fn snapshot_that_the_destination_contains_loses_nothing() {
        let mut object = forced();
        object["status"]["lateSnapshot"] =
            json!({"state": "Contained", "name": "Full-9.final", "revision": 9});
        let said = text(&[entry(&object)], 10);
        let wanted =
            "  late snapshot Full-9.final, revision 9: the destination has everything that it holds\n";
        assert!(said.ends_with(wanted), "{said}");
    }

    #[test]
    fn migration_that_has_ended_says_how_long_it_took() {
        let object = crate::migration::tests::classic();
        assert!(text(&[entry(&object)], 10).contains("\n  took          1m05s\n"));
    }

    #[test]
    fn migration_that_nobody_has_begun_is_told() {
        let object = json!({
            "metadata": {"name": "beta-1"},
            "spec": {"shootRef": {"name": "beta"}, "sourceSeed": "a", "destinationSeed": "b"},
            "status": {"supersededBy": "beta-2", "lateSnapshot": 7, "destination": [], "apiOutage": "x"},
        });
        let wanted =
            "beta-1  Classic  a -> b  not begun\n  created       ?, executor Repot\n  followed by   beta-2\n";
        assert_eq!(text(&[entry(&object)], 10), wanted);
    }
}
