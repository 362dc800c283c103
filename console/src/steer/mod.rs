//! Requests to a migration, and when they are obeyed. Pure: what comes out is a patch, and a question where it cannot be undone.
//! [`write`](mod@write) writes it.

pub mod write;

use jiff::Timestamp;
use repot_api::names::{
    CONFIRM_DESTINATION_LOST, CONFIRM_FORCED_MIGRATION, CONFIRM_SOURCE_OFF, CONFIRM_SOURCE_STOPPED,
};
use repot_plan::{
    ledger::NOT_CONFIRMED,
    migration::{Step, lost},
    named::Named,
};
use serde_json::{Value, json};

use crate::{
    migration::{Executor, Migration, Mode},
    text::one_line,
};

/// What a person asks of a migration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// Roll back, where the mode grants it.
    Abort,
    /// Roll back until the point of no return.
    ForceAbort,
    /// Start no further step.
    Pause,
    /// Go on after a pause.
    Resume,
    /// Try again what has failed.
    Retry,
    /// Live: the members of the source leave before the destination serves.
    ForceShrink,
    /// Say something that only a person can know.
    Confirm(Fact),
}

/// What only a person can know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fact {
    /// What the source stored after its newest snapshot may be lost.
    Loss,
    /// No controller of the source can act any more.
    SourceControllersStopped,
    /// The source seed is off.
    SourceOff,
    /// The destination never comes back.
    DestinationLost,
}

/// What to write, and what to ask before.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// A merge patch of the ControlPlaneMigration.
    pub patch: Value,
    /// What a person has to agree to; `None` where it can be taken back.
    pub question: Option<String>,
    /// What follows, for people.
    pub follows: String,
}

/// A request that would not be obeyed.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The migration has ended.
    #[error("{0} has ended as {1}; nothing can be asked of it")]
    Over(String, String),
    /// It is past its point of no return.
    #[error(
        "{0} is past its point of no return, so it does not roll back; if it is stuck, its message says what to do"
    )]
    TooLate(String),
    /// It is so already.
    #[error("{0} is {1} already")]
    Already(String, &'static str),
    /// It is not known yet what a person would confirm.
    #[error(
        "{0} does not know yet what may be lost: it reads the newest snapshot first; repeat this when `repot status` shows that LossConfirmed waits for it"
    )]
    NotKnown(String),
    /// It has not failed.
    #[error("{0} has not failed: its phase is {1}")]
    NotFailed(String, String),
    /// It is for other migrations.
    #[error("{0} is {1}; this is for {2}")]
    OtherMode(String, String, &'static str),
}

/// What to write for this request.
///
/// # Errors
/// Why it would not be obeyed, and what to do instead.
pub fn change(request: Request, migration: &Migration) -> Result<Change, Refusal> {
    let key = || migration.key();
    let is_retry = matches!(request, Request::Retry | Request::Confirm(_));
    if migration.is_over() && !is_retry {
        return Err(Refusal::Over(key(), migration.phase.clone()));
    }
    match request {
        Request::Abort | Request::ForceAbort => abort(request == Request::ForceAbort, migration),
        Request::Pause if migration.paused => Err(Refusal::Already(key(), "paused")),
        Request::Pause if migration.point_of_no_return.is_some() => Err(Refusal::TooLate(key())),
        Request::Pause => Ok(Change {
            patch: json!({"spec": {"paused": true}}),
            question: None,
            follows: "no further step starts; after 24 hours it rolls back. Between the stop of the source and the point of no \
                      return nothing is held up"
                .to_owned(),
        }),
        Request::Resume if !migration.paused => Err(Refusal::Already(key(), "not paused")),
        Request::Resume => {
            Ok(Change { patch: json!({"spec": {"paused": false}}), question: None, follows: "it goes on".to_owned() })
        }
        Request::Retry => retry(migration),
        Request::ForceShrink => force_shrink(migration),
        Request::Confirm(fact) => confirm(fact, migration),
    }
}

fn abort(force: bool, migration: &Migration) -> Result<Change, Refusal> {
    if migration.point_of_no_return.is_some() {
        return Err(Refusal::TooLate(migration.key()));
    }
    let (wanted, asked) = (if force { "Force" } else { "Abort" }, migration.abort.as_deref());
    if asked == Some("Force") || asked == Some(wanted) {
        return Err(Refusal::Already(migration.key(), "asked to roll back"));
    }
    let source = &migration.source_seed;
    Ok(Change {
        patch: json!({"spec": {"abort": wanted}}),
        question: Some(format!(
            "Migration {} rolls back: the control plane stays at {source}. This cannot be taken back.",
            migration.key()
        )),
        follows: format!("it rolls back to {source}, or says why not"),
    })
}

