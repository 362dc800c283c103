//! A move that nobody has asked for yet: what it will do, what is against it, what a person agrees to, and the object that asks for it.
//! The commands and the web page share it.

use jiff::{Timestamp, tz::TimeZone};
use repot_controllers::migration::api::ControlPlaneMigration;
use repot_rules::facts::Settings;
use repot_webhook::facts::{Cluster, Serve, Source, World};
use serde_json::{Value, json};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::{
    durations::Durations,
    garden::{self, Garden},
    migration::{Migration, Mode},
    objects::causes,
    preflight,
    preview::{Move, Preview},
};

/// The rules of the webhooks, on what the garden has. What they need is followed until this is dropped.
pub struct Rules {
    world: World,
    garden: repot_webhook::garden::Garden,
    _end: DropGuard,
}

/// What the rules say of a move.
pub enum Ruling {
    /// Their answer about this Shoot and this seed.
    Asked(Box<preflight::Answer>),
    /// They are about Shoots, and there is none.
    NoShoot,
    /// They are about moves between seeds that serve. The flow asks what holds for a dead source.
    Forced,
    /// They could not be asked, and why.
    NotAsked(String),
}

/// A move, and what is known of it before.
pub struct Planned {
    /// What it will do.
    pub preview: Preview,
    /// What the rules say of it.
    pub ruling: Ruling,
    /// Migrations of the Shoot that have not ended.
    pub under_way: Vec<String>,
}

/// Whether a move may begin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing is against it.
    Allowed,
    /// Something is, in words.
    Refused(String),
    /// That is not known, and why.
    Unknown(String),
}

/// A move cannot be planned.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The garden refuses, or does not answer.
    #[error(transparent)]
    Garden(#[from] garden::Error),
    /// No table leads through such a migration.
    #[error("gardenlet knows no live migration")]
    NoFlow,
}

impl Rules {
    /// Begins to follow what the rules need.
    #[must_use]
    pub fn new(garden: &Garden, settings: Settings) -> Self {
        let (end, client) = (CancellationToken::new(), garden.client().clone());
        let asked = repot_webhook::garden::Garden::of(client.clone(), "the garden");
        let source = Source::Cluster(Cluster::follow(client, Serve::Garden, &end));
        let world = World { source, settings: settings.into() };
        Self { world, garden: asked, _end: end.drop_guard() }
    }

    /// What they say of a move of this Shoot.
    pub async fn ask(&self, shoot: &Value, to: &str, live: bool) -> Ruling {
        match preflight::ask(shoot, (to, live), &self.world, Some(&self.garden)).await {
            Ok(answer) => Ruling::Asked(Box::new(answer)),
            Err(error) => Ruling::NotAsked(causes(&error)),
        }
    }
}

/// Reads what is known of a move. How long its steps take follows from `past`.
///
/// # Errors
/// [`Error`]; rules that cannot be asked are no error, see [`Planned::verdict`].
pub async fn plan(
    garden: &Garden,
    settings: Settings,
    asked: Move,
    shoot: Option<&Value>,
    past: &Durations,
) -> Result<Planned, Error> {
    let Move { namespace, shoot: name, .. } = &asked;
    let all = garden.migrations(Some(namespace), Some(name)).await?;
    let open = all.iter().filter(|one| !one.is_over());
    let under_way: Vec<String> = open.map(|one| one.name.clone()).collect();
    // Who may not read it sees the rest of the preview.
    let state = garden.shoot_state(namespace, name).await.unwrap_or_default();
    let ruling = match shoot {
        _ if asked.mode == Mode::Forced => Ruling::Forced,
        // The Shoot is between two seeds, so their answers would be about neither.
        _ if !under_way.is_empty() => Ruling::NotAsked("a migration of the Shoot is under way".to_owned()),
        None => Ruling::NoShoot,
        Some(shoot) => {
            let rules = Rules::new(garden, settings);
            rules.ask(shoot, &asked.destination_seed, asked.mode == Mode::Live).await
        }
    };
    let preview = Preview::new(asked, past, state.as_ref(), shoot.unwrap_or(&Value::Null));
    Ok(Planned { preview: preview.ok_or(Error::NoFlow)?, ruling, under_way })
}

impl Planned {
    /// Whether it may begin. A forced migration takes the place of one that is under way.
    #[must_use]
    pub fn verdict(&self) -> Verdict {
        if let Some(other) = self.under_way.first().filter(|_| self.preview.asked.mode != Mode::Forced) {
            return Verdict::Refused(format!("migration {other} is under way; wait for it, or abort it"));
        }
        match &self.ruling {
            Ruling::Asked(answer) if !answer.is_allowed() => {
                Verdict::Refused("the rules are against it".to_owned())
            }
            Ruling::NotAsked(why) => Verdict::Unknown(format!("the rules could not be asked: {why}")),
            Ruling::Asked(_) | Ruling::NoShoot | Ruling::Forced => Verdict::Allowed,
        }
    }

