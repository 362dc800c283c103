use super::*;

const BOOLEAN: &str = "migration.gardener.cloud/live-migrate";
const OPERATION: &str = "gardener.cloud/operation";
const ABORT: &str = "migration.shoot.gardener.cloud/abort-live-migration";
const SHRINK: &str = "migration.gardener.cloud/force-shrink-etcd";
const DISTANT: &str = "migration.gardener.cloud/allow-distant-regions";

/// To seed b, live.
fn goes_live(shoot: &mut Value) {
    moves(shoot);
    annotate(shoot, BOOLEAN, "true");
}

#[test]
fn accepts_a_right_live_migration_in_both_spellings() {
    accepts(&update(rests, goes_live), &mk_facts());
    let paper = |shoot: &mut Value| annotate(shoot, OPERATION, "live-migrate");
    accepts(&update(rests, paper), &mk_facts());
    accepts(&update(paper, moves), &mk_facts());
}

#[test]
fn rejects_spellings_that_disagree_or_cannot_be_read() {
    let both = |shoot: &mut Value| {
        annotate(shoot, OPERATION, "live-migrate");
        annotate(shoot, BOOLEAN, "false");
    };
    rejects(&update(rests, both), &mk_facts(), &["live-trigger-clear"]);
    // What was written before counts when it is about to start something.
    rejects(&update(both, moves), &mk_facts(), &["live-trigger-clear"]);
    accepts(&update(both, |shoot| annotate(shoot, "x", "y")), &mk_facts());
    for word in ["yes", "y", "TrUe"] {
        rejects(&update(rests, |shoot| annotate(shoot, BOOLEAN, word)), &mk_facts(), &["live-trigger-clear"]);
    }
    accepts(&update(rests, |shoot| annotate(shoot, BOOLEAN, "false")), &mk_facts());
}

#[test]
fn rejects_the_trigger_on_a_new_shoot_and_in_the_middle_of_another_migration() {
    let mut change = update(rests, |shoot| annotate(shoot, BOOLEAN, "true"));
    (change.operation, change.old) = (Operation::Create, Value::Null);
    rejects(&change, &mk_facts(), &["live-trigger-in-time"]);
    rejects(&update(moves, |shoot| annotate(shoot, BOOLEAN, "true")), &mk_facts(), &["live-trigger-in-time"]);
}

#[test]
fn rejects_control_planes_that_are_not_highly_available() {
    let simple = |shoot: &mut Value| shoot["spec"]["controlPlane"] = Value::Null;
    rejects(&update(simple, goes_live), &mk_facts(), &["live-highly-available"]);
    rejects(
        &update(simple, |shoot| annotate(shoot, BOOLEAN, "true")),
        &mk_facts(),
        &["live-highly-available"],
    );
    accepts(&update(simple, moves), &mk_facts());
}

#[test]
fn rejects_shoots_that_sleep_or_wake() {
    for (spec, status) in [(true, true), (true, false), (false, true)] {
        let asleep = |shoot: &mut Value| {
            shoot["spec"]["hibernation"]["enabled"] = json!(spec);
            shoot["status"]["isHibernated"] = json!(status);
        };
        rejects(&update(asleep, goes_live), &mk_facts(), &["live-awake"]);
        accepts(&update(asleep, moves), &mk_facts());
    }
}

#[test]
fn rejects_another_provider_and_a_sick_source() {
    let facts = with_seed("b", |seed| seed["spec"]["provider"]["type"] = json!("other"));
    rejects(&update(rests, goes_live), &facts, &["live-same-provider"]);
    let facts = with_seed("a", |seed| seed["status"]["conditions"][0]["status"] = json!("False"));
    rejects(&update(rests, goes_live), &facts, &["live-source-healthy"]);
}

fn in_region(seed: &str, region: &str) -> Facts {
    with_seed(seed, |seed| seed["spec"]["provider"]["region"] = json!(region))
}

