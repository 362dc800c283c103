//! Match conditions, evaluated as an API server does it before it asks a webhook.

use std::{collections::BTreeMap, sync::LazyLock};

use cel::{Context, Env, Program, Value as Cel};

use super::*;

static PROGRAMS: LazyLock<BTreeMap<&'static str, Program>> = LazyLock::new(|| {
    let all = WATCHES.iter().flat_map(|watch| watch.conditions);
    all.map(|(_, text)| (*text, Env::stdlib().compile(text).expect(text))).collect()
});

/// Whether a webhook is asked about a change on which it is registered. A condition that breaks counts as one that holds: the rules
/// then see what they would otherwise be spared.
pub(super) fn hold(watch: &Watch, change: &Change) -> bool {
    watch.conditions.iter().all(|(_, text)| evaluate(text, change).unwrap_or(true))
}

/// What a condition says of a change.
///
/// # Errors
/// It breaks, or gives no boolean.
fn evaluate(text: &'static str, change: &Change) -> Result<bool, String> {
    let request = json!({
        "operation": change.operation.as_str(), "subResource": change.target.subresource,
        "userInfo": {"username": change.user.name, "groups": change.user.groups},
    });
    let mut context = Context::default();
    for (name, value) in [("object", &change.new), ("oldObject", &change.old), ("request", &request)] {
        context.add_variable(name, value).map_err(|error| error.to_string())?;
    }
    match PROGRAMS[text].execute(&context) {
        Ok(Cel::Bool(holds)) => Ok(holds),
        other => Err(format!("{other:?}")),
    }
}

/// The webhooks that fail closed and are asked about a change: what has to wait while Repot is down.
fn waits(change: &Change) -> Vec<&'static str> {
    let closed = |watch: &&Watch| watch.failure_policy == FailurePolicy::Fail;
    asked(change, false).filter(closed).map(|watch| watch.name).collect()
}

fn sets(before: impl FnOnce(&mut Value), key: &str, value: &str) -> Change {
    update(before, |shoot| annotate(shoot, key, value))
}

#[test]
fn no_condition_breaks_on_a_shoot() {
    for resource in ["shoots", "shoots/binding", "shoots/status"] {
        for change in [update(rests, rests), update(rests, moves), update(moves, rests)] {
            let change = of(CORE_GROUP, resource, Operation::Update, change.old, change.new);
            let registered = WATCHES.iter().filter(|watch| is_registered(watch, &change));
            for (name, text) in registered.flat_map(|watch| watch.conditions) {
                let said = evaluate(text, &change);
                assert!(said.is_ok(), "{name} of {resource}: {said:?}");
            }
        }
    }
    for text in WATCHES.iter().filter(|w| w.name == "markers").flat_map(|w| w.conditions).map(|(_, t)| t) {
        let create = of(CORE_GROUP, "shoots", Operation::Create, Value::Null, mk_shoot());
        assert_eq!(evaluate(text, &create), Ok(false));
    }
}

#[test]
fn everyday_writes_wait_for_nobody() {
    let unscheduled = |shoot: &mut Value| {
        shoot["spec"].as_object_mut().map(|spec| spec.remove("seedName"));
    };
    let first = |shoot: &mut Value| {
        shoot["spec"]["seedName"] = json!("a");
        shoot["spec"]["dns"] = json!({"domain": "s.p.example.com"});
    };
    let mut scheduled = update(unscheduled, first);
    scheduled.old["status"] = json!({});
    scheduled.new["status"] = json!({});
    let mut everyday = vec![
        of(CORE_GROUP, "shoots/binding", Operation::Update, scheduled.old, scheduled.new),
        of(CORE_GROUP, "shoots", Operation::Create, Value::Null, mk_shoot()),
        of(CORE_GROUP, "shoots", Operation::Delete, mk_shoot(), Value::Null),
        update(rests, |shoot| shoot["spec"]["hibernation"] = json!({"enabled": true})),
        update(rests, |shoot| shoot["spec"]["purpose"] = json!("testing")),
    ];
    for value in ["reconcile", "retry", "maintain", "rotate-credentials-start", "rotate-ca-complete"] {
        everyday.push(sets(rests, "gardener.cloud/operation", value));
        everyday.push(sets(rests, "maintenance.gardener.cloud/operation", value));
    }
    // A Shoot that was restored once does not move any more.
    let restored = |shoot: &mut Value| {
        shoot["status"]["lastOperation"] = json!({"type": "Restore", "state": "Succeeded"});
    };
    everyday.push(update(restored, |shoot| shoot["spec"]["purpose"] = json!("testing")));
    let labelled =
        |shoot: &mut Value| shoot["metadata"]["labels"] = json!({"name.seed.gardener.cloud/a": "true"});
    everyday.push(update(labelled, |shoot| shoot["spec"]["purpose"] = json!("testing")));
    for change in &everyday {
        assert_eq!(waits(change), Vec::<&str>::new(), "{change:?}");
    }
    let mutated = asked(&everyday[everyday.len() - 1], true).count();
    assert_eq!(mutated, 0, "nothing is to be filled in");
}

