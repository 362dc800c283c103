//! When a Shoot may leave its seed: it rests, and what only a dead seed could mend does not hold it.

use repot_api::names::REQUESTED_AT;

use super::*;

fn dead(seed: &str, change: impl FnOnce(&mut Value)) -> Facts {
    with_seed(seed, |seed| {
        seed["status"]["conditions"][0]["status"] = json!("Unknown");
        change(seed);
    })
}

#[test]
fn rejects_a_shoot_that_is_being_deleted() {
    let ends = |shoot: &mut Value| shoot["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    rejects(&update(ends, moves), &mk_facts(), &["no-move-while-deleted"]);
}

#[test]
fn rejects_a_highly_available_shoot_whose_spec_is_not_reconciled() {
    let behind = |observed: Value| {
        move |shoot: &mut Value| {
            shoot["metadata"]["generation"] = json!(3);
            shoot["status"]["observedGeneration"] = observed;
        }
    };
    rejects(&update(behind(json!(2)), moves), &mk_facts(), &["ha-reconciled"]);
    accepts(&update(behind(Value::Null), moves), &mk_facts());
    accepts(&update(behind(json!(3)), moves), &mk_facts());
    // The write of the seed raises the generation itself.
    let moved = |shoot: &mut Value| {
        moves(shoot);
        shoot["metadata"]["generation"] = json!(4);
    };
    accepts(&update(behind(json!(3)), moved), &mk_facts());
    let simple = |shoot: &mut Value| {
        behind(json!(2))(shoot);
        shoot["spec"]["controlPlane"] = Value::Null;
    };
    accepts(&update(simple, moves), &mk_facts());
    accepts(&update(behind(json!(2)), moves), &dead("a", |_| ()));
    let ignored = |shoot: &mut Value| {
        behind(json!(2))(shoot);
        shoot["metadata"]["annotations"]["shoot.gardener.cloud/ignore"] = json!("true");
    };
    rejects(&update(ignored, moves), &mk_facts(), &["ha-reconciled"]);
    let ignored_for_repot = |shoot: &mut Value| {
        ignored(shoot);
        shoot["metadata"]["annotations"]["migration.gardener.cloud/ignored-for"] = json!("u1");
    };
    accepts(&update(ignored_for_repot, moves), &mk_facts());
}

#[test]
fn rejects_a_shoot_with_bastions() {
    let facts = |facts: Facts| Facts { bastions: vec!["one".into(), "two".into()], ..facts };
    rejects(&update(rests, moves), &facts(mk_facts()), &["no-bastions"]);
    let said = judged(&update(rests, moves), &facts(mk_facts()))[0].message();
    assert!(said.contains("one, two"), "{said}");
    accepts(&update(rests, moves), &facts(dead("a", |_| ())));
    accepts(&update(rests, |shoot| annotate(shoot, "x", "y")), &facts(mk_facts()));
}

#[test]
fn rejects_a_destination_whose_reconciliations_are_stopped_or_whose_extensions_fail() {
    let stop = "shoot.gardener.cloud/emergency-stop-reconciliations";
    let stopped =
        |value: &'static str| move |seed: &mut Value| seed["metadata"]["annotations"] = json!({stop: value});
    rejects(&update(rests, moves), &with_seed("b", stopped("true")), &["destination-healthy"]);
    accepts(&update(rests, moves), &with_seed("b", stopped("false")));
    assert_eq!(warnings(&update(rests, moves), &with_seed("a", stopped("true"))), ["destination-healthy"]);
    let extensions = |status: &str| {
        with_seed("b", |seed| {
            let conditions = seed["status"]["conditions"].as_array_mut().expect("a list");
            conditions.push(json!({"type": "ExtensionsReady", "status": status}));
        })
    };
    rejects(&update(rests, moves), &extensions("False"), &["destination-healthy"]);
    accepts(&update(rests, moves), &extensions("True"));
    accepts(&update(rests, moves), &extensions("Progressing"));
}

#[test]
fn a_dead_source_is_left_although_versions_differ_or_a_rotation_hangs() {
    let rotating = |shoot: &mut Value| {
        shoot["status"]["credentials"]["rotation"]["certificateAuthorities"]["phase"] = json!("Preparing")
    };
    for version in [json!("v1.149.0"), Value::Null] {
        let facts = dead("a", |seed| seed["status"]["gardener"]["version"] = version.clone());
        let change = update(rotating, moves);
        accepts(&change, &facts);
        let expected = ["destination-healthy", "rotation-settled", "same-gardenlet-version"];
        assert_eq!(warnings(&change, &facts), expected);
        let alive = with_seed("a", |seed| seed["status"]["gardener"]["version"] = version);
        rejects(&change, &alive, &["rotation-settled", "same-gardenlet-version"]);
    }
    let mut gone = mk_facts();
    gone.seeds.insert("a".into(), None);
    accepts(&update(rotating, moves), &gone);
}

#[test]
fn a_destination_that_dies_in_the_middle_is_left_with_a_confirmation() {
    let confirm = "confirmation.gardener.cloud/leave-destination";
    let turns = |to: &'static str, confirmation: &'static str| {
        update(moves, move |shoot| {
            shoot["spec"]["seedName"] = json!(to);
            annotate(shoot, confirm, confirmation);
        })
    };
    for to in ["a", "c"] {
        accepts(&turns(to, "b"), &dead("b", |_| ()));
        assert!(warnings(&turns(to, "b"), &dead("b", |_| ())).contains(&"one-migration"));
        rejects(&turns(to, "c"), &dead("b", |_| ()), &["one-migration"]);
        rejects(&turns(to, "b"), &mk_facts(), &["one-migration"]);
        let said =
            judged(&turns(to, ""), &dead("b", |_| ())).into_iter().map(|f| f.message()).collect::<String>();
        assert!(said.contains("confirmation.gardener.cloud/leave-destination=b"), "{said}");
    }
    // Beyond its point of no return a live migration cannot be called off, and its destination may die all the same.
    let late = json!([{"type": "EtcdMigrationComplete", "status": "True"}]);
    let late = |to: &'static str, confirmation: &'static str| {
        let turn = move |shoot: &mut Value| {
            shoot["spec"]["seedName"] = json!(to);
            annotate(shoot, confirm, confirmation);
        };
        update(|shoot| moving_live(shoot, &late), turn)
    };
    for (to, rule) in [("a", "live-back-after-abort"), ("c", "one-migration")] {
        accepts(&late(to, "b"), &dead("b", |_| ()));
        assert!(warnings(&late(to, "b"), &dead("b", |_| ())).contains(&rule));
        rejects(&late(to, "c"), &dead("b", |_| ()), &[rule]);
        rejects(&late(to, "b"), &mk_facts(), &[rule]);
    }
    // The other seed has to be fit like any destination.
    let mut facts = dead("b", |_| ());
    facts.seeds.insert(
        "c".into(),
        Some(Arc::new({
            let mut full = mk_seed("c");
            full["spec"]["taints"] = json!([{"key": "k"}]);
            full
        })),
    );
    rejects(&turns("c", "b"), &facts, &["taints-tolerated"]);
    // A live migration is called off instead.
    let live = update(
        |shoot| moving_live(shoot, &json!([])),
        |shoot| {
            shoot["spec"]["seedName"] = json!("c");
            annotate(shoot, confirm, "b");
        },
    );
    rejects(&live, &dead("b", |_| ()), &["one-migration"]);
}

#[test]
fn a_shoot_goes_back_after_its_migration_was_rolled_back() {
    let told = |description: &'static str| {
        move |shoot: &mut Value| {
            moves(shoot);
            shoot["status"]["lastOperation"] =
                json!({"type": "Reconcile", "state": "Succeeded", "description": description});
        }
    };
    let to = |seed: &'static str| move |shoot: &mut Value| shoot["spec"]["seedName"] = json!(seed);
    let back = "ControlPlaneMigration m was rolled back.";
    accepts(&update(told(back), to("a")), &mk_facts());
    rejects(&update(told(back), to("c")), &mk_facts(), &["one-migration"]);
    let runs = "ControlPlaneMigration m moves the control plane.";
    rejects(&update(told(runs), to("a")), &mk_facts(), &["one-migration"]);
    // What a live migration has told of its steps does not hold it.
    let live = |description: &'static str| {
        move |shoot: &mut Value| {
            told(description)(shoot);
            annotate(shoot, REQUESTED_AT, "2026-05-01T06:00:00Z");
            shoot["status"]["liveMigration"]["conditions"] = json!([{
                "type": "DestinationEtcdPeersJoined", "status": "Unknown", "lastTransitionTime": "2026-05-01T06:30:00Z",
            }]);
        }
    };
    accepts(&update(live(back), to("a")), &mk_facts());
    rejects(&update(live("Shoot is reconciled."), to("a")), &mk_facts(), &["live-back-after-abort"]);
}

