use super::*;

const ZONE: &str = "shoot.gardener.cloud/isolated-zone";

fn isolate(zone: &'static str) -> impl Fn(&mut Value) {
    move |shoot| annotate(shoot, ZONE, zone)
}

#[test]
fn accepts_a_zone_in_use_by_id_and_by_name() {
    for zone in ["euc1-az1", "eu-1b"] {
        let change = update(rests, isolate(zone));
        accepts(&change, &mk_facts());
        assert_eq!(warnings(&change, &mk_facts()), ["isolation-reconciled"], "{zone}");
    }
}

#[test]
fn rejects_what_does_not_look_like_one_zone() {
    for zone in ["Euc1-az1", "a,b", "a b", "-a", "a-", "euc1-az1 ", "\u{e4}"] {
        rejects(&update(rests, isolate(zone)), &mk_facts(), &["zone-form"]);
    }
    let long = "a".repeat(64);
    rejects(&update(rests, |shoot| annotate(shoot, ZONE, &long)), &mk_facts(), &["zone-form"]);
}

#[test]
fn rejects_a_zone_that_nobody_knows_without_a_confirmation_and_one_that_is_not_in_use() {
    let change = update(rests, isolate("euc1-az9"));
    rejects(&change, &mk_facts(), &["zone-used"]);
    let confirmed = |zone: &'static str| {
        update(rests, move |shoot| {
            annotate(shoot, ZONE, "euc1-az9");
            annotate(shoot, "confirmation.gardener.cloud/isolated-zone", zone);
        })
    };
    rejects(&confirmed("euc1-az8"), &mk_facts(), &["zone-used"]);
    accepts(&confirmed("euc1-az9"), &mk_facts());
    assert_eq!(warnings(&confirmed("euc1-az9"), &mk_facts()), ["isolation-reconciled", "zone-used"]);
    // A zone that a worker pool names is known without a CloudProfile.
    accepts(&update(rests, isolate("eu-1b")), &Facts { cloud_profile: None, ..mk_facts() });
    let elsewhere =
        |shoot: &mut Value| shoot["spec"]["provider"]["workers"][0]["zones"] = json!(["eu-1b", "eu-1c"]);
    rejects(&update(elsewhere, isolate("euc1-az1")), &mk_facts(), &["zone-used"]);
    let mut facts = mk_facts();
    let annotations = json!({"migration.gardener.cloud/zone-ids": r#"{"eu": {"euc1-az9": "eu-1z"}}"#});
    facts.cloud_profile = Some(Arc::new(json!({"metadata": {"annotations": annotations}})));
    rejects(&change, &facts, &["zone-used"]);
}

#[test]
fn rejects_another_zone_in_place_of_one() {
    rejects(&update(isolate("euc1-az1"), isolate("eu-1b")), &mk_facts(), &["zone-fixed"]);
    let removed = |shoot: &mut Value| shoot["metadata"]["annotations"] = json!({});
    accepts(&update(isolate("euc1-az1"), removed), &mk_facts());
    accepts(&update(isolate("BAD"), removed), &mk_facts());
    accepts(&update(isolate("BAD"), |shoot| annotate(shoot, "x", "y")), &mk_facts());
}

#[test]
fn rejects_isolation_that_leaves_no_zone() {
    let one = |shoot: &mut Value| shoot["spec"]["provider"]["workers"][0]["zones"] = json!(["eu-1a"]);
    rejects(&update(one, isolate("euc1-az1")), &mk_facts(), &["zones-left"]);
    let pools = |shoot: &mut Value| {
        shoot["spec"]["provider"]["workers"] =
            json!([{"name": "w", "zones": ["eu-1a"]}, {"name": "x", "zones": ["eu-1b"]}]);
    };
    let change = update(pools, isolate("euc1-az1"));
    accepts(&change, &mk_facts());
    assert!(warnings(&change, &mk_facts()).contains(&"zones-left"));
    let pinned = |shoot: &mut Value| shoot["spec"]["controlPlane"]["zones"] = json!(["eu-1a"]);
    let facts = with_seed("a", |seed| seed["spec"]["provider"]["zones"] = json!(["eu-1a"]));
    // The code is that of the account of the Shoot; the seed has one of its own.
    for change in [update(pinned, isolate("euc1-az1")), update(rests, isolate("euc1-az1"))] {
        assert_eq!(warnings(&change, &facts), ["isolation-reconciled"]);
        accepts(&change, &facts);
    }
    // Where the id is the name, the two may be one zone.
    let facts = with_seed("a", |seed| seed["spec"]["provider"]["zones"] = json!(["eu-1b"]));
    accepts(&update(rests, isolate("eu-1b")), &facts);
    assert_eq!(warnings(&update(rests, isolate("eu-1b")), &facts), ["isolation-reconciled", "zones-left"]);
}

#[test]
fn rejects_isolation_on_the_way_and_a_move_of_an_isolated_shoot() {
    rejects(&update(moves, isolate("euc1-az1")), &mk_facts(), &["no-isolation-while-migrating"]);
    let ends = |shoot: &mut Value| shoot["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    rejects(&update(ends, isolate("euc1-az1")), &mk_facts(), &["no-isolation-while-migrating"]);
    rejects(&update(isolate("euc1-az1"), moves), &mk_facts(), &["no-move-while-isolated"]);
}

#[test]
fn rejects_maintenance_while_isolated() {
    for (key, value) in [
        ("gardener.cloud/operation", "maintain"),
        ("maintenance.gardener.cloud/operation", "rotate-credentials-start"),
    ] {
        let asks = |shoot: &mut Value| annotate(shoot, key, value);
        rejects(&update(isolate("euc1-az1"), asks), &mk_facts(), &["no-maintenance-while-isolated"]);
        accepts(&update(rests, asks), &mk_facts());
        accepts(&update(asks, |shoot| annotate(shoot, "x", "y")), &mk_facts());
    }
    let asks = |operation: &'static str| {
        update(isolate("euc1-az1"), move |shoot| annotate(shoot, "gardener.cloud/operation", operation))
    };
    accepts(&asks("reconcile"), &mk_facts());
    for operation in ["rollout-workers=*", "rotate-rollout-workers=cpu"] {
        rejects(&asks(operation), &mk_facts(), &["no-maintenance-while-isolated"]);
    }
    let fails_back = |status: &'static str| {
        move |shoot: &mut Value| {
            shoot["status"]["zoneIsolation"] = json!({"isolatedZoneID": "euc1-az1", "isolatedZoneCode": "eu-1a", "phase": "Failback", "status": status});
        }
    };
    let maintain = |shoot: &mut Value| annotate(shoot, "gardener.cloud/operation", "maintain");
    let during = update(fails_back("InProgress"), maintain);
    rejects(&during, &mk_facts(), &["no-maintenance-while-isolated"]);
    accepts(&update(fails_back("Done"), maintain), &mk_facts());
    // A person may have to replace a key; maintenance can wait.
    const CONTROLLER: &str = "gardener.cloud:system:gardener-controller-manager";
    let facts = Facts {
        settings: Settings { controllers: vec![CONTROLLER.to_owned()], ..Settings::default() }.into(),
        ..mk_facts()
    };
    for operation in ["rotate-ssh-keypair", "rotate-etcd-encryption-key;reconcile"] {
        accepts(&asks(operation), &facts);
        let by_maintenance = Change { user: person(CONTROLLER), ..asks(operation) };
        rejects(&by_maintenance, &facts, &["no-maintenance-while-isolated"]);
    }
    accepts(&Change { user: person(CONTROLLER), ..asks("reconcile") }, &facts);
}

