//! `repot migrate`: starts a migration.

use std::{process::ExitCode, time::Duration};

use clap::Args;
use jiff::Timestamp;
use repot_console::{
    migration::Migration,
    moves::{self, Verdict},
};

use super::{
    ConnectionFlags, Output, agree, answer,
    plan::{MoveFlags, code},
    status::{self, Watch},
};

/// Move the control plane of a Shoot to another seed.
///
/// It shows the plan, asks, and creates a ControlPlaneMigration. The controllers carry it out; this command may end meanwhile. With --wait it
/// shows the progress and ends with the migration. After Ctrl-C the migration goes on: `repot abort` ends it.
/// Exit codes: 0 it was created, or has succeeded with --wait; 3 it is refused, ended another way, or was not waited for to its end;
/// 2 bad usage; 1 failure.
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
    /// Ask nothing, for scripts
    #[arg(long)]
    yes: bool,
    /// Create it although the rules are against it or could not be asked: the flow itself asks them again, and rolls back
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
    let verdict = planned.verdict();
    if let Verdict::Refused(why) | Verdict::Unknown(why) = &verdict
        && !flags.ignore_rules
    {
        eprintln!("repot: {why}; nothing was changed");
        return Ok(code(&verdict));
    }
    let (name, timeout) = (flags.name.as_deref(), flags.step_timeout.as_deref());
    let asked = &planned.preview.asked;
    let object = moves::object(asked, name, timeout, Timestamp::now())?;
    // The API server says what is wrong before a person is asked.
    place.garden.create(&place.namespace, &object, true).await?;
    if flags.dry_run {
        answer(flags.output, &object, |_| "It would be created.\n".to_owned())?;
        return Ok(ExitCode::SUCCESS);
    }
    if let Err(code) = agree(&moves::question(asked, &verdict), flags.yes) {
        return Ok(code);
    }
    let created = place.garden.create(&place.namespace, &object, false).await?;
    let migration = Migration::new(&created);
    if flags.wait {
        let (timeout, output) = (flags.timeout, flags.output);
        let watch = Watch { redraw: true, timeout, output, is_waited_for: true };
        return status::follow(&place.garden, &migration.namespace, &migration.name, &watch).await;
    }
    answer(flags.output, &created, |_| created_text(&migration))?;
    Ok(ExitCode::SUCCESS)
}

fn created_text(migration: &Migration) -> String {
    let Migration { namespace, name, shoot, .. } = migration;
    let repot = crate::kubectl::called();
    format!(
        "ControlPlaneMigration {namespace}/{name} is created. Watch it: {repot} status {shoot} -n {namespace}\n"
    )
}
