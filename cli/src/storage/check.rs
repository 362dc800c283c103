//! `repot storage fsck` and `quarantine`: whether what rests is whole.

use std::io::Write;

use anyhow::bail;
use clap::{Args, ValueEnum};
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
    /// What to do
    #[arg(value_enum, default_value_t = Action::List)]
    action: Action,
    /// The object, as list prints it
    #[arg(required_if_eq_any = [("action", "restore"), ("action", "purge")])]
    name: Option<String>,
    #[command(flatten)]
    pub(super) store: StoreFlags,
}

#[derive(Clone, Copy, ValueEnum)]
enum Action {
    /// Tell what is in quarantine
    List,
    /// Put an object back to where it was
    Restore,
    /// Remove an object for good
    Purge,
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
pub(super) async fn quarantine(store: &Store, flags: &QuarantineFlags) -> anyhow::Result<()> {
    match (flags.action, &flags.name) {
        (Action::Restore, Some(name)) => store.unquarantine(name).await?,
        (Action::Purge, Some(name)) => store.purge(name).await?,
        (Action::List | Action::Restore | Action::Purge, _) => {
            for Quarantined { name, object, bytes } in store.quarantined().await? {
                println!("{name}  {object}  {bytes} bytes");
            }
        }
    }
    Ok(())
}
