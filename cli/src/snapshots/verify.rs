//! `repot snapshots verify`.

use std::{path::PathBuf, process::ExitCode};

use clap::Args;
use repot_etcd::snapshot::verify::{self, Report, Severity};
use serde_json::json;

use super::{NO, Output, StoreFlags, print, print_json, progress::Bar};

/// Read every snapshot of a store to its end and say what is wrong: bytes against their hashes and their record, content against
/// names, and revisions that are in no snapshot or in two.
///
/// A `problem` endangers the newest state and makes the exit code 3; a `notice` does not. Full snapshots are unpacked into
/// nameless files in --scratch, --parallel of them at once.
///
///     repot snapshots verify --store file:///var/backups/etcd --output json | jq '.findings'
#[derive(Args)]
#[command(verbatim_doc_comment)]
pub struct Flags {
    #[command(flatten)]
    store: StoreFlags,
    /// Directory with room for unpacked databases
    #[arg(long, value_name = "DIR", default_value_os_t = std::env::temp_dir())]
    scratch: PathBuf,
    /// So many snapshots at once
    #[arg(long, default_value_t = 4, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=64))]
    parallel: u16,
    /// Form of the answer
    #[arg(long, value_enum, default_value_t = Output::Text)]
    output: Output,
}

/// Verifies the snapshots of a store and prints the findings; exit code 3 where they are not good.
pub async fn run(flags: Flags) -> anyhow::Result<ExitCode> {
    let (store, _) = match flags.store.open().await? {
        Ok(opened) => opened,
        Err(code) => return Ok(code),
    };
    let bar = Bar::new("verifying");
    let report = verify::verify(&store, &flags.scratch, flags.parallel.into(), |bytes| bar.add(bytes)).await;
    bar.end();
    let report = report?;
    match flags.output {
        Output::Json => {
            let Report { snapshots, bytes, recorded, findings } = &report;
            print_json(&json!({
                "good": report.is_good(), "snapshots": snapshots, "bytes": bytes,
                "integrityRecorded": recorded, "findings": findings,
            }))?;
        }
        Output::Text => print(&render(&report))?,
    }
    Ok(if report.is_good() { ExitCode::SUCCESS } else { ExitCode::from(NO) })
}

fn render(report: &Report) -> String {
    let verdict = if report.is_good() { "good" } else { "not good" };
    let Report { snapshots, bytes, recorded, .. } = report;
    let mut text =
        format!("{verdict}: {snapshots} snapshots of {bytes} bytes were read, {recorded} against a record\n");
    for finding in &report.findings {
        let mark = match finding.severity {
            Severity::Problem => "problem",
            Severity::Notice => "notice ",
        };
        text.push_str(&format!("  {mark}  {:?}  {}: {}\n", finding.what, finding.snapshot, finding.message));
    }
    text
}
