use super::*;

const REQUESTED_AT: &str = "migration.gardener.cloud/requested-at";

#[test]
fn accepts_a_right_migration_without_a_warning() {
    let change = update(rests, moves);
    accepts(&change, &mk_facts());
    assert!(judged(&change, &mk_facts()).is_empty());
}

#[test]
fn accepts_the_first_seed() {
    let unscheduled = |shoot: &mut Value| shoot["spec"]["seedName"] = json!("");
    accepts(&update(unscheduled, moves), &Facts::default());
}

#[test]
fn rejects_a_move_before_the_creation() {
    let uncreated = |shoot: &mut Value| shoot["status"] = json!({});
    rejects(&update(uncreated, moves), &mk_facts(), &["created-first"]);
    let creating = |shoot: &mut Value| {
        shoot["status"]["lastOperation"] = json!({"type": "Create", "state": "Processing"})
    };
    rejects(&update(creating, moves), &mk_facts(), &["created-first"]);
}

#[test]
fn rejects_a_time_of_the_request_that_is_not_true() {
    let at = |time: &'static str| move |shoot: &mut Value| annotate(shoot, REQUESTED_AT, time);
    let begins = |time| {
        move |shoot: &mut Value| {
            moves(shoot);
            at(time)(shoot);
        }
    };
    for time in ["2026-11-21T11:55:00Z", "2026-11-21T12:05:00Z"] {
        accepts(&update(rests, begins(time)), &mk_facts());
    }
    for time in ["2026-11-21T11:54:59Z", "2026-11-21T12:05:01Z", "2036-01-01T00:00:00Z", "soon"] {
        rejects(&update(rests, begins(time)), &mk_facts(), &["requested-at-true"]);
    }
    // A later time would make reports on this migration those of an earlier one.
    let moving = |shoot: &mut Value| {
        moving_live(shoot, &json!([]));
        at("2026-11-21T10:00:00Z")(shoot);
    };
    let removed = |shoot: &mut Value| {
        _ = shoot["metadata"]["annotations"].as_object_mut().map(|all| all.remove(REQUESTED_AT))
    };
    rejects(&update(moving, at("2026-11-21T12:00:00Z")), &mk_facts(), &["requested-at-true"]);
    rejects(&update(moving, at("")), &mk_facts(), &["requested-at-true"]);
    rejects(&update(moving, removed), &mk_facts(), &["requested-at-true"]);
    // Where the mutating webhook was late it may be set afterwards, but not to the future.
    let without = |shoot: &mut Value| moving_live(shoot, &json!([]));
    accepts(&update(without, at("2026-11-21T10:00:00Z")), &mk_facts());
    rejects(&update(without, at("2026-11-21T12:05:01Z")), &mk_facts(), &["requested-at-true"]);
    // One that was set on a Shoot at rest, and was not overwritten, is not believed either.
    let kept = update(at("2036-01-01T00:00:00Z"), begins("2036-01-01T00:00:00Z"));
    rejects(&kept, &mk_facts(), &["requested-at-true"]);
    accepts(&update(at("2025-01-01T00:00:00Z"), begins("2025-01-01T00:00:00Z")), &mk_facts());
    accepts(&update(rests, at("2036-01-01T00:00:00Z")), &mk_facts());
    // What was set too early is overwritten when the migration begins.
    let begun = filled(&update(at("2036-01-01T00:00:00Z"), begins("2036-01-01T00:00:00Z")), &mk_facts());
    assert_eq!(begun["metadata"]["annotations"][REQUESTED_AT], "2026-11-21T12:00:00Z");
}

#[test]
fn rejects_writing_the_shoot_itself_where_there_is_a_binding() {
    let mut change = update(rests, moves);
    let facts = Facts { binding: true, ..mk_facts() };
    rejects(&change, &facts, &["binding-only"]);
    change.target.subresource = "binding".into();
    accepts(&change, &facts);
}

#[test]
fn rejects_other_changes_beside_the_seed() {
    let more = |shoot: &mut Value| {
        moves(shoot);
        shoot["spec"]["purpose"] = json!("testing");
        shoot["spec"]["dns"] = json!({});
    };
    let change = update(rests, more);
    rejects(&change, &mk_facts(), &["seed-alone"]);
    let fields: Vec<_> = judged(&change, &mk_facts()).into_iter().map(|f| f.field).collect();
    assert_eq!(fields, ["spec.dns", "spec.purpose"]);
}

