use proptest::prelude::*;
use repot_api::{
    gardener::{seed_change::SeedChange, shoot::Shoot},
    names::{
        ABORT_LIVE_MIGRATION, ALLOW_DISTANT_REGIONS, FORCE_RESTORE, FORCE_SHRINK_ETCD, ISOLATED_ZONE,
        LIVE_MIGRATE, MAINTENANCE_OPERATION, OPERATION, REQUESTED_AT,
    },
};
use repot_apimachinery::value::annotation_of;

use super::*;

const KEYS: &[&str] = &[
    OPERATION,
    LIVE_MIGRATE,
    ALLOW_DISTANT_REGIONS,
    ABORT_LIVE_MIGRATION,
    FORCE_SHRINK_ETCD,
    FORCE_RESTORE,
    ISOLATED_ZONE,
    MAINTENANCE_OPERATION,
    REQUESTED_AT,
    "other",
];
const WORDS: &[&str] = &[
    "",
    "a",
    "b",
    "c",
    "true",
    "false",
    "force",
    "y",
    "live-migrate",
    "reconcile",
    "maintain",
    "euc1-az1",
    "eu-1b",
    "zone",
    "Migrate",
    "Restore",
    "LiveMigrate",
    "Succeeded",
    "Failed",
    "Processing",
    "Preparing",
    "fd00:1::/40",
    "TXT",
    "owner.x",
];
const MEMBERS: &[&str] = &[
    "metadata",
    "spec",
    "status",
    "annotations",
    "labels",
    "seedName",
    "lastOperation",
    "type",
    "state",
    "liveMigration",
    "conditions",
    "provider",
    "workers",
    "zones",
    "networking",
    "credentials",
    "rotation",
    "phase",
    "controlPlane",
    "highAvailability",
    "failureTolerance",
    "deletionTimestamp",
    "recordType",
    "name",
    "ownerReferences",
    "currentWorkflow",
];

