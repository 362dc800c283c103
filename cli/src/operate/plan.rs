//! `repot plan`: what a migration will do.

use std::process::ExitCode;

use anyhow::Context;
use clap::{Args, ValueEnum};
use jiff::Timestamp;
use repot_console::{
    durations::Durations,
    garden::{self, Garden},
    migration::{Executor, Mode},
    preflight,
    preview::{Move, Preview},
};
use repot_webhook::facts::{Cluster, Serve, Source, World};
use serde_json::{Value, json};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::{Connection, ConnectionFlags, NO, Output, answer};
use crate::webhook::default_settings;

/// Show what a migration will do, before anybody starts it.
///
/// It prints each step with its side, how long it took in the migrations of the past, which steps the API is away in, what is carried, which
/// fields depend on the seed, and what the rules of the webhooks say. Nothing is changed.
/// Exit codes: 0 it may go, 3 it is refused, 2 bad usage, 1 failure.
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

/// A move, and what is known of it before.
pub struct Planned {
    pub preview: Preview,
    /// What the rules say; why they were not asked where they were not.
    pub rules: Result<preflight::Answer, String>,
}

pub async fn run(flags: Flags) -> anyhow::Result<ExitCode> {
    let place = flags.place.connect().await?;
    let planned = flags.target.plan(&place).await?;
    answer(flags.output, &planned.object()?, |wide| planned.text(wide))?;
    Ok(if planned.is_allowed() { ExitCode::SUCCESS } else { ExitCode::from(NO) })
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
        let shoot = garden.shoot(namespace, &self.shoot).await?;
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
            executor: if self.by == By::Repot { Executor::Repot } else { Executor::Gardenlet },
        };
        let past = past(garden, namespace).await?;
        let durations = Durations::of(&past, asked.mode, asked.executor);
        let state =
            garden.read("core.gardener.cloud", "v1beta1", "ShootState", Some(namespace), &self.shoot).await;
        let state = state.unwrap_or_default();
        let rules = match &shoot {
            Some(shoot) => self.rules(garden, shoot).await,
            None => Err("there is no Shoot to ask about".to_owned()),
        };
        let shoot = shoot.unwrap_or_default();
        let preview = Preview::new(asked, &durations, state.as_ref(), &shoot);
        let preview =
            preview.context("gardenlet knows no live migration; use --by repot, or leave --live out")?;
        Ok(Planned { preview, rules })
    }

    async fn rules(&self, garden: &Garden, shoot: &Value) -> Result<preflight::Answer, String> {
        Rules::new(garden).ask(shoot, &self.to, self.live).await
    }
}

/// The rules of the webhooks, on what the garden has. What they need is followed until this is dropped.
pub struct Rules {
    world: World,
    garden: repot_webhook::garden::Garden,
    _end: DropGuard,
}

impl Rules {
    pub fn new(garden: &Garden) -> Self {
        let (end, client) = (CancellationToken::new(), garden.client().clone());
        let asked = repot_webhook::garden::Garden::of(client.clone(), "the garden");
        let source = Source::Cluster(Cluster::follow(client, Serve::Garden, &end));
        let world = World { source, settings: default_settings().into() };
        Self { world, garden: asked, _end: end.drop_guard() }
    }

    /// What they say of a move; why they cannot be asked where they cannot.
    pub async fn ask(&self, shoot: &Value, to: &str, live: bool) -> Result<preflight::Answer, String> {
        let answer = preflight::ask(shoot, (to, live), &self.world, Some(&self.garden)).await;
        answer.map_err(|error| format!("{:#}", anyhow::Error::from(error)))
    }
}

/// Migrations of the whole garden; of the namespace alone where the user may not read the others.
async fn past(garden: &Garden, namespace: &str) -> garden::Result<Vec<repot_console::migration::Migration>> {
    match garden.migrations(None, None).await {
        Ok(all) => Ok(all),
        Err(_) => garden.migrations(Some(namespace), None).await,
    }
}

impl Planned {
    /// Whether nothing that was asked is against it. A forced migration leaves a seed that cannot answer, so rules about a move between
    /// seeds that serve do not hold for it.
    pub fn is_allowed(&self) -> bool {
        let is_forced = self.preview.asked.mode == Mode::Forced;
        is_forced || self.rules.as_ref().map_or(true, preflight::Answer::is_allowed)
    }

    fn object(&self) -> anyhow::Result<Value> {
        let mut object = serde_json::to_value(&self.preview)?;
        object["time"] = json!(Timestamp::now());
        object["preflight"] = match &self.rules {
            Ok(answer) => serde_json::from_str(&answer.json())?,
            Err(why) => json!({"notAsked": why}),
        };
        Ok(object)
    }

    pub fn text(&self, wide: bool) -> String {
        let rules = match &self.rules {
            Ok(answer) => answer.text(),
            Err(why) => format!("Rules: not asked: {}\n", repot_console::text::one_line(why)),
        };
        format!("{}\n{rules}", self.preview.text(wide))
    }
}