    /// What the rules say, for programs.
    #[must_use]
    pub fn preflight(&self) -> Value {
        match &self.ruling {
            Ruling::Asked(answer) => serde_json::from_str(&answer.json()).unwrap_or_default(),
            Ruling::NoShoot => json!({"notAsked": "there is no Shoot to ask about"}),
            Ruling::Forced => {
                json!({"notAsked": "they are about seeds that serve; the step DestinationFit checks the destination"})
            }
            Ruling::NotAsked(why) => json!({"notAsked": why}),
        }
    }

    /// The plan for people; `wide` adds what each row does.
    #[must_use]
    pub fn text(&self, wide: bool) -> String {
        let rules = match &self.ruling {
            Ruling::Asked(answer) => answer.text(),
            _ => {
                let why = self.preflight()["notAsked"].as_str().unwrap_or_default().to_owned();
                format!("Rules: not asked: {}\n", crate::text::one_line(&why))
            }
        };
        let others = self.under_way.iter().map(|name| format!("Under way: migration {name}\n"));
        format!("{}\n{rules}{}", self.preview.text(wide), others.collect::<String>())
    }
}

/// What a person agrees to.
#[must_use]
pub fn question(asked: &Move, verdict: &Verdict) -> String {
    let outage = match asked.mode {
        Mode::Live => "Both seeds serve meanwhile.",
        Mode::Classic => "Its API is away for a while.",
        Mode::Forced => {
            "What the source stored after its newest snapshot is lost; you will be asked to confirm how much."
        }
    };
    let rules = match verdict {
        Verdict::Allowed => "",
        Verdict::Refused(_) => " The rules are against it: the flow asks them again, and rolls back.",
        Verdict::Unknown(_) => {
            " The rules could not be asked: the flow asks them again, and rolls back where they are against it."
        }
    };
    let Move { namespace, shoot, source_seed, destination_seed, executor, .. } = asked;
    format!(
        "The control plane of {namespace}/{shoot} moves from {source_seed} to {destination_seed}, carried out by {}. {outage}{rules}",
        executor.name()
    )
}

/// The object that asks for a move. Where it gets no name, that has the Shoot, the seed and the time.
///
/// # Errors
/// Where it cannot be written as an object, which cannot happen with names that were checked.
pub fn object(
    asked: &Move,
    name: Option<&str>,
    step_timeout: Option<&str>,
    now: Timestamp,
) -> serde_json::Result<ControlPlaneMigration> {
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
    serde_json::from_value(json!({
        "apiVersion": "migration.gardener.cloud/v1alpha1",
        "kind": "ControlPlaneMigration",
        "metadata": {"name": name.unwrap_or(&default), "namespace": asked.namespace},
        "spec": spec,
    }))
}

/// Migrations of the whole garden; of the namespace alone where the user may not read the others.
///
/// # Errors
/// Those of the API server.
pub async fn past(garden: &Garden, namespace: &str) -> garden::Result<Vec<Migration>> {
    match garden.migrations(None, None).await {
        Err(garden::Error::Forbidden { .. } | garden::Error::Cut { .. }) => {
            garden.migrations(Some(namespace), None).await
        }
        found => found,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::preview::tests::asked;

    fn planned(mode: Mode, ruling: Ruling, under_way: &[&str]) -> Planned {
        let preview = Preview::new(asked(mode), &Durations::default(), None, &json!({})).expect("a flow");
        Planned { preview, ruling, under_way: under_way.iter().map(|name| (*name).to_owned()).collect() }
    }

    #[test]
    fn move_whose_rules_could_not_be_asked_is_not_taken_for_allowed() {
        let not_asked = planned(Mode::Live, Ruling::NotAsked("forbidden".to_owned()), &[]);
        let expected = Verdict::Unknown("the rules could not be asked: forbidden".to_owned());
        assert_eq!(not_asked.verdict(), expected);
        assert!(not_asked.text(false).contains("Rules: not asked: forbidden\n"));
        assert_eq!(planned(Mode::Live, Ruling::NoShoot, &[]).verdict(), Verdict::Allowed);
    }

    #[test]
    fn second_migration_of_a_shoot_is_refused_unless_it_is_forced() {
        let refused = planned(Mode::Classic, Ruling::NoShoot, &["alpha-1"]).verdict();
        assert!(matches!(refused, Verdict::Refused(why) if why.contains("alpha-1")));
        assert_eq!(planned(Mode::Forced, Ruling::Forced, &["alpha-1"]).verdict(), Verdict::Allowed);
    }

    #[test]
    fn object_names_shoot_seed_and_time_and_the_question_says_what_follows() {
        let asked = planned(Mode::Forced, Ruling::Forced, &[]).preview.asked;
        let now = "2026-11-28T05:14:00Z".parse().expect("a time");
        let named = |name| object(&asked, name, Some("5m"), now).expect("an object");
        assert_eq!(named(None).metadata.name.as_deref(), Some("alpha-to-seed-b-20261128-051400"));
        assert_eq!(named(Some("mine")).metadata.name.as_deref(), Some("mine"));
        assert_eq!(named(None).spec.step_timeout.as_deref(), Some("5m"));
        assert!(question(&asked, &Verdict::Allowed).ends_with("confirm how much."));
        let unknown = Verdict::Unknown("no rights".to_owned());
        assert!(question(&asked, &unknown).contains("The rules could not be asked"));
    }
}
