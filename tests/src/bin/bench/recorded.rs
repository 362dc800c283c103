//! The last recorded run of this machine, and what has moved since: figures of two machines say nothing about each other.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde_json::Value;

use crate::report::number;

/// What moved less is noise, as a share of what it was.
const NOISE: f64 = 0.05;
/// Readings that say how the run went, and rates beside which there is a ratio. What begins with `p99` is a single sample.
const PASSED_OVER: [&str; 9] =
    ["n", "failures", "failed", "min", "max", "perSecond", "loaderCores", "othersShare", "bytesReceivedEach"];
/// What of the settings makes two runs comparable.
const SETTINGS: [&str; 5] = ["machineState", "rounds", "millisecondsOfARound", "residentObjects", "asked"];
/// Lists of rows in reports.
const ROWS: [&str; 3] = ["/rows", "/memory/rows", "/memoryOfTheWebhook"];
/// What names a row, where it has it.
const NAMES: [&str; 6] = ["goal", "cell", "what", "program", "side", "moment"];
/// How the name of a cell ends that tells a rate of its own run.
const ARRIVALS: &str = " arrive a second";

/// A reading that is not what it was.
#[derive(Debug, PartialEq)]
struct Moved {
    /// Name of the row, and name of the reading in it.
    what: String,
    before: f64,
    now: f64,
}

/// Where the run of a benchmark is recorded.
pub fn path(program: &Path, benchmark: &str) -> Result<PathBuf> {
    let profile = program.parent().context("the program is in no directory")?;
    Ok(profile.join("bench-records").join(format!("{benchmark}.json")))
}