#[test]
fn judges_the_distance_directed_and_strictly_greater() {
    accepts(&update(rests, goes_live), &in_region("b", "us"));
    rejects(&update(rests, goes_live), &in_region("a", "us"), &["live-distance"]);
    accepts(&update(rests, moves), &in_region("a", "us"));
    let allowed = |shoot: &mut Value| {
        goes_live(shoot);
        annotate(shoot, DISTANT, "true");
    };
    accepts(&update(rests, allowed), &in_region("a", "us"));
    assert_eq!(warnings(&update(rests, allowed), &in_region("a", "us")), ["live-distance"]);
    rejects(
        &update(rests, |shoot| annotate(shoot, DISTANT, "y")),
        &mk_facts(),
        &["live-permission-readable"],
    );
}

#[test]
fn rejects_distances_that_nobody_knows() {
    let change = update(rests, goes_live);
    let with = |edit: fn(&mut Distances)| {
        let mut facts = in_region("b", "us");
        let mut map = facts.distances[0].clone();
        edit(&mut map);
        facts.distances = Arc::new(vec![map]);
        facts
    };
    for (facts, why) in [
        (with(|map| map.profiles = vec!["other".into()]), "no region ConfigMap"),
        (with(|map| map.from = BTreeMap::new()), "no distances from region \"eu\""),
        (
            with(|map| map.from = BTreeMap::from([("eu".into(), Ok(BTreeMap::new()))])),
            "no distance from region",
        ),
        (with(|map| map.from = BTreeMap::from([("eu".into(), Err("bad".into()))])), "cannot be read"),
        (with(|map| map.thresholds = [None, None]), "says by no annotation"),
        (with(|map| map.thresholds = [Some("far".into()), None]), "is not a number"),
        (in_region("b", ""), "tells no region"),
    ] {
        rejects(&change, &facts, &["live-distance"]);
        let said = judged(&change, &facts)[0].message();
        assert!(said.contains(why), "{said}");
    }
    accepts(&change, &with(|map| map.thresholds = [None, Some("180".into())]));
    let mut facts = with(|map| map.thresholds = [None, None]);
    facts.settings = Arc::new(Settings { default_threshold: Some(180), ..Settings::default() });
    accepts(&change, &facts);
    facts.settings = Arc::new(Settings { default_threshold: Some(179), ..Settings::default() });
    rejects(&change, &facts, &["live-distance"]);
}

#[test]
fn rejects_other_operations_beside_it() {
    for (key, value) in
        [(OPERATION, "reconcile"), ("maintenance.gardener.cloud/operation", "rotate-ssh-keypair")]
    {
        let busy = |shoot: &mut Value| annotate(shoot, key, value);
        rejects(&update(busy, goes_live), &mk_facts(), &["live-no-other-operation"]);
        accepts(&update(busy, moves), &mk_facts());
        rejects(
            &update(|shoot| moving_live(shoot, &json!([])), busy),
            &mk_facts(),
            &["live-no-other-operation"],
        );
    }
}

#[test]
fn asks_for_nothing_else_while_a_live_migration_runs_but_to_retry_a_failed_one() {
    let running = |shoot: &mut Value| {
        moving_live(shoot, &json!([]));
        shoot["metadata"]["generation"] = json!(3);
    };
    let failed = |shoot: &mut Value| {
        running(shoot);
        shoot["status"]["lastOperation"]["state"] = json!("Failed");
    };
    // gardener-apiserver has taken the annotation away by then.
    let raised = |shoot: &mut Value| shoot["metadata"]["generation"] = json!(4);
    let retry = |shoot: &mut Value| annotate(shoot, OPERATION, "retry");
    let rotate = |shoot: &mut Value| annotate(shoot, OPERATION, "reconcile;rotate-ca-start");
    for change in
        [update(running, retry), update(running, raised), update(running, rotate), update(failed, rotate)]
    {
        rejects(&change, &mk_facts(), &["live-no-other-operation"]);
    }
    for change in
        [update(failed, retry), update(failed, raised), update(rests, raised), update(moves, raised)]
    {
        accepts(&change, &mk_facts());
    }
    let by = |user: &str| Change { user: person(user), ..update(running, raised) };
    accepts(&by("system:serviceaccount:repot-system:controllers"), &mk_facts());
}

