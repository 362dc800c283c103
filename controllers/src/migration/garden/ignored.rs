//! Annotations of the Shoot that tell gardenlet to leave it alone. Pure.

use kube::ResourceExt;
use repot_api::names::{IGNORE, IGNORED_FOR, OPERATION, OPERATION_RECONCILE, OPERATION_RETRY};
use repot_apimachinery::value::parse_bool;
use repot_plan::migration::observed::Ignored;
use serde_json::{Value, json};

use crate::migration::api::Shoot;

/// After the UID in [`IGNORED_FOR`]: the annotation [`IGNORE`] stays at the end.
const KEPT: &str = "/kept";

/// Whether gardenlet is told so, as the migration of this UID sees it; `others` are the UIDs of other migrations of the Shoot. What one
/// of them wanted counts no more: it has ended, or this one goes on in its place.
#[must_use]
pub fn read(shoot: &Shoot, migration: &str, others: &[String]) -> Ignored {
    let is_set = annotation(shoot, IGNORE).and_then(parse_bool) == Some(true);
    let mark = annotation(shoot, IGNORED_FOR).unwrap_or_default();
    let (wanted_by, is_kept) = match mark.strip_suffix(KEPT) {
        Some(uid) => (uid, true),
        None => (mark, false),
    };
    match (is_set, wanted_by == migration, is_kept) {
        (true, true, true) => Ignored::Kept,
        (true, true, false) => Ignored::ByThis,
        (false, true, _) => Ignored::TakenAway,
        (true, false, false) if others.iter().any(|other| other == wanted_by) => Ignored::No,
        (true, false, _) => Ignored::ByOther,
        (false, false, _) => Ignored::No,
    }
}

/// The annotations to write, `null` for those that go; `None` where nothing is to be written. Gardener takes the operation away at once,
/// and raises the generation: gardenlet wakes up for nothing else.
#[must_use]
pub fn annotations(shoot: &Shoot, migration: &str, others: &[String], ignored: bool) -> Option<Value> {
    let is_failed = shoot.status.last_operation.as_ref().is_some_and(|last| last.state == "Failed");
    let operation = if is_failed { OPERATION_RETRY } else { OPERATION_RECONCILE };
    // One that a person has requested stays; gardenlet takes it up with the next generation that it sees.
    let wakes = requested_operation(shoot).is_none();
    let mut written = match (read(shoot, migration, others), ignored) {
        (Ignored::ByThis | Ignored::Kept, true) | (Ignored::No | Ignored::ByOther, false) => return None,
        (found, true) => {
            let kept = if found == Ignored::ByOther { KEPT } else { "" };
            json!({IGNORE: "true", IGNORED_FOR: format!("{migration}{kept}"), OPERATION: operation})
        }
        (Ignored::ByThis, false) => json!({IGNORE: null, IGNORED_FOR: null, OPERATION: operation}),
        (Ignored::Kept | Ignored::TakenAway, false) => json!({IGNORED_FOR: null}),
    };
    if let Some(written) = written.as_object_mut().filter(|_| !wakes) {
        written.remove(OPERATION);
    }
    Some(written)
}

/// An operation that is requested of gardenlet, other than those that this module requests.
#[must_use]
pub fn requested_operation(shoot: &Shoot) -> Option<String> {
    let is_own = |operation: &&str| matches!(*operation, OPERATION_RECONCILE | OPERATION_RETRY);
    annotation(shoot, OPERATION).filter(|operation| !is_own(operation)).map(str::to_owned)
}

fn annotation<'a>(shoot: &'a Shoot, name: &str) -> Option<&'a str> {
    shoot.annotations().get(name).map(String::as_str)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shoot(annotations: Value) -> Shoot {
        serde_json::from_value(json!({"metadata": {"name": "a", "annotations": annotations}}))
            .expect("a Shoot")
    }

    fn seen(shoot: &Shoot, others: &[&str]) -> Ignored {
        read(shoot, "u2", &others.iter().map(|uid| (*uid).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn annotation_of_somebody_else_stays_and_that_of_an_earlier_migration_is_taken_over() {
        let plain = shoot(json!({}));
        let set = |shoot: &Shoot| annotations(shoot, "u2", &[], true).expect("annotations");
        assert_eq!(seen(&plain, &[]), Ignored::No);
        assert_eq!(set(&plain), json!({IGNORE: "true", IGNORED_FOR: "u2", OPERATION: "reconcile"}));
        // gardenlet reads it in each of these forms.
        for text in ["true", "True", "1"] {
            let theirs = shoot(json!({IGNORE: text}));
            assert_eq!(seen(&theirs, &[]), Ignored::ByOther, "{text}");
            assert_eq!(set(&theirs)[IGNORED_FOR], "u2/kept");
        }
        let (of_other, kept) =
            (json!({IGNORE: "true", IGNORED_FOR: "u1"}), json!({IGNORE: "true", IGNORED_FOR: "u1/kept"}));
        assert_eq!(seen(&shoot(of_other.clone()), &["u1"]), Ignored::No);
        assert_eq!(seen(&shoot(of_other), &[]), Ignored::ByOther, "nobody knows that migration");
        assert_eq!(seen(&shoot(kept), &["u1"]), Ignored::ByOther);
    }

    #[test]
    fn end_takes_away_what_the_migration_has_set_and_wakes_gardenlet() {
        let of = |annotations| shoot(annotations);
        let (own, kept) = (
            of(json!({IGNORE: "true", IGNORED_FOR: "u2"})),
            of(json!({IGNORE: "true", IGNORED_FOR: "u2/kept"})),
        );
        let taken = of(json!({IGNORED_FOR: "u2"}));
        assert_eq!((seen(&own, &[]), seen(&kept, &[])), (Ignored::ByThis, Ignored::Kept));
        assert_eq!(seen(&taken, &[]), Ignored::TakenAway);
        let end = |shoot: &Shoot| annotations(shoot, "u2", &[], false);
        assert_eq!(end(&own), Some(json!({IGNORE: null, IGNORED_FOR: null, OPERATION: "reconcile"})));
        assert_eq!(end(&kept), Some(json!({IGNORED_FOR: null})));
        assert_eq!(end(&taken), Some(json!({IGNORED_FOR: null})));
        assert_eq!(annotations(&own, "u2", &[], true), None);
        assert!(annotations(&taken, "u2", &[], true).is_some());
    }

    #[test]
    fn shoot_whose_operation_has_failed_has_a_new_generation_by_a_retry() {
        let mut failed = shoot(json!({}));
        failed.status.last_operation =
            Some(crate::migration::api::LastOperation { state: "Failed".to_owned(), ..Default::default() });
        let set = annotations(&failed, "u1", &[], true).expect("annotations");
        assert_eq!(set[OPERATION], "retry");
    }

    #[test]
    fn operation_that_a_person_has_requested_is_seen() {
        let requested = |operation: &str| requested_operation(&shoot(json!({OPERATION: operation})));
        assert_eq!(requested("rotate-credentials-start").as_deref(), Some("rotate-credentials-start"));
        assert_eq!((requested("reconcile"), requested_operation(&shoot(json!({})))), (None, None));
        let rotates = shoot(json!({OPERATION: "rotate-credentials-start"}));
        let set = annotations(&rotates, "u2", &[], true);
        assert_eq!(set, Some(json!({IGNORE: "true", IGNORED_FOR: "u2"})), "it is not overwritten");
    }
}
