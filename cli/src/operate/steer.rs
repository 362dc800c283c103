//! `repot abort`, `pause`, `resume`, `retry`, `force-shrink`, `confirm`: requests to a migration.

use std::process::ExitCode;

use clap::{Args, ValueEnum};
use repot_console::steer::{
    self, Fact, Request,
    write::{self, write},
};

use super::{NO, ShootFlags, agree, print};

/// Roll a migration back, until its point of no return.
///
/// The control plane stays at the source. A live migration grants it where its members can be taken back; --force asks for it at any time
/// before the first member of the source leaves. It cannot be taken back.
/// Exit codes: 0 it was asked for, 3 it would not be obeyed, 2 bad usage, 1 failure.
///
///     repot abort alpha -n garden-dev --kubeconfig garden.yaml
#[derive(Args)]
#[command(verbatim_doc_comment)]
pub struct AbortFlags {
    #[command(flatten)]
    common: CommonFlags,
    /// Also where the mode does not grant it
    #[arg(long)]
    force: bool,
}

/// Start no further step of a migration.
///
/// The steps that run are brought to their end. After 24 hours it rolls back. Between the stop of the source and the point of no return
/// nothing is held up, since the data could not be reached meanwhile.
/// Exit codes: 0 it was asked for, 3 it would not be obeyed, 2 bad usage, 1 failure.
#[derive(Args)]
#[command(verbatim_doc_comment)]
pub struct PauseFlags {
    #[command(flatten)]
    common: CommonFlags,
}

/// Go on with a migration that is paused.
///
/// Exit codes: 0 it was asked for, 3 it would not be obeyed, 2 bad usage, 1 failure.
#[derive(Args)]
#[command(verbatim_doc_comment)]
pub struct ResumeFlags {
    #[command(flatten)]
    common: CommonFlags,
}

/// Try again what has failed in a migration.
///
/// Each side that has failed goes on where it stood. Repair first what its message names.
/// Exit codes: 0 it was asked for, 3 it would not be obeyed, 2 bad usage, 1 failure.
#[derive(Args)]
#[command(verbatim_doc_comment)]
pub struct RetryFlags {
    #[command(flatten)]
    common: CommonFlags,
}

/// Let the members of the source leave a live migration before the destination serves.
///
/// For kube-apiservers of the destination that do not start beside the source. The API is away until clients find the destination.
/// Exit codes: 0 it was asked for, 3 it would not be obeyed, 2 bad usage, 1 failure.
#[derive(Args)]
#[command(verbatim_doc_comment)]
pub struct ForceShrinkFlags {
    #[command(flatten)]
    common: CommonFlags,
}

/// Say what only a person can know, for a step that waits for it.
///
/// A wrong answer can lose data or double it, so each is asked for by its name. `repot status` shows which step waits.
/// Exit codes: 0 it was confirmed, 3 it would not be obeyed, 2 bad usage, 1 failure.
///
///     repot confirm loss alpha -n garden-dev --kubeconfig garden.yaml
#[derive(Args)]
#[command(verbatim_doc_comment)]
pub struct ConfirmFlags {
    /// The fact that holds
    #[arg(value_enum, value_name = "FACT")]
    fact: FactName,
    #[command(flatten)]
    common: CommonFlags,
}

/// Facts that no controller can find out.
#[derive(Clone, Copy, ValueEnum)]
enum FactName {
    /// What the source stored after its newest snapshot may be lost
    Loss,
    /// No controller of the source can change a machine any more
    SourceControllersStopped,
    /// No etcd member and no controller of the source runs
    SourceOff,
    /// The destination never comes back
    DestinationLost,
}

#[derive(Args)]
struct CommonFlags {
    #[command(flatten)]
    target: ShootFlags,
    /// Ask nothing, for scripts
    #[arg(long)]
    yes: bool,
}

impl AbortFlags {
    pub async fn run(self) -> anyhow::Result<ExitCode> {
        ask(&self.common, if self.force { Request::ForceAbort } else { Request::Abort }).await
    }
}

impl PauseFlags {
    pub async fn run(self) -> anyhow::Result<ExitCode> {
        ask(&self.common, Request::Pause).await
    }
}

impl ResumeFlags {
    pub async fn run(self) -> anyhow::Result<ExitCode> {
        ask(&self.common, Request::Resume).await
    }
}

impl RetryFlags {
    pub async fn run(self) -> anyhow::Result<ExitCode> {
        ask(&self.common, Request::Retry).await
    }
}

impl ForceShrinkFlags {
    pub async fn run(self) -> anyhow::Result<ExitCode> {
        ask(&self.common, Request::ForceShrink).await
    }
}

impl ConfirmFlags {
    pub async fn run(self) -> anyhow::Result<ExitCode> {
        let fact = match self.fact {
            FactName::Loss => Fact::Loss,
            FactName::SourceControllersStopped => Fact::SourceControllersStopped,
            FactName::SourceOff => Fact::SourceOff,
            FactName::DestinationLost => Fact::DestinationLost,
        };
        ask(&self.common, Request::Confirm(fact)).await
    }
}

async fn ask(flags: &CommonFlags, request: Request) -> anyhow::Result<ExitCode> {
    let place = flags.target.place.connect().await?;
    let migration = match flags.target.require(&place).await? {
        Ok(migration) => migration,
        Err(code) => return Ok(code),
    };
    let change = match steer::change(request, &migration) {
        Ok(change) => change,
        Err(refusal) => {
            eprintln!("repot: {refusal}");
            return Ok(ExitCode::from(NO));
        }
    };
    if let Some(question) = &change.question
        && let Err(code) = agree(question, flags.yes)
    {
        return Ok(code);
    }
    let (namespace, name) = (&migration.namespace, &migration.name);
    match write(&place.garden, namespace, name, request, change.question.as_deref()).await {
        Ok(follows) => print(&format!("{}: {follows}\n", migration.key()))?,
        Err(write::Error::Garden(error)) => return Err(error.into()),
        // It has changed while the person was asked.
        Err(error) => {
            eprintln!("repot: {error}; nothing was changed");
            return Ok(ExitCode::from(NO));
        }
    }
    Ok(ExitCode::SUCCESS)
}
