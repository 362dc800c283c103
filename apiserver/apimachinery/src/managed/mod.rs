//! Who owns which fields of an object, and server-side apply.
//!
//! Knows no clock: the time of a write comes in with its writer. Opaque parts are never looked into: they are owned as a
//! whole and compared as text, so the cost hangs on the number of entries and not on megabytes of state.
//!
//! The rules are those of k8s.io/apimachinery's `managedfields` and of structured-merge-diff, since their clients watch
//! for them: an update owns what it sets anew, an apply owns what it says, and what an applier says no more and nobody
//! else owns is removed.

pub mod apply;
pub mod compare;
pub mod conflict;
pub mod element;
pub mod entries;
pub mod extract;
pub mod fields_v1;
mod form;
mod last_applied;
pub mod merge;
pub mod remove;
pub mod set;
pub(crate) mod time;
pub mod update;

pub use apply::{Applied, apply};
pub use conflict::Conflict;
pub use entries::validate;
pub use update::{Bodies, track};

use crate::{
    json::Node,
    meta::{OBJECT_META, ObjectMeta},
};

/// A write, as far as ownership is concerned.
#[derive(Clone, Copy, Debug)]
pub struct Writer<'a> {
    /// Name of the field manager.
    pub manager: &'a str,
    /// `group/version` of the object as it is written.
    pub api_version: &'a str,
    /// The subresource written through; empty for the object itself.
    pub subresource: &'a str,
    /// Now, as RFC 3339 in UTC and whole seconds.
    pub time: &'a str,
}

/// The parts of metadata that can be owned, in the form of their schema. All others are the server's, or name the object.
fn ownable(meta: &ObjectMeta) -> Node {
    let kept = ObjectMeta {
        generate_name: meta.generate_name.clone(),
        labels: meta.labels.clone(),
        annotations: meta.annotations.clone(),
        owner_references: meta.owner_references.clone(),
        finalizers: meta.finalizers.clone(),
        ..ObjectMeta::default()
    };
    let text = serde_json::to_vec(&kept).unwrap_or_default();
    // What was just printed from typed metadata can be read and fits.
    crate::json::decode(&text.into(), &OBJECT_META, &mut crate::json::Findings::default())
        .unwrap_or_else(|_| Node::object())
}

/// Metadata and the other members as one object.
fn whole(meta: &ObjectMeta, body: &Node) -> Node {
    let mut whole = body.clone();
    whole.set("metadata", ownable(meta));
    whole
}

#[cfg(test)]
mod tests;
