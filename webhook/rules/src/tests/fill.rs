use super::*;

fn annotations(change: &Change, facts: &Facts) -> Value {
    filled(change, facts)["metadata"]["annotations"].clone()
}

#[test]
fn labels_tell_both_seeds_and_no_other() {
    let stale = |shoot: &mut Value| {
        shoot["metadata"]["labels"] = json!({"name.seed.gardener.cloud/z": "true", "kept": "yes"});
    };
    let new = filled(&update(stale, moves), &mk_facts());
    let expected =
        json!({"kept": "yes", "name.seed.gardener.cloud/a": "true", "name.seed.gardener.cloud/b": "true"});
    assert_eq!(new["metadata"]["labels"], expected);
    let settled =
        |shoot: &mut Value| shoot["metadata"]["labels"] = json!({"name.seed.gardener.cloud/a": "true"});
    assert!(
        asked(&update(settled, rests), true).all(|watch| judge::mutate(
            watch,
            &mut update(settled, rests),
            &mk_facts()
        )
        .is_empty())
    );
}

#[test]
fn the_trigger_is_kept_under_its_own_key() {
    let paper = update(rests, |shoot| annotate(shoot, "gardener.cloud/operation", "live-migrate"));
    assert_eq!(annotations(&paper, &mk_facts()), json!({"migration.gardener.cloud/live-migrate": "true"}));
    let short = update(rests, |shoot| annotate(shoot, "migration.gardener.cloud/live-migrate", "1"));
    assert_eq!(annotations(&short, &mk_facts()), json!({"migration.gardener.cloud/live-migrate": "true"}));
    let other = update(rests, |shoot| annotate(shoot, "gardener.cloud/operation", "reconcile"));
    assert_eq!(annotations(&other, &mk_facts()), json!({"gardener.cloud/operation": "reconcile"}));
}

#[test]
fn an_isolation_is_reconciled_at_once() {
    let isolated = |shoot: &mut Value| annotate(shoot, "shoot.gardener.cloud/isolated-zone", "euc1-az1");
    let begins = annotations(&update(rests, isolated), &mk_facts());
    assert_eq!(begins["gardener.cloud/operation"], "reconcile");
    let ends = update(isolated, |shoot| shoot["metadata"]["annotations"] = json!({}));
    assert_eq!(annotations(&ends, &mk_facts()), json!({"gardener.cloud/operation": "reconcile"}));
    let busy = update(rests, |shoot| {
        isolated(shoot);
        annotate(shoot, "gardener.cloud/operation", "retry");
    });
    assert_eq!(annotations(&busy, &mk_facts())["gardener.cloud/operation"], "retry");
}

#[test]
fn a_migration_tells_when_it_was_asked_for() {
    let begins = annotations(&update(rests, moves), &mk_facts());
    assert_eq!(begins, json!({"migration.gardener.cloud/requested-at": "2026-11-21T12:00:00Z"}));
    assert_eq!(annotations(&update(rests, rests), &mk_facts()), Value::Null);
}

#[test]
fn what_steered_a_migration_goes_with_it_and_no_sooner() {
    let steered = |shoot: &mut Value| {
        for key in ["live-migrate", "allow-distant-regions", "force-shrink-etcd"] {
            annotate(shoot, &format!("migration.gardener.cloud/{key}"), "true");
        }
        annotate(shoot, "kept", "yes");
    };
    let over = |shoot: &mut Value| {
        steered(shoot);
        annotate(shoot, "migration.gardener.cloud/requested-at", "2026-11-21T11:00:00Z");
    };
    assert_eq!(annotations(&update(over, rests), &mk_facts()), json!({"kept": "yes"}));
    // Set for a migration that is still to come.
    assert_eq!(
        annotations(&update(steered, rests), &mk_facts()).as_object().map(serde_json::Map::len),
        Some(4)
    );
    // Not over.
    let running = |shoot: &mut Value| {
        over(shoot);
        moves(shoot);
    };
    assert_eq!(
        annotations(&update(running, rests), &mk_facts()).as_object().map(serde_json::Map::len),
        Some(5)
    );
    // What this very write sets is for the next one.
    let again =
        |shoot: &mut Value| annotate(shoot, "migration.shoot.gardener.cloud/abort-live-migration", "false");
    let left = annotations(&update(over, again), &mk_facts());
    assert_eq!(left, json!({"kept": "yes", "migration.shoot.gardener.cloud/abort-live-migration": "false"}));
}

#[test]
fn a_state_belongs_to_its_shoot_and_tells_its_time() {
    let new = json!({"metadata": {"name": "s"}, "spec": {}});
    let change = of(CORE_GROUP, "shootstates", Operation::Create, Value::Null, new);
    let facts = Facts { shoot: Some(Arc::new(mk_shoot())), ..mk_facts() };
    let state = filled(&change, &facts);
    let owner = &state["metadata"]["ownerReferences"][0];
    assert_eq!(
        (&owner["kind"], &owner["uid"], &owner["controller"]),
        (&json!("Shoot"), &json!("u"), &json!(true))
    );
    assert_eq!(state["metadata"]["annotations"]["gardener.cloud/timestamp"], "2026-11-21T12:00:00Z");
    assert_eq!(filled(&change, &mk_facts())["metadata"]["ownerReferences"], Value::Null);
}

#[test]
fn markers_stay_on_a_shoot_that_ends_or_whose_deletion_is_confirmed_or_whose_seed_ends() {
    let over =
        |shoot: &mut Value| annotate(shoot, "migration.gardener.cloud/requested-at", "2026-01-01T00:00:00Z");
    let ends = |shoot: &mut Value| {
        over(shoot);
        shoot["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    };
    let labels = |shoot: &mut Value| shoot["metadata"]["labels"] = json!({"team": "x"});
    let confirms = |shoot: &mut Value| annotate(shoot, "confirmation.gardener.cloud/deletion", "true");
    for (change, kept) in
        [(update(over, labels), false), (update(over, confirms), true), (update(ends, labels), true)]
    {
        let annotations = filled(&change, &mk_facts())["metadata"]["annotations"].clone();
        assert_eq!(annotations.get("migration.gardener.cloud/requested-at").is_some(), kept, "{change:?}");
    }
    let leaves = with_seed("a", |seed| seed["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z"));
    let kept = &filled(&update(over, labels), &leaves)["metadata"];
    assert_eq!(kept["annotations"]["migration.gardener.cloud/requested-at"], "2026-01-01T00:00:00Z");
    assert_eq!(kept["labels"]["team"], "x");
}
