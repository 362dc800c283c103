//! `repot snapshots take`.

use std::{path::PathBuf, process::ExitCode};

use anyhow::Context;
use clap::Args;
use jiff::Timestamp;
use repot_etcd::{
    backup::{Backups, take},
    link,
};

use super::{AskedFlags, StoreFlags, environment, open, print_json};

/// Take a named backup of a live etcd: a full snapshot below <store>/backups/<name>, and a record of it in backup.json.
///
/// The Jobs of EtcdBackup and EtcdMigration run this. It may be run again after any interruption; a backup that is in the store is
/// left alone. The record is printed.
///
///     repot snapshots take --store s3://bucket/shoot--p--a --name b-1 --owner $UID --endpoints https://etcd-0.etcd:2379 \
///       --cacert ca.crt --cert tls.crt --key tls.key
#[derive(Args)]
#[command(verbatim_doc_comment)]
pub struct Flags {
    #[command(flatten)]
    store: StoreFlags,
    #[command(flatten)]
    asked: AskedFlags,
    /// Client URLs of members
    #[arg(long, value_delimiter = ',', required = true, value_name = "URLS")]
    endpoints: Vec<String>,
    /// Who may have signed the members' certificates, PEM
    #[arg(long, value_name = "FILE")]
    cacert: Option<PathBuf>,
    /// The client's certificate, PEM
    #[arg(long, value_name = "FILE", requires = "key")]
    cert: Option<PathBuf>,
    /// Its key, PEM
    #[arg(long, value_name = "FILE", requires = "cert")]
    key: Option<PathBuf>,
    /// Directory with room for the database
    #[arg(long, value_name = "DIR", default_value_os_t = std::env::temp_dir())]
    scratch: PathBuf,
}

/// Takes a named backup of a live etcd and prints its record as JSON.
pub async fn run(flags: Flags) -> anyhow::Result<ExitCode> {
    let store = match open("--store", &flags.store.store, &environment()) {
        Ok(store) => store,
        Err(code) => return Ok(code),
    };
    let client = link::connect(&options(&flags)?).await.context("--endpoints")?;
    let taken =
        take::take(&Backups::of(&store), &flags.asked.get(), &client, &flags.scratch, Timestamp::now())
            .await?;
    print_json(&serde_json::to_value(taken)?)?;
    Ok(ExitCode::SUCCESS)
}

fn options(flags: &Flags) -> anyhow::Result<link::Options> {
    let read =
        |path: &PathBuf| std::fs::read(path).with_context(|| format!("failed to read {}", path.display()));
    let identity = match (&flags.cert, &flags.key) {
        (Some(cert), Some(key)) => Some((read(cert)?, read(key)?)),
        _ => None,
    };
    let ca = flags.cacert.as_ref().map(read).transpose()?;
    Ok(link::Options { endpoints: flags.endpoints.clone(), ca, identity, ..link::Options::default() })
}
