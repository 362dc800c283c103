//! Two migrations beside each other: how long each step took.

use std::collections::BTreeSet;

use serde::Serialize;

use crate::{
    migration::{Migration, StepRecord},
    text::{columns, duration},
};

/// A step in both migrations.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct StepDifference {
    /// Name of the step.
    pub step: String,
    /// State in the first one; `None` where it has no such record.
    pub first_state: Option<String>,
    /// State in the second one.
    pub second_state: Option<String>,
    /// How long it took in the first one, in seconds.
    pub first_seconds: Option<i64>,
    /// How long it took in the second one, in seconds.
    pub second_seconds: Option<i64>,
}

/// Both migrations, step by step, in the order of the first one.
#[must_use]
pub fn steps(first: &Migration, second: &Migration) -> Vec<StepDifference> {
    let mut seen = BTreeSet::new();
    let names = first.steps().chain(second.steps()).map(|(_, step)| step.name.as_str());
    let names: Vec<&str> = names.filter(|name| seen.insert(*name)).collect();
    let state = |migration: &Migration, name: &str| migration.step(name).map(|step| step.state.clone());
    let seconds = |migration: &Migration, name: &str| migration.step(name).and_then(StepRecord::seconds);
    let of = |name: &str| StepDifference {
        step: name.to_owned(),
        first_state: state(first, name),
        second_state: state(second, name),
        first_seconds: seconds(first, name),
        second_seconds: seconds(second, name),
    };
    names.into_iter().map(of).collect()
}

/// The same as a table, with the whole and the outage at its end.
#[must_use]
pub fn text(first: &Migration, second: &Migration) -> String {
    let head = ["STEP".to_owned(), first.name.clone(), second.name.clone(), "DIFFERENCE".to_owned()];
    let mut rows = vec![head];
    for step in steps(first, second) {
        let cell = |state: Option<&String>, seconds| cell(state.map(String::as_str), seconds);
        rows.push([
            step.step,
            cell(step.first_state.as_ref(), step.first_seconds),
            cell(step.second_state.as_ref(), step.second_seconds),
            difference(step.first_seconds, step.second_seconds),
        ]);
    }
    let outage = |one: &Migration| one.api_outage.as_ref().and_then(|outage| outage.seconds);
    for (label, a, b) in [
        ("all", first.total_seconds(), second.total_seconds()),
        ("API outage", outage(first), outage(second)),
    ] {
        let phase = |one: &Migration| if label == "all" { Some(one.phase.clone()) } else { None };
        rows.push([
            label.to_owned(),
            cell(phase(first).as_deref(), a),
            cell(phase(second).as_deref(), b),
            difference(a, b),
        ]);
    }
    columns(&rows)
}

fn cell(state: Option<&str>, seconds: Option<i64>) -> String {
    let time = seconds.map(duration);
    match (state, time) {
        (None | Some("Succeeded"), Some(time)) => time,
        (Some(state), Some(time)) => format!("{time} {state}"),
        (Some(state), None) => state.to_owned(),
        (None, None) => "-".to_owned(),
    }
}

fn difference(first: Option<i64>, second: Option<i64>) -> String {
    match first.zip(second).map(|(first, second)| second - first) {
        None | Some(0) => String::new(),
        Some(longer) if longer > 0 => format!("+{}", duration(longer)),
        Some(shorter) => duration(shorter),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::migration::tests::{classic, read};

    #[test]
    fn steps_of_both_are_shown_with_what_has_changed() {
        let mut other = classic();
        other["metadata"]["name"] = json!("alpha-again");
        other["status"]["apiOutage"] = json!(null);
        other["status"]["source"]["steps"][0]["completionTime"] = json!("2026-11-28T05:14:40Z");
        other["status"]["destination"]["steps"][0] = json!({"name": "EtcdServes", "state": "Failed"});
        let expected = "\
STEP              alpha-to-b  alpha-again  DIFFERENCE
TurnTaken         2s          2s
SourceServes      5s          35s          +30s
SourceApiStopped  2s          2s
MoveCommitted     1s          -
ApiDnsSwitched    1s          1s
EtcdServes        -           Failed
all               1m05s       1m05s
API outage        7s          -
";
        let text = text(&read(classic()), &read(other));
        assert_eq!(text, expected, "\n{text}");
    }
}
