//! Annotations of the Shoot that tell gardenlet to leave it alone. Pure.

use kube::ResourceExt;
use repot_api::names::OPERATION;
use repot_plan::migration::observed::Ignored;
use serde_json::{Value, json};

use crate::migration::{
    api::Shoot,
    names::{IGNORE, IGNORED_FOR, KEPT},
};

/// Whether gardenlet is told so, as the migration of this UID sees it. What an earlier migration wanted counts no more.
#[must_use]
pub fn read(shoot: &Shoot, migration: &str) -> Ignored {
    let is_set = annotation(shoot, IGNORE) == Some("true");
    let (wanted_by, is_kept) = match annotation(shoot, IGNORED_FOR) {
        Some(text) => (Some(text.trim_end_matches(KEPT)), text.ends_with(KEPT)),
        None => (None, true),
    };
    match (is_set, wanted_by, is_kept) {
        (true, Some(uid), true) if uid == migration => Ignored::Kept,
        (true, Some(uid), false) if uid == migration => Ignored::ByThis,
        (true, _, true) => Ignored::ByOther,
        _ => Ignored::No,
    }
}

/// The annotations to write, `null` for those that go; `None` where nothing is to be written. Gardener takes the operation away at once,
/// and raises the generation.
#[must_use]
pub fn annotations(shoot: &Shoot, migration: &str, ignored: bool) -> Option<Value> {
    match (read(shoot, migration), ignored) {
        (Ignored::ByThis | Ignored::Kept, true) | (Ignored::No | Ignored::ByOther, false) => None,
        (found, true) => {
            let kept = if found == Ignored::ByOther { KEPT } else { "" };
            let is_failed = shoot.status.last_operation.as_ref().is_some_and(|last| last.state == "Failed");
            let operation = if is_failed { "retry" } else { "reconcile" };
            Some(json!({IGNORE: "true", IGNORED_FOR: format!("{migration}{kept}"), OPERATION: operation}))
        }
        (Ignored::ByThis, false) => Some(json!({IGNORE: null, IGNORED_FOR: null})),
        (Ignored::Kept, false) => Some(json!({IGNORED_FOR: null})),
    }
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

    #[test]
    fn annotation_of_somebody_else_stays_and_that_of_an_earlier_migration_is_taken_over() {
        let plain = shoot(json!({}));
        let theirs = shoot(json!({IGNORE: "true"}));
        assert_eq!((read(&plain, "u2"), read(&theirs, "u2")), (Ignored::No, Ignored::ByOther));
        let set = |shoot| annotations(shoot, "u2", true).expect("annotations");
        assert_eq!(set(&plain), json!({IGNORE: "true", IGNORED_FOR: "u2", OPERATION: "reconcile"}));
        assert_eq!(set(&theirs), json!({IGNORE: "true", IGNORED_FOR: "u2/kept", OPERATION: "reconcile"}));

        let own = shoot(json!({IGNORE: "true", IGNORED_FOR: "u2"}));
        let kept = shoot(json!({IGNORE: "true", IGNORED_FOR: "u2/kept"}));
        assert_eq!((read(&own, "u2"), read(&kept, "u2")), (Ignored::ByThis, Ignored::Kept));
        assert_eq!((read(&own, "u3"), read(&kept, "u3")), (Ignored::No, Ignored::ByOther));
        assert_eq!(annotations(&own, "u2", true), None);
        assert_eq!(annotations(&own, "u2", false), Some(json!({IGNORE: null, IGNORED_FOR: null})));
        assert_eq!(annotations(&kept, "u2", false), Some(json!({IGNORED_FOR: null})));
        // A person has taken it away meanwhile.
        let taken = shoot(json!({IGNORED_FOR: "u2"}));
        assert_eq!((read(&taken, "u2"), annotations(&taken, "u2", false)), (Ignored::No, None));
    }

    #[test]
    fn shoot_whose_operation_has_failed_has_a_new_generation_by_a_retry() {
        let mut failed = shoot(json!({}));
        failed.status.last_operation =
            Some(crate::migration::api::LastOperation { state: "Failed".to_owned(), ..Default::default() });
        let set = annotations(&failed, "u1", true).expect("annotations");
        assert_eq!(set[OPERATION], "retry");
    }
}
