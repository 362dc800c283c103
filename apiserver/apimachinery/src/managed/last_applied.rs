//! The annotation that client-side apply compares with, so that kubectl can change over without conflicts.

use bytes::Bytes;

use super::{Writer, compare::compare, extract::fields, set::Set, whole};
use crate::{
    document::Document,
    json::Node,
    kind::Kind,
    meta::{MAX_ANNOTATIONS, ObjectMeta},
};

/// The annotation.
pub(super) const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";
/// The manager for whom the annotation is looked at and kept. Others opt out by their name.
pub(super) const KUBECTL: &str = "kubectl";

/// The fields that client-side apply has set and nobody has changed since.
pub(super) fn untouched_fields(kind: &Kind, meta: &ObjectMeta, live: &Node, writer: Writer<'_>) -> Set {
    let text = meta.annotations.get(LAST_APPLIED).filter(|text| !text.is_empty());
    let document = text.and_then(|text| Document::decode(&Bytes::from(text.clone()), kind).ok());
    let Some((document, _)) = document.filter(|(d, _)| d.api_version == writer.api_version) else {
        return Set::default();
    };
    let applied = whole(&document.meta, &document.body);
    let difference = compare(Some(&applied), Some(live), kind.schema);
    let mut untouched = fields(&applied, kind.schema);
    untouched.subtract(&difference.modified);
    untouched.subtract(&difference.added);
    untouched.subtract(&difference.removed);
    untouched
}

/// Writes the configuration into the annotation where the object has it; drops it where it would be too long.
pub(super) fn keep_in_step(
    kind: &Kind,
    meta: &mut ObjectMeta,
    config: (&ObjectMeta, &Node),
    writer: Writer<'_>,
) {
    if meta.annotations.get(LAST_APPLIED).is_none_or(String::is_empty) {
        return;
    }
    meta.annotations.remove(LAST_APPLIED);
    let Some(text) = print(kind, config, writer) else { return };
    let others: usize = meta.annotations.iter().map(|(key, value)| key.len() + value.len()).sum();
    if others + LAST_APPLIED.len() + text.len() <= MAX_ANNOTATIONS {
        meta.annotations.insert(LAST_APPLIED.to_owned(), text);
    }
}

/// `None`: too long, whatever else there is.
fn print(kind: &Kind, (meta, body): (&ObjectMeta, &Node), writer: Writer<'_>) -> Option<String> {
    let mut meta = meta.clone();
    meta.annotations.remove(LAST_APPLIED);
    let mut whole = Node::object();
    whole.set("apiVersion", Node::String(writer.api_version.to_owned()));
    whole.set("kind", Node::String(kind.kind.to_owned()));
    let meta = serde_json::to_vec(&meta).ok()?;
    whole.set("metadata", Node::Raw(crate::json::Raw::from_compact(meta.into())));
    let Node::Object(members) = body else { return None };
    for (key, value) in members {
        whole.set(key.clone(), value.clone());
    }
    let text = whole.to_raw();
    (text.len() < MAX_ANNOTATIONS).then(|| format!("{}\n", String::from_utf8_lossy(text.bytes())))
}