/// Any JSON, often with members that rules look for.
fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        ".{0,8}".prop_map(Value::from),
        prop::sample::select(WORDS).prop_map(Value::from),
    ];
    leaf.prop_recursive(6, 48, 6, |inner| {
        let key = prop_oneof![
            3 => prop::sample::select(MEMBERS).prop_map(str::to_owned),
            1 => prop::sample::select(KEYS).prop_map(str::to_owned),
            1 => ".{0,6}",
        ];
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(key, inner, 0..6)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

/// A Shoot that could be one: every field that rules look at in many states, sensible and not.
fn any_shoot() -> impl Strategy<Value = Value> {
    let word = || prop::sample::select(WORDS);
    let annotations = prop::collection::btree_map(prop::sample::select(KEYS), word(), 0..5);
    let fields = (word(), word(), word(), word(), prop::option::of(any_json()), any::<bool>(), any::<bool>());
    (annotations, fields).prop_map(|(annotations, (spec, status, kind, state, progress, ends, sleeps))| {
        let mut shoot = mk_shoot();
        for (key, value) in annotations {
            annotate(&mut shoot, key, value);
        }
        shoot["spec"]["seedName"] = json!(spec);
        shoot["spec"]["hibernation"] = json!({"enabled": sleeps});
        shoot["status"]["seedName"] = json!(status);
        shoot["status"]["lastOperation"] = json!({"type": kind, "state": state});
        if let Some(progress) = progress {
            shoot["status"]["liveMigration"] = progress;
        }
        if ends {
            shoot["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        }
        shoot
    })
}

fn any_operation() -> impl Strategy<Value = Operation> {
    prop::sample::select(&[Operation::Create, Operation::Update, Operation::Delete][..])
}

fn shoots(operation: Operation, old: Value, new: Value) -> Change {
    of(CORE_GROUP, "shoots", operation, old, new)
}

/// When Gardener calls a migration begun, written down apart from the rules: one of its operations is not over. A live migration
/// that has failed, with one seed left, is over.
fn has_begun_to_move(shoot: &Value) -> bool {
    let text = |pointer: &str| shoot.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let (spec, status) = (text("/spec/seedName"), text("/status/seedName"));
    let (kind, state) = (text("/status/lastOperation/type"), text("/status/lastOperation/state"));
    let ended = state == "Succeeded"
        || kind == "LiveMigrate" && state == "Failed" && !spec.is_empty() && spec == status;
    kind == "Migrate" || matches!(kind, "Restore" | "LiveMigrate") && !ended
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_rule_panics_on_any_json(operation in any_operation(), old in any_json(), new in any_json(), world in any_json()) {
        let world = Arc::new(world);
        let seeds = ["a", "b", "true"].map(|name| (name.to_owned(), Some(world.clone())));
        let facts = Facts {
            seeds: seeds.into_iter().collect(),
            cloud_profile: Some(world.clone()), project: Some(world.clone()), shoot: Some(world.clone()),
            hosted_etcd: Some(world.clone()), hosted_etcds: vec![world.clone()], workflows: vec![world.clone()],
            binding: true, ..mk_facts()
        };
        for (group, resource) in [
            (CORE_GROUP, "shoots"), (CORE_GROUP, "shoots/binding"), (CORE_GROUP, "shoots/status"), (CORE_GROUP, "shootstates"),
            ("migration.gardener.cloud", "etcdmigrations"), ("migration.gardener.cloud", "hostedetcds/status"),
            ("migration.gardener.cloud", "hostedetcds"), ("druid.gardener.cloud", "etcds"),
            ("extensions.gardener.cloud", "dnsrecords"),
        ] {
            let change = of(group, resource, operation, old.clone(), new.clone());
            let _ = crate::facts::RequiredFacts::of(&change);
            let _ = (judged(&change, &facts), filled(&change, &facts));
        }
    }

    #[test]
    fn removing_a_marker_is_refused_only_where_a_migration_that_runs_goes_by_it(old in any_shoot(), keys in prop::collection::vec(prop::sample::select(KEYS), 1..4)) {
        let mut new = old.clone();
        if let Some(annotations) = new["metadata"]["annotations"].as_object_mut() {
            for key in keys {
                annotations.remove(key);
            }
        }
        let refusing = shoots(Operation::Update, old.clone(), new.clone());
        let trigger = Shoot(&old).is_moving_live() && Shoot(&old).trigger() != Shoot(&new).trigger();
        let refused = refusals(&refusing, &mk_facts());
        let time = "migration.gardener.cloud/requested-at";
        let time = Shoot(&old).is_moving() && annotation_of(&old, time) != annotation_of(&new, time);
        let mut expected = vec![];
        expected.extend(trigger.then_some("live-trigger-kept"));
        expected.extend(time.then_some("requested-at-true"));
        prop_assert!(refused.iter().all(|rule| expected.contains(rule)), "{refused:?}");
    }

    #[test]
    fn removing_finalizers_is_never_refused(old in any_shoot()) {
        let mut old = old;
        old["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        old["metadata"]["finalizers"] = json!(["gardener"]);
        let mut new = old.clone();
        new["metadata"]["finalizers"] = json!([]);
        prop_assert!(refusals(&shoots(Operation::Update, old, new), &Facts::default()).is_empty());
    }

    #[test]
    fn deletion_is_refused_only_after_a_move_has_begun(old in any_shoot()) {
        let begun = has_begun_to_move(&old) && old["metadata"]["deletionTimestamp"].is_null();
        let refused = refusals(&shoots(Operation::Delete, old, Value::Null), &Facts::default());
        prop_assert_eq!(refused, if begun { vec!["no-deletion-while-migrating"] } else { vec![] });
    }

    #[test]
    fn an_unrelated_write_is_never_refused(old in any_shoot()) {
        let mut new = old.clone();
        new["metadata"]["labels"] = json!({"team": "x"});
        prop_assert!(refusals(&shoots(Operation::Update, old, new), &Facts::default()).is_empty());
    }

    #[test]
    fn filling_in_twice_is_filling_in_once(operation in any_operation(), old in any_shoot(), new in any_shoot()) {
        let mut change = shoots(operation, old, new);
        change.new = filled(&change, &mk_facts());
        let later = Facts { now: "2026-11-21T13:00:00Z".into(), ..mk_facts() };
        prop_assert_eq!(&filled(&change, &later), &change.new);
    }

    #[test]
    fn what_is_filled_in_is_never_the_reason_for_a_refusal(old in any_shoot(), new in any_shoot()) {
        let mut change = shoots(Operation::Update, old, new);
        let before = refusals(&change, &mk_facts());
        let travel = matches!(change.seed_change(), SeedChange::Start { .. });
        change.new = filled(&change, &mk_facts());
        let after = refusals(&change, &mk_facts());
        prop_assert!(after.iter().all(|rule| before.contains(rule)), "{before:?} became {after:?} (start: {travel})");
    }
}
