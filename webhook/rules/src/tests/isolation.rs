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
    for zone in ["", "Euc1-az1", "a,b", "a b", "-a", "a-", "euc1-az1 ", "\u{e4}"] {
        rejects(&update(rests, isolate(zone)), &mk_facts(), &["zone-form"]);
    }
    let long = "a".repeat(64);
    rejects(&update(rests, |shoot| annotate(shoot, ZONE, &long)), &mk_facts(), &["zone-form"]);
}

#[test]
fn warns_where_nobody_knows_the_zone_and_rejects_one_that_is_not_in_use() {
    let change = update(rests, isolate("euc1-az9"));
    accepts(&change, &mk_facts());
    assert_eq!(warnings(&change, &mk_facts()), ["isolation-reconciled", "zone-used"]);
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
    rejects(&update(pinned, isolate("euc1-az1")), &mk_facts(), &["zones-left"]);
    let facts = with_seed("a", |seed| seed["spec"]["provider"]["zones"] = json!(["eu-1a"]));
    rejects(&update(rests, isolate("euc1-az1")), &facts, &["zones-left"]);
}

#[test]
fn rejects_isolation_on_the_way_and_a_move_of_an_isolated_shoot() {
    rejects(&update(moves, isolate("euc1-az1")), &mk_facts(), &["isolated-at-rest"]);
    let ends = |shoot: &mut Value| shoot["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    rejects(&update(ends, isolate("euc1-az1")), &mk_facts(), &["isolated-at-rest"]);
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
    accepts(
        &update(isolate("euc1-az1"), |shoot| annotate(shoot, "gardener.cloud/operation", "reconcile")),
        &mk_facts(),
    );
}