#[test]
fn a_first_seed_brings_what_gardener_fills_in() {
    let first = |shoot: &mut Value| {
        shoot["spec"]["seedName"] = json!("a");
        shoot["spec"]["dns"] = json!({"domain": "s.p.example.com"});
        shoot["spec"]["networking"] = json!({"pods": "10.3.0.0/16"});
    };
    let mut change = update(|shoot| shoot["spec"]["seedName"] = Value::Null, first);
    change.target.subresource = "binding".into();
    accepts(&change, &mk_facts());
    assert!(judge::validate(&SEED_CHANGE, &change, &mk_facts()).is_empty(), "a rule judges a first seed");
}

#[test]
fn rejects_taking_the_seed_away() {
    for none in [Value::Null, json!("")] {
        rejects(&update(rests, |shoot| shoot["spec"]["seedName"] = none), &mk_facts(), &["seed-stays-named"]);
    }
}

#[test]
fn rejects_a_binding_to_the_same_seed() {
    let mut change = update(rests, rests);
    accepts(&change, &mk_facts());
    change.target.subresource = "binding".into();
    // Gardener itself refuses such a binding, so no webhook is asked about it; preflight asks the rule.
    accepts(&change, &mk_facts());
    let named: Vec<_> = judge::validate(&SEED_CHANGE, &change, &mk_facts()).iter().map(|f| f.rule).collect();
    assert_eq!(named, ["different-seed"]);
}