/// What moved since the recorded run, as Markdown. Where there is none, or `record` says so, this run is recorded; of a run of
/// some cells only these are replaced.
///
/// Errors: when the record cannot be read or written.
pub fn compare(path: &Path, now: &Value, record: bool) -> Result<String> {
    let before: Option<Value> = match std::fs::read(path) {
        Ok(text) => {
            Some(serde_json::from_slice(&text).with_context(|| format!("{} is no record", path.display()))?)
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
        Err(error) => return Err(error).with_context(|| path.display().to_string()),
    };
    let mut text = String::new();
    if let Some(before) = &before {
        text = markdown(before, now, path);
    }
    if record || before.is_none() {
        write(path, &merged(before.as_ref(), now)).with_context(|| path.display().to_string())?;
        let _ = writeln!(text, "\nRecorded in {}", path.display());
    }
    Ok(text)
}

/// Entirely or not at all, so that a run that is broken off leaves a record that can be read.
fn write(path: &Path, record: &Value) -> Result<()> {
    std::fs::create_dir_all(path.parent().context("a record is in a directory")?)?;
    let unfinished = path.with_extension("unfinished");
    std::fs::write(&unfinished, serde_json::to_vec_pretty(record)?)?;
    Ok(std::fs::rename(unfinished, path)?)
}

/// The readings of both runs that differ by more than noise, those that changed most first.
fn moved(before: &Value, now: &Value) -> Vec<Moved> {
    let before = readings(before);
    let both = readings(now)
        .into_iter()
        .filter_map(|(what, now)| Some(Moved { before: *before.get(&what)?, now, what }));
    let mut moved: Vec<Moved> = both.filter(|reading| reading.change().abs() > NOISE.ln_1p()).collect();
    moved.sort_by(|one, other| other.change().abs().total_cmp(&one.change().abs()));
    moved
}

impl Moved {
    /// Logarithm of the ratio, so that half and twice are as far.
    fn change(&self) -> f64 {
        (self.now / self.before).ln()
    }
}

/// The numbers of all rows, by row and name. Numbers that are not positive have no ratio.
fn readings(report: &Value) -> BTreeMap<String, f64> {
    let mut found = BTreeMap::new();
    for rows in ROWS {
        for row in report.pointer(rows).and_then(Value::as_array).into_iter().flatten() {
            collect(&name(row), row, &mut found);
        }
    }
    found
}

/// The name of a row, which is the same in each run.
fn name(row: &Value) -> String {
    let parts = NAMES.iter().filter_map(|part| row[*part].as_str()).map(|part| {
        let rate = part.strip_suffix(ARRIVALS).and_then(|part| part.rsplit_once(", "));
        rate.map_or_else(|| part.to_owned(), |(cell, _)| format!("{cell}, arriving"))
    });
    parts.collect::<Vec<_>>().join(", ")
}

fn collect(above: &str, value: &Value, found: &mut BTreeMap<String, f64>) {
    for (name, value) in value.as_object().into_iter().flatten() {
        if PASSED_OVER.contains(&name.as_str()) || name.starts_with("p99") {
            continue;
        }
        let what = format!("{above}: {name}");
        match value.as_f64() {
            Some(number) if number > 0.0 => drop(found.insert(what, number)),
            _ => collect(&what, value, found),
        }
    }
}

/// The record with the rows of this run in the place of the same rows of before.
fn merged(before: Option<&Value>, now: &Value) -> Value {
    let mut merged = now.clone();
    let kept = before.and_then(|before| before["rows"].as_array()).into_iter().flatten();
    if let Some(rows) = merged["rows"].as_array_mut() {
        let measured: Vec<String> = rows.iter().map(name).collect();
        rows.extend(kept.filter(|row| !measured.contains(&name(row))).cloned());
    }
    merged
}

fn markdown(before: &Value, now: &Value, path: &Path) -> String {
    let moved = moved(before, now);
    let mut text = format!("\n## Moved by more than {:.0} % since the recorded run\n\n", NOISE * 100.0);
    for setting in SETTINGS.iter().filter(|name| before["setting"][**name] != now["setting"][**name]) {
        let (before, now) = (&before["setting"][*setting], &now["setting"][*setting]);
        let _ = writeln!(text, "The runs differ in {setting}: {before} before, {now} now.\n");
    }
    if moved.is_empty() {
        text += "Nothing.\n";
    } else {
        text += "| what | before | now | ratio |\n|---|---|---|---|\n";
    }
    for reading in &moved {
        let (before, now) = (number(&reading.before.into()), number(&reading.now.into()));
        let ratio = number(&(reading.now / reading.before).into());
        let _ = writeln!(text, "| {} | {before} | {now} | {ratio} |", reading.what);
    }
    let _ = writeln!(text, "\nThe record: {}", path.display());
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn run(cpu: f64, rate: f64) -> Value {
        json!({"rows": [{
            "cell": "GET", "side": "direct", "n": 7, "rateToCrd": rate,
            "serverCpuMillisEach": {"repot": cpu}, "millis": {"p50": 1.0, "p99": cpu, "min": cpu},
        }]})
    }

    #[test]
    fn tells_what_moved_and_not_what_is_noise() {
        assert_eq!(moved(&run(2.0, 10.0), &run(2.08, 10.4)), []);
        let [cpu, rate] = &moved(&run(2.0, 10.0), &run(0.5, 20.0))[..] else { panic!("two readings moved") };
        assert_eq!(cpu.what, "GET, direct: serverCpuMillisEach: repot");
        assert_eq!((cpu.before, cpu.now), (2.0, 0.5));
        assert_eq!(rate.what, "GET, direct: rateToCrd");
        let text = markdown(&run(2.0, 10.0), &run(0.5, 10.0), Path::new("record"));
        assert!(text.contains("| 2.00 | 0.50 | 0.25 |") && !text.contains("differ"), "{text}");
        let quick = json!({"setting": {"rounds": 3}});
        let text = markdown(&quick, &json!({"setting": {"rounds": 5}}), Path::new("record"));
        assert!(text.contains("differ in rounds: 3 before, 5 now") && text.contains("Nothing"), "{text}");
    }

    #[test]
    fn rows_of_one_run_alone_are_not_compared() {
        let other = json!({"rows": [{"goal": "2", "what": "keys", "side": "direct", "objects": 5}]});
        assert_eq!(moved(&run(1.0, 1.0), &other), []);
        assert_eq!(moved(&json!({}), &run(1.0, 1.0)), []);
    }

    #[test]
    fn rows_have_the_same_name_in_each_run_and_moments_are_told_apart() {
        let row = |row: Value| name(&row);
        let arriving = |rate| json!({"cell": format!("GET 1 MB, {rate} arrive a second"), "side": "CRD"});
        assert_eq!(row(arriving("12.3")), "GET 1 MB, arriving, CRD");
        assert_eq!(row(arriving("12.3")), row(arriving("45.6")));
        assert_ne!(row(json!({"moment": "empty"})), row(json!({"moment": "loaded"})));
        let memory = |now| {
            let row = json!({"program": "repot", "moment": "idle", "nowMiB": now});
            json!({"memory": {"rows": [row]}})
        };
        let [idle] = &moved(&memory(40), &memory(20))[..] else { panic!("memory moved") };
        assert_eq!(idle.what, "repot, idle: nowMiB");
    }

    #[test]
    fn a_record_keeps_rows_that_were_not_measured_again() {
        let dir = std::env::temp_dir().join(format!("bench-record-{}", std::process::id()));
        let path = path(&dir.join("repot"), "requests").expect("a path");
        let other = json!({"rows": [{"goal": "2", "what": "keys", "side": "direct", "objects": 5}]});
        assert!(compare(&path, &run(2.0, 10.0), false).expect("the first").contains("Recorded"));
        let text = compare(&path, &run(1.0, 10.0), false).expect("compared");
        assert!(text.contains("| 0.50 |") && !text.contains("Recorded"), "{text}");
        assert!(compare(&path, &other, true).expect("recorded").contains("Recorded"));
        let kept: Value = serde_json::from_slice(&std::fs::read(&path).expect("a record")).expect("JSON");
        assert_eq!(kept["rows"].as_array().map(Vec::len), Some(2));
        assert!(moved(&kept, &run(2.0, 10.0)).is_empty(), "the record was replaced without being asked");
        std::fs::write(&path, "no JSON").expect("written");
        assert!(compare(&path, &other, false).is_err());
        std::fs::remove_dir_all(&dir).expect("removed");
    }
}
