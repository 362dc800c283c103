//! Requests to a migration: which of them are possible, what they ask a person, and how they are written.
//!
//! The page sends back the question that a person has agreed to. The migration is read once more then, and where the question is another
//! one by now, nothing is written. The patch names the version that was read, so that a change between reading and writing counts too.

use repot_controllers::migration::api::ControlPlaneMigration;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::error::{Error, Result, code};
use crate::{
    garden::Garden,
    migration::Migration,
    steer::{Change, Fact, Request, change},
};

/// How often a migration is read anew that others write meanwhile.
const ATTEMPTS: u32 = 5;

/// The requests by their names, with words for a button. Names are those of the command line.
const ALL: [(&str, &str, Request); 10] = [
    ("pause", "Pause", Request::Pause),
    ("resume", "Resume", Request::Resume),
    ("retry", "Retry", Request::Retry),
    ("abort", "Abort", Request::Abort),
    ("abort-force", "Abort, forced", Request::ForceAbort),
    ("force-shrink", "Give the source up", Request::ForceShrink),
    ("confirm-loss", "Confirm the loss", Request::Confirm(Fact::Loss)),
    (
        "confirm-source-controllers-stopped",
        "Confirm that controllers of the source are stopped",
        Request::Confirm(Fact::SourceControllersStopped),
    ),
    ("confirm-source-off", "Confirm that the source is off", Request::Confirm(Fact::SourceOff)),
    (
        "confirm-destination-lost",
        "Confirm that the destination is lost",
        Request::Confirm(Fact::DestinationLost),
    ),
];

/// A request that would be obeyed now.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct Possible {
    name: &'static str,
    label: &'static str,
    question: Option<String>,
    follows: String,
}

/// What the page sends.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Asked {
    request: String,
    /// The question that a person has agreed to.
    #[serde(default)]
    agreed: Option<String>,
}

/// Requests that would be obeyed.
pub(super) fn possible(migration: &Migration) -> Vec<Possible> {
    let of = |(name, label, request): &(&'static str, &'static str, Request)| {
        let Change { question, follows, .. } = change(*request, migration).ok()?;
        Some(Possible { name, label, question, follows })
    };
    ALL.iter().filter_map(of).collect()
}

/// Writes a request, where it still is what a person has agreed to.
pub(super) async fn write(garden: &Garden, namespace: &str, name: &str, asked: &Asked) -> Result<Value> {
    let known = ALL.iter().find(|(known, ..)| *known == asked.request);
    let (_, _, request) = known.ok_or_else(|| Error::Bad("there is no such request".to_owned()))?;
    for _ in 0..ATTEMPTS {
        let object = garden.migration(namespace, name).await?;
        let change = decide(&object, *request, asked.agreed.as_deref())?;
        match garden.patch(namespace, name, &versioned(change.patch, &object)).await {
            Ok(()) => return Ok(json!({"follows": change.follows})),
            // Its controllers write it all the time.
            Err(error) if code(&error) == Some(409) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Err(Error::Contended(format!("ControlPlaneMigration {namespace}/{name}")))
}

/// What is written; refused where a person would have to agree to something else.
fn decide(object: &ControlPlaneMigration, request: Request, agreed: Option<&str>) -> Result<Change> {
    let change = change(request, &Migration::new(object))?;
    match (&change.question, agreed) {
        (None, _) => Ok(change),
        (Some(question), Some(agreed)) if question == agreed => Ok(change),
        (Some(question), Some(_)) => {
            Err(Error::Changed(format!("the migration has changed; now: {question}")))
        }
        (Some(question), None) => Err(Error::Changed(format!("somebody has to agree first: {question}"))),
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
    use crate::migration::tests::classic;

    fn running(mode: &str) -> ControlPlaneMigration {
        let mut object = classic();
        object["metadata"]["resourceVersion"] = json!("41");
        object["spec"]["mode"] = json!(mode);
        object["status"] = json!({"phase": "Running"});
        serde_json::from_value(object).expect("a migration")
    }

    #[test]
    fn request_that_asks_a_question_is_written_with_its_answer_alone() {
        let object = running("Classic");
        let question = change(Request::Abort, &Migration::new(&object)).expect("a change").question;
        assert!(matches!(decide(&object, Request::Abort, None), Err(Error::Changed(_))));
        assert!(matches!(decide(&object, Request::Abort, Some("yes")), Err(Error::Changed(_))));
        let change = decide(&object, Request::Abort, question.as_deref()).expect("a change");
        let patch = versioned(change.patch, &object);
        assert_eq!(patch, json!({"spec": {"abort": "Abort"}, "metadata": {"resourceVersion": "41"}}));
        assert!(decide(&object, Request::Pause, None).is_ok());
    }

    #[test]
    fn answer_for_another_seed_is_not_taken() {
        let object = running("Forced");
        let question =
            change(Request::Confirm(Fact::Loss), &Migration::new(&object)).expect("a change").question;
        let mut other = object.clone();
        other.spec.source_seed = "seed-z".to_owned();
        assert!(decide(&object, Request::Confirm(Fact::Loss), question.as_deref()).is_ok());
        let refused = decide(&other, Request::Confirm(Fact::Loss), question.as_deref());
        assert!(matches!(refused, Err(Error::Changed(words)) if words.contains("seed-z")));
    }

    #[test]
    fn annotations_of_a_patch_stay_beside_its_version() {
        let object = running("Forced");
        let change = change(Request::Confirm(Fact::Loss), &Migration::new(&object)).expect("a change");
        let patch = versioned(change.patch, &object);
        assert_eq!(patch["metadata"]["resourceVersion"], "41");
        assert!(patch["metadata"]["annotations"].is_object());
    }

    #[test]
    fn page_is_offered_what_would_be_obeyed() {
        let names = |mode| -> Vec<&str> {
            possible(&Migration::new(&running(mode))).iter().map(|possible| possible.name).collect()
        };
        assert_eq!(names("Classic"), ["pause", "abort", "abort-force"]);
        let live = ["pause", "abort", "abort-force", "force-shrink", "confirm-destination-lost"];
        assert_eq!(names("Live"), live);
        let forced = ["pause", "abort", "abort-force", "confirm-loss", "confirm-source-controllers-stopped"];
        assert_eq!(names("Forced"), forced);
    }
}
