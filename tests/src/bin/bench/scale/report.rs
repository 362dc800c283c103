//! The table, and the same as JSON.

use serde_json::{Value, json};

/// What was measured in a run.
pub struct Report {
    /// The machine, and the flags of the run.
    pub setting: Value,
    /// A row for each moment.
    pub rows: Vec<Value>,
}

/// What each row has; the rest is in the last column.
const COLUMNS: [(&str, &str); 6] = [
    ("repotMiB", "Repot, MiB"),
    ("repotPeakMiB", "peak"),
    ("etcdMiB", "etcd, MiB"),
    ("etcdDatabaseMiB", "its database"),
    ("objectStoreMiB", "object store"),
    ("repotCpuSeconds", "CPU of Repot, s"),
];

impl Report {
    /// As a table of Markdown.
    pub fn to_markdown(&self) -> String {
        let titles: Vec<&str> = COLUMNS.iter().map(|(_, title)| *title).collect();
        let mut text = format!(
            "{}\n\n| | {} | |\n|---|{}---|\n",
            self.setting,
            titles.join(" | "),
            "---|".repeat(COLUMNS.len())
        );
        for row in &self.rows {
            let cells = COLUMNS.map(|(name, _)| short(&row[name]));
            text += &format!("| {} | {} | {} |\n", short(&row["moment"]), cells.join(" | "), rest(row));
        }
        text
    }

    /// The report as JSON, for scripts.
    pub fn to_json(&self) -> Value {
        json!({"setting": self.setting, "rows": self.rows})
    }
}

fn rest(row: &Value) -> String {
    let own = |name: &str| name == "moment" || COLUMNS.iter().any(|(column, _)| *column == name);
    let others = row.as_object().into_iter().flatten().filter(|(name, _)| !own(name));
    others.map(|(name, value)| format!("{name} {}", short(value))).collect::<Vec<_>>().join(", ")
}

fn short(value: &Value) -> String {
    match value {
        Value::Number(number) if number.is_f64() => {
            let number = number.as_f64().unwrap_or_default();
            if number < 10.0 { format!("{number:.2}") } else { format!("{number:.0}") }
        }
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}
