//! A new migration: what it would do, what the rules and the API server say, and its creation.

use jiff::{Timestamp, tz::TimeZone};
use repot_controllers::migration::api::ControlPlaneMigration;
use repot_rules::facts::Settings;
use repot_webhook::facts::{Cluster, Serve, Source, World};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::{
    error::{Error, Result, chain},
    reply::is_name,
    state::State,
};
use crate::{
    garden::Garden,
    migration::{Executor, Migration, Mode},
    preflight,
    preview::{Move, Preview},
};

/// What the page sends.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Asked {
    namespace: String,
    shoot: String,
    destination_seed: String,
    /// `Classic`, `Forced` or `Live`.
    mode: String,
    /// `Repot` or `Gardenlet`.
    executor: String,
    /// The question that a person has agreed to.
    #[serde(default)]
    agreed: Option<String>,
}

/// A move, and what is known of it before.
struct Planned {
    asked: Move,
    preview: Preview,
    /// What the rules say; why they were not asked where they were not.
    rules: std::result::Result<preflight::Answer, String>,
}

/// What the migration would do; nothing is changed.
pub(super) async fn preview(
    garden: &Garden,
    state: &State,
    settings: &Settings,
    asked: &Asked,
) -> Result<Value> {
    let planned = plan(garden, state, settings, asked).await?;
    let dry_run = garden.create(&asked.namespace, &object(&planned.asked, Timestamp::now())?, true).await;
    let refused = dry_run.err().map(|error| chain(&error));
    let rules = match &planned.rules {
        Ok(answer) => serde_json::from_str(&answer.json()).unwrap_or_default(),
        Err(why) => json!({"notAsked": why}),
    };
    Ok(json!({
        "preview": planned.preview,
        "preflight": rules,
        "refused": refused,
        "allowed": refused.is_none() && planned.is_allowed(),
        "question": question(&planned.asked),
    }))
}

/// Creates the migration, where everything still is as a person has agreed to.
pub(super) async fn create(
    garden: &Garden,
    state: &State,
    settings: &Settings,
    asked: &Asked,
) -> Result<Value> {
    let planned = plan(garden, state, settings, asked).await?;
    let question = question(&planned.asked);
    if asked.agreed.as_deref() != Some(question.as_str()) {
        return Err(Error::Changed(format!("somebody has to agree first: {question}")));
    }
    if !planned.is_allowed() {
        return Err(Error::Changed("the rules are against it; nothing was changed".to_owned()));
    }
    let created = garden.create(&asked.namespace, &object(&planned.asked, Timestamp::now())?, false).await?;
    let migration = Migration::new(&created);
    Ok(json!({"namespace": migration.namespace, "name": migration.name}))
}

async fn plan(garden: &Garden, state: &State, settings: &Settings, asked: &Asked) -> Result<Planned> {
    if !is_name(&asked.namespace) || !is_name(&asked.shoot) {
        return Err(Error::Bad("this is no name of an object".to_owned()));
    }
    let shoot = garden.shoot(&asked.namespace, &asked.shoot).await?;
    let missing = || Error::Missing(format!("there is no Shoot {}/{}", asked.namespace, asked.shoot));
    let shoot = shoot.ok_or_else(missing)?;
    let asked = asked.read(&shoot)?;
    let durations = state.durations(asked.mode, asked.executor);
    let kept =
        garden.read("core.gardener.cloud", "v1beta1", "ShootState", Some(&asked.namespace), &asked.shoot);
    // Who may not read it sees the rest of the preview.
    let kept = kept.await.unwrap_or_default();
    let rules = rules(garden, settings, &asked, &shoot).await;
    let preview = Preview::new(asked.clone(), &durations, kept.as_ref(), &shoot);
    let preview = preview.ok_or_else(|| Error::Bad("gardenlet knows no live migration".to_owned()))?;
    Ok(Planned { asked, preview, rules })
}

async fn rules(
    garden: &Garden,
    settings: &Settings,
    asked: &Move,
    shoot: &Value,
) -> std::result::Result<preflight::Answer, String> {
    let end = CancellationToken::new();
    let _end = end.clone().drop_guard();
    let client = garden.client().clone();
    let server = repot_webhook::garden::Garden::of(client.clone(), "the garden");
    let source = Source::Cluster(Cluster::follow(client, Serve::Garden, &end));
    let world = World { source, settings: settings.clone().into() };
    let to = (asked.destination_seed.as_str(), asked.mode == Mode::Live);
    preflight::ask(shoot, to, &world, Some(&server)).await.map_err(|error| chain(&error))
}

