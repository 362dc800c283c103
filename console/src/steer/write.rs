//! A request is written where it still is what a person has agreed to.
//!
//! A person takes time. So the migration is read once more, and where the question is another one by now, nothing is written. The patch
//! names the version that was read: a change between reading and writing counts as well.

use repot_controllers::migration::api::ControlPlaneMigration;
use serde_json::{Value, json};

use super::{Change, Refusal, Request, change};
use crate::{
    garden::{self, Garden},
    migration::Migration,
};

/// How often a migration is read anew that others write meanwhile.
const ATTEMPTS: u32 = 5;

/// A request that was not written.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The garden refuses, or does not answer.
    #[error(transparent)]
    Garden(#[from] garden::Error),
    /// It would not be obeyed.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// What was agreed to does not hold any more, or nobody has agreed.
    #[error("{0}")]
    NotAgreed(String),
    /// Somebody else has written meanwhile, each time.
    #[error("ControlPlaneMigration {0} changes all the time; try again")]
    Contended(String),
}

/// Writes a request; `agreed` is the question that a person has agreed to. The answer says what follows.
///
/// # Errors
/// [`Error`]; nothing was written then, unless the garden did not answer.
pub async fn write(
    garden: &Garden,
    namespace: &str,
    name: &str,
    request: Request,
    agreed: Option<&str>,
) -> Result<String, Error> {
    for _ in 0..ATTEMPTS {
        let object = garden.migration(namespace, name).await?;
        let change = decide(&object, request, agreed)?;
        match garden.patch(namespace, name, &versioned(change.patch, &object)).await {
            Ok(()) => return Ok(change.follows),
            // Its controllers write it all the time.
            Err(error) if error.is_conflict() => {}
            Err(error) => return Err(error.into()),
        }
    }
    Err(Error::Contended(format!("{namespace}/{name}")))
}

/// What is written; refused where a person would have to agree to something else.
fn decide(object: &ControlPlaneMigration, request: Request, agreed: Option<&str>) -> Result<Change, Error> {
    let change = change(request, &Migration::new(object))?;
    match (&change.question, agreed) {
        (None, _) => Ok(change),
        (Some(question), Some(agreed)) if question == agreed => Ok(change),
        (Some(question), Some(_)) => {
            Err(Error::NotAgreed(format!("the migration has changed; now: {question}")))
        }
        (Some(question), None) => Err(Error::NotAgreed(format!("somebody has to agree first: {question}"))),
    }
}

fn versioned(mut patch: Value, object: &ControlPlaneMigration) -> Value {
    if let Some(version) = &object.metadata.resource_version {
        // Beside annotations that the patch may have.
        patch["metadata"]["resourceVersion"] = json!(version);
    }
    patch
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::steer::{
        Fact,
        tests::{running as running_object, waiting_for_a_person},
    };

    fn waiting(mode: &str) -> ControlPlaneMigration {
        serde_json::from_value(waiting_for_a_person(mode)).expect("a migration")
    }

    fn running(mode: &str) -> ControlPlaneMigration {
        serde_json::from_value(running_object(mode)).expect("a migration")
    }

    #[test]
    fn request_that_asks_a_question_is_written_with_its_answer_alone() {
        let object = running("Classic");
        let question = change(Request::Abort, &Migration::new(&object)).expect("a change").question;
        assert!(matches!(decide(&object, Request::Abort, None), Err(Error::NotAgreed(_))));
        assert!(matches!(decide(&object, Request::Abort, Some("yes")), Err(Error::NotAgreed(_))));
        let change = decide(&object, Request::Abort, question.as_deref()).expect("a change");
        let patch = versioned(change.patch, &object);
        assert_eq!(patch, json!({"spec": {"abort": "Abort"}, "metadata": {"resourceVersion": "41"}}));
        assert!(decide(&object, Request::Pause, None).is_ok());
    }

    #[test]
    fn answer_for_another_seed_is_not_taken() {
        let object = waiting("Forced");
        let question =
            change(Request::Confirm(Fact::Loss), &Migration::new(&object)).expect("a change").question;
        let mut other = object.clone();
        other.spec.source_seed = "seed-z".to_owned();
        assert!(decide(&object, Request::Confirm(Fact::Loss), question.as_deref()).is_ok());
        let refused = decide(&other, Request::Confirm(Fact::Loss), question.as_deref());
        assert!(matches!(refused, Err(Error::NotAgreed(words)) if words.contains("seed-z")));
    }

    #[test]
    fn annotations_of_a_patch_stay_beside_its_version() {
        let object = waiting("Forced");
        let change = change(Request::Confirm(Fact::Loss), &Migration::new(&object)).expect("a change");
        let patch = versioned(change.patch, &object);
        assert_eq!(patch["metadata"]["resourceVersion"], "41");
        assert!(patch["metadata"]["annotations"].is_object());
    }
}