#[test]
fn a_shoot_whose_destination_is_unfit_goes_back_before_its_move_begins() {
    let bound = |constraint: Value, kind: &'static str| {
        move |shoot: &mut Value| {
            moves(shoot);
            shoot["status"]["constraints"] =
                json!([{"type": "HibernationPossible", "status": "False"}, constraint]);
            shoot["status"]["lastOperation"] = json!({"type": kind, "state": "Processing"});
        }
    };
    let ready = |status: &str| json!({"type": "ReadyForMigration", "status": status});
    let to = |seed: &'static str| move |shoot: &mut Value| shoot["spec"]["seedName"] = json!(seed);
    for status in ["False", "Unknown", "Progressing"] {
        accepts(&update(bound(ready(status), "Reconcile"), to("a")), &mk_facts());
        rejects(&update(bound(ready(status), "Reconcile"), to("c")), &mk_facts(), &["one-migration"]);
        for kind in ["Migrate", "Restore", "LiveMigrate"] {
            let rule = if kind == "LiveMigrate" { "live-back-after-abort" } else { "one-migration" };
            rejects(&update(bound(ready(status), kind), to("a")), &mk_facts(), &[rule]);
        }
    }
    // From here on gardenlet may begin at any moment.
    rejects(&update(bound(ready("True"), "Reconcile"), to("a")), &mk_facts(), &["one-migration"]);
    rejects(&update(bound(json!({}), "Reconcile"), to("a")), &mk_facts(), &["one-migration"]);
    // A live migration, too: its trigger alone has begun nothing.
    let live = |constraint: Value, progress: Value| {
        move |shoot: &mut Value| {
            bound(constraint, "Reconcile")(shoot);
            annotate(shoot, "migration.gardener.cloud/live-migrate", "true");
            annotate(shoot, "migration.gardener.cloud/requested-at", "2026-01-01T10:00:00Z");
            shoot["status"]["liveMigration"] = progress;
        }
    };
    let at = |time: &str| json!({"source": {"stepName": "SixMemberETCDReady", "status": "Pending", "completionTime": time}});
    accepts(&update(live(ready("False"), Value::Null), to("a")), &mk_facts());
    accepts(&update(live(ready("False"), at("2026-01-01T09:00:00Z")), to("a")), &mk_facts());
    for (constraint, progress) in [(ready("True"), Value::Null), (ready("False"), at("2026-01-01T11:00:00Z"))]
    {
        rejects(&update(live(constraint, progress), to("a")), &mk_facts(), &["live-back-after-abort"]);
    }
}