#[test]
fn the_trigger_stays_while_a_live_migration_runs() {
    let live = |shoot: &mut Value| moving_live(shoot, &json!([]));
    let removed = |shoot: &mut Value| shoot["metadata"]["annotations"] = json!({});
    let denied = |shoot: &mut Value| annotate(shoot, BOOLEAN, "false");
    let emptied = |shoot: &mut Value| annotate(shoot, BOOLEAN, "");
    rejects(&update(live, removed), &mk_facts(), &["live-trigger-kept"]);
    rejects(&update(live, denied), &mk_facts(), &["live-trigger-kept"]);
    rejects(&update(live, emptied), &mk_facts(), &["live-trigger-kept"]);
    let by = Change { user: person("system:serviceaccount:repot-system:x"), ..update(live, removed) };
    accepts(&by, &mk_facts());
    let aborted = |shoot: &mut Value| {
        live(shoot);
        annotate(shoot, ABORT, "force");
    };
    accepts(&update(aborted, removed), &mk_facts());
    // Before the start it is a wish that may be taken back.
    accepts(&update(|shoot| annotate(shoot, BOOLEAN, "true"), removed), &mk_facts());
    // One that was lost may be set again, and then nobody calls the migration one with downtime.
    let lost = |shoot: &mut Value| {
        live(shoot);
        shoot["metadata"]["annotations"] = json!({});
    };
    accepts(&update(lost, |shoot| annotate(shoot, BOOLEAN, "true")), &mk_facts());
}

fn condition(kind: &str, status: &str, reason: &str) -> Value {
    json!({"type": kind, "status": status, "reason": reason})
}

#[test]
fn an_abort_is_asked_for_in_time() {
    let failed = json!([condition("DestinationEtcdPeersJoined", "False", "Failed")]);
    let joining = json!([condition("DestinationEtcdPeersJoined", "False", "MembersMissing")]);
    let joined = json!([condition("DestinationEtcdPeersJoined", "True", "Joined")]);
    let leaving = json!([joined[0], condition("EtcdMigrationComplete", "False", "SourceMembersPresent")]);
    for (progress, value, accepted) in [
        (&failed, "true", true),
        (&joining, "true", false),
        (&joining, "force", true),
        (&joined, "force", true),
        (&leaving, "force", false),
        (&leaving, "true", false),
        (&failed, "please", false),
        (&leaving, "false", true),
    ] {
        let change = update(|shoot| moving_live(shoot, progress), |shoot| annotate(shoot, ABORT, value));
        let expected: &[&str] = if accepted { &[] } else { &["live-abort-in-time"] };
        assert_eq!(refusals(&change, &mk_facts()), expected, "{value} at {progress}");
    }
    rejects(&update(rests, |shoot| annotate(shoot, ABORT, "true")), &mk_facts(), &["live-abort-in-time"]);
    rejects(&update(moves, |shoot| annotate(shoot, ABORT, "force")), &mk_facts(), &["live-abort-in-time"]);
}

