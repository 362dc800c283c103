//! What was measured, as Markdown for people and as JSON for scripts.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::contest::{Run, Side};
use crate::proc::percentile;
use crate::report::number;

/// Everything that is told.
pub struct Report {
    /// The machine, and the options of the run.
    pub setting: Value,
    /// One for each side of a cell.
    pub rows: Vec<Value>,
}

/// What a cell moves, for rates.
#[derive(Clone, Copy, Debug)]
pub enum Amount {
    /// So many bytes.
    Bytes(u64),
    /// So many events.
    Events(usize),
}

impl Report {
    /// The rows of a cell; Repot is its first side.
    pub fn add(&mut self, cell: &str, amount: Amount, sides: &[Side<'_>]) {
        let before = self.rows.len();
        let own = sides.first().map_or(f64::NAN, |side| median(&side.runs, |run| run.seconds));
        for side in sides {
            let seconds = median(&side.runs, |run| run.seconds);
            let all = sorted(&side.runs, |run| run.seconds);
            let (rate, unit) = match amount {
                Amount::Bytes(bytes) => (bytes as f64 / 1e6 / seconds, "MB/s"),
                Amount::Events(events) => (events as f64 / seconds, "events/s"),
            };
            self.rows.push(json!({
                "cell": cell, "side": side.name, "n": side.runs.len(),
                "seconds": { "median": seconds, "min": all.first(), "max": all.last() },
                "rate": rate, "unit": unit, "repotIsFasterBy": seconds / own,
                "cpuSeconds": median(&side.runs, |run| run.cpu),
                "peakMiB": median(&side.runs, |run| run.peak_mib),
            }));
        }
        // Told at once, so that a run that is broken off was not for nothing.
        self.rows[before..].iter().for_each(|row| eprint!("{}", markdown_row(row)));
    }

    /// A row of times alone, in milliseconds.
    pub fn add_times(&mut self, cell: &str, side: &str, mut millis: Vec<f64>) {
        millis.sort_by(f64::total_cmp);
        self.rows.push(json!({
            "cell": cell, "side": side, "n": millis.len(),
            "millis": {
                "p50": percentile(&millis, 50.0), "p90": percentile(&millis, 90.0), "max": millis.last(),
            },
        }));
    }

    /// The report as JSON, for scripts.
    pub fn to_json(&self) -> Value {
        json!({ "setting": self.setting, "rows": self.rows })
    }

    /// The report as Markdown, for people.
    pub fn to_markdown(&self) -> String {
        let mut text = String::from("## Setting\n\n");
        for (name, value) in self.setting.as_object().into_iter().flatten() {
            let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            let _ = writeln!(text, "- {name}: {value}");
        }
        text += "\n## Times\n\n\
            | cell | who | n | s, median (min..max) | rate | Repot is faster by | CPU s | peak MiB |\n\
            |---|---|---|---|---|---|---|---|\n";
        self.rows.iter().for_each(|row| text += &markdown_row(row));
        text
    }
}

fn markdown_row(row: &Value) -> String {
    let word = |name: &str| row[name].as_str().unwrap_or_default().to_owned();
    let millis = &row["millis"];
    if !millis.is_null() {
        let (p50, p90, max) = (number(&millis["p50"]), number(&millis["p90"]), number(&millis["max"]));
        return format!(
            "| {} | {} | {} | p50 {p50} ms, p90 {p90} ms, most {max} ms | | | | |\n",
            word("cell"),
            word("side"),
            row["n"]
        );
    }
    let seconds = &row["seconds"];
    format!(
        "| {} | {} | {} | {} ({}..{}) | {} {} | {} | {} | {} |\n",
        word("cell"),
        word("side"),
        row["n"],
        number(&seconds["median"]),
        number(&seconds["min"]),
        number(&seconds["max"]),
        number(&row["rate"]),
        word("unit"),
        number(&row["repotIsFasterBy"]),
        number(&row["cpuSeconds"]),
        number(&row["peakMiB"]),
    )
}

fn sorted(runs: &[Run], of: impl Fn(&Run) -> f64) -> Vec<f64> {
    let mut all: Vec<f64> = runs.iter().map(of).collect();
    all.sort_by(f64::total_cmp);
    all
}

fn median(runs: &[Run], of: impl Fn(&Run) -> f64) -> f64 {
    percentile(&sorted(runs, of), 50.0)
}
