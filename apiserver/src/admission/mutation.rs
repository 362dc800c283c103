//! What a webhook's patch makes of an object. Patches work on trees that open only where a pointer enters them, so opaque
//! values come back token for token.

use bytes::Bytes;
use repot_apimachinery::{
    document::Document,
    json::{Node, Raw, patch::Patch},
    meta::ObjectMeta,
};

use crate::registry::strategy::Strategy;

/// Applies a patch. Gives whether anything is different now.
///
/// Unknown fields that the patch brings are dropped, as kube-apiserver drops them.
///
/// # Errors
/// Why the patch does not fit; the document is then to be thrown away.
pub fn apply(
    document: &mut Document,
    patch: &Bytes,
    strategy: &Strategy,
    copy_limit: usize,
) -> Result<bool, String> {
    let patch = Patch::parse(patch).map_err(|error| error.to_string())?;
    let (meta, body) = (document.meta.clone(), document.body.clone());
    let mut root = tree(document)?;
    patch.apply(&mut root, copy_limit).map_err(|error| error.to_string())?;
    let (mut patched, _) = Document::conform(root, strategy.kind).map_err(|error| error.to_string())?;
    if (patched.api_version.as_str(), patched.kind.as_str())
        != (document.api_version.as_str(), document.kind.as_str())
    {
        return Err("the patch changes apiVersion or kind".to_owned());
    }
    (strategy.normalise)(&mut patched.body);
    patched.meta.resource_version.clone_from(&meta.resource_version);
    let changed = patched.body != body || !same(&patched.meta, &meta);
    *document = patched;
    Ok(changed)
}

/// The whole object as a tree; the document is left empty.
fn tree(document: &mut Document) -> Result<Node, String> {
    let mut meta = serde_json::to_value(&document.meta).map_err(|error| error.to_string())?;
    if !document.meta.resource_version.is_empty() {
        meta["resourceVersion"] = document.meta.resource_version.as_str().into();
    }
    let mut root = Node::object();
    root.set("apiVersion", Node::String(document.api_version.clone()));
    root.set("kind", Node::String(document.kind.clone()));
    root.set("metadata", Node::Raw(Raw::from_compact(meta.to_string().into())));
    if let (Node::Object(all), Node::Object(members)) = (&mut root, &mut document.body) {
        all.append(members);
    }
    Ok(root)
}

fn same(one: &ObjectMeta, other: &ObjectMeta) -> bool {
    match (serde_json::to_string(one), serde_json::to_string(other)) {
        (Ok(one), Ok(other)) => one == other,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::{Serve, resources};

    fn strategy() -> &'static Strategy {
        resources(Serve::Garden, repot_api::names::CORE_GROUP)[0].strategy
    }

    fn document() -> Document {
        let text = r#"{"apiVersion":"g/v1","kind":"ShootState","metadata":{"name":"s","labels":{"a":"b"}},
            "spec":{"extensions":[{"kind":"W","name":"w","state":{"x":1.50,"y":"\u0041"}}]}}"#;
        Document::decode(&Bytes::copy_from_slice(text.as_bytes()), strategy().kind).expect("an object").0
    }

    fn patched(patch: &str) -> Result<(Document, bool), String> {
        let mut document = document();
        let changed = apply(&mut document, &Bytes::copy_from_slice(patch.as_bytes()), strategy(), 1 << 20)?;
        Ok((document, changed))
    }

    fn spec(document: &Document) -> String {
        String::from_utf8(document.print().text.to_vec()).expect("text")
    }

    #[test]
    fn opaque_values_come_back_token_for_token() {
        let (after, changed) =
            patched(r#"[{"op":"add","path":"/metadata/labels/seen","value":"yes"}]"#).expect("fits");
        assert!(changed);
        assert_eq!(after.meta.labels["seen"], "yes");
        assert_eq!(spec(&after), spec(&document()));
        let (after, _) =
            patched(r#"[{"op":"replace","path":"/spec/extensions/0/state/x","value":2.0}]"#).expect("fits");
        assert!(spec(&after).contains(r#""state":{"x":2.0,"y":"\u0041"}"#), "{}", spec(&after));
    }

    #[test]
    fn a_patch_that_changes_nothing_is_no_change() {
        for patch in ["[]", r#"[{"op":"replace","path":"/metadata/labels/a","value":"b"}]"#] {
            assert!(!patched(patch).expect("fits").1, "{patch}");
        }
    }

    #[test]
    fn refuses_what_does_not_fit() {
        for patch in [
            "{}",
            r#"[{"op":"remove","path":"/spec/none"}]"#,
            r#"[{"op":"replace","path":"/kind","value":"Other"}]"#,
            r#"[{"op":"replace","path":"/metadata/labels","value":7}]"#,
        ] {
            assert!(patched(patch).is_err(), "{patch}");
        }
    }
}
