//! The report: one row a side of a cell, as Markdown for people and as JSON for scripts.

use std::fmt::Write as _;

use serde_json::{Value, json};

use crate::cells::Cell;
use crate::memory;
use crate::proc::percentile;
use crate::run::{LOADER, Measured};
use crate::servers::{Servers, Side};

/// Everything that is told.
pub struct Report {
    /// Machine, versions and options.
    pub setting: Value,
    /// What was used of memory and disk.
    pub memory: Option<memory::Report>,
    /// Rows, each an object as [`rows`] makes it.
    pub rows: Vec<Value>,
    /// What the CRD answered to 10 MB.
    pub refusal: Option<String>,
}

/// The rows of a cell, with the ratios of its sides to each other.
pub fn rows(cell: &Cell, measured: &[Measured]) -> Vec<Value> {
    let mut rows: Vec<Value> = measured.iter().map(|side| row(cell, side)).collect();
    let of = |rows: &[Value], side: Side| {
        rows.iter().find(|row| row["side"] == side.name() && row["n"] != 0).cloned()
    };
    let (crd, null, earlier) = (of(&rows, Side::Crd), of(&rows, Side::Null), of(&rows, Side::Earlier));
    for row in rows.iter_mut().filter(|row| row["n"] != 0) {
        if let Some(crd) = &crd {
            row["rateToCrd"] = ratio(&row["perSecond"]["median"], &crd["perSecond"]["median"]);
            row["p50OfCrd"] = ratio(&row["millis"]["p50"], &crd["millis"]["p50"]);
            row["p99OfCrd"] = ratio(&row["millis"]["p99"], &crd["millis"]["p99"]);
        }
        if let (Some(earlier), true) = (&earlier, row["side"] == Side::Direct.name()) {
            let cpu = |row: &Value| row["serverCpuMillisEach"].as_object()?.values().next().cloned();
            row["ofEarlier"] = json!({
                "rate": ratio(&row["perSecond"]["median"], &earlier["perSecond"]["median"]),
                "p50": ratio(&row["millis"]["p50"], &earlier["millis"]["p50"]),
                "cpu": ratio(&cpu(row).unwrap_or_default(), &cpu(earlier).unwrap_or_default()),
            });
        }
        if let (Some(null), true) = (&null, row["side"] == Side::Aggregated.name()) {
            row["p50OfNull"] = ratio(&row["millis"]["p50"], &null["millis"]["p50"]);
        }
    }
    rows
}

/// Requests a second of a side, where any succeeded.
pub fn rate(rows: &[Value], side: Side) -> Option<f64> {
    let row = rows.iter().find(|row| row["side"] == side.name() && row["n"] != 0)?;
    row["perSecond"]["median"].as_f64()
}

fn ratio(value: &Value, to: &Value) -> Value {
    match (value.as_f64(), to.as_f64()) {
        (Some(value), Some(to)) if to > 0.0 => (value / to).into(),
        _ => Value::Null,
    }
}

fn row(cell: &Cell, measured: &Measured) -> Value {
    let sorted = |values: Vec<f64>| {
        let mut values = values;
        values.sort_by(f64::total_cmp);
        values
    };
    let millis = sorted(measured.rounds.iter().flat_map(|round| round.millis.clone()).collect());
    let rates = sorted(measured.rounds.iter().map(|round| round.rate()).collect());
    let seconds: f64 = measured.rounds.iter().map(|round| round.seconds).sum();
    let received: u64 = measured.rounds.iter().map(|round| round.received).sum();
    let failures: Vec<&String> = measured.rounds.iter().flat_map(|round| &round.failures).collect();
    let n = millis.len();
    let each = |total: f64| total / n.max(1) as f64;
    let programs = Servers::programs(measured.side).iter();
    let cpu = programs.map(|name| (*name, each(measured.cpu.get(name).copied().unwrap_or(0.0) * 1000.0)));
    let loader = measured.cpu.get(LOADER).copied().unwrap_or(0.0);
    let own: f64 = measured.cpu.values().sum();
    json!({
        "cell": cell.name(), "side": measured.side.name(), "n": n, "connections": cell.connections,
        "millis": {
            "p50": percentile(&millis, 50.0), "p99": percentile(&millis, 99.0),
            "min": millis.first(), "max": millis.last(),
        },
        "perSecond": { "median": percentile(&rates, 50.0), "min": rates.first(), "max": rates.last() },
        "bytesReceivedEach": received / n.max(1) as u64,
        "serverCpuMillisEach": cpu.map(|(name, millis)| (name.to_owned(), millis.into())).collect::<serde_json::Map<String, Value>>(),
        "loaderCores": loader / seconds.max(1e-9),
        "othersShare": ((measured.machine.busy - own) / measured.machine.total.max(1e-9)).max(0.0),
        "failures": failures.len(), "firstFailure": failures.first(),
    })
}

