//! `repot history`: the migrations that a Shoot has been through.

use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::{Args, Subcommand, ValueEnum};
use repot_console::{difference, history, migration::Migration};

use crate::operate::{self, ConnectionFlags, evidence, print};

/// Show the migrations that a Shoot has been through: outage, loss, and what a late snapshot holds.
///
/// The oldest comes first. After a forced migration the seed that was dead may come back and store a final snapshot that is too late: this
/// says which keys it holds that the destination does not, by name and without values.
/// Exit codes: 0 done, also where there is no migration; 1 failure; 2 bad usage.
///
///     repot history alpha -n garden-dev --kubeconfig garden.yaml
///     kubectl repot history alpha -n garden-dev --output json
///     kubectl repot history diff alpha-1 alpha-2 -n garden-dev
#[derive(Args)]
#[command(verbatim_doc_comment, args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct Flags {
    #[command(subcommand)]
    task: Option<Task>,
    /// Name of the Shoot
    #[arg(value_name = "SHOOT", required = true, value_parser = operate::name)]
    shoot: Option<String>,
    #[command(flatten)]
    place: ConnectionFlags,
    /// Form of the answer
    #[arg(short, long, value_enum, default_value_t = Output::Text)]
    output: Output,
    /// Names of keys that are shown of a late snapshot; the migration holds 100 of them at most
    #[arg(long, value_name = "NUMBER", default_value_t = 10)]
    keys: usize,
}

/// What else is asked about the past.
#[derive(Subcommand)]
enum Task {
    Diff(DiffFlags),
    Export(evidence::ExportFlags),
    Verify(evidence::VerifyFlags),
}

/// Show how long each step took in two migrations.
///
///     repot history diff alpha-1 alpha-2 -n garden-dev --kubeconfig garden.yaml
#[derive(Args)]
#[command(verbatim_doc_comment)]
struct DiffFlags {
    /// Name of the first ControlPlaneMigration
    #[arg(value_name = "FIRST", value_parser = operate::name)]
    first: String,
    /// Name of the second one
    #[arg(value_name = "SECOND", value_parser = operate::name)]
    second: String,
    #[command(flatten)]
    place: ConnectionFlags,
    /// Form of the answer
    #[arg(short, long, value_enum, default_value_t = operate::Output::Text)]
    output: operate::Output,
}

#[derive(Clone, Copy, ValueEnum)]
enum Output {
    Text,
    Json,
}

/// Prints the migrations of the Shoot to standard output, or does what else is asked.
pub async fn run(flags: Flags) -> anyhow::Result<ExitCode> {
    match (flags.task, flags.shoot) {
        (Some(Task::Diff(flags)), _) => diff(&flags).await,
        (Some(Task::Export(flags)), _) => evidence::export(&flags).await,
        (Some(Task::Verify(flags)), _) => evidence::verify(&flags),
        (None, Some(shoot)) => show(&shoot, &flags.place, flags.output, flags.keys).await,
        // clap asks for it before.
        (None, None) => bail!("the name of a Shoot is missing"),
    }
}

async fn show(shoot: &str, place: &ConnectionFlags, output: Output, keys: usize) -> anyhow::Result<ExitCode> {
    let place = place.connect().await?;
    let namespace = &place.namespace;
    let found = history::read(&place.garden, namespace, shoot).await;
    let found = found.with_context(|| format!("failed to read the migrations of {namespace}"))?;
    print(&match output {
        Output::Json => serde_json::to_string_pretty(&found)? + "\n",
        Output::Text => history::text(&found, keys),
    })?;
    if found.is_empty() {
        eprintln!("repot: no migration of Shoot {shoot} in namespace {namespace}");
    }
    Ok(ExitCode::SUCCESS)
}

async fn diff(flags: &DiffFlags) -> anyhow::Result<ExitCode> {
    let place = flags.place.connect().await?;
    let first = Migration::new(&place.garden.migration(&place.namespace, &flags.first).await?);
    let second = Migration::new(&place.garden.migration(&place.namespace, &flags.second).await?);
    let steps = difference::steps(&first, &second);
    operate::answer(flags.output, &steps, |_| difference::text(&first, &second))?;
    Ok(ExitCode::SUCCESS)
}