impl Planned {
    /// Whether nothing that was asked is against it. A forced migration leaves a seed that cannot answer, so rules about a move between
    /// seeds that serve do not hold for it.
    fn is_allowed(&self) -> bool {
        self.asked.mode == Mode::Forced || self.rules.as_ref().map_or(true, preflight::Answer::is_allowed)
    }
}

impl Asked {
    fn read(&self, shoot: &Value) -> Result<Move> {
        let named = |path: &str| shoot.pointer(path).and_then(Value::as_str).map(str::to_owned);
        let source = named("/status/seedName").or_else(|| named("/spec/seedName"));
        let source_seed = source
            .ok_or_else(|| Error::Bad(format!("Shoot {}/{} names no seed", self.namespace, self.shoot)))?;
        let mode = match self.mode.as_str() {
            "Classic" => Mode::Classic,
            "Forced" => Mode::Forced,
            "Live" => Mode::Live,
            _ => return Err(Error::Bad("there is no such mode".to_owned())),
        };
        let executor = match self.executor.as_str() {
            "Repot" => Executor::Repot,
            "Gardenlet" => Executor::Gardenlet,
            _ => return Err(Error::Bad("there is no such executor".to_owned())),
        };
        if !is_name(&self.destination_seed) || self.destination_seed == source_seed {
            return Err(Error::Bad("choose a seed that the control plane is not on".to_owned()));
        }
        Ok(Move {
            namespace: self.namespace.clone(),
            shoot: self.shoot.clone(),
            source_seed,
            destination_seed: self.destination_seed.clone(),
            mode,
            executor,
        })
    }
}

/// What a person agrees to.
fn question(asked: &Move) -> String {
    let outage = match asked.mode {
        Mode::Live => "Both seeds serve meanwhile.",
        Mode::Classic => "Its API is away for a while.",
        Mode::Forced => {
            "What the source stored after its newest snapshot is lost; you will be asked to confirm how much."
        }
    };
    let Move { namespace, shoot, source_seed, destination_seed, executor, .. } = asked;
    format!(
        "The control plane of {namespace}/{shoot} moves from {source_seed} to {destination_seed}, carried out by {}. {outage}",
        executor.name()
    )
}

fn object(asked: &Move, now: Timestamp) -> Result<ControlPlaneMigration> {
    let time = now.to_zoned(TimeZone::UTC).strftime("%Y%m%d-%H%M%S");
    let object = json!({
        "apiVersion": "migration.gardener.cloud/v1alpha1",
        "kind": "ControlPlaneMigration",
        "metadata": {
            "name": format!("{}-to-{}-{time}", asked.shoot, asked.destination_seed), "namespace": asked.namespace,
        },
        "spec": {
            "shootRef": {"name": asked.shoot}, "sourceSeed": asked.source_seed,
            "destinationSeed": asked.destination_seed, "mode": asked.mode.name(), "executor": asked.executor.name(),
        },
    });
    serde_json::from_value(object).map_err(|error| Error::Bad(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(mode: &str, destination: &str) -> Asked {
        Asked {
            namespace: "garden-dev".to_owned(),
            shoot: "alpha".to_owned(),
            destination_seed: destination.to_owned(),
            mode: mode.to_owned(),
            executor: "Repot".to_owned(),
            agreed: None,
        }
    }

    #[test]
    fn source_is_the_seed_that_has_the_control_plane() {
        let shoot = json!({"spec": {"seedName": "new"}, "status": {"seedName": "old"}});
        let read = asked("Live", "seed-b").read(&shoot).expect("a move");
        assert_eq!((read.source_seed.as_str(), read.mode), ("old", Mode::Live));
        assert!(question(&read).ends_with("Both seeds serve meanwhile."));
        for (mode, seed) in [("Strange", "seed-b"), ("Live", "old"), ("Live", "")] {
            assert!(asked(mode, seed).read(&shoot).is_err(), "{mode} {seed}");
        }
        assert!(asked("Live", "seed-b").read(&json!({})).is_err());
    }

    #[test]
    fn object_names_shoot_seed_and_time() {
        let shoot = json!({"spec": {"seedName": "seed-a"}});
        let read = asked("Forced", "seed-b").read(&shoot).expect("a move");
        let object = object(&read, "2026-11-28T05:14:00Z".parse().expect("a time")).expect("an object");
        assert_eq!(object.metadata.name.as_deref(), Some("alpha-to-seed-b-20261128-051400"));
        assert_eq!(object.spec.mode, "Forced");
    }
}
