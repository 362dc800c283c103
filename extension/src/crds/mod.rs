//! CustomResourceDefinitions of the kinds, for platforms and tests where Gardener installs none.
//!
//! Names, scopes, columns, required fields and types are those of Gardener 1.150; descriptions and Bastion, SelfHostedShootExposure are
//! left out. What providers define keeps unknown fields. `status.state` may be any JSON, because GEP-7 shows a text there; Gardener's
//! schema wants an object. SubnetIsolation and the isolated zone of a Worker are those of GEP-21. A test keeps
//! `tests/crds/extensions.yaml` equal to this.

mod kinds;
mod schema;

use serde_json::{Value, json};

use kinds::{KINDS, KindSchema};
use schema::{object, spec, status};

/// All definitions, in the order of their names.
#[must_use]
pub fn definitions() -> Vec<Value> {
    KINDS.iter().map(definition).collect()
}

fn definition(kind: &KindSchema) -> Value {
    let singular = kind.name.to_lowercase();
    let mut names = json!({
        "kind": kind.name, "listKind": format!("{}List", kind.name), "plural": kind.plural, "singular": singular,
    });
    if !kind.short_names.is_empty() {
        names["shortNames"] = json!(kind.short_names);
    }
    let (spec, required) = if kind.name == "Cluster" {
        ((kind.spec)(), kind.required.to_vec())
    } else {
        (spec((kind.spec)()), [&["type"], kind.required].concat())
    };
    let mut properties = json!({
        "apiVersion": {"type": "string"}, "kind": {"type": "string"}, "metadata": {"type": "object"},
        "spec": object(spec, &required),
    });
    if let Some(own) = kind.status {
        properties["status"] = object(status(own()), &[]);
    }
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{}.extensions.gardener.cloud", kind.plural)},
        "spec": {
            "group": "extensions.gardener.cloud", "names": names, "scope": kind.scope,
            "versions": [{
                "name": "v1alpha1", "served": true, "storage": true, "subresources": {"status": {}},
                "additionalPrinterColumns": kind.columns.iter().map(column).collect::<Vec<_>>(),
                "schema": {"openAPIV3Schema": object(properties, &["spec"])},
            }],
        },
    })
}

fn column((name, path): &(&str, &str)) -> Value {
    let kind = if *name == "Age" { "date" } else { "string" };
    json!({"name": name, "jsonPath": path, "type": kind})
}

#[cfg(test)]
#[path = "../tests/crds.rs"]
mod tests;