impl Report {
    /// The report as JSON, for scripts.
    pub fn to_json(&self) -> Value {
        let memory = self.memory.as_ref().map(|memory| {
            let disk = memory.disk.iter().map(|(program, bytes)| json!({ "program": program, "bytes": bytes }));
            json!({ "rows": memory.rows, "residentBytes": memory.resident_bytes, "disk": disk.collect::<Vec<_>>() })
        });
        json!({ "setting": self.setting, "memory": memory, "rows": self.rows, "crdAnswersTo10MB": self.refusal })
    }

    /// The report as Markdown, for people.
    pub fn to_markdown(&self) -> String {
        let mut text = String::from("## Setting\n\n");
        if let Some(fields) = self.setting.as_object() {
            for (name, value) in fields {
                let _ = writeln!(
                    text,
                    "- {name}: {}",
                    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
                );
            }
        }
        text += "\n## Latency and rate\n\n\
            | cell | side | n | p50 ms | p99 ms | min..max ms | requests/s (min..max of rounds) | x CRD | p50, p99 of CRD | p50 of null | received KB | server CPU ms each | loader cores | others' CPU |\n\
            |---|---|---|---|---|---|---|---|---|---|---|---|---|---|\n";
        self.rows.iter().for_each(|row| text += &markdown_row(row));
        text += &markdown_earlier(&self.rows);
        if let Some(refusal) = &self.refusal {
            let _ = writeln!(text, "\nA CRD answers to 10 MB: `{refusal}`");
        }
        if let Some(memory) = &self.memory {
            text += &markdown_memory(memory);
        }
        text
    }
}

/// A number with as many digits as it deserves; a dash for none.
pub fn number(value: &Value) -> String {
    match value.as_f64() {
        None => "–".to_owned(),
        Some(value) if value >= 100.0 => format!("{value:.0}"),
        Some(value) if value >= 10.0 => format!("{value:.1}"),
        Some(value) => format!("{value:.2}"),
    }
}

fn markdown_row(row: &Value) -> String {
    let (millis, rate) = (&row["millis"], &row["perSecond"]);
    let cpu = row["serverCpuMillisEach"].as_object().into_iter().flatten();
    let cpu: Vec<String> = cpu.map(|(program, millis)| format!("{program} {}", number(millis))).collect();
    let failed = match row["failures"].as_u64() {
        Some(0) | None => String::new(),
        Some(count) => format!(
            " (+{count} failed: {})",
            row["firstFailure"].as_str().unwrap_or_default().replace('|', "/")
        ),
    };
    format!(
        "| {} | {} | {}{failed} | {} | {} | {}..{} | {} ({}..{}) | {} | {}, {} | {} | {} | {} | {} | {:.0} % |\n",
        row["cell"].as_str().unwrap_or_default(),
        row["side"].as_str().unwrap_or_default(),
        row["n"],
        number(&millis["p50"]),
        number(&millis["p99"]),
        number(&millis["min"]),
        number(&millis["max"]),
        number(&rate["median"]),
        number(&rate["min"]),
        number(&rate["max"]),
        number(&row["rateToCrd"]),
        number(&row["p50OfCrd"]),
        number(&row["p99OfCrd"]),
        number(&row["p50OfNull"]),
        row["bytesReceivedEach"].as_u64().unwrap_or(0) / 1000,
        cpu.join(", "),
        number(&row["loaderCores"]),
        row["othersShare"].as_f64().unwrap_or(0.0) * 100.0,
    )
}

/// Repot beside the earlier one, where there is one.
fn markdown_earlier(rows: &[Value]) -> String {
    let mut text = String::new();
    for row in rows.iter().filter(|row| row["ofEarlier"].is_object()) {
        let ratios = ["rate", "p50", "cpu"].map(|name| number(&row["ofEarlier"][name]));
        let _ = writeln!(text, "| {} | {} |", row["cell"].as_str().unwrap_or_default(), ratios.join(" | "));
    }
    let head =
        "\n## Repot compared with that of --beside\n\n| cell | rate | p50 | CPU each |\n|---|---|---|---|\n";
    if text.is_empty() { text } else { head.to_owned() + &text }
}

fn markdown_memory(memory: &memory::Report) -> String {
    let mut text = format!("\n## Memory, with {:.1} MB of states\n\n", memory.resident_bytes as f64 / 1e6);
    text += "| program | moment | now MiB | peak MiB | took s |\n|---|---|---|---|---|\n";
    for row in &memory.rows {
        let (program, moment) = (row["program"].as_str(), row["moment"].as_str());
        let (program, moment) = (program.unwrap_or_default(), moment.unwrap_or_default());
        let (now, peak, took) = (number(&row["nowMiB"]), number(&row["peakMiB"]), number(&row["seconds"]));
        let _ = writeln!(text, "| {program} | {moment} | {now} | {peak} | {took} |");
    }
    for (program, bytes) in &memory.disk {
        let _ = writeln!(text, "\nOn disk, {program}: {:.1} MB", *bytes as f64 / 1e6);
    }
    text
}
