//! `repot storage fsck` and `quarantine`: whether what rests is whole.

use std::io::Write;

use anyhow::bail;
use clap::{Args, Subcommand, ValueEnum};
use repot_storage::{Checked, Finding, Quarantined, Remedy, Store};
use serde_json::json;

use super::Line;
use crate::store::StoreFlags;

/// Read every object to its last byte, and tell what is lost.
///
/// Exits with 1 where something is wrong and nothing was done about it. Chunks that no object names are no fault: servers
/// collect them.
#[derive(Args)]
pub(super) struct FsckFlags {
    /// Put objects that cannot be read into quarantine, where nothing serves them and nothing removes them, and set marks that
    /// are missing. Objects whose key is not in the EncryptionConfiguration are left alone
    #[arg(long)]
    repair: bool,
    /// How to print
    #[arg(long, value_enum, default_value_t = Output::Table)]
    output: Output,
    #[command(flatten)]
    pub(super) store: StoreFlags,
}

#[derive(Clone, Copy, PartialEq, ValueEnum)]
enum Output {
    /// A line for each finding
    Table,
    /// One JSON document
    Json,
}

/// Look after objects that fsck put away.
#[derive(Args)]
pub(super) struct QuarantineFlags {
    #[command(subcommand)]
    pub(super) task: Task,
    #[command(flatten)]
    pub(super) store: StoreFlags,
}

#[derive(Subcommand)]
pub(super) enum Task {
    /// Tell what is in quarantine
    List,
    /// Put an object back to where it was
    Restore {
        /// As list prints it
        name: String,
    },
    /// Remove an object for good
    Purge {
        /// As list prints it
        name: String,
    },
}

/// Checks, prints, and fails where something is left.
pub(super) async fn fsck(store: &Store, flags: &FsckFlags) -> anyhow::Result<()> {
    let mut findings = Vec::new();
    let line = Line::new();
    let show = |done: Checked| line.draw(&format!("{} objects, {} bytes", done.objects, done.bytes));
    let checked = store.fsck(flags.repair, |finding| findings.push(finding), show).await?;
    drop(line);
    match flags.output {
        Output::Table => print_table(&findings, &checked)?,
        Output::Json => println!("{:#}", document(&findings, &checked)),
    }
    match checked.open {
        0 => Ok(()),
        open if flags.repair => bail!("{open} findings are left"),
        open => bail!("{open} findings; --repair puts away what cannot be read"),
    }
}

fn print_table(findings: &[Finding], checked: &Checked) -> std::io::Result<()> {
    let mut out = std::io::stdout();
    for finding in findings {
        writeln!(out, "{}: {}; {}", finding.place, finding.trouble, remedy(&finding.remedy))?;
    }
    let Checked { objects, bytes, chunks, orphans, in_flight, findings, .. } = checked;
    writeln!(
        out,
        "{objects} objects with {bytes} bytes read, {chunks} chunks, {orphans} of them garbage and {in_flight} being written, {findings} findings"
    )
}

fn remedy(remedy: &Remedy) -> String {
    match remedy {
        Remedy::Left => "left as it is".to_owned(),
        Remedy::Quarantined(name) => format!("in quarantine as {name}"),
        Remedy::Mended => "mended".to_owned(),
        Remedy::Changed => "changed meanwhile, check again".to_owned(),
    }
}

fn document(findings: &[Finding], checked: &Checked) -> serde_json::Value {
    let findings = findings.iter().map(|finding| {
        json!({
            "object": finding.place,
            "trouble": finding.trouble.to_string(),
            "remedy": remedy(&finding.remedy),
        })
    });
    json!({
        "objects": checked.objects,
        "bytes": checked.bytes,
        "chunks": checked.chunks,
        "garbage": checked.orphans,
        "beingWritten": checked.in_flight,
        "open": checked.open,
        "findings": findings.collect::<Vec<_>>(),
    })
}

/// Does it.
pub(super) async fn quarantine(store: &Store, task: &Task) -> anyhow::Result<()> {
    match task {
        Task::List => {
            for Quarantined { name, object, bytes } in store.quarantined().await? {
                println!("{name}  {object}  {bytes} bytes");
            }
        }
        Task::Restore { name } => store.unquarantine(name).await?,
        Task::Purge { name } => store.purge(name).await?,
    }
    Ok(())
}
