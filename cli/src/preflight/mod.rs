//! `repot preflight`: may this Shoot move to that seed, and what does a zone of a seed touch?

mod isolate;

use std::{io::Write, path::PathBuf, process::ExitCode};

use anyhow::{Context, bail};
use clap::{Args, Subcommand, ValueEnum};
use repot_apimachinery::value::text_at;
use repot_console::preflight;
use repot_webhook::{
    facts::{Serve, read_manifests},
    garden::Garden,
};
use tokio_util::sync::CancellationToken;

use crate::webhook::FactsFlags;

/// The answer is no.
const REFUSED: u8 = 3;
/// Bad usage, as for flags.
const USAGE: u8 = 2;

/// Say whether a Shoot may move to a seed, with every reason against it, before anybody moves it.
///
/// The first step of every migration. It asks the same rules as the webhooks, on manifests (--facts DIR) or on a cluster
/// (--kubeconfig FILE). On a cluster it also sends the write itself as a dry run: beside Gardener its own plugins answer
/// first and with one reason only, so that the two are shown together. Nothing is changed.
/// Exit codes: 0 it may go, 3 it is refused, 2 bad usage, 1 failure.
///
///     kubectl get shoot -n garden-x my-shoot -o yaml | repot preflight --shoot /dev/stdin --to seed-b --kubeconfig garden.yaml
///     repot preflight --shoot shoot.yaml --to seed-b --live --facts landscape/
#[derive(Args)]
#[command(verbatim_doc_comment, args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct Flags {
    #[command(subcommand)]
    task: Option<Task>,
    /// Manifest of the Shoot, YAML or JSON, with its status
    #[arg(long, value_name = "FILE", required = true)]
    shoot: Option<PathBuf>,
    /// The destination seed
    #[arg(long, value_name = "SEED", required = true)]
    to: Option<String>,
    /// Without downtime: as if the Shoot had migration.gardener.cloud/live-migrate=true. Gardener has this switched off unless
    /// gardener-apiserver runs with --feature-gates=LiveControlPlaneMigration=true
    #[arg(long)]
    live: bool,
    /// Form of the answer
    #[arg(long, value_enum, default_value_t = Output::Text)]
    output: Output,
    #[command(flatten)]
    facts: FactsFlags,
}

/// What else is asked about.
#[derive(Subcommand)]
enum Task {
    Isolate(isolate::Flags),
}

#[derive(Clone, Copy, ValueEnum)]
enum Output {
    Text,
    Json,
}

/// Prints the answer; the exit code says whether the move is allowed.
pub async fn run(flags: Flags) -> anyhow::Result<ExitCode> {
    match (flags.task, flags.shoot, flags.to) {
        (Some(Task::Isolate(flags)), ..) => isolate::run(flags).await,
        (None, Some(shoot), Some(to)) => {
            ask(&Question { shoot, to, live: flags.live, output: flags.output, facts: flags.facts }).await
        }
        // clap asks for the flags before.
        (None, ..) => bail!("--shoot and --to are missing"),
    }
}

/// Which Shoot is to move where.
struct Question {
    shoot: PathBuf,
    to: String,
    live: bool,
    output: Output,
    facts: FactsFlags,
}

async fn ask(flags: &Question) -> anyhow::Result<ExitCode> {
    let mut manifests = read_manifests(&flags.shoot)?;
    manifests.retain(|object| text_at(object, "/kind") == Some("Shoot"));
    let [shoot] = manifests.as_slice() else {
        eprintln!("repot: {} has {} Shoots, and one is wanted", flags.shoot.display(), manifests.len());
        return Ok(ExitCode::from(USAGE));
    };
    let garden = match &flags.facts.facts {
        Some(_) => None,
        None => Some(Garden::connect(flags.facts.kubeconfig.as_deref()).await?),
    };
    let end = CancellationToken::new();
    let world = flags.facts.world(Serve::Garden, &end).await?;
    let answer = preflight::ask(shoot, (&flags.to, flags.live), &world, garden.as_ref()).await?;
    let text = match flags.output {
        Output::Json => answer.json(),
        Output::Text => answer.text(),
    };
    std::io::stdout().write_all(text.as_bytes()).context("failed to write to standard output")?;
    Ok(if answer.is_allowed() { ExitCode::SUCCESS } else { ExitCode::from(REFUSED) })
}
