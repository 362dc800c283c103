//! `repot migrate`: starts a migration.

use std::{process::ExitCode, time::Duration};

use clap::Args;
use jiff::{Timestamp, tz::TimeZone};
use repot_console::{
    migration::{Migration, Mode},
    preview::Move,
};
use repot_controllers::migration::api::ControlPlaneMigration;
use serde_json::json;

use super::{
    ConnectionFlags, NO, Output, agree, answer,
    plan::{MoveFlags, Planned},
    status::{self, Watch},
};

/// Move the control plane of a Shoot to another seed.
///
/// It shows the plan, asks, and creates a ControlPlaneMigration. The controllers carry it out; this command may end meanwhile. With --wait it
/// shows the progress and ends with the migration. After Ctrl-C the migration goes on: `repot abort` ends it.
/// Exit codes: 0 it was created, or has succeeded with --wait; 3 it is refused, or ended another way; 2 bad usage; 1 failure.
///
///     repot migrate alpha --to seed-b --live -n garden-dev --kubeconfig garden.yaml
///     kubectl repot migrate alpha --to seed-b --yes --wait
#[derive(Args)]
#[command(verbatim_doc_comment)]
pub struct Flags {
    #[command(flatten)]
    target: MoveFlags,
    #[command(flatten)]
    place: ConnectionFlags,
    /// Name of the ControlPlaneMigration [default: Shoot, seed and time]
    #[arg(long, value_name = "NAME", value_parser = crate::operate::name)]
    name: Option<String>,
    /// How long a step may take before it counts as failed [default: 10m]
    #[arg(long, value_name = "DURATION")]
    step_timeout: Option<String>,
    /// Ask nothing
    #[arg(long)]
    yes: bool,
    /// Create it although the rules are against it: the flow itself asks them again, and rolls back
    #[arg(long)]
    ignore_rules: bool,
    /// Ask the API server whether it would be created, and create nothing
    #[arg(long)]
    dry_run: bool,
    /// Show the progress until it has ended
    #[arg(long, conflicts_with = "dry_run")]
    wait: bool,
    /// With --wait: give up watching after so long; the migration goes on [default: no limit]
    #[arg(long, value_name = "DURATION", value_parser = crate::serving::duration, requires = "wait")]
    timeout: Option<Duration>,
    /// Form of the answer
    #[arg(short, long, value_enum, default_value_t = Output::Text)]
    output: Output,
}

pub async fn run(flags: Flags) -> anyhow::Result<ExitCode> {
    let place = flags.place.connect().await?;
    let planned = flags.target.plan(&place).await?;
    if matches!(flags.output, Output::Text | Output::Wide) {
        eprint!("{}", planned.text(flags.output == Output::Wide));
    }
    if !planned.is_allowed() && !flags.ignore_rules {
        eprintln!("repot: the rules are against it; nothing was changed");
        return Ok(ExitCode::from(NO));
    }
    let (name, timeout) = (flags.name.as_deref(), flags.step_timeout.as_deref());
    let object = object(&planned.preview.asked, name, timeout, Timestamp::now())?;
    // The API server says what is wrong before a person is asked.
    place.garden.create(&place.namespace, &object, true).await?;
    if flags.dry_run {
        answer(flags.output, &object, |_| "It would be created.\n".to_owned())?;
        return Ok(ExitCode::SUCCESS);
    }
    if let Err(code) = agree(&question(&planned), flags.yes) {
        return Ok(code);
    }
    let created = place.garden.create(&place.namespace, &object, false).await?;
    let migration = Migration::new(&created);
    if flags.wait {
        let watch = Watch { redraw: true, timeout: flags.timeout, output: flags.output };
        return status::follow(&place.garden, &migration.namespace, &migration.name, &watch).await;
    }
    answer(flags.output, &created, |_| created_text(&migration))?;
    Ok(ExitCode::SUCCESS)
}

fn created_text(migration: &Migration) -> String {
    let Migration { namespace, name, shoot, .. } = migration;
    format!(
        "ControlPlaneMigration {namespace}/{name} is created. Watch it: kubectl repot status {shoot} -n {namespace}\n"
    )
}

fn question(planned: &Planned) -> String {
    let asked = &planned.preview.asked;
    let outage = match asked.mode {
        Mode::Live => "Both seeds serve meanwhile.",
        Mode::Classic => "Its API is away for a while.",
        Mode::Forced => {
            "What the source stored after its newest snapshot is lost; you will be asked to confirm how much."
        }
    };
    format!(
        "The control plane of {}/{} moves from {} to {}. {outage}",
        asked.namespace, asked.shoot, asked.source_seed, asked.destination_seed
    )
}

/// The object that asks for a move. Its name has the Shoot, the seed and the time.
pub fn object(
    asked: &Move,
    name: Option<&str>,
    step_timeout: Option<&str>,
    now: Timestamp,
) -> anyhow::Result<ControlPlaneMigration> {
    let time = now.to_zoned(TimeZone::UTC).strftime("%Y%m%d-%H%M%S");
    let default = format!("{}-to-{}-{time}", asked.shoot, asked.destination_seed);
    let mut spec = json!({
        "shootRef": {"name": asked.shoot},
        "sourceSeed": asked.source_seed,
        "destinationSeed": asked.destination_seed,
        "mode": asked.mode.name(),
        "executor": asked.executor.name(),
    });
    if let Some(timeout) = step_timeout {
        spec["stepTimeout"] = json!(timeout);
    }
    let object = json!({
        "apiVersion": "migration.gardener.cloud/v1alpha1",
        "kind": "ControlPlaneMigration",
        "metadata": {"name": name.unwrap_or(&default), "namespace": asked.namespace},
        "spec": spec,
    });
    Ok(serde_json::from_value::<ControlPlaneMigration>(object)?)
}
