//! `repot snapshots list`.

use std::process::ExitCode;

use clap::Args;
use jiff::Timestamp;
use repot_etcd::snapshot::store::{Form, Store, Stored};
use serde_json::{Value, json};

use super::{Output, StoreFlags, print, print_json};

/// List the snapshots of a store, oldest first. Objects whose names are none are left out with a warning; marked ones too.
///
/// An etcd that is restored on new volumes writes a history of its own, <URL>/histories/<name>. That of another etcd stays as it was,
/// so that a restore can be rolled back, and is shown with --history; the one below <URL> itself is called `first`.
///
///     repot snapshots list --store s3://bucket/shoot--p--a
///     repot snapshots list --store file:///var/backups/etcd --output json | jq '.snapshots[-1]'
#[derive(Args)]
#[command(verbatim_doc_comment)]
pub struct Flags {
    #[command(flatten)]
    store: StoreFlags,
    /// Form of the answer
    #[arg(long, value_enum, default_value_t = Output::Text)]
    output: Output,
}

/// Prints the snapshots of a store, as a table or as JSON.
pub async fn run(flags: Flags) -> anyhow::Result<ExitCode> {
    let (store, history) = match flags.store.open().await? {
        Ok(opened) => opened,
        Err(code) => return Ok(code),
    };
    let all = store.list().await?;
    match flags.output {
        Output::Json => {
            let all: Vec<Value> = all.iter().map(|one| render(&store, one)).collect();
            print_json(&json!({"store": store.url(), "history": history, "snapshots": all}))?;
        }
        Output::Text => print(&table(&all))?,
    }
    Ok(ExitCode::SUCCESS)
}

fn created(one: &Stored) -> String {
    Timestamp::from_second(one.name.created).map(|time| time.to_string()).unwrap_or_default()
}

/// The words are those of etcd-backup-restore where it has them.
fn render(store: &Store, one: &Stored) -> Value {
    json!({
        "snapName": one.name.to_string(), "path": one.path(store), "kind": one.name.kind.word(),
        "startRevision": one.name.start.0, "lastRevision": one.name.last.0, "createdOn": created(one),
        "compressionSuffix": one.name.compression.suffix(), "isFinal": one.name.is_final,
        "bytes": one.bytes, "integrityRecorded": one.recorded, "sealed": one.form == Form::Sealed,
    })
}

fn table(all: &[Stored]) -> String {
    let titles = ["KIND", "START", "LAST", "CREATED", "BYTES", "FINAL", "SEALED", "NAME"];
    let mut lines = vec![titles.map(str::to_owned)];
    for one in all {
        let name = &one.name;
        lines.push([
            name.kind.word().to_owned(),
            name.start.to_string(),
            name.last.to_string(),
            created(one),
            one.bytes.to_string(),
            if name.is_final { "yes" } else { "" }.to_owned(),
            if one.form == Form::Sealed { "yes" } else { "" }.to_owned(),
            name.to_string(),
        ]);
    }
    let widths: Vec<usize> = (0..titles.len())
        .map(|column| lines.iter().map(|line| line[column].len()).max().unwrap_or(0))
        .collect();
    let mut text = String::new();
    for line in &lines {
        for (cell, width) in line.iter().zip(&widths) {
            text.push_str(&format!("{cell:<width$}  "));
        }
        text.truncate(text.trim_end().len());
        text.push('\n');
    }
    text
}
