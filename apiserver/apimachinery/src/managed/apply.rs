//! Server-side apply: a configuration is laid over the live object, and what its manager said last time and says no more
//! is removed where nobody else owns it.

use super::{
    Writer,
    compare::{Comparison, compare},
    conflict::{Conflict, conflicts},
    element::Element,
    entries::{Managed, Operation, Owned},
    extract::fields,
    last_applied,
    merge::merge,
    remove::without,
    set::{Branch, Set},
    update::{forget_other_versions, id, record_update},
    whole,
};
use crate::{
    json::{self, Findings, Node},
    kind::Kind,
    meta::ObjectMeta,
    schema::Schema,
};

/// Who owns what was there before anybody tracked it.
pub const BEFORE_FIRST_APPLY: &str = "before-first-apply";

/// An object after an apply.
#[derive(Debug)]
pub struct Applied {
    /// Metadata with the new `managedFields`.
    pub meta: ObjectMeta,
    /// The other members, in the form of the schema.
    pub body: Node,
}

/// Applies a configuration, which has no duplicates in its lists (see [`super::merge::duplicates`]).
///
/// `live`, `config`: metadata and the other members; no live object: it is created. What `config` says of metadata that only
/// names the object is not looked at.
///
/// # Errors
/// What other managers own with other values, unless `force`.
pub fn apply(
    kind: &Kind,
    live: Option<(&ObjectMeta, &Node)>,
    config: (&ObjectMeta, &Node),
    force: bool,
    writer: Writer<'_>,
) -> Result<Applied, Vec<Conflict>> {
    let nothing = (ObjectMeta::default(), Node::object());
    let (live_meta, live_body) = live.unwrap_or((&nothing.0, &nothing.1));
    let (live, config_object) = (whole(live_meta, live_body), whole(config.0, config.1));
    let mut managed = owners(kind, live_meta, &live, writer);
    let id = id(Operation::Apply, writer);
    let last = managed.0.remove(&id);
    let said = said(&config_object, kind.schema);

    let merged = merge(Some(&live), Some(&config_object), kind.schema).unwrap_or_else(Node::object);
    let said_before = last.as_ref().map_or_else(Set::default, |owned| owned.fields.clone());
    let pruned = prune(merged, &managed, &said, said_before, kind.schema);
    let comparison = compare(Some(&live), Some(&pruned), kind.schema);
    if !force {
        let found = conflicts(&managed, &comparison.added, &comparison.modified);
        refuse(kind, (live_meta, &live), found, writer)?;
    }
    take_over(&mut managed, &comparison);
    if !said.is_empty() {
        let time = match last {
            Some(last) if comparison.is_same() && last.fields == said => last.time,
            _ => Some(writer.time.to_owned()),
        };
        let owned = Owned { api_version: writer.api_version.to_owned(), time, fields: said };
        managed.0.insert(id, owned);
    }
    let mut applied = in_form(pruned, live_meta, kind.schema);
    if writer.manager == last_applied::KUBECTL {
        last_applied::keep_in_step(kind, &mut applied.meta, config, writer);
    }
    applied.meta.managed_fields = managed.print();
    Ok(applied)
}

/// Who owns what so far. What nobody tracked belongs to a manager of its own, so that an apply cannot overwrite it unasked.
fn owners(kind: &Kind, meta: &ObjectMeta, live: &Node, writer: Writer<'_>) -> Managed {
    let mut managed = Managed::of(meta.managed_fields.as_deref());
    if managed.0.is_empty() {
        let nothing = whole(&ObjectMeta::default(), &Node::object());
        let writer = Writer { manager: BEFORE_FIRST_APPLY, ..writer };
        record_update(&mut managed, compare(Some(&nothing), Some(live), kind.schema), kind.schema, writer);
    }
    forget_other_versions(&mut managed, kind.schema, writer.api_version);
    managed
}

/// What a configuration lays claim to. Metadata as such is nobody's.
fn said(config: &Node, schema: &'static Schema) -> Set {
    let mut said = fields(config, schema);
    let metadata = std::iter::once((Element::field("metadata"), Branch::leaf())).collect();
    said.subtract(&metadata);
    said
}

/// Removes what the manager said last time, does not say now, and nobody else owns.
fn prune(merged: Node, others: &Managed, said: &Set, said_before: Set, schema: &'static Schema) -> Node {
    if said_before.is_empty() {
        return merged;
    }
    let said_before = said_before.with_holders(schema);
    let all = fields(&merged, schema).with_holders(schema);
    let mut kept = said.clone();
    for owned in others.0.values() {
        kept.unite(owned.fields.clone());
    }
    kept.put(Element::field("metadata"), Branch::leaf());
    kept.unite(fields(&without(&merged, &said_before, schema), schema));
    let mut unowned = all.clone();
    unowned.subtract(&kept.with_holders(schema));
    // Taking a list away takes away what is in it, so only now it shows what is really to go: of that, what others have
    // put there without owning it stays.
    let left = fields(&without(&merged, &unowned, schema), schema).with_holders(schema);
    let mut gone = all;
    gone.subtract(&left);
    without(&merged, &gone.intersection(&said_before), schema)
}

/// Lets conflicts pass that are none for kubectl: with what its own client-side apply has set.
fn refuse(
    kind: &Kind,
    (meta, live): (&ObjectMeta, &Node),
    mut found: Vec<Conflict>,
    writer: Writer<'_>,
) -> Result<(), Vec<Conflict>> {
    if !found.is_empty() && writer.manager == last_applied::KUBECTL {
        let allowed = last_applied::untouched_fields(kind, meta, live, writer);
        found.retain(|conflict| !conflict.is_in(&allowed));
    }
    if found.is_empty() { Ok(()) } else { Err(found) }
}

fn take_over(managed: &mut Managed, comparison: &Comparison) {
    managed.0.retain(|_, owned| {
        owned.fields.subtract(&comparison.added);
        owned.fields.subtract(&comparison.modified);
        owned.fields.subtract(&comparison.removed);
        !owned.fields.is_empty()
    });
}

/// The object in the form of its schema: what was left without content goes.
fn in_form(object: Node, live: &ObjectMeta, schema: &'static Schema) -> Applied {
    // The tree was in form but for nulls, so nothing can be found.
    let mut body = json::conform(object, schema, &mut Findings::default()).unwrap_or_else(|_| Node::object());
    let ownable = body.take("metadata").map(|meta| serde_json::from_slice(meta.to_raw().bytes()));
    let ownable: ObjectMeta = ownable.and_then(Result::ok).unwrap_or_default();
    let meta = ObjectMeta {
        generate_name: ownable.generate_name,
        labels: ownable.labels,
        annotations: ownable.annotations,
        owner_references: ownable.owner_references,
        finalizers: ownable.finalizers,
        ..live.clone()
    };
    Applied { meta, body }
}
