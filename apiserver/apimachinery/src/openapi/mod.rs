//! The published documents: OpenAPI v2 for the aggregated document and old clients, v3 for everybody else.
//!
//! Both are made from the same [`Schema`]s and the same list of operations; only the dress differs.

mod definitions;
pub mod meta_types;
mod operations;
pub mod proto;

use serde_json::{Value, json};

use crate::kind::Kind;
use definitions::Definitions;

/// A group and version with the kinds served in it.
#[derive(Clone, Debug)]
pub struct GroupVersion {
    /// API group, such as `core.gardener.cloud`.
    pub group: String,
    /// API version without the group, such as `v1alpha1`.
    pub version: String,
    /// Kinds, in the order of their plurals.
    pub kinds: Vec<&'static Kind>,
}

/// Which of the two documents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dress {
    V2,
    V3,
}

/// `/openapi/v2`: one document for all groups.
#[must_use]
pub fn v2(groups: &[GroupVersion], server_version: &str) -> Value {
    let mut definitions = Definitions::new(Dress::V2);
    let mut paths = serde_json::Map::new();
    for group in groups {
        operations::paths(group, Dress::V2, &mut definitions, &mut paths);
    }
    json!({
        "swagger": "2.0",
        "info": {"title": "Repot", "version": server_version},
        "paths": paths,
        "definitions": definitions.finish(),
    })
}

/// `/openapi/v3/apis/<group>/<version>`: the document of one group and version.
#[must_use]
pub fn v3(group: &GroupVersion, server_version: &str) -> Value {
    let mut definitions = Definitions::new(Dress::V3);
    let mut paths = serde_json::Map::new();
    operations::paths(group, Dress::V3, &mut definitions, &mut paths);
    json!({
        "openapi": "3.0.0",
        "info": {"title": "Repot", "version": server_version},
        "paths": paths,
        "components": {"schemas": definitions.finish()},
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group() -> GroupVersion {
        GroupVersion {
            group: "example.org".into(),
            version: "v1".into(),
            kinds: vec![&crate::sample::KIND_INFO],
        }
    }

    /// Every `$ref` of a document.
    fn references(value: &Value, found: &mut Vec<String>) {
        match value {
            Value::Object(map) => {
                found.extend(map.get("$ref").and_then(Value::as_str).map(str::to_owned));
                map.values().for_each(|value| references(value, found));
            }
            Value::Array(items) => items.iter().for_each(|value| references(value, found)),
            _ => {}
        }
    }

    #[test]
    fn every_reference_has_its_definition() {
        for document in [v2(&[group()], "v0"), v3(&group(), "v0")] {
            let mut found = Vec::new();
            references(&document, &mut found);
            assert!(found.len() > 20);
            for reference in found {
                let pointer = reference.trim_start_matches('#');
                assert!(document.pointer(pointer).is_some(), "{reference} is missing");
            }
        }
    }

    #[test]
    fn kubectl_finds_what_it_looks_for() {
        let document = v3(&group(), "v0");
        let patch = "/paths/~1apis~1example.org~1v1~1namespaces~1{namespace}~1samples~1{name}/patch";
        let operation = document.pointer(patch).expect("PATCH");
        assert_eq!(operation["x-kubernetes-group-version-kind"]["kind"], "Sample");
        let names: Vec<_> =
            operation["parameters"].as_array().expect("parameters").iter().map(|p| &p["name"]).collect();
        for name in ["dryRun", "fieldManager", "fieldValidation", "force"] {
            assert!(names.iter().any(|n| **n == name), "{name}");
        }
        let types: Vec<_> =
            operation["requestBody"]["content"].as_object().expect("content").keys().collect();
        assert_eq!(
            types,
            ["application/apply-patch+yaml", "application/json-patch+json", "application/merge-patch+json"]
        );
        let kind = &document["components"]["schemas"]["org.example.v1.Sample"];
        assert_eq!(kind["x-kubernetes-group-version-kind"][0]["kind"], "Sample");
        assert!(kind["properties"].get("old").is_none(), "the older shape is published");
        let spec = &document["components"]["schemas"]["org.example.v1.SampleSpec"];
        assert_eq!(spec["properties"]["parts"]["x-kubernetes-list-type"], "map");
    }
}
