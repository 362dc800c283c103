//! What was measured, as Markdown for people and as JSON for scripts.

use std::fmt::Write as _;

use anyhow::Result;
use serde_json::{Value, json};

use super::{Contestant, LOADER};
use crate::proc::{self, percentile};
use crate::report::number;

/// Everything that is told.
#[derive(Default)]
pub struct Report {
    /// The machine, and the options of the run.
    pub setting: Value,
    rows: Vec<Value>,
    memory: Vec<Value>,
}

impl Report {
    /// The rows of a cell. The last contestant is the one who does the least: what the others add is told beside it.
    pub(super) fn add(&mut self, cell: &str, sides: &[Contestant]) {
        let least = sides.last().map_or(0.0, |side| percentile(&side.millis(), 50.0));
        for side in sides {
            let millis = side.millis();
            let cpu = side.cpu_millis();
            let own = cpu.first().map_or(0.0, |(_, millis)| *millis);
            let seconds: f64 = side.rounds.iter().map(|round| round.seconds).sum();
            let failures = side.failures();
            self.rows.push(json!({
                "cell": cell, "side": side.name, "n": millis.len(),
                "millis": {
                    "p50": percentile(&millis, 50.0), "p99": percentile(&millis, 99.0),
                    "p50OverLeast": percentile(&millis, 50.0) - least,
                },
                "perSecond": side.rate(), "perCpuSecond": if own > 0.0 { json!(1000.0 / own) } else { Value::Null },
                "serverCpuMillisEach": cpu.into_iter().map(|(name, millis)| (name.to_owned(), millis.into())).collect::<serde_json::Map<_, _>>(),
                "loaderCores": side.cpu.get(LOADER).copied().unwrap_or(0.0) / seconds.max(1e-9),
                "failures": failures.len(), "firstFailure": failures.first(),
            }));
        }
    }

    /// The memory of the webhook at a moment, and its peak since the last one.
    pub fn remember(&mut self, moment: &str, pid: u32) -> Result<()> {
        let memory = proc::memory(pid)?;
        self.memory.push(json!({ "moment": moment, "nowMiB": memory.now, "peakMiB": memory.peak }));
        proc::forget_peak(pid)
    }

    /// The report as JSON, for scripts.
    pub fn to_json(&self) -> Value {
        json!({ "setting": self.setting, "rows": self.rows, "memoryOfTheWebhook": self.memory })
    }

    /// The report as Markdown, for people.
    pub fn to_markdown(&self) -> String {
        let mut text = String::from("## Setting\n\n");
        for (name, value) in self.setting.as_object().into_iter().flatten() {
            let _ = writeln!(
                text,
                "- {name}: {}",
                value.as_str().map_or_else(|| value.to_string(), str::to_owned)
            );
        }
        text += "\n## Reviews\n\n\
            | cell | who answers | n | p50 ms | p99 ms | p50 over the least, ms | a second | a second of its CPU | CPU ms each | loader cores | failed |\n\
            |---|---|---|---|---|---|---|---|---|---|---|\n";
        for row in &self.rows {
            let cpu = row["serverCpuMillisEach"].as_object().into_iter().flatten();
            let cpu: Vec<String> =
                cpu.map(|(program, millis)| format!("{program} {}", number(millis))).collect();
            let columns = [
                row["cell"].as_str().unwrap_or_default().to_owned(),
                row["side"].as_str().unwrap_or_default().to_owned(),
                row["n"].to_string(),
                number(&row["millis"]["p50"]),
                number(&row["millis"]["p99"]),
                number(&row["millis"]["p50OverLeast"]),
                number(&row["perSecond"]),
                number(&row["perCpuSecond"]),
                cpu.join(", "),
                number(&row["loaderCores"]),
                format!(
                    "{} {}",
                    row["failures"],
                    row["firstFailure"].as_str().unwrap_or_default().replace('|', "/")
                ),
            ];
            let _ = writeln!(text, "| {} |", columns.join(" | "));
        }
        text += "\n## Memory of the webhook\n\n| moment | now MiB | peak MiB |\n|---|---|---|\n";
        for row in &self.memory {
            let _ = writeln!(
                text,
                "| {} | {} | {} |",
                row["moment"].as_str().unwrap_or_default(),
                number(&row["nowMiB"]),
                number(&row["peakMiB"])
            );
        }
        text
    }
}
