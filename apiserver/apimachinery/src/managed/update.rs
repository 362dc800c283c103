//! Who owns what after a create, an update or a patch.

use serde_json::value::RawValue;

use super::{
    Writer,
    compare::{Comparison, compare},
    entries::{Id, Managed, Operation, Owned, is_reset},
    ownable,
};
use crate::{
    json::Node,
    meta::{OBJECT_META, ObjectMeta},
    schema::Schema,
};

/// The members of an object beside metadata, before and after a write.
#[derive(Clone, Copy, Debug)]
pub enum Bodies<'a> {
    /// The write did not touch them; they need not be at hand.
    Same,
    /// Both states; a new object has none before.
    Changed {
        /// In the form of the schema.
        before: Option<&'a Node>,
        /// In the form of the schema.
        after: &'a Node,
    },
}

/// The `managedFields` of an object after a write.
///
/// `before`: its metadata at rest; `None`: it is new. `after`: its metadata to be, with `managedFields` as the writer sent
/// them: a writer may change them, or have them forgotten by `[]` or `[{}]`. `schema`: of the whole object.
#[must_use]
pub fn track(
    schema: &'static Schema,
    before: Option<&ObjectMeta>,
    after: &ObjectMeta,
    bodies: Bodies<'_>,
    writer: Writer<'_>,
) -> Option<Box<RawValue>> {
    let live = before.and_then(|meta| meta.managed_fields.as_deref());
    let sent = after.managed_fields.as_deref().filter(|_| writer.subresource.is_empty());
    let managed = starting_from(live, sent);
    if managed.0.is_empty() && before.is_some() {
        // Nobody tracks this object: it begins with the first apply.
        return None;
    }
    let comparison = difference(schema, before, after, bodies);
    let unchanged = comparison.is_same();
    let mut tracked = managed;
    record_update(&mut tracked, comparison, schema, writer);
    match live {
        // Times alone are no change, nor is another spelling.
        Some(live) if unchanged && tracked.same_but_times(&Managed::of(Some(live))) => Some(live.to_owned()),
        _ => tracked.print(),
    }
}

/// What the writer sent, or what is at rest where the writer sent nothing usable: clients that do not know of
/// `managedFields` must not delete them.
fn starting_from(live: Option<&RawValue>, sent: Option<&RawValue>) -> Managed {
    if sent.is_some_and(is_reset) {
        return Managed::default();
    }
    let sent = sent.map_or_else(Managed::default, |sent| Managed::of(Some(sent)));
    if sent.0.is_empty() { Managed::of(live) } else { sent }
}

fn difference(
    schema: &'static Schema,
    before: Option<&ObjectMeta>,
    after: &ObjectMeta,
    bodies: Bodies<'_>,
) -> Comparison {
    let mut comparison = match bodies {
        Bodies::Same => Comparison::default(),
        Bodies::Changed { before, after } => compare(before, Some(after), schema),
    };
    let meta = compare(before.map(ownable).as_ref(), Some(&ownable(after)), &OBJECT_META);
    comparison.put_field("metadata", meta);
    comparison
}

/// Gives the writer what it set anew, and takes from everybody what was set anew or removed.
pub(super) fn record_update(
    managed: &mut Managed,
    comparison: Comparison,
    schema: &'static Schema,
    writer: Writer<'_>,
) {
    forget_other_versions(managed, schema, writer.api_version);
    managed.0.retain(|_, owned| {
        owned.fields.subtract(&comparison.added);
        owned.fields.subtract(&comparison.modified);
        owned.fields.subtract(&comparison.removed);
        !owned.fields.is_empty()
    });
    let anew = comparison.set_anew();
    if !anew.is_empty() {
        let id = id(Operation::Update, writer);
        let blank = || Owned {
            api_version: writer.api_version.to_owned(),
            time: None,
            fields: super::set::Set::default(),
        };
        let owned = managed.0.entry(id).or_insert_with(blank);
        owned.fields.unite(anew);
        owned.time = Some(writer.time.to_owned());
    }
    managed.cap();
}

/// Entries in terms of versions that are not served are dropped; all others are made to fit today's schema.
pub(super) fn forget_other_versions(managed: &mut Managed, schema: &'static Schema, api_version: &str) {
    managed.0.retain(|_, owned| owned.api_version == api_version);
    for owned in managed.0.values_mut() {
        owned.fields = std::mem::take(&mut owned.fields).fitted(schema);
    }
}

pub(super) fn id(operation: Operation, writer: Writer<'_>) -> Id {
    let manager = if writer.manager.is_empty() { "unknown" } else { writer.manager };
    let api_version = match operation {
        Operation::Apply => String::new(),
        Operation::Update => writer.api_version.to_owned(),
    };
    Id { manager: manager.to_owned(), operation, api_version, subresource: writer.subresource.to_owned() }
}
