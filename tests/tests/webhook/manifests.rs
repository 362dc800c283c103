//! Shipped files are what the tables of rules say.

use std::{collections::BTreeSet, fs, path::Path};

use repot_rules::{
    catalogue,
    table::RULES,
    watch::{FailurePolicy, HomeCluster, WATCHES},
};
use repot_webhook::manifests::{Reach, render, to_yaml};
use serde_json::json;

/// Refresh by `UPDATE_GOLDENS=1`.
fn golden(path: &str, made: &str) {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path);
    if std::env::var_os("UPDATE_GOLDENS").is_some() {
        fs::write(&file, made).expect("written");
    }
    let rests = fs::read_to_string(&file).unwrap_or_default();
    assert!(rests == made, "{path} is not what the tables say; UPDATE_GOLDENS=1 brings it up to date");
}

#[test]
fn webhook_configurations_are_what_the_table_says() {
    for (place, file) in [(HomeCluster::Garden, "garden"), (HomeCluster::Seed, "seed")] {
        let made = to_yaml(&render(place, &Reach::default())).expect("YAML");
        golden(&format!("deploy/webhooks/{file}.yaml"), &made);
    }
}

#[test]
fn the_catalogue_of_rules_is_what_the_table_says() {
    golden("docs/reference/rules.md", &catalogue::render());
}

#[test]
fn documents_count_rules_and_closed_webhooks_as_the_table_does() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let read = |path: &str| fs::read_to_string(root.join(path)).expect(path);
    let rules = format!("{} admission rules", RULES.len());
    assert!(read("README.md").contains(&rules), "README.md does not say {rules:?}");
    let closed = WATCHES.iter().filter(|watch| watch.failure_policy == FailurePolicy::Fail).count();
    let said = format!("Webhooks with `failurePolicy: Fail`: {closed}.");
    assert!(read("deploy/README.md").contains(&said), "deploy/README.md does not say {said:?}");
}

#[test]
fn our_own_namespace_is_never_asked_about() {
    let both = [HomeCluster::Garden, HomeCluster::Seed]
        .into_iter()
        .flat_map(|place| render(place, &Reach::default()));
    let mut names = BTreeSet::new();
    for webhook in both.flat_map(|c| c["webhooks"].as_array().cloned().unwrap_or_default()) {
        let name = webhook["name"].as_str().unwrap_or_default().to_owned();
        assert!(name.split('.').count() >= 3 && names.insert(name.clone()), "{name}");
        let values = &webhook["namespaceSelector"]["matchExpressions"][0]["values"];
        assert_eq!(*values, json!(["kube-system", "repot-system"]), "{name}");
        assert_eq!(webhook["sideEffects"], "None", "{name}");
        let closed = webhook["failurePolicy"] == "Fail";
        assert!(!closed || webhook["matchConditions"].is_array(), "{name} could lock a cluster");
        assert!(webhook["timeoutSeconds"].as_u64().is_some_and(|seconds| seconds <= 10), "{name}");
    }
    assert_eq!(names.len(), WATCHES.len());
}
