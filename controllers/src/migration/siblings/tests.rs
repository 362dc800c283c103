//! Which migrations stand in the way of others, supersede or continue them.

use repot_api::names::{CONFIRM_DESTINATION_LOST, CONFIRM_SOURCE_STOPPED};
use serde_json::{Value, json};

use super::*;

/// One that was created at `second`.
fn migration(name: &str, mode: &str, (from, to): (&str, &str), second: u32) -> ControlPlaneMigration {
    let created = format!("2026-01-01T00:00:{second:02}Z");
    serde_json::from_value(json!({
        "metadata": {"name": name, "uid": name, "creationTimestamp": created},
        "spec": {"shootRef": {"name": "s"}, "sourceSeed": from, "destinationSeed": to, "mode": mode},
        "status": {"phase": "Running", "garden": {"phase": "Running"}},
    }))
    .expect("a migration")
}

fn with(mut one: ControlPlaneMigration, field: &str, value: Value) -> ControlPlaneMigration {
    one.status.insert(field.to_owned(), value);
    one
}

fn committed(one: ControlPlaneMigration) -> ControlPlaneMigration {
    let step = json!({"name": "MoveCommitted", "state": "Running", "startTime": "2026-01-01T00:01:00Z"});
    with(one, "destination", json!({"phase": "Running", "steps": [step]}))
}

fn moved(one: ControlPlaneMigration) -> ControlPlaneMigration {
    let step = json!({"name": "StatusMoved", "state": "Succeeded"});
    with(committed(one), "garden", json!({"phase": "Running", "steps": [step]}))
}

fn names(found: &[SupersededMigration]) -> Vec<(&str, bool)> {
    found.iter().map(|other| (other.name.as_str(), other.is_told)).collect()
}

#[test]
fn earlier_migration_of_the_same_shoot_goes_first() {
    let own = migration("m", "Classic", ("a", "b"), 5);
    let of = |other: ControlPlaneMigration| obstacle(&[other], &own);
    let other = |name: &str, second| migration(name, "Classic", ("a", "b"), second);
    assert_eq!(of(other("a", 4)), Some("a".to_owned()));
    assert_eq!(of(other("a", 5)), Some("a".to_owned()));
    assert_eq!(of(other("n", 5)), None);
    assert_eq!(of(with(other("a", 4), "phase", "Failed".into())), None);
    // Its destination may never end its part.
    assert_eq!(of(with(other("a", 4), SUPERSEDED_BY, "f".into())), None);
}

#[test]
fn forced_migration_supersedes_those_that_have_not_left_its_source() {
    let own = migration("m", "Forced", ("a", "b"), 5);
    for (mode, to) in [("Classic", "b"), ("Classic", "c"), ("Forced", "c")] {
        let other = migration("o", mode, ("a", to), 4);
        assert_eq!(obstacle(std::slice::from_ref(&other), &own), None, "{mode}");
        assert_eq!(names(&in_the_way(&[other], &own)), [("o", false)], "{mode}");
    }
    let own = migration("m", "Classic", ("a", "b"), 5);
    assert_eq!(in_the_way(&[migration("o", "Classic", ("a", "b"), 4)], &own), []);
}

#[test]
fn one_that_serves_at_its_destination_is_not_superseded() {
    let own = migration("m", "Forced", ("a", "c"), 5);
    let found = |other: ControlPlaneMigration| {
        let all = [other];
        (obstacle(&all, &own), names(&in_the_way(&all, &own)).len())
    };
    let other = || migration("o", "Classic", ("a", "b"), 4);
    assert_eq!(found(committed(other())), (Some("o".to_owned()), 0));
    // It has failed before the garden could write where the Shoot is.
    let failed = |one| with(one, "phase", "Failed".into());
    assert_eq!(found(failed(committed(other()))), (Some("o".to_owned()), 0));
    assert_eq!(found(failed(moved(other()))), (None, 0));
    // From another seed nothing is known of it.
    let elsewhere = || migration("o", "Classic", ("d", "a"), 4);
    assert_eq!(found(elsewhere()), (Some("o".to_owned()), 0));
    assert_eq!(found(with(moved(elsewhere()), "garden", json!({"phase": "Succeeded"}))), (None, 0));
}

