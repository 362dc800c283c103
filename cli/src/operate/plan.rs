//! `repot plan`: what a migration will do.

use std::process::ExitCode;

use anyhow::Context;
use clap::{Args, ValueEnum};
use jiff::Timestamp;
use repot_console::{
    durations::Durations,
    garden,
    migration::{Executor, Mode},
    moves::{self, Planned, Verdict},
    preview::Move,
};
use serde_json::{Value, json};

use super::{Connection, ConnectionFlags, NO, Output, answer};
use crate::webhook::default_settings;

/// Show what a migration will do, before anybody starts it.
///
/// It prints each step with its side, how long it took in the migrations of the past, which steps the API is away in, what is carried, which
/// fields depend on the seed, and what the rules of the webhooks say. Nothing is changed.
/// Exit codes: 0 it may go; 3 it is refused, or another migration of the Shoot is under way; 2 bad usage; 1 failure, or the rules could not be
/// asked.
///
///     repot plan alpha --to seed-b -n garden-dev --kubeconfig garden.yaml
///     kubectl repot plan alpha --to seed-b --live --output wide
#[derive(Args)]
#[command(verbatim_doc_comment)]
pub struct Flags {
    #[command(flatten)]
    target: MoveFlags,
    #[command(flatten)]
    place: ConnectionFlags,
    /// Form of the answer
    #[arg(short, long, value_enum, default_value_t = Output::Text)]
    output: Output,
}

/// Which Shoot moves where, and how.
#[derive(Args)]
pub struct MoveFlags {
    /// Name of the Shoot that moves
    #[arg(value_name = "SHOOT", value_parser = crate::operate::name)]
    pub shoot: String,
    /// The seed where it goes
    #[arg(long, value_name = "SEED", value_parser = crate::operate::name)]
    pub to: String,
    /// The source seed [default: the seed that the Shoot names]
    #[arg(long, value_name = "SEED", value_parser = crate::operate::name)]
    pub from: Option<String>,
    /// Without downtime: both seeds serve while the etcd moves
    #[arg(long, conflicts_with = "forced")]
    pub live: bool,
    /// The source cannot be reached; what it stored after its newest snapshot is lost
    #[arg(long)]
    pub forced: bool,
    /// Who carries it out: controllers or gardenlets
    #[arg(long, value_enum, default_value_t = By::Repot, value_name = "WHO")]
    pub by: By,
}

/// Who carries a migration out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum By {
    /// The controllers of Repot
    Repot,
    /// The gardenlets of both seeds
    Gardenlet,
}

pub async fn run(flags: Flags) -> anyhow::Result<ExitCode> {
    let place = flags.place.connect().await?;
    let planned = flags.target.plan(&place).await?;
    answer(flags.output, &object(&planned)?, |wide| planned.text(wide))?;
    Ok(code(&planned.verdict()))
}

impl MoveFlags {
    fn mode(&self) -> Mode {
        match (self.live, self.forced) {
            (true, _) => Mode::Live,
            (_, true) => Mode::Forced,
            _ => Mode::Classic,
        }
    }

    /// Reads what is known of the move.
    pub async fn plan(&self, place: &Connection) -> anyhow::Result<Planned> {
        let Connection { garden, namespace, .. } = place;
        let shoot = garden.shoot(namespace, &self.shoot).await;
        let shoot = match shoot {
            // A garden without Gardener.
            Err(garden::Error::NotServed { .. }) => None,
            found => found?,
        };
        let named = |path: &str| shoot.as_ref()?.pointer(path)?.as_str().map(str::to_owned);
        let source =
            self.from.clone().or_else(|| named("/status/seedName")).or_else(|| named("/spec/seedName"));
        let source = source.with_context(|| match &shoot {
            Some(_) => format!("Shoot {namespace}/{} names no seed; name the source by --from", self.shoot),
            None => format!(
                "there is no Shoot {namespace}/{}, or Shoots are not served here; name the source by --from",
                self.shoot
            ),
        })?;
        let asked = Move {
            namespace: namespace.clone(),
            shoot: self.shoot.clone(),
            source_seed: source,
            destination_seed: self.to.clone(),
            mode: self.mode(),
            executor: self.by.executor(),
        };
        let durations = Durations::of(&moves::past(garden, namespace).await?, asked.mode, asked.executor);
        Ok(moves::plan(garden, default_settings(), asked, shoot.as_ref(), &durations).await?)
    }
}

impl By {
    /// The same as a migration has it.
    pub fn executor(self) -> Executor {
        match self {
            Self::Repot => Executor::Repot,
            Self::Gardenlet => Executor::Gardenlet,
        }
    }
}

/// What the exit code says of a verdict.
pub fn code(verdict: &Verdict) -> ExitCode {
    match verdict {
        Verdict::Allowed => ExitCode::SUCCESS,
        Verdict::Refused(_) => ExitCode::from(NO),
        Verdict::Unknown(_) => ExitCode::FAILURE,
    }
}

fn object(planned: &Planned) -> anyhow::Result<Value> {
    let mut object = serde_json::to_value(&planned.preview)?;
    object["time"] = json!(Timestamp::now());
    object["preflight"] = planned.preflight();
    object["underWay"] = json!(planned.under_way);
    Ok(object)
}