fn retry(migration: &Migration) -> Result<Change, Refusal> {
    let has_failed = |phase: &str| phase == "Failed";
    if !has_failed(&migration.phase) && !migration.sides.iter().any(|side| has_failed(&side.phase)) {
        return Err(Refusal::NotFailed(migration.key(), migration.phase.clone()));
    }
    let next = migration.retry.saturating_add(1);
    Ok(Change {
        patch: json!({"spec": {"retry": next}}),
        question: None,
        follows: format!("each side that has failed goes on where it stood (request {next})"),
    })
}

fn force_shrink(migration: &Migration) -> Result<Change, Refusal> {
    if migration.mode != Mode::Live {
        return Err(Refusal::OtherMode(migration.key(), mode(migration), "live migrations"));
    }
    if migration.point_of_no_return.is_some() {
        return Err(Refusal::TooLate(migration.key()));
    }
    if migration.force_shrink_etcd {
        return Err(Refusal::Already(migration.key(), "asked to give the source up"));
    }
    Ok(Change {
        patch: json!({"spec": {"forceShrinkEtcd": true}}),
        question: Some(format!(
            "The etcd members of {} leave before {} serves. The API is away until clients find the destination.",
            migration.source_seed, migration.destination_seed
        )),
        follows: "it is obeyed while the step ApiServes is not reached".to_owned(),
    })
}

fn confirm(fact: Fact, migration: &Migration) -> Result<Change, Refusal> {
    if migration.is_over() {
        return Err(Refusal::Over(migration.key(), migration.phase.clone()));
    }
    let (source, destination) = (&migration.source_seed, &migration.destination_seed);
    let is_forced = migration.mode == Mode::Forced;
    let is_steered = migration.executor == Executor::Gardenlet;
    let (annotation, seed, question) = match fact {
        Fact::Loss if is_forced => (CONFIRM_FORCED_MIGRATION, source, loss(migration)?),
        Fact::SourceControllersStopped if is_forced => (
            CONFIRM_SOURCE_STOPPED,
            source,
            format!("No controller of {source} can create, change or delete a machine of the Shoot."),
        ),
        Fact::SourceOff if is_forced && is_steered => {
            (CONFIRM_SOURCE_OFF, source, format!("No etcd member and no controller of {source} runs."))
        }
        Fact::DestinationLost if migration.mode == Mode::Live => {
            (CONFIRM_DESTINATION_LOST, destination, format!("Seed {destination} never comes back."))
        }
        Fact::DestinationLost => return Err(other_mode(migration, "live migrations")),
        Fact::SourceOff => return Err(other_mode(migration, "forced migrations by gardenlet")),
        Fact::Loss | Fact::SourceControllersStopped => {
            return Err(other_mode(migration, "forced migrations"));
        }
    };
    Ok(Change {
        patch: json!({"metadata": {"annotations": {annotation: seed}}}),
        question: Some(format!("You confirm: {question} If that is not so, data can be lost or doubled.")),
        follows: "the step that waits for it goes on".to_owned(),
    })
}

/// What may be lost, as the step says that waits for it.
fn loss(migration: &Migration) -> Result<String, Refusal> {
    let step = migration.step(Step::LossConfirmed.name());
    match step.map(|step| (step.state.as_str(), step.reason.as_str())) {
        Some(("Succeeded", _)) => Err(Refusal::Already(migration.key(), "confirmed")),
        Some(("Running", NOT_CONFIRMED)) => {
            let message = step.map(|step| one_line(&step.message)).unwrap_or_default();
            let says = lost::lasting_part(&message).replacen("the source", &migration.source_seed, 1);
            let taken = snapshot_time(&says).map(|time| format!(", taken at {time}")).unwrap_or_default();
            Ok(format!("{says}{taken}."))
        }
        _ => Err(Refusal::NotKnown(migration.key())),
    }
}

/// When the snapshot that a text names was taken: its name ends with that, in seconds.
fn snapshot_time(text: &str) -> Option<Timestamp> {
    let name = text.split_whitespace().find(|word| word.starts_with("Full-") || word.starts_with("Incr-"))?;
    let last = name.rsplit('-').next()?;
    let digits: String = last.chars().take_while(char::is_ascii_digit).collect();
    Timestamp::from_second(digits.parse().ok()?).ok()
}

fn other_mode(migration: &Migration, wanted: &'static str) -> Refusal {
    Refusal::OtherMode(migration.key(), mode(migration), wanted)
}

