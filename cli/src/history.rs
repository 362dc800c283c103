//! `repot history`: the migrations that a Shoot has been through.

use std::{io::Write, process::ExitCode};

use anyhow::Context;
use clap::{Args, ValueEnum};
use repot_controllers::history;

use crate::garden::GardenFlags;

/// Show the migrations that a Shoot has been through: outage, loss, and what a late snapshot holds.
///
/// The oldest comes first. After a forced migration the seed that was dead may come back and store a final snapshot that is too late: this
/// says which keys it holds that the destination does not, by name and without values.
/// Exit codes: 0 done, also where there is no migration; 1 failure; 2 bad usage.
///
///     repot history alpha -n garden-dev --kubeconfig garden.yaml
///     kubectl repot history alpha -n garden-dev --output json
#[derive(Args)]
#[command(verbatim_doc_comment)]
pub struct Flags {
    /// Name of the Shoot
    #[arg(value_name = "SHOOT")]
    shoot: String,
    #[command(flatten)]
    garden: GardenFlags,
    /// Namespace of the Shoot [default: that of the context]
    #[arg(short, long, value_name = "NAMESPACE")]
    namespace: Option<String>,
    /// Form of the answer
    #[arg(short, long, value_enum, default_value_t = Output::Text)]
    output: Output,
    /// Names of keys that are shown of a late snapshot; the migration holds 100 of them at most
    #[arg(long, value_name = "NUMBER", default_value_t = 10)]
    keys: usize,
}

#[derive(Clone, Copy, ValueEnum)]
enum Output {
    Text,
    Json,
}

/// Prints the migrations of the Shoot to standard output.
pub async fn run(flags: Flags) -> anyhow::Result<ExitCode> {
    let client = flags.garden.connect().await?;
    let namespace = flags.namespace.unwrap_or_else(|| client.default_namespace().to_owned());
    let found = history::read(&client, &namespace, &flags.shoot).await;
    let found = found.with_context(|| format!("failed to read the migrations of {namespace}"))?;
    let text = match flags.output {
        Output::Json => serde_json::to_string_pretty(&found)? + "\n",
        Output::Text => history::text(&found, flags.keys),
    };
    std::io::stdout().write_all(text.as_bytes()).context("failed to write to standard output")?;
    if found.is_empty() {
        eprintln!("repot: no migration of Shoot {} in namespace {namespace}", flags.shoot);
    }
    Ok(ExitCode::SUCCESS)
}
