//! `repot history export` and `verify`: evidence for auditors.

use std::{
    fs::OpenOptions,
    io::{Read, Write},
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::Context;
use clap::Args;
use jiff::Timestamp;
use repot_console::{
    evidence::{self, Envelope, PrivateKey, PublicKey},
    garden::MOST_EVENTS,
    migration::Migration,
    progress::title,
};
use serde_json::{Value, json};

use super::{ConnectionFlags, NO, Output, answer, print};

/// Largest file of evidence that is read, in bytes.
const MOST_BYTES: u64 = 64 << 20;

/// Write the evidence of a migration into one signed file.
///
/// It has the ControlPlaneMigration as it is stored with all its steps, its Events, and a summary: outage, owner epoch, final snapshot,
/// confirmed loss. Private keys and contents of the Shoot are not in it. Make a key by `openssl genpkey -algorithm ed25519 -out key.pem`.
/// Exit codes: 0 written, 2 bad usage, 1 failure.
///
///     repot history export alpha-to-b -n garden-dev --key key.pem --file alpha-to-b.evidence --kubeconfig garden.yaml
#[derive(Args)]
#[command(verbatim_doc_comment)]
pub struct ExportFlags {
    /// Name of the ControlPlaneMigration
    #[arg(value_name = "MIGRATION", value_parser = crate::operate::name)]
    migration: String,
    /// Private key of Ed25519 in PEM
    #[arg(long, value_name = "FILE")]
    key: PathBuf,
    /// File to write, which must not exist; `-` is standard output
    #[arg(long, value_name = "FILE")]
    file: PathBuf,
    #[command(flatten)]
    place: ConnectionFlags,
}

/// Check a file of evidence, without a cluster.
///
/// It checks the signature, and whether what was signed agrees with itself: times, order of steps, outage, summary.
/// Exit codes: 0 it is whole, 3 it is not, 2 bad usage, 1 failure.
///
///     openssl pkey -in key.pem -pubout -out key.pub.pem
///     repot history verify alpha-to-b.evidence --public-key key.pub.pem
#[derive(Args)]
#[command(verbatim_doc_comment)]
pub struct VerifyFlags {
    /// File of evidence; `-` is standard input
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Public key of Ed25519 in PEM
    #[arg(long, value_name = "FILE")]
    public_key: PathBuf,
    /// Form of the answer
    #[arg(short, long, value_enum, default_value_t = Output::Text)]
    output: Output,
}

/// Signs the evidence and writes the file.
pub async fn export(flags: &ExportFlags) -> anyhow::Result<ExitCode> {
    let key = PrivateKey::read(&read(&flags.key)?).with_context(|| flags.key.display().to_string())?;
    let place = flags.place.connect().await?;
    let found = place.garden.migration(&place.namespace, &flags.migration).await?;
    let migration = Migration::new(&found);
    let uid = found.metadata.uid.clone().unwrap_or_default();
    let events = place.garden.events(&place.namespace, &uid).await?;
    let payload = evidence::payload(&serde_json::to_value(&found)?, &events, Timestamp::now(), &place.server);
    let text = serde_json::to_string(&Envelope::sign(&payload, &key))? + "\n";
    if flags.file.as_os_str() == "-" {
        print(&text)?;
    } else {
        write_new(&flags.file, &text)?;
    }
    for finding in evidence::findings(&payload) {
        eprintln!("repot: the record contradicts itself: {finding}");
    }
    if events.len() >= MOST_EVENTS {
        eprintln!("repot: there may be more Events than the {MOST_EVENTS} that are in the file");
    }
    if !migration.is_over() {
        eprintln!("repot: the migration is under way; what follows is not in the file");
    }
    Ok(ExitCode::SUCCESS)
}

fn write_new(file: &Path, text: &str) -> anyhow::Result<()> {
    let failed = || format!("failed to write {}", file.display());
    let mut opened = OpenOptions::new().write(true).create_new(true).open(file).with_context(failed)?;
    opened.write_all(text.as_bytes()).and_then(|()| opened.sync_all()).with_context(failed)
}

fn read(file: &Path) -> anyhow::Result<String> {
    let failed = || format!("failed to read {}", file.display());
    let mut text = String::new();
    let source: Box<dyn Read> = match file.as_os_str() == "-" {
        true => Box::new(std::io::stdin()),
        false => Box::new(std::fs::File::open(file).with_context(failed)?),
    };
    source.take(MOST_BYTES + 1).read_to_string(&mut text).with_context(failed)?;
    anyhow::ensure!(text.len() as u64 <= MOST_BYTES, "{} has more than {MOST_BYTES} bytes", file.display());
    Ok(text)
}

/// Prints what is signed, and what is wrong with it.
pub fn verify(flags: &VerifyFlags) -> anyhow::Result<ExitCode> {
    let key =
        PublicKey::read(&read(&flags.public_key)?).with_context(|| flags.public_key.display().to_string())?;
    let text = read(&flags.file)?;
    let opened = Envelope::read(&text).and_then(|envelope| envelope.open(&key));
    let payload = match opened {
        Ok(payload) => payload,
        Err(error) => {
            answer(flags.output, &json!({"valid": false, "findings": [error.to_string()]}), |_| {
                format!("Not valid: {error}\n")
            })?;
            return Ok(ExitCode::from(NO));
        }
    };
    let findings = evidence::findings(&payload);
    let object = json!({
        "valid": findings.is_empty(), "findings": findings, "signedBy": key.id(), "summary": payload["summary"],
        "collected": payload["collected"], "server": payload["server"],
    });
    answer(flags.output, &object, |_| words(&payload, &findings, &key))?;
    Ok(if findings.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(NO) })
}

fn words(payload: &Value, findings: &[String], key: &PublicKey) -> String {
    let collected = payload["collected"].as_str().unwrap_or("?");
    let migration =
        serde_json::from_value(payload["migration"].clone()).map(|object| Migration::new(&object));
    let now = collected.parse().unwrap_or_default();
    let what = migration.map_or_else(|_| "?".to_owned(), |migration| title(&migration, now));
    let mut text = format!("{what}\n  signed by    {}\n  collected    {collected}\n", key.id());
    match findings {
        [] => {
            text.push_str("  valid        the signature is of the key, and the record agrees with itself\n")
        }
        all => all.iter().for_each(|finding| text.push_str(&format!("  NOT VALID    {finding}\n"))),
    }
    text
}