#[test]
fn live_one_gives_way_to_a_forced_one_with_the_same_seeds() {
    let own = committed(migration("m", "Live", ("a", "b"), 5));
    let found = |other: ControlPlaneMigration| forced_to_same_seed(&[other], &own);
    let other = |mode, seeds, second| {
        let waits = json!({"phase": "Running", "reason": "OtherMayGoOn"});
        with(migration("o", mode, seeds, second), "garden", waits)
    };
    assert_eq!(found(other("Forced", ("a", "b"), 6)), Some("o".to_owned()));
    assert_eq!(found(other("Classic", ("a", "b"), 6)), None);
    assert_eq!(found(other("Forced", ("a", "c"), 6)), None);
    assert_eq!(found(other("Forced", ("b", "a"), 6)), None);
    assert_eq!(found(other("Forced", ("a", "b"), 4)), None);
    // The other one has given way, and is being told to end: it must not go on now.
    let told = json!({"phase": "Running", "reason": "Superseding"});
    assert_eq!(found(with(other("Forced", ("a", "b"), 6), "garden", told)), Some("o".to_owned()));
    // It has not said that it could begin.
    assert_eq!(found(migration("o", "Forced", ("a", "b"), 6)), None);
    let ended = json!({"phase": "Cancelled"});
    assert_eq!(found(with(other("Forced", ("a", "b"), 6), "garden", ended)), None);
    // It has given way as soon as its destination rolls back.
    let forced = other("Forced", ("a", "b"), 6);
    assert_eq!(obstacle(std::slice::from_ref(&own), &forced), Some("m".to_owned()));
    let waited_for = |own: &ControlPlaneMigration, forced: &ControlPlaneMigration| {
        may_give_way(std::slice::from_ref(own), forced)
    };
    let why = waited_for(&own, &forced).unwrap_or_default();
    assert!(why.starts_with("m is past its point of no return; it gives way when its etcd"), "{why}");
    assert_eq!(waited_for(&own, &other("Forced", ("a", "c"), 6)), None);
    assert_eq!(waited_for(&moved(own.clone()), &forced), None);
    assert_eq!(waited_for(&committed(migration("m", "Classic", ("a", "b"), 5)), &forced), None);
    let mut given_way = own.clone();
    given_way.status["destination"]["phase"] = "RollingBack".into();
    assert_eq!(obstacle(std::slice::from_ref(&given_way), &forced), None);
    assert_eq!(names(&in_the_way(&[given_way], &forced)), [("m", false)]);
}

#[test]
fn forced_migration_begins_at_the_source_again_where_the_destination_is_lost_before_the_shoot_names_it() {
    let own = migration("m", "Forced", ("a", "c"), 5);
    let lost = |garden: &str, destination: &str| {
        let mut one = committed(migration("o", "Live", ("a", "b"), 4));
        one.annotations_mut().insert(CONFIRM_DESTINATION_LOST.to_owned(), "b".to_owned());
        one.status["garden"] = json!({"phase": "Running", "observedTime": format!("2026-01-01T{garden}Z")});
        one.status["destination"]["observedTime"] = format!("2026-01-01T{destination}Z").into();
        one
    };
    let found = |other: ControlPlaneMigration| {
        let all = [other];
        (obstacle(&all, &own), names(&in_the_way(&all, &own)).len())
    };
    assert_eq!(found(lost("01:05:00", "01:00:00")), (None, 1));
    // It recorded something lately, so it may serve. The forced one waits.
    let alive = lost("01:04:59", "01:00:00");
    let why = may_give_way(std::slice::from_ref(&alive), &own).unwrap_or_default();
    assert!(why.contains("its destination has recorded nothing for 300 s"), "{why}");
    assert_eq!(found(alive), (Some("o".to_owned()), 0));
    let mut unconfirmed = lost("01:05:00", "01:00:00");
    unconfirmed.annotations_mut().clear();
    assert_eq!(may_give_way(std::slice::from_ref(&unconfirmed), &own), None);
    assert_eq!(found(unconfirmed), (Some("o".to_owned()), 0));
    // From here on its bucket has the newest state.
    let mut named = lost("01:05:00", "01:00:00");
    named.status["garden"]["steps"] =
        json!([{"name": "StatusMoved", "state": "Running", "startTime": "2026-01-01T01:00:00Z"}]);
    assert_eq!(may_give_way(std::slice::from_ref(&named), &own), None);
    assert_eq!(found(named), (Some("o".to_owned()), 0));
    let mut stored = lost("01:05:00", "01:00:00");
    let steps = stored.status["destination"]["steps"].as_array_mut().expect("steps");
    steps.push(json!({"name": "SnapshotStored", "state": "Succeeded"}));
    assert_eq!(found(stored), (Some("o".to_owned()), 0));
    // One that has failed is asked to try again first.
    let mut failed = lost("01:05:00", "01:00:00");
    failed.status["destination"]["phase"] = "Failed".into();
    assert_eq!(found(failed.clone()), (Some("o".to_owned()), 0));
    failed.status["garden"]["retry"] = 1.into();
    assert_eq!(found(failed), (None, 1));
    // What was told to it is not taken back with the annotation.
    let mut told = with(lost("01:05:00", "01:00:00"), SUPERSEDED_BY, "m".into());
    told.annotations_mut().clear();
    assert_eq!(found(told), (None, 1));
    // Not to the seed that is lost, as long as it has not removed what it has.
    let same = migration("m", "Forced", ("a", "b"), 5);
    let others = [lost("01:05:00", "01:00:00")];
    assert_eq!(obstacle(&others, &same), Some("o".to_owned()));
    let why = may_give_way(&others, &same).unwrap_or_default();
    assert!(why.contains("create a forced migration to another seed instead"), "{why}");
}

