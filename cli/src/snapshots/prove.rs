//! `repot snapshots prove`.

use std::{path::PathBuf, process::ExitCode};

use clap::Args;
use repot_etcd::{
    backup::{
        Backups,
        prove::{self, Options},
        record::Verdict,
    },
    snapshot::restore::prove::Tools,
};

use super::{NO, StoreFlags, environment, open, print_json};

/// Prove a named backup: read it to its end, restore it into --scratch, start a private etcd on that, and read all keys.
///
/// The Jobs of EtcdBackup, EtcdRestore and EtcdMigration run this. What came of it is printed and rests in verified.json beside the
/// backup; where it is there already it is only printed. A backup that cannot be restored is answered with exit code 3.
///
///     repot snapshots prove --store s3://bucket/shoot--p--a --name b-1
#[derive(Args)]
#[command(verbatim_doc_comment)]
pub struct Flags {
    #[command(flatten)]
    store: StoreFlags,
    /// Name of the backup
    #[arg(long, value_name = "NAME")]
    name: String,
    /// Directory with room for three times the database
    #[arg(long, value_name = "DIR", default_value_os_t = std::env::temp_dir())]
    scratch: PathBuf,
    /// The program etcd, 3.5 or later
    #[arg(long, default_value = "etcd", value_name = "PROGRAM")]
    etcd: PathBuf,
    /// The program etcdutl, 3.5.10 or later
    #[arg(long, default_value = "etcdutl", value_name = "PROGRAM")]
    etcdutl: PathBuf,
}

/// Proves a named backup and prints the verdict as JSON; exit code 3 where the backup is corrupt.
pub async fn run(flags: Flags) -> anyhow::Result<ExitCode> {
    let store = match open("--store", &flags.store.store, &environment()) {
        Ok(store) => store,
        Err(code) => return Ok(code),
    };
    let tools = Tools { etcd: flags.etcd, etcdutl: flags.etcdutl };
    let options = Options { scratch: flags.scratch, tools };
    let verdict = prove::prove(&Backups::of(&store), &flags.name, &options).await?;
    print_json(&serde_json::to_value(&verdict)?)?;
    Ok(match verdict {
        Verdict::Sound(_) => ExitCode::SUCCESS,
        Verdict::Corrupt(_) => ExitCode::from(NO),
    })
}