fn mode(migration: &Migration) -> String {
    format!("a {} migration by {}", migration.mode.name().to_lowercase(), migration.executor.name())
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::migration::tests::{classic, read};

    /// One that has just begun.
    pub(crate) fn running(mode: &str) -> Value {
        let mut object = classic();
        object["spec"]["mode"] = json!(mode);
        object["metadata"]["resourceVersion"] = json!("41");
        object["status"] = json!({"phase": "Running"});
        object
    }

    /// One whose destination waits until a person confirms what is lost.
    pub(crate) fn waiting_for_a_person(mode: &str) -> Value {
        let mut object = running(mode);
        object["status"]["destination"] = json!({"phase": "Running", "steps": [{
            "name": "LossConfirmed", "state": "Running", "reason": "NotConfirmed",
            "message": "what the source has stored since its snapshot Incr-00000447-00000495-1795845346.gz may be lost: it holds \
                        revision 495 and is 10 s old; confirm it by annotation x=seed-a",
        }]});
        object
    }

    #[test]
    fn migration_that_has_ended_obeys_nothing() {
        let over = read(classic());
        for request in [Request::Abort, Request::Pause, Request::ForceShrink, Request::Confirm(Fact::Loss)] {
            let refused = change(request, &over);
            assert!(matches!(refused, Err(Refusal::Over(..))), "{request:?}: {refused:?}");
        }
        assert!(matches!(change(Request::Retry, &over), Err(Refusal::NotFailed(..))));
    }

    #[test]
    fn abort_asks_first_and_comes_too_late_past_the_point_of_no_return() {
        let mut object = running("Live");
        let asked = change(Request::Abort, &read(object.clone())).expect("a change");
        assert_eq!(asked.patch, json!({"spec": {"abort": "Abort"}}));
        assert!(asked.question.is_some_and(|question| question.contains("seed-a")));
        object["spec"]["abort"] = json!("Abort");
        assert!(matches!(change(Request::Abort, &read(object.clone())), Err(Refusal::Already(..))));
        assert!(change(Request::ForceAbort, &read(object.clone())).is_ok());
        object["status"]["pointOfNoReturn"] = json!("2026-11-28T05:15:05Z");
        assert!(matches!(change(Request::ForceAbort, &read(object)), Err(Refusal::TooLate(_))));
    }

    #[test]
    fn retry_raises_the_number_where_a_side_has_failed() {
        let mut object = running("Classic");
        object["spec"]["retry"] = json!(4);
        assert!(change(Request::Retry, &read(object.clone())).is_err());
        object["status"]["source"] = json!({"phase": "Failed"});
        let asked = change(Request::Retry, &read(object)).expect("a change");
        assert_eq!((asked.patch, asked.question), (json!({"spec": {"retry": 5}}), None));
    }

    #[test]
    fn facts_are_confirmed_for_the_seed_and_mode_that_they_are_about() {
        let of = |fact, mode| {
            let asked = change(Request::Confirm(fact), &read(waiting_for_a_person(mode)));
            asked.map(|change| change.patch)
        };
        let annotated = |name: &str, seed: &str| Ok(json!({"metadata": {"annotations": {name: seed}}}));
        assert_eq!(of(Fact::Loss, "Forced"), annotated(CONFIRM_FORCED_MIGRATION, "seed-a"));
        assert_eq!(of(Fact::DestinationLost, "Live"), annotated(CONFIRM_DESTINATION_LOST, "seed-b"));
        for (fact, mode) in [
            (Fact::Loss, "Live"),
            (Fact::SourceOff, "Forced"),
            (Fact::SourceControllersStopped, "Classic"),
            (Fact::DestinationLost, "Forced"),
        ] {
            assert!(matches!(of(fact, mode), Err(Refusal::OtherMode(..))), "{fact:?} {mode}");
        }
    }

    #[test]
    fn loss_is_confirmed_when_it_is_known_and_the_question_says_what_it_is() {
        let early = change(Request::Confirm(Fact::Loss), &read(running("Forced")));
        assert!(matches!(early, Err(Refusal::NotKnown(_))));
        let mut object = waiting_for_a_person("Forced");
        let asked = change(Request::Confirm(Fact::Loss), &read(object.clone())).expect("a change");
        let question = asked.question.expect("a question");
        assert!(question.contains("what seed-a has stored since its snapshot Incr-00000447-00000495-1795845346.gz may be lost: it holds revision 495, taken at 2026-11-28T05:55:46Z."), "{question}");
        let message = object["status"]["destination"]["steps"][0]["message"]
            .as_str()
            .map(|text| text.replace("10 s", "13 s"));
        object["status"]["destination"]["steps"][0]["message"] = json!(message);
        let later = change(Request::Confirm(Fact::Loss), &read(object.clone())).expect("a change");
        assert_eq!(later.question, Some(question), "its age is no other question");
        object["status"]["destination"]["steps"][0]["state"] = json!("Succeeded");
        let again = change(Request::Confirm(Fact::Loss), &read(object));
        assert!(matches!(again, Err(Refusal::Already(..))));
    }

    #[test]
    fn source_is_given_up_in_live_migrations_alone() {
        assert!(change(Request::ForceShrink, &read(running("Live"))).is_ok());
        let refused = change(Request::ForceShrink, &read(running("Classic")));
        let message = refused.expect_err("a refusal").to_string();
        assert_eq!(
            message,
            "garden-dev/alpha-to-b is a classic migration by Repot; this is for live migrations"
        );
    }
}
