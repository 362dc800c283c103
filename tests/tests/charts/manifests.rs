//! The charts grant and register exactly what the smaller manifests in `deploy/` do, so that both can be tested by either.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::{Key, NAMESPACE, deploy, documents, key, read, render};

/// Kinds that the smaller manifests have, but for namespaces, which are not part of charts.
const KINDS: [&str; 7] =
    ["ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding", "ServiceAccount", "Service", "APIService"];
/// What only the charts have: certificates, metrics, and Services for Prometheus.
const CHART_ONLY: [&str; 2] = ["repot-certs", "repot-metrics-reader"];

fn of_kinds(objects: Vec<Value>) -> BTreeMap<Key, Value> {
    let fits = |object: &Value| KINDS.iter().any(|kind| object["kind"] == *kind);
    objects.into_iter().filter(fits).map(|object| (key(&object), object)).collect()
}

fn manifests(files: &[&str]) -> BTreeMap<Key, Value> {
    of_kinds(files.iter().flat_map(|file| documents(&read(&deploy(file)))).collect())
}

/// What an object says, without metadata and without the CA bundle, which somebody publishes later.
fn content(object: &Value) -> Value {
    let mut content = object.clone();
    if let Some(fields) = content.as_object_mut() {
        fields.remove("metadata");
    }
    if let Some(spec) = content["spec"].as_object_mut() {
        spec.remove("caBundle");
    }
    content
}

/// Labels by which a role becomes a part of another one.
fn aggregation(object: &Value) -> BTreeSet<String> {
    let labels = object["metadata"]["labels"].as_object();
    let names = labels.into_iter().flat_map(|labels| labels.keys());
    names.filter(|name| name.contains("aggregate-to")).cloned().collect()
}

fn assert_equal(wanted: &BTreeMap<Key, Value>, rendered: &BTreeMap<Key, Value>) {
    for (key, object) in wanted {
        let found = rendered.get(key).unwrap_or_else(|| panic!("the chart has no {key:?}"));
        assert_eq!(content(found), content(object), "{key:?}");
        assert_eq!(aggregation(found), aggregation(object), "{key:?}");
    }
}

fn assert_no_others(wanted: &BTreeMap<Key, Value>, rendered: &BTreeMap<Key, Value>) {
    for (kind, namespace, name) in rendered.keys() {
        let known = wanted.contains_key(&(kind.clone(), namespace.clone(), name.clone()));
        let is_service_for_metrics = kind == "Service" && name == "repot-controllers";
        let own = CHART_ONLY.contains(&name.as_str()) || is_service_for_metrics;
        assert!(known || own, "only the chart has {kind} {name}");
    }
}

#[test]
fn the_garden_chart_grants_what_the_manifests_grant() {
    let wanted = manifests(&[
        "rbac/server.yaml",
        "rbac/garden.yaml",
        "rbac/garden-migrations.yaml",
        "rbac/garden-gardenlet.yaml",
        "rbac/webhook.yaml",
        "webhooks/distances.yaml",
        "webhooks/service.yaml",
        "apiservices/core.yaml",
        "apiservices/migration.yaml",
        "apiservices/service.yaml",
    ]);
    let rendered = of_kinds(render("repot-garden", &["rbac.gardenletExecutor=true"]));
    assert_equal(&wanted, &rendered);
    assert_no_others(&wanted, &rendered);
}

#[test]
fn the_seed_chart_grants_what_the_manifests_grant() {
    let wanted = manifests(&[
        "rbac/server.yaml",
        "rbac/seed.yaml",
        "rbac/controllers.yaml",
        "rbac/seed-migrations.yaml",
        "rbac/seed-gardenlet.yaml",
        "rbac/watchdog-proxy.yaml",
        "rbac/webhook.yaml",
        "webhooks/service.yaml",
        "apiservices/migration.yaml",
        "apiservices/service.yaml",
    ]);
    let values = ["rbac.gardenletExecutor=true", "garden.seedName=a", "garden.kubeconfigSecret=b"];
    let rendered = of_kinds(render("repot-seed", &values));
    assert_equal(&wanted, &rendered);
    assert_no_others(&wanted, &rendered);
}

#[test]
fn optional_rights_are_not_granted_by_default() {
    for (chart, role) in [
        ("repot-garden", "repot-gardenlet-executor"),
        ("repot-seed", "repot-gardenlet-executor"),
        ("repot-seed", "repot-seed-migrations"),
    ] {
        let rendered = render(chart, &[]);
        assert!(rendered.iter().all(|object| object["metadata"]["name"] != role), "{chart} has {role}");
    }
}

#[test]
fn rights_in_some_namespaces_are_those_of_the_manifests() {
    let namespaces = ["shoot--a", "shoot--b"];
    let rendered = of_kinds(render("repot-seed", &["controllers.namespaces={shoot--a,shoot--b}"]));
    let roles = documents(&read(&deploy("rbac/namespaced/roles.yaml")));
    for namespace in namespaces {
        let within = |mut role: Value| {
            role["metadata"]["namespace"] = namespace.into();
            role
        };
        assert_equal(&of_kinds(roles.iter().cloned().map(within).collect()), &rendered);
    }
    assert_equal(&manifests(&["rbac/namespaced/account.yaml"]), &rendered);
    let wide = rendered.keys().find(|(kind, _, name)| kind == "ClusterRole" && name == "repot-etcd-members");
    assert_eq!(wide, None);
}

#[test]
fn webhooks_and_policies_are_those_of_the_manifests() {
    for (chart, file) in [
        ("repot-garden", "webhooks/garden.yaml"),
        ("repot-seed", "webhooks/seed.yaml"),
        ("repot-seed", "policies/keep-infrastructure.yaml"),
    ] {
        let rendered: BTreeMap<Key, Value> =
            render(chart, &[]).into_iter().map(|object| (key(&object), object)).collect();
        for mut object in documents(&read(&deploy(file))) {
            for webhook in object["webhooks"].as_array_mut().into_iter().flatten() {
                webhook["clientConfig"].as_object_mut().expect("an object").remove("caBundle");
            }
            let found = rendered.get(&key(&object)).unwrap_or_else(|| panic!("{chart}: {:?}", key(&object)));
            assert_eq!(found["webhooks"], object["webhooks"], "{file}");
            assert_eq!(found["spec"], object["spec"], "{file}");
        }
    }
}

/// Repot has to be repairable while its webhooks are down, whatever its namespace is called.
#[test]
fn webhooks_leave_the_namespace_of_the_release_alone() {
    let path = deploy("charts/repot-garden").display().to_string();
    let output = super::helm(&["template", "repot", &path, "--namespace", "elsewhere"]);
    let objects = documents(&String::from_utf8_lossy(&output.stdout));
    let webhooks = objects.iter().filter_map(|object| object["webhooks"].as_array()).flatten();
    let mut count = 0;
    for webhook in webhooks {
        let values = &webhook["namespaceSelector"]["matchExpressions"][0]["values"];
        assert_eq!(*values, serde_json::json!(["kube-system", "elsewhere"]), "{}", webhook["name"]);
        assert_eq!(webhook["clientConfig"]["service"]["namespace"], "elsewhere");
        count += 1;
    }
    assert!(count > 5, "only {count} webhooks");
    assert!(objects.iter().all(|object| object["metadata"]["namespace"] != NAMESPACE));
}