#[test]
fn forced_migration_goes_on_from_a_destination_that_dies_before_its_migration_has_ended() {
    let own = migration("m", "Forced", ("b", "c"), 5);
    let found = |other: ControlPlaneMigration| {
        let all = [other];
        (obstacle(&all, &own), names(&in_the_way(&all, &own)).len())
    };
    let other = |mode| migration("o", mode, ("a", "b"), 4);
    let stored = |one| {
        let step = json!({"name": "MigratedStateSynced", "state": "Succeeded"});
        with(one, "source", json!({"phase": "Running", "steps": [step]}))
    };
    assert_eq!(found(stored(moved(other("Classic")))), (None, 1));
    // The ShootState does not hold what the extension controllers of the source stored last.
    assert_eq!(found(moved(other("Classic"))), (Some("o".to_owned()), 0));
    // Where the Shoot is was not written.
    assert_eq!(found(stored(committed(other("Classic")))), (Some("o".to_owned()), 0));
    // Nobody knows whether a machine-controller-manager of the first source runs.
    assert_eq!(found(moved(other("Forced"))), (Some("o".to_owned()), 0));
    let fenced = |mut one: ControlPlaneMigration| {
        one.metadata.annotations = Some([(CONFIRM_SOURCE_STOPPED.to_owned(), "a".to_owned())].into());
        one
    };
    assert_eq!(found(fenced(moved(other("Forced")))), (None, 1));
    // After a day of waiting, a person decides.
    assert_eq!(found(with(moved(other("Classic")), "phase", "Failed".into())), (None, 1));
    // It leaves from another seed than where the Shoot is.
    let elsewhere = migration("m", "Forced", ("a", "c"), 5);
    assert_eq!(obstacle(&[stored(moved(other("Classic")))], &elsewhere), Some("o".to_owned()));
    // The garden has to end its part first; the destination may never end its own.
    let told = |one| with(one, CONTINUED_BY, "m".into());
    assert_eq!(found(told(fenced(moved(other("Forced"))))), (None, 1));
    let mut ended = told(fenced(moved(other("Forced"))));
    ended.status["garden"]["phase"] = "Failed".into();
    assert_eq!(found(ended), (None, 0));
}

#[test]
fn later_migration_forbids_a_retry_unless_it_left_everything_as_it_was() {
    let own = migration("m", "Classic", ("a", "b"), 5);
    let later = |phase: &str| with(migration("n", "Classic", ("b", "a"), 6), "phase", phase.into());
    assert_eq!(follower(&[later("Pending")], &own), Some("n".to_owned()));
    assert_eq!(follower(&[later("Succeeded")], &own), Some("n".to_owned()));
    assert_eq!(follower(&[later("RolledBack"), migration("l", "Classic", ("a", "b"), 4)], &own), None);
    let restored = with(later("RolledBack"), "source", json!({"ownershipEnded": true}));
    assert_eq!(follower(&[restored], &own), Some("n".to_owned()));
}

#[test]
fn superseded_one_is_in_the_way_until_it_is_removed_where_this_one_leads() {
    let ended = json!({"phase": "RolledBack"});
    let told = |to| with(migration("o", "Classic", ("a", to), 4), SUPERSEDED_BY, "m".into());
    let own = migration("m", "Forced", ("a", "b"), 5);
    assert_eq!(names(&in_the_way(&[told("b")], &own)), [("o", true)]);
    let in_garden = |to| with(told(to), "garden", ended.clone());
    assert_eq!(names(&in_the_way(&[in_garden("b")], &own)), [("o", true)]);
    assert_eq!(in_the_way(&[in_garden("c")], &own), []);
    // One whose garden has failed is told as well: its other sides would go on.
    let failed = with(migration("o", "Classic", ("a", "c"), 4), "garden", json!({"phase": "Failed"}));
    assert_eq!(names(&in_the_way(&[failed], &own)), [("o", false)]);
    assert_eq!(in_the_way(&[with(in_garden("b"), "destination", ended.clone())], &own), []);
}

#[test]
fn later_migration_back_to_the_source_comes_back() {
    let own = migration("m", "Forced", ("a", "b"), 5);
    let is_by = |other: &ControlPlaneMigration| comes_back(other, &own);
    assert!(is_by(&migration("n", "Classic", ("b", "a"), 6)));
    assert!(!is_by(&migration("n", "Classic", ("b", "a"), 4)));
    assert!(!is_by(&migration("n", "Classic", ("b", "c"), 6)));
}
