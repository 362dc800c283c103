//! `repot snapshots late`.

use std::{path::PathBuf, process::ExitCode};

use clap::Args;
use repot_etcd::snapshot::late;
use repot_etcd_core::snapshot::{Revision, SnapshotName};

use super::{open_both, print_json};

/// Keep a final snapshot that came after another etcd had gone on from its store, and report what it holds more.
///
/// The Job of a forced migration runs this when the seed that was dead comes back. The snapshot is copied into a history of its own at
/// the target, from which no etcd is restored. The report is printed and rests in late.json beside it: names of keys, and no
/// values. Credentials of the source alone: put SOURCE_ before the names of the variables.
///
///     repot snapshots late --source s3://seed-a/shoot--p--a --target s3://seed-b/shoot--p--a --name NAME --history late-5c1f
#[derive(Args)]
#[command(verbatim_doc_comment)]
pub struct Flags {
    /// The store that has the snapshot
    #[arg(long, value_name = "URL")]
    source: String,
    /// The store of the etcd that went on
    #[arg(long, value_name = "URL")]
    target: String,
    /// Name of the snapshot
    #[arg(long, value_name = "NAME")]
    name: SnapshotName,
    /// Name of the history at the target: lower-case letters, digits and dashes
    #[arg(long, value_name = "NAME", value_parser = history)]
    history: String,
    /// The etcd that went on began with at least this revision
    #[arg(long, default_value_t = 0, value_name = "REVISION", value_parser = clap::value_parser!(i64).range(0..))]
    held: i64,
    /// Directory with room for an unpacked database
    #[arg(long, value_name = "DIR", default_value_os_t = std::env::temp_dir())]
    scratch: PathBuf,
}

fn history(text: &str) -> Result<String, String> {
    use repot_etcd::snapshot::store::{FIRST_HISTORY, is_history_name};
    if is_history_name(text) && text != FIRST_HISTORY {
        return Ok(text.to_owned());
    }
    Err(format!("give a name of lower-case letters, digits and dashes other than {FIRST_HISTORY:?}"))
}

/// Keeps the snapshot and prints the report as JSON.
pub async fn run(flags: Flags) -> anyhow::Result<ExitCode> {
    let (source, target) = match open_both(&flags.source, &flags.target) {
        Ok(stores) => stores,
        Err(code) => return Ok(code),
    };
    let began = (flags.history.as_str(), Revision(flags.held));
    let report = late::keep(&source, &target, &flags.name, began, &flags.scratch).await?;
    print_json(&serde_json::to_value(&report)?)?;
    Ok(ExitCode::SUCCESS)
}
