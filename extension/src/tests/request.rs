use serde_json::{Value, json};

use super::*;
use crate::kinds::Infrastructure;

const AT: &str = "2026-05-01T06:30:00.123456789Z";

fn request(requested: Requested) -> Request {
    Request::recorded(requested, AT).expect("a time")
}

/// An object that served the request, for `change` to spoil.
fn object(kind: &str, change: impl FnOnce(&mut Value)) -> Infrastructure {
    let mut object = json!({
        "metadata": {"name": "i", "generation": 2, "annotations": {"gardener.cloud/timestamp": AT}},
        "spec": {"type": "t", "region": "r", "secretRef": {}},
        "status": {
            "observedGeneration": 2,
            "lastOperation": {
                "type": kind, "state": "Succeeded", "progress": 100, "description": "d",
                "lastUpdateTime": "2026-05-01T06:30:01Z",
            },
        },
    });
    change(&mut object);
    serde_json::from_value(object).expect("an Infrastructure")
}

fn migrated(change: impl FnOnce(&mut Value)) -> Progress {
    request(Requested::Migrate).progress(&object("Migrate", change))
}

fn annotate(object: &mut Value, key: &str, value: &str) {
    object["metadata"]["annotations"][key] = value.into();
}

fn last(object: &mut Value, field: &str, value: &str) {
    object["status"]["lastOperation"][field] = value.into();
}

#[test]
fn request_is_served_by_operations_of_its_type_alone() {
    for (requested, types) in [
        (Requested::Reconcile, &["Create", "Reconcile"][..]),
        (Requested::Migrate, &["Migrate"]),
        (Requested::Restore, &["Restore"]),
        (Requested::WaitForState, &[]),
    ] {
        for kind in ["Create", "Reconcile", "Delete", "Migrate", "Restore", "LiveMigrate"] {
            let progress = request(requested).progress(&object(kind, |_| {}));
            assert_eq!(
                progress == Progress::Done,
                types.contains(&kind),
                "{requested:?} {kind}: {progress:?}"
            );
        }
    }
}

#[test]
fn stale_success_is_not_accepted() {
    // Of an earlier migration, seen after the request was written, and before.
    let stale = |o: &mut Value| last(o, "lastUpdateTime", "2026-04-30T00:00:00Z");
    assert_eq!(migrated(stale), Progress::Waiting(Waiting::OlderThanRequest));
    let older = migrated(|o| annotate(o, "gardener.cloud/timestamp", "2026-04-30T00:00:00Z"));
    assert_eq!(older, Progress::Waiting(Waiting::RequestNotVisible));
    // In the same second: the annotation tells that the controller did not finish.
    let same = migrated(|o| {
        last(o, "lastUpdateTime", "2026-05-01T06:30:00Z");
        annotate(o, "gardener.cloud/operation", "migrate");
    });
    assert_eq!(same, Progress::Waiting(Waiting::NotServed));
}

#[test]
fn times_are_compared_in_the_precision_in_which_they_were_written() {
    for (written, done) in [
        ("2026-05-01T06:30:00Z", true),
        ("2026-05-01T06:29:59Z", false),
        ("2026-05-01T06:30:00.123456Z", true),
        ("2026-05-01T06:30:00.123455Z", false),
        ("2026-05-01T06:30:00.2Z", true),
    ] {
        let progress = migrated(|o| last(o, "lastUpdateTime", written));
        assert_eq!(progress == Progress::Done, done, "{written}: {progress:?}");
    }
    let missing = migrated(|o| o["status"]["lastOperation"]["lastUpdateTime"] = Value::Null);
    assert_eq!(missing, Progress::Waiting(Waiting::OlderThanRequest));
}

#[test]
fn both_spellings_of_the_annotation_must_be_gone() {
    for key in ["gardener.cloud/operation", "core.gardener.cloud/operation"] {
        let progress = migrated(|o| annotate(o, key, "migrate"));
        assert_eq!(progress, Progress::Waiting(Waiting::NotServed), "{key}");
    }
}

#[test]
fn every_state_but_succeeded_is_not_done() {
    for state in ["Processing", "Pending", "Aborted", "Odd"] {
        let progress = migrated(|o| last(o, "state", state));
        assert!(matches!(progress, Progress::Waiting(Waiting::NotFinished(_))), "{state}: {progress:?}");
    }
    for state in ["Error", "Failed"] {
        let progress = migrated(|o| {
            last(o, "state", state);
            annotate(o, "gardener.cloud/operation", "migrate");
            o["status"]["lastError"] = json!({"description": "e", "codes": ["ERR_INFRA_UNAUTHORIZED"]});
        });
        let codes = vec![ErrorCode::InfraUnauthorized];
        assert_eq!(progress, Progress::Failed { description: "d".to_owned(), codes }, "{state}");
    }
}

#[test]
fn older_failure_does_not_count_against_a_new_request() {
    let progress = migrated(|o| {
        last(o, "state", "Error");
        last(o, "lastUpdateTime", "2026-04-30T00:00:00Z");
    });
    assert_eq!(progress, Progress::Waiting(Waiting::OlderThanRequest));
}

#[test]
fn reconciliation_must_have_seen_the_generation() {
    let old = |o: &mut Value| o["status"]["observedGeneration"] = 1.into();
    let progress = request(Requested::Reconcile).progress(&object("Reconcile", old));
    assert_eq!(progress, Progress::Waiting(Waiting::OlderGeneration));
    assert_eq!(migrated(old), Progress::Done, "a migration does not depend on the spec");
}

#[test]
fn annotations_of_a_request_are_those_that_controllers_read() {
    let made = request(Requested::Restore).annotations();
    let expected = [("gardener.cloud/operation", "restore"), ("gardener.cloud/timestamp", AT)];
    assert!(made.iter().map(|(k, v)| (k.as_str(), v.as_str())).eq(expected), "{made:?}");
    assert!(Request::recorded(Requested::Restore, "yesterday").is_err());
    let now: Timestamp = AT.parse().expect("a time");
    assert_eq!(Request::new(Requested::Restore, now), request(Requested::Restore));
}

#[test]
fn object_is_released_without_finalizers_of_extension_controllers() {
    let with = |names: &[&str]| object("Migrate", |o| o["metadata"]["finalizers"] = json!(names));
    assert!(is_released(&with(&[])) && is_released(&with(&["foregroundDeletion"])));
    assert!(!is_released(&with(&["foregroundDeletion", "extensions.gardener.cloud/infrastructure"])));
    assert!(!has_state(&with(&[])));
    assert!(has_state(&object("Migrate", |o| o["status"]["state"] = json!({"a": 1}))));
    assert!(!has_state(&object("Migrate", |o| o["status"]["state"] = Value::Null)));
}
