//! `repot snapshots`: what there is, whether it is good, from one store to another, and back into an etcd.

mod changes;
mod copy;
mod import;
mod late;
mod list;
mod progress;
mod prove;
mod restore;
mod take;
mod verify;

use std::{io::Write, process::ExitCode};

use anyhow::{Context, bail};
use clap::{Args, Subcommand, ValueEnum};
use repot_etcd::{
    backup::take::Asked,
    snapshot::store::{Environment, Store, environment},
};
use serde_json::Value;

use crate::run;

/// The answer is no: something is damaged or missing.
const NO: u8 = 3;
/// Bad usage, as for flags.
const USAGE: u8 = 2;
/// Before the names of variables that are for the source of a copy.
const SOURCE: &str = "SOURCE_";
/// Files with credentials go before variables; those of the target do not go before variables that are for the source.
const FILES: [(&str, &[&str]); 2] = [
    ("AWS_APPLICATION_CREDENTIALS", &["AWS_ACCESS_KEY_ID", "AWS_WEB_IDENTITY_TOKEN_FILE"]),
    (
        "AZURE_APPLICATION_CREDENTIALS",
        &["AZURE_STORAGE_ACCOUNT_KEY", "AZURE_STORAGE_SAS_TOKEN", "AZURE_CLIENT_ID"],
    ),
];

/// Look after the snapshots of an etcd: list, copy, verify, restore; take, import and prove a named backup.
///
/// A store is a URL. Its layout is that of etcd-backup-restore, <URL>/v2/<name>, whose snapshots are read and which reads these.
///
///     file:///var/backups/etcd    a directory
///     s3://bucket/prefix          AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_REGION, AWS_ENDPOINT (and AWS_ALLOW_HTTP) ...
///     gs://bucket/prefix          GOOGLE_SERVICE_ACCOUNT or GOOGLE_APPLICATION_CREDENTIALS (a file) ...
///     az://container/prefix       AZURE_STORAGE_ACCOUNT_NAME, AZURE_STORAGE_ACCOUNT_KEY ... (azblob:// is the same)
///
/// Credentials come from environment variables, or from the files of a mounted Secret as etcd-backup-restore knows them: the
/// directory is named by AWS_APPLICATION_CREDENTIALS or AZURE_APPLICATION_CREDENTIALS (with _JSON at the end, a file). AWS_CA_BUNDLE
/// names further authorities. STORE_ENCRYPTION_PROVIDER_CONFIG names an EncryptionConfiguration by which new snapshots are sealed and
/// sealed ones opened; copies need none. A store may have several histories (`repot snapshots list --help`); unless --history names
/// one, the current one counts. One request is tried again for STORE_PATIENCE_SECONDS (60) before its failure counts. Exit codes: 0
/// done and well, 1 failure (worth another try), 2 bad usage, 3 the answer is no: snapshots are damaged or missing, or did not come
/// in time (another try changes nothing by itself).
#[derive(Args)]
#[command(verbatim_doc_comment)]
pub struct Flags {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    List(list::Flags),
    Copy(copy::Flags),
    Verify(verify::Flags),
    Restore(Box<restore::Flags>),
    Take(take::Flags),
    Import(import::Flags),
    Prove(prove::Flags),
    Changes(changes::Flags),
    Late(late::Flags),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Output {
    Text,
    Json,
}

/// Which backup, and whose.
#[derive(Args)]
struct AskedFlags {
    /// Name of the backup: lower-case letters, digits and dashes
    #[arg(long, value_name = "NAME")]
    name: String,
    /// UID of the object that asks for it; nobody else's backup of the same name is touched
    #[arg(long, value_name = "UID")]
    owner: String,
}

impl AskedFlags {
    fn get(&self) -> Asked<'_> {
        Asked { name: &self.name, owner: &self.owner }
    }
}

#[derive(Args)]
struct StoreFlags {
    /// The store, such as file:///var/backups/etcd or s3://bucket/prefix
    #[arg(long, value_name = "URL")]
    store: String,
    /// The history in it: each etcd that was restored on new volumes writes one of its own [default: the one that is written, or was last]
    #[arg(long, value_name = "NAME")]
    history: Option<String>,
}

