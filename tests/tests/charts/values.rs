//! Values of the charts: every one has a type, a default and a place in the README, and wrong ones are refused with a reason.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{CHARTS, deploy, read, template};

fn schema(chart: &str) -> Value {
    serde_json::from_str(&read(&deploy(&format!("charts/{chart}/values.schema.json")))).expect("JSON")
}

fn values(chart: &str) -> Value {
    serde_saphyr::from_str(&read(&deploy(&format!("charts/{chart}/values.yaml")))).expect("YAML")
}

/// Paths of the values that a schema has; below a map that users fill there are none.
fn paths_of_schema(schema: &Value, path: &str, found: &mut BTreeSet<String>) {
    for (name, inner) in schema["properties"].as_object().into_iter().flatten() {
        let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
        // `global` is there for charts that have this one as a dependency.
        if path == "global"
            || path.ends_with(".requests")
            || path.ends_with(".limits")
            || path.ends_with(".claims")
        {
            continue;
        }
        if path.ends_with(".issuerRef") || !inner["properties"].is_object() || path.ends_with(".resources") {
            found.insert(path);
        } else {
            paths_of_schema(inner, &path, found);
        }
    }
}

/// Paths of the values that `values.yaml` has, as far as the schema knows them apart.
fn paths_of_values(values: &Value, path: &str, leaves: &BTreeSet<String>, found: &mut BTreeSet<String>) {
    match values.as_object() {
        Some(inner) if !leaves.contains(path) && !inner.is_empty() => {
            for (name, value) in inner {
                let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                paths_of_values(value, &path, leaves, found);
            }
        }
        _ => {
            found.insert(path.to_owned());
        }
    }
}

#[test]
fn schema_defaults_and_readme_have_the_same_values() {
    for chart in CHARTS {
        let (mut known, mut found) = (BTreeSet::new(), BTreeSet::new());
        paths_of_schema(&schema(chart), "", &mut known);
        paths_of_values(&values(chart), "", &known, &mut found);
        assert_eq!(known, found, "{chart}");
        assert!(known.len() > 80, "{chart} has only {} values", known.len());
        let readme = read(&deploy(&format!("charts/{chart}/README.md")));
        let rows = readme.lines().filter_map(|line| line.strip_prefix("| `")?.split_once("` | "));
        let documented: BTreeSet<String> = rows
            .filter(|(_, rest)| rest.split(" | ").nth(1).is_some_and(|meaning| meaning.len() > 8))
            .map(|(path, _)| path.to_owned())
            .filter(|path| known.contains(path))
            .collect();
        assert_eq!(documented, known, "{chart}: README.md");
        assert!(readme.lines().count() <= 200, "{chart}: README.md is too long");
    }
}

/// Objects of the schema that take any field: maps that users fill.
const OPEN: [&str; 12] = [
    "affinity",
    "config",
    "gardener",
    "global",
    "items",
    "labels",
    "limits",
    "nodeSelector",
    "podAnnotations",
    "podLabels",
    "policy",
    "requests",
];

fn assert_strict(name: &str, schema: &Value) {
    if schema["type"] == "object" && name != "serviceAnnotations" && !OPEN.contains(&name) {
        assert_eq!(schema["additionalProperties"], false, "{name} takes any field");
    }
    for (name, inner) in schema["properties"].as_object().into_iter().flatten() {
        assert_strict(name, inner);
    }
    for definition in schema["definitions"].as_object().into_iter().flat_map(|all| all.values()) {
        assert_strict("definition", &definition["items"]);
    }
    if schema["items"].is_object() {
        assert_strict("items", &schema["items"]);
    }
}

#[test]
fn schemas_refuse_unknown_values() {
    for chart in CHARTS {
        assert_strict("values", &schema(chart));
        for value in
            ["imagge.tag=1", "image.tagg=1", "storage.etcd.server=x", "apiserver.resources.request.cpu=1"]
        {
            let error = template(chart, &[value]).expect_err(value);
            assert!(error.contains("additional properties"), "{chart} {value}: {error}");
        }
    }
}

#[test]
fn wrong_values_are_refused_with_a_reason() {
    let runtime = "mode=runtime,garden.subjects[0].kind=User,garden.subjects[0].name=repot";
    for (chart, values, reason) in [
        ("repot-garden", "mode=other", "value must be one of 'all', 'runtime', 'application'"),
        ("repot-garden", "image.digest=abc", "does not match pattern"),
        ("repot-garden", "apiserver.replicas=0", "minimum: got 0, want 1"),
        ("repot-garden", "storage.type=etcd", "storage.etcd.servers is empty"),
        ("repot-garden", "certificates.issuer=existing", "certificates.existing.caBundle is empty"),
        ("repot-seed", "certificates.servingDays=400", "certificates.authorityDays is too small"),
        ("repot-garden", runtime, "garden.kubeconfigSecret is empty"),
        ("repot-garden", "garden.kubeconfigSecret=k", "set mode=runtime"),
        ("repot-garden", "mode=application,garden.apiserverAddress=x", "garden.subjects is empty"),
        (
            "repot-garden",
            "mode=application,garden.subjects[0].kind=User,garden.subjects[0].name=x",
            "garden.apiserverAddress is empty",
        ),
        ("repot-seed", "garden.kubeconfigSecret=k", "garden.seedName is empty"),
        ("repot-seed", "garden.seedName=a", "garden.kubeconfigSecret is empty"),
        ("repot-seed", "controllers.membersGateway=a/b", "garden.seedName is empty"),
        (
            "repot-seed",
            "gardener.seed.name=x,controllers.namespaces={a,b}",
            "controllers.namespaces has several",
        ),
        ("repot-seed", "controllers.membersGateway=a", "does not match pattern"),
    ] {
        let error = template(chart, &[values]).expect_err(values);
        assert!(error.contains(reason), "{chart} {values}: {error}");
    }
    let error =
        template("repot-garden", &[runtime, "garden.kubeconfigSecret=k", "certificates.issuer=cert-manager"]);
    assert!(error.expect_err("refused").contains("publishes into its own cluster only"));
}