#[test]
fn versions_stay_while_isolated_and_pools_may_come_and_grow() {
    const RULE: &str = "versions-kept-while-isolated";
    let pool = |version: &'static str, maximum: u32| {
        json!({
            "name": "w", "zones": ["eu-1a", "eu-1b"], "maximum": maximum,
            "machine": {"type": "m", "image": {"name": "linux", "version": version}},
        })
    };
    let with = |isolated: bool, kubernetes: &'static str, pools: Vec<Value>| {
        move |shoot: &mut Value| {
            if isolated {
                annotate(shoot, ZONE, "euc1-az1");
            }
            shoot["spec"]["kubernetes"] = json!({"version": kubernetes});
            shoot["spec"]["provider"]["workers"] = pools.into();
        }
    };
    let old = |isolated| with(isolated, "1.33.1", vec![pool("1.0", 3)]);
    let second =
        json!({"name": "x", "zones": ["eu-1a"], "machine": {"image": {"name": "linux", "version": "2.0"}}});
    const CONTROLLER: &str = "gardener.cloud:system:gardener-controller-manager";
    let by_maintenance = Facts {
        settings: Settings { controllers: vec![CONTROLLER.to_owned()], ..Settings::default() }.into(),
        ..mk_facts()
    };
    let mut pinned = pool("1.0", 3);
    pinned["kubernetes"] = json!({"version": "1.33.1"});
    // By whom it is refused: persons, and the controller of maintenance.
    for (kubernetes, pools, refused) in [
        ("1.33.1", vec![pool("1.0", 9)], [false, false]),
        ("1.33.1", vec![pool("1.0", 3), second], [false, false]),
        ("1.33.1", vec![pinned], [false, false]),
        ("1.33.2", vec![pool("1.0", 3)], [false, true]),
        ("1.34.0", vec![pool("1.0", 3)], [true, true]),
        ("1.33.1", vec![pool("1.1", 3)], [true, true]),
    ] {
        let change = update(old(true), with(true, kubernetes, pools.clone()));
        let names = |is_refused: bool| if is_refused { &[RULE][..] } else { &[] };
        rejects(&change, &mk_facts(), names(refused[0]));
        rejects(&Change { user: person(CONTROLLER), ..change }, &by_maintenance, names(refused[1]));
        accepts(&update(old(false), with(false, kubernetes, pools)), &mk_facts());
    }
    // Both at once, and what fails back.
    rejects(&update(old(false), with(true, "1.34.0", vec![pool("1.0", 3)])), &mk_facts(), &[RULE]);
    let fails_back = |shoot: &mut Value| {
        shoot["status"]["zoneIsolation"] = json!({"isolatedZoneID": "euc1-az1", "isolatedZoneCode": "eu-1a", "phase": "Failback", "status": "InProgress"});
    };
    let mut change = update(old(false), with(false, "1.34.0", vec![pool("1.0", 3)]));
    fails_back(&mut change.old);
    fails_back(&mut change.new);
    rejects(&change, &mk_facts(), &[RULE]);
}