impl StoreFlags {
    /// Opens one history of the store, and gives its name; the exit code where that is no store, or has no such history.
    async fn open(&self) -> anyhow::Result<Result<(Store, String), ExitCode>> {
        let all = match open("--store", &self.store, &environment()) {
            Ok(all) => all,
            Err(code) => return Ok(Err(code)),
        };
        let histories = all.histories().await?;
        let name = match &self.history {
            Some(name) => name.clone(),
            None => all.current_history().await?,
        };
        if self.history.is_some() && !histories.contains(&name) {
            eprintln!(
                "repot: --history: {} has no history {name:?}; it has {}",
                self.store,
                histories.join(", ")
            );
            return Ok(Err(ExitCode::from(USAGE)));
        }
        if histories.len() > 1 {
            tracing::info!(history = name, all = histories.join(", "), "the store has several histories");
        }
        Ok(Ok((all.history(&name), name)))
    }
}

/// Runs to its end, or to a signal.
pub async fn run(flags: Flags) -> anyhow::Result<ExitCode> {
    let stop = run::stop_on_signals()?;
    let work = async {
        match flags.task {
            Task::List(flags) => list::run(flags).await,
            Task::Copy(flags) => copy::run(flags).await,
            Task::Verify(flags) => verify::run(flags).await,
            Task::Restore(flags) => restore::run(*flags).await,
            Task::Take(flags) => take::run(flags).await,
            Task::Import(flags) => import::run(flags).await,
            Task::Prove(flags) => prove::run(flags).await,
            Task::Changes(flags) => changes::run(flags).await,
            Task::Late(flags) => late::run(flags).await,
        }
    };
    stop.run_until_cancelled(work).await.unwrap_or_else(|| bail!("broken off by a signal"))
}

/// The environment with the variables in it that are meant for the source only.
fn source_environment(mut all: Environment) -> Environment {
    let meant: Vec<(String, String)> = all
        .iter()
        .filter_map(|(name, value)| Some((name.strip_prefix(SOURCE)?.to_owned(), value.clone())))
        .collect();
    for (files, own) in FILES {
        if meant.iter().any(|(name, _)| own.contains(&name.as_str())) {
            all.remove(files);
            all.remove(&format!("{files}_JSON"));
        }
    }
    all.extend(meant);
    all
}

/// Opens a store; what is no store is bad usage.
fn open(flag: &str, url: &str, environment: &Environment) -> Result<Store, ExitCode> {
    Store::open(url, environment).map_err(|error| {
        eprintln!("repot: {flag}: {:#}", anyhow::Error::from(error));
        ExitCode::from(USAGE)
    })
}

/// Opens the source and the target of a copy, each with the variables that are meant for it.
fn open_both(source: &str, target: &str) -> Result<(Store, Store), ExitCode> {
    let all = environment();
    Ok((open("--source", source, &source_environment(all.clone()))?, open("--target", target, &all)?))
}

fn print(text: &str) -> anyhow::Result<()> {
    std::io::stdout().write_all(text.as_bytes()).context("failed to write to standard output")
}

fn print_json(value: &Value) -> anyhow::Result<()> {
    print(&format!("{value}\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_for_the_source_win_there() {
        let pairs = [("AWS_REGION", "here"), ("SOURCE_AWS_REGION", "there"), ("AWS_ENDPOINT", "both")];
        let all: Environment = pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        let source = source_environment(all.clone());
        assert_eq!((source["AWS_REGION"].as_str(), source["AWS_ENDPOINT"].as_str()), ("there", "both"));
        assert_eq!(all["AWS_REGION"], "here");
        let pairs = [("AWS_APPLICATION_CREDENTIALS", "/target"), ("SOURCE_AWS_ACCESS_KEY_ID", "id")];
        let all: Environment = pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        assert!(!source_environment(all).contains_key("AWS_APPLICATION_CREDENTIALS"));
    }
}