#[test]
fn a_shoot_is_deleted_before_its_move_begins() {
    let deletion = |kind: &str, state: &str| {
        let mut deletion = update(rests, rests);
        moves(&mut deletion.old);
        deletion.old["status"]["lastOperation"] = json!({"type": kind, "state": state});
        (deletion.operation, deletion.new) = (Operation::Delete, Value::Null);
        deletion
    };
    for (kind, state, begun) in [
        ("Create", "Succeeded", false),
        ("Reconcile", "Failed", false),
        ("Restore", "Succeeded", false),
        ("LiveMigrate", "Succeeded", false),
        ("Migrate", "Processing", true),
        ("Migrate", "Succeeded", true),
        ("Restore", "Error", true),
        ("LiveMigrate", "Processing", true),
    ] {
        rejects(
            &deletion(kind, state),
            &mk_facts(),
            if begun { &["no-deletion-while-migrating"] } else { &[] },
        );
    }
    let mut reported = deletion("Reconcile", "Succeeded");
    annotate(&mut reported.old, "migration.gardener.cloud/requested-at", "2026-01-01T10:00:00Z");
    reported.old["status"]["liveMigration"] = json!({"conditions": [
        {"type": "EtcdMigrationComplete", "status": "False", "lastTransitionTime": "2026-01-01T11:00:00Z"},
    ]});
    rejects(&reported, &mk_facts(), &["no-deletion-while-migrating"]);
}

#[test]
fn a_shoot_that_is_back_at_its_source_is_free_again() {
    let back = |state: &'static str, conditions: Value| {
        move |shoot: &mut Value| {
            shoot["status"]["lastOperation"] = json!({"type": "LiveMigrate", "state": state});
            shoot["status"]["liveMigration"] = json!({"conditions": conditions});
        }
    };
    let failed = || json!([{"type": "DestinationEtcdPeersJoined", "status": "False", "reason": "Failed"}]);
    let there = || json!([{"type": "DestinationKubeAPIServerReady", "status": "True"}]);
    let past = || json!([{"type": "EtcdMigrationComplete", "status": "False"}]);
    for (state, conditions, free) in [
        ("Failed", failed(), true),
        ("Aborted", failed(), true),
        ("Processing", failed(), false),
        ("Error", failed(), false),
        ("Failed", there(), false),
        ("Failed", past(), false),
        ("Succeeded", past(), true),
    ] {
        let mut deletion = update(back(state, conditions.clone()), rests);
        (deletion.operation, deletion.new) = (Operation::Delete, Value::Null);
        let rule = |name: &'static str| if free { vec![] } else { vec![name] };
        rejects(&deletion, &mk_facts(), &rule("no-deletion-while-migrating"));
        let resized = update(back(state, conditions.clone()), |shoot| shoot["spec"]["region"] = json!("us"));
        rejects(&resized, &mk_facts(), &rule("spec-immutable-while-migrating"));
        rejects(&update(back(state, conditions), moves), &mk_facts(), &rule("one-migration"));
    }
}

#[test]
fn a_destination_whose_name_looks_like_a_boolean_is_left_only_with_the_right() {
    let confirm = "confirmation.gardener.cloud/leave-destination";
    let moving = |shoot: &mut Value| shoot["spec"]["seedName"] = json!("f");
    let confirms = |shoot: &mut Value| annotate(shoot, confirm, "f");
    let mut facts = dead("b", |_| ());
    facts.seeds.insert("f".into(), None);
    facts.may_force = false;
    rejects(&update(moving, confirms), &facts, &["force-permitted"]);
    // Whoever set it before: the write that leaves the destination needs the right.
    let confirmed = |shoot: &mut Value| {
        moving(shoot);
        confirms(shoot);
    };
    let turns = update(confirmed, |shoot| shoot["spec"]["seedName"] = json!("a"));
    rejects(&turns, &facts, &["force-permitted"]);
    accepts(&turns, &Facts { may_force: true, ..facts });
}
