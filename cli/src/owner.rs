//! `repot owner`: which seed may serve an etcd.

use std::{io::Write, path::PathBuf, process::ExitCode};

use anyhow::Context;
use clap::{Args, Subcommand};
use repot_apiserver::delegation;
use repot_controllers::owner::{Report, Transfer, Verdict};

/// The answer is no.
const NO: u8 = 3;

/// Show which seed may serve an etcd, check it, or pass it on by hand.
///
/// The owner record in DNS names the seed whose etcd members may serve. These commands ask every server of its zone, as spec.backup.ownerCheck
/// of the Etcd names them, and no cache. Migrations pass ownership on by themselves; `repot owner transfer` is for the case that they
/// cannot. It prints what it would do, and does it with --yes.
/// Exit codes: 0 done, or this Etcd is the owner; 3 it is not; 1 failure, or the owner is not known; 2 bad usage.
///
///     repot owner show --kubeconfig seed-a.yaml -n shoot--dev--alpha
///     repot owner check --kubeconfig seed-a.yaml -n shoot--dev--alpha
///     repot owner transfer --kubeconfig seed-b.yaml -n shoot--dev--alpha --to seed-b
#[derive(Args)]
#[command(verbatim_doc_comment)]
pub struct Flags {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Print the record as each server of its zone gives it, and who the owner is
    Show(EtcdFlags),
    /// Print who the owner is in one line; the exit code says whether it is this Etcd
    Check(EtcdFlags),
    /// Let the record name another seed, with the next epoch, and wait until no member of an earlier owner can serve
    Transfer(TransferFlags),
}

#[derive(Args)]
struct EtcdFlags {
    /// kubeconfig of the seed with the Etcd [default: that of the Pod]
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Namespace of the Etcd
    #[arg(short, long, value_name = "NAMESPACE")]
    namespace: String,
    /// Name of the Etcd
    #[arg(long, value_name = "NAME", default_value = "etcd-main")]
    etcd: String,
    /// Ask this name server, ADDRESS:PORT; more than once for several [default: those in spec.backup.ownerCheck of the Etcd]
    ///
    /// For machines that do not reach those that members ask. Only servers of the zone itself say who the owner is; a cache may be late.
    #[arg(long = "server", value_name = "ADDRESS")]
    servers: Vec<String>,
}

#[derive(Args)]
struct TransferFlags {
    #[command(flatten)]
    etcd: EtcdFlags,
    /// Name of the seed that becomes the owner
    #[arg(long, value_name = "SEED")]
    to: String,
    /// Epoch of the new owner [default: the next after the highest that is known]
    #[arg(long, value_name = "NUMBER")]
    epoch: Option<u64>,
    /// Write the record and wait; without this flag nothing is changed
    #[arg(long)]
    yes: bool,
}

/// Prints the answer; the exit code says it, too.
pub async fn run(flags: Flags) -> anyhow::Result<ExitCode> {
    let etcd = match &flags.task {
        Task::Show(etcd) | Task::Check(etcd) => etcd,
        Task::Transfer(transfer) => &transfer.etcd,
    };
    let client = delegation::client(etcd.kubeconfig.as_deref()).await?;
    let (report, found) = Report::read(&client, (&etcd.namespace, &etcd.etcd), &etcd.servers).await?;
    match &flags.task {
        Task::Show(_) => print(&report.text())?,
        Task::Check(_) => print(&report.line())?,
        Task::Transfer(flags) => {
            let transfer = Transfer::new((report, found), &etcd.servers, &flags.to, flags.epoch)?;
            print(&transfer.text())?;
            if !flags.yes {
                print("Nothing was changed. Add --yes to do it.\n")?;
                return Ok(ExitCode::SUCCESS);
            }
            transfer.run(&client, &|says| eprintln!("repot: {says}")).await?;
            print(&format!("{}\n", transfer.next()))?;
            return Ok(ExitCode::SUCCESS);
        }
    }
    Ok(match report.verdict() {
        Verdict::Owner => ExitCode::SUCCESS,
        Verdict::Other(_) => ExitCode::from(NO),
        Verdict::Unknown(_) => ExitCode::FAILURE,
    })
}

fn print(text: &str) -> anyhow::Result<()> {
    std::io::stdout().write_all(text.as_bytes()).context("failed to write to standard output")
}
