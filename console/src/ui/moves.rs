//! A new migration: what it would do, what the rules and the API server say, and its creation.

use jiff::Timestamp;
use repot_controllers::migration::api::ControlPlaneMigration;
use repot_rules::facts::Settings;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    error::{Error, Result},
    reply::is_name,
    state::State,
};
use crate::{
    garden::Garden,
    migration::{Executor, Migration, Mode},
    moves::{self, Planned, Verdict},
    objects::causes,
    preview::Move,
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

/// What the migration would do; nothing is changed.
pub(super) async fn preview(
    garden: &Garden,
    state: &State,
    settings: &Settings,
    asked: &Asked,
) -> Result<Value> {
    let planned = plan(garden, state, settings, asked).await?;
    let asked = &planned.preview.asked;
    let dry_run = garden.create(&asked.namespace, &object(asked)?, true).await;
    let verdict = planned.verdict();
    let question = moves::question(asked, &verdict);
    let against = match verdict {
        // A person may begin it without them: the flow asks them again.
        Verdict::Allowed | Verdict::Unknown(_) => None,
        Verdict::Refused(why) => Some(why),
    };
    let refused = dry_run.err().map(|error| causes(&error));
    Ok(json!({
        "preview": planned.preview,
        "preflight": planned.preflight(),
        "refused": refused,
        "against": against,
        "allowed": refused.is_none() && against.is_none(),
        "question": question,
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
    let verdict = planned.verdict();
    let question = moves::question(&planned.preview.asked, &verdict);
    if asked.agreed.as_deref() != Some(question.as_str()) {
        return Err(Error::Changed(format!("somebody has to agree first: {question}")));
    }
    if let Verdict::Refused(why) = verdict {
        return Err(Error::Changed(format!("nothing was changed: {why}")));
    }
    let created = garden.create(&asked.namespace, &object(&planned.preview.asked)?, false).await?;
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
    let past = state.durations(asked.mode, asked.executor);
    moves::plan(garden, settings.clone(), asked, Some(&shoot), &past).await.map_err(|error| match error {
        moves::Error::Garden(error) => error.into(),
        moves::Error::NoFlow => Error::Bad(error.to_string()),
    })
}

fn object(asked: &Move) -> Result<ControlPlaneMigration> {
    moves::object(asked, None, None, Timestamp::now()).map_err(|error| Error::Bad(error.to_string()))
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
        assert!(moves::question(&read, &Verdict::Allowed).ends_with("Both seeds serve meanwhile."));
        for (mode, seed) in [("Strange", "seed-b"), ("Live", "old"), ("Live", "")] {
            assert!(asked(mode, seed).read(&shoot).is_err(), "{mode} {seed}");
        }
        assert!(asked("Live", "seed-b").read(&json!({})).is_err());
    }
}
