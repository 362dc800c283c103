//! Whether a payload agrees with itself.

use jiff::Timestamp;
use repot_plan::{migration::Side, named::Named};
use serde_json::Value;

use super::{FORM, summary};
use crate::{
    migration::{Executor, Migration, Mode},
    table::Table,
};

/// How far the clocks of garden and seeds may be apart, in seconds.
const CLOCKS: i64 = 60;

/// What in a payload contradicts itself; empty where nothing does. A signature says who vouches for the payload, and this whether what
/// was vouched for can be.
#[must_use]
pub fn findings(payload: &Value) -> Vec<String> {
    let mut findings = Vec::new();
    if payload["form"] != FORM {
        return vec![format!("its form is {}, and this program knows {FORM}", payload["form"])];
    }
    if payload["summary"] != summary(&payload["migration"]) {
        findings.push("the summary does not follow from the migration".to_owned());
    }
    let Ok(object) = serde_json::from_value(payload["migration"].clone()) else {
        findings.push("the migration cannot be read".to_owned());
        return findings;
    };
    let migration = Migration::new(&object);
    findings.extend(outage(&migration));
    findings.extend(order(&migration));
    findings.extend(end(&migration));
    findings
}

fn outage(migration: &Migration) -> Option<String> {
    let outage = migration.api_outage.as_ref()?;
    let computed = outage.to?.duration_since(outage.from).as_secs();
    (outage.seconds != Some(computed)).then(|| {
        format!("the outage is recorded with {:?} seconds, and its times say {computed}", outage.seconds)
    })
}

/// Steps end after they began, and begin after those that they wait for.
fn order(migration: &Migration) -> Vec<String> {
    let mut findings = Vec::new();
    let table = Table::by(migration);
    let is_before = |a: Timestamp, b: Timestamp| b.duration_since(a).as_secs() >= -CLOCKS;
    for (_, step) in migration.steps() {
        if let Some((from, to)) = step.started.zip(step.completed)
            && to < from
        {
            findings.push(format!("{} ended before it began", step.name));
        }
        // A step that was lost and reached again has only its last times.
        let rows = table.as_ref().and_then(|table| table.row(&step.name)).filter(|_| step.attempts <= 1);
        for before in rows.map_or(&[][..], |row| row.after.as_slice()) {
            let earlier = migration.step(before).filter(|record| record.attempts <= 1);
            let times = earlier.and_then(|record| record.completed).zip(step.started);
            if times.is_some_and(|(ended, began)| !is_before(ended, began)) {
                findings.push(format!("{} began before {before} was reached", step.name));
            }
        }
    }
    findings
}

/// A migration that has succeeded is past its point of no return and has left no step behind that its end waits for.
fn end(migration: &Migration) -> Vec<String> {
    if !migration.has_succeeded() {
        return Vec::new();
    }
    // A source that is taken for dead, or is left to another migration, may come back after the end.
    let is_source_waited_for = migration.mode != Mode::Forced
        && migration.executor == Executor::Repot
        && migration.followed_by.is_none();
    let steps = || migration.steps().filter(|(side, _)| is_source_waited_for || *side != Side::Source.name());
    let open = steps().filter(|(_, step)| step.is_running());
    let open = open.map(|(_, step)| format!("it has succeeded, and {} still runs", step.name));
    let failed = steps().filter(|(_, step)| step.state == "Failed");
    let failed = failed.map(|(_, step)| format!("it has succeeded, and {} has failed", step.name));
    let is_before = migration.point_of_no_return.is_none();
    let before = is_before.then(|| "it has succeeded, and is not past its point of no return".to_owned());
    open.chain(failed).chain(before).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{evidence, migration::tests::classic};

    fn of(change: impl FnOnce(&mut Value)) -> Vec<String> {
        let mut object = classic();
        change(&mut object);
        let now = "2026-11-28T06:00:00Z".parse().expect("a time");
        findings(&evidence::payload(&object, &[], now, ""))
    }

    #[test]
    fn payload_that_contradicts_itself_is_found() {
        assert_eq!(of(|_| ()), [""; 0]);
        let wrong = of(|object| object["status"]["apiOutage"]["seconds"] = json!(1));
        assert_eq!(wrong, ["the outage is recorded with Some(1) seconds, and its times say 7"]);
        let swapped = of(|object| {
            object["status"]["source"]["steps"][0]["completionTime"] = json!("2026-11-28T05:00:00Z");
        });
        assert_eq!(swapped, ["SourceServes ended before it began"]);
        let early = of(|object| {
            let step = &mut object["status"]["destination"]["steps"][1];
            step["startTime"] = json!("2026-11-28T05:10:00Z");
        });
        assert_eq!(early, ["ApiDnsSwitched began before MoveCommitted was reached"]);
        let open = of(|object| object["status"]["source"]["steps"][0]["state"] = json!("Running"));
        assert_eq!(open, ["it has succeeded, and SourceServes still runs"]);
        let early = of(|object| object["status"]["pointOfNoReturn"] = Value::Null);
        assert_eq!(early, ["it has succeeded, and is not past its point of no return"]);
    }

    #[test]
    fn source_that_comes_back_late_does_not_contradict_a_forced_migration() {
        let late = of(|object| {
            object["spec"]["mode"] = json!("Forced");
            object["status"]["source"]["steps"][0]["state"] = json!("Failed");
        });
        assert_eq!(late, [""; 0]);
    }

    #[test]
    fn live_migration_whose_source_was_given_up_goes_by_a_table_of_its_own() {
        let times = |from: u32| json!({"state": "Succeeded", "attempts": 1, "startTime": format!("2026-11-28T05:{from}:00Z"), "completionTime": format!("2026-11-28T05:{from}:30Z")});
        let step = |name: &str, from: u32| {
            let mut step = times(from);
            step["name"] = json!(name);
            step
        };
        let of_shrunk = |shrunk: bool| {
            of(|object| {
                object["spec"]["mode"] = json!("Live");
                object["status"]["source"]["steps"] = json!([]);
                object["status"]["destination"]["steps"] =
                    json!([step("MoveCommitted", 10), step("ApiServes", 20)]);
                object["status"]["destination"]["shrunk"] = json!(shrunk);
            })
        };
        assert_eq!(of_shrunk(true), [""; 0]);
        assert_eq!(of_shrunk(false), ["MoveCommitted began before ApiServes was reached"]);
    }

    #[test]
    fn summary_that_says_something_else_is_found() {
        let now = "2026-11-28T06:00:00Z".parse().expect("a time");
        let mut payload = evidence::payload(&classic(), &[], now, "");
        payload["summary"]["phase"] = json!("Failed");
        assert_eq!(findings(&payload), ["the summary does not follow from the migration"]);
        assert_eq!(findings(&json!({"form": "x"})).len(), 1);
    }
}