#[test]
fn rejects_a_destination_that_is_missing_or_ends() {
    let mut facts = mk_facts();
    facts.seeds.insert("b".into(), None);
    rejects(&update(rests, moves), &facts, &["destination-exists"]);
    let ends = |seed: &mut Value| seed["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    rejects(&update(rests, moves), &with_seed("b", ends), &["destination-exists"]);
}

#[test]
fn rejects_a_destination_that_is_not_healthy() {
    for at in 0..3 {
        let ill = |seed: &mut Value| seed["status"]["conditions"][at]["status"] = json!("False");
        rejects(&update(rests, moves), &with_seed("b", ill), &["destination-healthy"]);
    }
    rejects(
        &update(rests, moves),
        &with_seed("b", |s| s["status"]["conditions"] = json!([])),
        &["destination-healthy"],
    );
    rejects(
        &update(rests, moves),
        &with_seed("b", |s| s["metadata"]["generation"] = json!(3)),
        &["destination-healthy"],
    );
}

#[test]
fn warns_of_a_source_that_is_not_healthy() {
    let ill = |seed: &mut Value| seed["status"]["conditions"][0]["status"] = json!("Unknown");
    let facts = with_seed("a", ill);
    accepts(&update(rests, moves), &facts);
    assert_eq!(warnings(&update(rests, moves), &facts), ["destination-healthy"]);
}

#[test]
fn rejects_different_or_missing_gardenlet_versions() {
    for version in [json!("v1.151.0"), Value::Null] {
        for seed in ["a", "b"] {
            let facts = with_seed(seed, |s| s["status"]["gardener"]["version"] = version.clone());
            rejects(&update(rests, moves), &facts, &["same-gardenlet-version"]);
        }
    }
}

#[test]
fn rejects_taints_that_are_not_tolerated() {
    let tainted =
        || with_seed("b", |s| s["spec"]["taints"] = json!([{"key": "k", "value": "v"}, {"key": "l"}]));
    rejects(&update(rests, moves), &tainted(), &["taints-tolerated"]);
    for (tolerations, tolerated) in [
        (json!([{"key": "k", "value": "v"}, {"key": "l"}]), true),
        (json!([{"key": "k"}, {"key": "l"}]), true),
        (json!([{"key": "k", "value": "w"}, {"key": "l"}]), false),
    ] {
        let change = update(|shoot| shoot["spec"]["tolerations"] = tolerations.clone(), moves);
        assert_eq!(refusals(&change, &tainted()).is_empty(), tolerated, "{tolerations}");
    }
}

#[test]
fn rejects_a_full_destination() {
    let used = |used| Facts { shoots_on: BTreeMap::from([("b".to_owned(), used)]), ..mk_facts() };
    accepts(&update(rests, moves), &used(2));
    rejects(&update(rests, moves), &used(3), &["destination-has-capacity"]);
    let unlimited =
        Facts { shoots_on: used(9).shoots_on, ..with_seed("b", |s| s["status"]["allocatable"] = json!({})) };
    accepts(&update(rests, moves), &unlimited);
}

#[test]
fn rejects_providers_and_labels_that_the_profile_does_not_select() {
    let other = || with_seed("b", |s| s["spec"]["provider"]["type"] = json!("other"));
    accepts(&update(rests, moves), &other());
    assert_eq!(warnings(&update(rests, moves), &other()), ["provider-and-labels"]);
    let profile = |selector: Value| Some(Arc::new(json!({"spec": {"seedSelector": selector}})));
    for (selector, allowed) in [
        (json!({"providerTypes": ["local"]}), false),
        (json!({"providerTypes": ["*"]}), true),
        (json!({"providerTypes": ["other"]}), true),
        (json!({"providerTypes": ["other"], "matchLabels": {"kind": "big"}}), false),
    ] {
        let facts = Facts { cloud_profile: profile(selector.clone()), ..other() };
        let expected: &[&str] = if allowed { &[] } else { &["provider-and-labels"] };
        assert_eq!(refusals(&update(rests, moves), &facts), expected, "{selector}");
    }
}

#[test]
fn rejects_a_region_that_the_profile_does_not_offer() {
    let lost = |shoot: &mut Value| shoot["spec"]["region"] = json!("mars");
    rejects(&update(lost, moves), &mk_facts(), &["region-offered"]);
}

#[test]
fn rejects_access_restrictions_that_are_not_supported() {
    let restricted = |shoot: &mut Value| shoot["spec"]["accessRestrictions"] = json!([{"name": "eu-only"}]);
    rejects(&update(restricted, moves), &mk_facts(), &["access-restrictions"]);
    let facts = with_seed("b", |s| s["spec"]["accessRestrictions"] = json!([{"name": "eu-only"}]));
    accepts(&update(restricted, moves), &facts);
}

#[test]
fn rejects_seeds_without_backup() {
    for seed in ["a", "b"] {
        let facts = with_seed(seed, |s| s["spec"]["backup"] = Value::Null);
        rejects(&update(rests, moves), &facts, &["backup-configured"]);
    }
}

#[test]
fn rejects_other_domains() {
    let facts = with_seed("b", |s| s["spec"]["dns"]["internal"]["domain"] = json!("other.example.com"));
    rejects(&update(rests, moves), &facts, &["internal-domain"]);
    let facts = with_seed("b", |s| s["spec"]["dns"]["defaults"] = json!([{"domain": "example.org"}]));
    accepts(&update(rests, moves), &facts);
    let domain = |shoot: &mut Value| shoot["spec"]["dns"] = json!({"domain": "s.p.example.com"});
    rejects(&update(domain, moves), &facts, &["default-domain"]);
    let own = |shoot: &mut Value| shoot["spec"]["dns"] = json!({"domain": "notexample.com"});
    accepts(&update(own, moves), &facts);
}

#[test]
fn rejects_too_few_zones_and_zones_that_are_pinned_elsewhere() {
    let two = with_seed("b", |s| s["spec"]["provider"]["zones"] = json!(["eu-1a", "eu-1b"]));
    rejects(&update(rests, moves), &two, &["enough-zones"]);
    let node = |shoot: &mut Value| {
        shoot["spec"]["controlPlane"]["highAvailability"]["failureTolerance"]["type"] = json!("node")
    };
    accepts(&update(node, moves), &two);
    let pinned =
        |shoot: &mut Value| shoot["spec"]["controlPlane"]["zones"] = json!(["eu-1a", "eu-1x", "eu-1c"]);
    rejects(&update(pinned, moves), &mk_facts(), &["pinned-zones"]);
}

#[test]
fn rejects_overlapping_ipv6_networks_only() {
    for (section, network, clash) in [
        ("spec", json!("fd00:1::/48"), true),
        ("status", json!(["fd00:2:0:0:8000::/80"]), true),
        ("spec", json!("::/0"), true),
        ("spec", json!("fd00:9::/64"), false),
        ("spec", json!("10.0.0.0/8"), false),
        ("spec", json!("fd00:1::/129"), false),
        ("spec", json!("nonsense"), false),
    ] {
        let change = update(|shoot| shoot[section]["networking"]["pods"] = network.clone(), moves);
        let expected: &[&str] = if clash { &["networks-disjoint"] } else { &[] };
        assert_eq!(refusals(&change, &mk_facts()), expected, "{network}");
    }
}

#[test]
fn rejects_a_move_in_the_middle_of_a_rotation() {
    for (phase, refused, warned) in [
        ("Preparing", true, false),
        ("PreparingWithoutWorkersRollout", true, false),
        ("Completing", true, false),
        ("WaitingForWorkersRollout", false, true),
        ("Prepared", false, false),
        ("Completed", false, false),
    ] {
        let rotating = |shoot: &mut Value| {
            shoot["status"]["credentials"]["rotation"]["etcdEncryptionKey"]["phase"] = json!(phase)
        };
        let change = update(rotating, moves);
        assert_eq!(!refusals(&change, &mk_facts()).is_empty(), refused, "{phase}");
        assert_eq!(!warnings(&change, &mk_facts()).is_empty(), warned, "{phase}");
    }
}

/// Ways in which a Shoot is between two seeds.
fn ways() -> [Value; 4] {
    [
        json!({"seedName": "a", "lastOperation": {"type": "Reconcile", "state": "Succeeded"}}),
        json!({"seedName": "a", "lastOperation": {"type": "Migrate", "state": "Error"}}),
        json!({"seedName": "b", "lastOperation": {"type": "Migrate", "state": "Succeeded"}}),
        json!({"seedName": "b", "lastOperation": {"type": "Restore", "state": "Failed"}}),
    ]
}

#[test]
fn rejects_a_second_move_a_changed_spec_and_a_deletion_on_the_way() {
    for status in ways() {
        let moving = |shoot: &mut Value| {
            moves(shoot);
            shoot["status"] = status.clone();
        };
        for to in ["a", "c"] {
            rejects(
                &update(moving, |shoot| shoot["spec"]["seedName"] = json!(to)),
                &mk_facts(),
                &["one-migration"],
            );
        }
        rejects(
            &update(moving, |shoot| shoot["spec"]["region"] = json!("us")),
            &mk_facts(),
            &["spec-immutable-while-migrating"],
        );
        accepts(&update(moving, |shoot| annotate(shoot, "x", "y")), &mk_facts());
        let mut change = update(moving, rests);
        (change.operation, change.new) = (Operation::Delete, Value::Null);
        let begun = status["lastOperation"]["type"] != "Reconcile";
        rejects(&change, &mk_facts(), if begun { &["no-deletion-while-migrating"] } else { &[] });
        change.old["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        accepts(&change, &mk_facts());
    }
    let mut change = update(rests, rests);
    (change.operation, change.new) = (Operation::Delete, Value::Null);
    accepts(&change, &mk_facts());
    accepts(&update(rests, |shoot| shoot["spec"]["region"] = json!("us")), &mk_facts());
}

#[test]
fn finds_everything_at_once() {
    let change = update(
        |shoot| shoot["spec"]["controlPlane"]["zones"] = json!(["x"]),
        |shoot| {
            moves(shoot);
            annotate(shoot, "shoot.gardener.cloud/isolated-zone", "euc1-az1");
        },
    );
    let mut facts = with_seed("b", |seed| {
        seed["status"] = json!({"allocatable": {"shoots": 0}});
        seed["spec"]["backup"] = Value::Null;
    });
    facts.binding = true;
    let expected = [
        "backup-configured",
        "binding-only",
        "destination-has-capacity",
        "destination-healthy",
        "no-isolation-while-migrating",
        "no-move-while-isolated",
        "pinned-zones",
        "same-gardenlet-version",
    ];
    assert_eq!(refusals(&change, &facts), expected);
}

#[test]
fn rejects_what_steered_an_earlier_migration() {
    for (key, value) in [
        ("migration.shoot.gardener.cloud/abort-live-migration", "true"),
        ("migration.shoot.gardener.cloud/abort-live-migration", "force"),
        ("migration.gardener.cloud/force-shrink-etcd", "true"),
        ("shoot.gardener.cloud/force-restore", "1"),
        ("confirmation.gardener.cloud/force-restore", "a"),
        ("confirmation.gardener.cloud/leave-destination", "b"),
    ] {
        let left = |shoot: &mut Value| annotate(shoot, key, value);
        rejects(&update(left, moves), &mk_facts(), &["no-leftover-markers"]);
        accepts(&update(left, |shoot| annotate(shoot, "x", "y")), &mk_facts());
        accepts(&update(|shoot| annotate(shoot, key, "false"), moves), &mk_facts());
        let cleared = |shoot: &mut Value| {
            moves(shoot);
            shoot["metadata"]["annotations"] = json!({});
        };
        accepts(&update(left, cleared), &mk_facts());
    }
}
