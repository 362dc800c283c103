//! A row for each goal and side, with whatever was read.

use serde_json::{Value, json};

use crate::report::number;

/// What was measured in a run.
pub struct Report {
    /// The machine, and the flags of the run.
    pub setting: Value,
    /// A row for each side of each thing that was measured: `goal`, `what`, `side`, and readings.
    pub rows: Vec<Value>,
}

/// What every row has.
const FIXED: [&str; 3] = ["goal", "what", "side"];

impl Report {
    /// Notes readings (an object); told at once, so that a run that is broken off was not for nothing.
    pub fn add(&mut self, goal: &str, what: &str, side: &str, readings: Value) {
        let mut row = json!({ "goal": goal, "what": what, "side": side });
        if let (Some(row), Value::Object(readings)) = (row.as_object_mut(), readings) {
            row.extend(readings);
        }
        eprint!("{}", line(&row));
        self.rows.push(row);
    }

    /// As a table of Markdown.
    pub fn to_markdown(&self) -> String {
        let lines: String = self.rows.iter().map(line).collect();
        format!("{}\n\n| goal | what | side | readings |\n|---|---|---|---|\n{lines}", self.setting)
    }

    /// The report as JSON, for scripts.
    pub fn to_json(&self) -> Value {
        json!({ "setting": self.setting, "rows": self.rows })
    }
}

fn line(row: &Value) -> String {
    let fixed = FIXED.map(|name| row[name].as_str().unwrap_or_default().to_owned());
    let readings = row.as_object().into_iter().flatten().filter(|(name, _)| !FIXED.contains(&name.as_str()));
    let readings: Vec<String> = readings.map(|(name, value)| format!("{name} {}", short(value))).collect();
    format!("| {} | {} |\n", fixed.join(" | "), readings.join(", "))
}

fn short(value: &Value) -> String {
    match value {
        Value::Number(count) if !count.is_f64() => count.to_string(),
        Value::Number(_) => number(value),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}