#[test]
fn the_way_back_is_open_after_an_abort_whatever_the_seeds_are_like() {
    let failed = json!([condition("DestinationEtcdPeersJoined", "False", "Failed")]);
    let back = |shoot: &mut Value| shoot["spec"]["seedName"] = json!("a");
    rejects(&update(|shoot| moving_live(shoot, &failed), back), &mk_facts(), &["live-back-after-abort"]);
    let aborted = |shoot: &mut Value| {
        moving_live(shoot, &failed);
        annotate(shoot, ABORT, "true");
    };
    accepts(&update(aborted, back), &Facts::default());
    // Whoever wrote the annotation, and on whatever path: there is nothing left to go back to.
    let leaving = json!([condition("EtcdMigrationComplete", "False", "SourceMembersPresent")]);
    let late = |shoot: &mut Value| {
        moving_live(shoot, &leaving);
        annotate(shoot, ABORT, "force");
    };
    rejects(&update(late, back), &mk_facts(), &["live-back-after-abort"]);
    let elsewhere = |shoot: &mut Value| shoot["spec"]["seedName"] = json!("c");
    rejects(&update(aborted, elsewhere), &mk_facts(), &["one-migration"]);
}

#[test]
fn the_source_is_given_up_only_in_need() {
    let joined = condition("DestinationEtcdPeersJoined", "True", "Joined");
    let api = |status, reason| json!([joined, condition("DestinationKubeAPIServerReady", status, reason)]);
    for (progress, accepted) in [
        (api("False", "Failed"), true),
        (api("False", "Starting"), false),
        (api("True", "Ready"), false),
        (json!([condition("DestinationEtcdPeersJoined", "False", "Failed")]), false),
    ] {
        let change = update(|shoot| moving_live(shoot, &progress), |shoot| annotate(shoot, SHRINK, "true"));
        let expected: &[&str] = if accepted { &[] } else { &["live-shrink-in-need"] };
        assert_eq!(refusals(&change, &mk_facts()), expected, "{progress}");
    }
    rejects(&update(rests, |shoot| annotate(shoot, SHRINK, "true")), &mk_facts(), &["live-shrink-in-need"]);
    accepts(&update(rests, |shoot| annotate(shoot, SHRINK, "false")), &mk_facts());
}

#[test]
fn progress_of_an_earlier_migration_does_not_make_a_classic_one_live() {
    let stale = |kind: &'static str| {
        move |shoot: &mut Value| {
            moves(shoot);
            shoot["status"]["lastOperation"] = json!({"type": kind, "state": "Processing"});
            shoot["status"]["liveMigration"] =
                json!({"conditions": [condition("DestinationEtcdPeersJoined", "False", "Failed")]});
        }
    };
    for kind in ["Reconcile", "Migrate", "Restore"] {
        let abort = update(stale(kind), |shoot| annotate(shoot, ABORT, "true"));
        rejects(&abort, &mk_facts(), &["live-abort-in-time"]);
        let said = judged(&abort, &mk_facts())[0].message();
        assert!(said.contains("no live migration runs"), "{said}");
    }
    accepts(&update(stale("LiveMigrate"), |shoot| annotate(shoot, ABORT, "true")), &mk_facts());
}

#[test]
fn live_migration_that_repot_records_as_migrate_is_known_by_its_steps() {
    let moves_since = |requested: &'static str| {
        move |shoot: &mut Value| {
            moves(shoot);
            annotate(shoot, "migration.gardener.cloud/requested-at", requested);
            shoot["status"]["lastOperation"] = json!({"type": "Migrate", "state": "Processing"});
            let mut joining = condition("DestinationEtcdPeersJoined", "False", "Progressing");
            for time in ["lastTransitionTime", "lastUpdateTime"] {
                joining[time] = json!("2026-01-02T00:00:00Z");
            }
            shoot["status"]["liveMigration"] = json!({"conditions": [joining]});
        }
    };
    let abort = |shoot: &mut Value| annotate(shoot, ABORT, "force");
    accepts(&update(moves_since("2026-01-01T00:00:00Z"), abort), &mk_facts());
    // What the status tells is of an earlier one.
    let late = update(moves_since("2026-01-03T00:00:00Z"), abort);
    rejects(&late, &mk_facts(), &["live-abort-in-time"]);
}

