use std::{fmt::Write as _, fs, path::Path};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::Resource;
use serde::{Serialize, de::DeserializeOwned};

use super::*;
use crate::kinds::{
    BackupBucket, BackupEntry, Cluster, ContainerRuntime, ControlPlane, DNSRecord, Extension, Infrastructure,
    Network, OperatingSystemConfig, SubnetIsolation, Worker,
};

fn rendered() -> String {
    let mut text =
        "# Made from the sources of repot-extension: UPDATE_GOLDENS=1 cargo test -p repot-extension crds\n\
                    # For platforms and tests where Gardener installs no CustomResourceDefinitions.\n"
            .to_owned();
    for definition in definitions() {
        let yaml = serde_saphyr::to_string(&definition).expect("YAML");
        write!(text, "---\n{yaml}").expect("a text");
        if !text.ends_with('\n') {
            text.push('\n');
        }
    }
    text
}

#[test]
fn manifest_is_what_the_sources_say() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/crds/extensions.yaml");
    let made = rendered();
    if std::env::var_os("UPDATE_GOLDENS").is_some() {
        fs::write(&path, &made).expect("the manifest");
    }
    let committed = fs::read_to_string(&path).unwrap_or_default();
    assert!(committed == made, "tests/crds/extensions.yaml is out of date: run with UPDATE_GOLDENS=1");
    let parsed: Vec<Value> = serde_saphyr::from_multiple(&committed).expect("YAML");
    assert_eq!(parsed, definitions());
}

/// A value that the schema allows, with every field.
fn sample(schema: &Value) -> Value {
    match schema["type"].as_str() {
        Some("object") if schema["additionalProperties"].is_object() => {
            json!({"key": sample(&schema["additionalProperties"])})
        }
        Some("object") if schema["properties"].is_object() => {
            let properties = schema["properties"].as_object().expect("properties").iter();
            properties.map(|(name, schema)| (name.clone(), sample(schema))).collect()
        }
        Some("object") => json!({"any": [1]}),
        Some("array") => json!([sample(&schema["items"])]),
        Some("integer") => json!(3),
        Some("boolean") => json!(true),
        _ if schema["format"] == "date-time" => json!("2026-05-01T06:30:00Z"),
        _ => schema["enum"].get(0).cloned().unwrap_or_else(|| json!("shoot")),
    }
}

/// Reads a sample with every field of the schema, and writes it again.
fn is_lossless<K: Resource<DynamicType = ()> + DeserializeOwned + Serialize>() {
    let name = format!("{}.extensions.gardener.cloud", K::plural(&()));
    let all = definitions();
    let definition = all.iter().find(|d| d["metadata"]["name"] == name.as_str()).expect("a definition");
    assert_eq!(definition["spec"]["names"]["kind"], K::kind(&()).as_ref());
    let mut sample = sample(&definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]);
    sample["metadata"] = json!({"name": "a"});
    let read: K = serde_json::from_value(sample.clone()).unwrap_or_else(|error| panic!("{name}: {error}"));
    assert_eq!(serde_json::to_value(&read).expect("JSON"), sample, "{name}");
}

#[test]
fn types_have_every_field_of_the_schemas() {
    is_lossless::<BackupBucket>();
    is_lossless::<BackupEntry>();
    is_lossless::<Cluster>();
    is_lossless::<ContainerRuntime>();
    is_lossless::<ControlPlane>();
    is_lossless::<DNSRecord>();
    is_lossless::<Extension>();
    is_lossless::<Infrastructure>();
    is_lossless::<Network>();
    is_lossless::<OperatingSystemConfig>();
    is_lossless::<SubnetIsolation>();
    is_lossless::<Worker>();
    assert_eq!(definitions().len(), 12);
}

#[test]
fn scopes_of_types_and_definitions_agree() {
    let namespaced: Vec<String> = definitions()
        .iter()
        .filter(|definition| definition["spec"]["scope"] == "Namespaced")
        .map(|definition| definition["spec"]["names"]["kind"].as_str().expect("a kind").to_owned())
        .collect();
    let mut expected = [
        kind_in_namespace::<ContainerRuntime>(),
        kind_in_namespace::<ControlPlane>(),
        kind_in_namespace::<DNSRecord>(),
        kind_in_namespace::<Extension>(),
        kind_in_namespace::<Infrastructure>(),
        kind_in_namespace::<Network>(),
        kind_in_namespace::<OperatingSystemConfig>(),
        kind_in_namespace::<SubnetIsolation>(),
        kind_in_namespace::<Worker>(),
    ];
    expected.sort_unstable();
    assert_eq!(namespaced, expected);
}

/// Compiles for namespaced kinds only.
fn kind_in_namespace<K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>>() -> String {
    K::kind(&()).into_owned()
}

#[test]
fn raw_fields_of_watch_events_survive() {
    let text = r#"{"type":"ADDED","object":{"metadata":{"name":"a"},"spec":{"type":"t","region":"r","secretRef":{}},"status":{"state":{"b":1.0,"a":[1e2]}}}}"#;
    let event: kube::core::WatchEvent<Infrastructure> = serde_json::from_str(text).expect("an event");
    let kube::core::WatchEvent::Added(object) = event else { panic!("another event") };
    let state = object.status.and_then(|status| status.state).expect("a state");
    assert_eq!(state.get(), r#"{"b":1.0,"a":[1e2]}"#);
}

#[test]
fn times_of_gardener_without_a_value_are_read() {
    let read: Option<Time> = serde_json::from_str("null").expect("no time");
    assert!(read.is_none());
}