#[test]
fn an_empty_zone_is_none() {
    let emptied = isolate("");
    for change in [update(rests, &emptied), update(isolate("euc1-az1"), &emptied)] {
        accepts(&change, &mk_facts());
    }
    accepts(&update(&emptied, moves), &mk_facts());
    accepts(&update(&emptied, isolate("euc1-az1")), &mk_facts());
    let ended = filled(&update(isolate("euc1-az1"), &emptied), &mk_facts());
    assert_eq!(ended["metadata"]["annotations"]["gardener.cloud/operation"], "reconcile");
}

#[test]
fn an_isolation_is_reconciled_when_the_generation_rises_or_an_operation_asks_for_it() {
    let generation = |number: i64| move |shoot: &mut Value| shoot["metadata"]["generation"] = json!(number);
    let failed = |shoot: &mut Value| shoot["status"]["lastOperation"]["state"] = json!("Failed");
    let asks = |operation: &'static str| {
        move |shoot: &mut Value| {
            annotate(shoot, ZONE, "euc1-az1");
            annotate(shoot, "gardener.cloud/operation", operation);
        }
    };
    let raised = |shoot: &mut Value| {
        annotate(shoot, ZONE, "euc1-az1");
        shoot["metadata"]["generation"] = json!(4);
    };
    for (change, warned) in [
        (update(generation(3), raised), false),
        (update(generation(3), isolate("euc1-az1")), true),
        (update(rests, asks("reconcile")), false),
        (update(rests, asks("rotate-ssh-keypair;reconcile")), false),
        (update(rests, asks("retry")), true),
        (update(failed, asks("reconcile")), true),
        (update(failed, asks("retry")), false),
        (update(isolate("euc1-az1"), |shoot| shoot["metadata"]["annotations"] = json!({})), true),
    ] {
        let expected: &[&str] = if warned { &["isolation-reconciled"] } else { &[] };
        assert_eq!(warnings(&change, &mk_facts()), expected, "{change:?}");
    }
}

#[test]
fn an_isolation_in_the_status_counts_until_its_failback_is_done() {
    let isolation = |phase: &'static str, status: &'static str| {
        move |shoot: &mut Value| {
            shoot["status"]["zoneIsolation"] = json!({"isolatedZoneID": "euc1-az1", "isolatedZoneCode": "eu-1a", "phase": phase, "status": status});
        }
    };
    for (phase, status, isolated) in [
        ("Failover", "Done", true),
        ("Failover", "Aborting", true),
        ("Failback", "InProgress", true),
        ("Failback", "Failed", true),
        ("Failback", "Done", false),
    ] {
        let rule = |name: &'static str| if isolated { vec![name] } else { vec![] };
        rejects(&update(isolation(phase, status), isolate("eu-1b")), &mk_facts(), &rule("zone-fixed"));
        accepts(&update(isolation(phase, status), isolate("euc1-az1")), &mk_facts());
        rejects(&update(isolation(phase, status), moves), &mk_facts(), &rule("no-move-while-isolated"));
    }
    // Nobody can bring the zone back where the source is dead.
    let dead = with_seed("a", |seed| seed["status"]["conditions"][0]["status"] = json!("Unknown"));
    accepts(&update(isolation("Failback", "InProgress"), moves), &dead);
}