#[test]
fn texts_name_the_step_and_the_condition_of_gardener() {
    let joining = json!([condition("DestinationEtcdPeersJoined", "False", "MembersMissing")]);
    let abort = update(|shoot| moving_live(shoot, &joining), |shoot| annotate(shoot, ABORT, "true"));
    let said = judged(&abort, &mk_facts())[0].message();
    assert!(said.contains("SixMemberETCDReady") && said.contains("DestinationEtcdPeersJoined"), "{said}");
}

#[test]
fn takes_the_smallest_threshold_and_beside_gardener_its_default() {
    let far = |thresholds: [Option<&str>; 2], flag: Option<u64>, binding: bool, distance: u64| {
        let mut facts = in_region("b", "us");
        let mut map = facts.distances[0].clone();
        map.thresholds = thresholds.map(|one| one.map(str::to_owned));
        map.from = BTreeMap::from([("eu".into(), Ok(BTreeMap::from([("us".into(), distance)])))]);
        (facts.distances, facts.binding) = (Arc::new(vec![map]), binding);
        facts.settings = Arc::new(Settings { default_threshold: flag, ..Settings::default() });
        facts
    };
    let (ours, theirs) = (Some("300"), Some("200"));
    for (facts, allowed, named) in [
        // As seen: no threshold, and a distance of 20.
        (far([None, None], None, true, 20), true, ""),
        (far([None, None], None, true, 181), false, "inter-region-distance-threshold"),
        (far([None, None], None, false, 20), false, "--default-distance-threshold"),
        // gardener-apiserver does not read the paper's name, so it takes 180.
        (far([ours, None], None, true, 181), false, "more than 180, which comes from gardener-apiserver"),
        (far([ours, None], None, false, 181), true, ""),
        (far([Some("100"), None], None, true, 101), false, "inter-seed-distance-threshold of ConfigMap"),
        (far([ours, theirs], None, true, 200), true, ""),
        (far([ours, theirs], None, true, 201), false, "more than 200"),
        (far([theirs, ours], None, true, 201), false, "more than 200"),
        (far([None, ours], Some(10), true, 300), true, ""),
        (far([None, None], Some(300), true, 181), false, "more than 180"),
        (far([None, None], Some(300), false, 181), true, ""),
        (far([None, None], Some(10), true, 11), false, "flag --default-distance-threshold"),
        (far([None, Some(" 180")], None, true, 1), false, "is not a number"),
    ] {
        let mut change = update(rests, goes_live);
        change.target.subresource = if facts.binding { "binding".into() } else { String::new() };
        let expected: &[&str] = if allowed { &[] } else { &["live-distance"] };
        assert_eq!(refusals(&change, &facts), expected, "{:?}", facts.distances);
        let said = judged(&change, &facts).into_iter().map(|finding| finding.message()).collect::<String>();
        assert!(said.contains(named), "{named}: {said}");
    }
}

#[test]
fn an_abort_that_says_no_does_not_give_the_trigger_up() {
    let trigger = "migration.gardener.cloud/live-migrate";
    let abort = "migration.shoot.gardener.cloud/abort-live-migration";
    let moving = |shoot: &mut Value| moving_live(shoot, &json!([]));
    let says_no = |shoot: &mut Value| annotate(shoot, abort, "false");
    let gives_up = |shoot: &mut Value| {
        says_no(shoot);
        _ = shoot["metadata"]["annotations"].as_object_mut().map(|all| all.remove(trigger));
    };
    accepts(&update(moving, says_no), &mk_facts());
    rejects(&update(moving, gives_up), &mk_facts(), &["live-trigger-kept"]);
}

#[test]
fn a_forced_deletion_is_no_reconciliation() {
    let ends = |shoot: &mut Value| {
        moving_live(shoot, &json!([]));
        shoot["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    };
    let forced = |shoot: &mut Value| shoot["metadata"]["generation"] = json!(9);
    accepts(&update(ends, forced), &mk_facts());
}