#[test]
fn what_starts_something_waits_on_every_path() {
    let starts = [
        ("migration.gardener.cloud/live-migrate", "true"),
        ("migration.gardener.cloud/allow-distant-regions", "true"),
        ("migration.gardener.cloud/force-shrink-etcd", "true"),
        ("migration.shoot.gardener.cloud/abort-live-migration", "force"),
        ("shoot.gardener.cloud/isolated-zone", ""),
        ("shoot.gardener.cloud/force-restore", "true"),
        ("gardener.cloud/operation", "live-migrate"),
        ("gardener.cloud/operation", "live-migrate;reconcile"),
    ];
    for resource in ["shoots", "shoots/binding", "shoots/status"] {
        for (key, value) in starts {
            let change = sets(rests, key, value);
            let change = of(CORE_GROUP, resource, Operation::Update, change.old, change.new);
            assert_eq!(waits(&change), ["markers"], "{key}={value} through {resource}");
        }
        let change = sets(rests, "migration.gardener.cloud/live-migrate", "false");
        let change = of(CORE_GROUP, resource, Operation::Update, change.old, change.new);
        assert_eq!(waits(&change), Vec::<&str>::new(), "{resource}");
        let names: Vec<&str> = asked(&change, false).map(|watch| watch.name).collect();
        assert_eq!(names, ["withdrawn-markers"], "{resource}");
    }
    // The request for a migration that runs stays on every path; a status that leaves it alone waits for nobody.
    let drops = |shoot: &mut Value| shoot["metadata"]["annotations"] = json!({});
    let reports = |shoot: &mut Value| shoot["status"]["lastOperation"]["progress"] = json!(50);
    for (resource, webhook) in [
        ("shoots", "moving-shoots"),
        ("shoots/binding", "changed-requests"),
        ("shoots/status", "changed-requests"),
    ] {
        let through = |change: Change| of(CORE_GROUP, resource, Operation::Update, change.old, change.new);
        let dropped = through(update(|shoot| moving_live(shoot, &json!([])), drops));
        assert_eq!(waits(&dropped), [webhook], "{resource}");
        rejects(&dropped, &mk_facts(), &["live-trigger-kept"]);
        let reported = through(update(|shoot| moving_live(shoot, &json!([])), reports));
        assert_eq!(waits(&reported), Vec::<&str>::new(), "{resource}");
    }
    assert_eq!(waits(&sets(moves, "gardener.cloud/operation", "retry")), ["markers"]);
    assert_eq!(waits(&update(rests, moves)), ["seed-change"]);
    assert_eq!(waits(&update(rests, |shoot| shoot["spec"]["seedName"] = Value::Null)), ["seed-change"]);
    let reconciled =
        update(|shoot| moving_live(shoot, &json!([])), |shoot| shoot["metadata"]["generation"] = json!(2));
    assert_eq!(waits(&reconciled), ["moving-shoots"]);
    let retried = update(
        |shoot| {
            moves(shoot);
            shoot["status"]["lastOperation"] = json!({"type": "Migrate", "state": "Failed"});
        },
        |shoot| shoot["metadata"]["generation"] = json!(2),
    );
    assert_eq!(waits(&retried), Vec::<&str>::new(), "a retry repairs");
    let back = |shoot: &mut Value| {
        moving_live(shoot, &json!([]));
        shoot["spec"]["seedName"] = json!("a");
        shoot["status"]["lastOperation"]["state"] = json!("Failed");
    };
    let changed = update(back, |shoot| shoot["spec"]["purpose"] = json!("testing"));
    assert_eq!(waits(&changed), Vec::<&str>::new());
    assert_eq!(asked(&changed, false).map(|watch| watch.name).collect::<Vec<_>>(), ["ended-live-migrations"]);
}
