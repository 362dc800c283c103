//! Requests to a migration: which of them are possible, what they ask a person, and how they are written.
//! The page sends back the question that a person has agreed to.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::error::{Error, Result};
use crate::{
    garden::Garden,
    migration::Migration,
    steer::{Change, Fact, Request, change, write},
};

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
    let follows = write::write(garden, namespace, name, *request, asked.agreed.as_deref()).await?;
    Ok(json!({"follows": follows}))
}

#[cfg(test)]
mod tests {
    use repot_controllers::migration::api::ControlPlaneMigration;

    use super::*;
    use crate::steer::tests::{running, waiting_for_a_person};

    #[test]
    fn page_is_offered_what_would_be_obeyed() {
        let of = |object: Value| -> Vec<&str> {
            let object: ControlPlaneMigration = serde_json::from_value(object).expect("a migration");
            possible(&Migration::new(&object)).iter().map(|possible| possible.name).collect()
        };
        let names = |mode| of(running(mode));
        assert_eq!(names("Classic"), ["pause", "abort", "abort-force"]);
        let live = ["pause", "abort", "abort-force", "force-shrink", "confirm-destination-lost"];
        assert_eq!(names("Live"), live);
        let forced = ["pause", "abort", "abort-force", "confirm-loss", "confirm-source-controllers-stopped"];
        assert_eq!(of(waiting_for_a_person("Forced")), forced);
        assert!(!names("Forced").contains(&"confirm-loss"), "it is not known yet what may be lost");
    }
}
