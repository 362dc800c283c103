//! `repot snapshots changes`.

use std::{path::PathBuf, process::ExitCode};

use clap::Args;
use repot_etcd::snapshot::{
    changes::{Change, Changes, changes},
    late::text,
};
use repot_etcd_core::snapshot::Revision;
use serde_json::{Value, json};

use super::{Output, StoreFlags, print, print_json};

/// Name the keys that the snapshots of a store change after a revision, and no values.
///
/// After a forced migration this tells what is lost: `--after` is the revision that the other etcd began with, and `--history` the one
/// where the final snapshot of the dead seed is kept (`status.lateSnapshot` of the ControlPlaneMigration has both). A key is `Created`
/// where it did not exist at the revision, `Updated` or `Deleted` where it did. Of keys that were deleted before etcd was compacted
/// for the last time, some may be missing; `forgottenBefore` says so. A full snapshot is unpacked into a nameless file in --scratch.
///
///     repot snapshots changes --store s3://seed-b/shoot--p--a --history late-5c1f --after 41723
#[derive(Args)]
#[command(verbatim_doc_comment)]
pub struct Flags {
    #[command(flatten)]
    store: StoreFlags,
    /// Changes after this revision are named
    #[arg(long, value_name = "REVISION", value_parser = clap::value_parser!(i64).range(0..))]
    after: i64,
    /// Directory with room for an unpacked database
    #[arg(long, value_name = "DIR", default_value_os_t = std::env::temp_dir())]
    scratch: PathBuf,
    /// Form of the answer
    #[arg(long, value_enum, default_value_t = Output::Text)]
    output: Output,
}

/// Prints the names of changed keys, a line each, or as JSON.
pub async fn run(flags: Flags) -> anyhow::Result<ExitCode> {
    let (store, _) = match flags.store.open().await? {
        Ok(opened) => opened,
        Err(code) => return Ok(code),
    };
    let after = Revision(flags.after);
    let found = changes(&store, after, &flags.scratch).await?;
    match flags.output {
        Output::Json => print_json(&json(after, &found))?,
        Output::Text => print(&lines(after, &found))?,
    }
    Ok(ExitCode::SUCCESS)
}

fn word(change: Change) -> &'static str {
    match change {
        Change::Created => "Created",
        Change::Updated => "Updated",
        Change::Deleted => "Deleted",
    }
}

fn json(after: Revision, found: &Changes) -> Value {
    let keys = found.keys.iter().map(|(key, change)| json!({"key": text(key), "change": word(*change)}));
    json!({
        "after": after.0, "reaches": found.reaches.0, "forgottenBefore": found.forgotten.map(|revision| revision.0),
        "keys": keys.collect::<Vec<_>>(), "furtherChanges": found.further,
    })
}

fn lines(after: Revision, found: &Changes) -> String {
    let mut lines = format!(
        "{} created, {} updated, {} deleted from revision {after} to {}\n",
        found.count(Change::Created),
        found.count(Change::Updated),
        found.count(Change::Deleted),
        found.reaches
    );
    if let Some(forgotten) = found.forgotten {
        lines.push_str(&format!("keys that were deleted before revision {forgotten} may be missing here\n"));
    }
    if found.further > 0 {
        lines.push_str(&format!("{} changes of further keys are not named\n", found.further));
    }
    for (key, change) in &found.keys {
        lines.push_str(&format!("{:8}{}\n", word(*change), text(key)));
    }
    lines
}
