//! The form in which lists and watches show an object that is too long for a frame of a watch: metadata with a marker, and no
//! payload. A client of client-go that was sent more than 16 MiB in one frame would lose its watch, list, and lose it again.
//!
//! It is the same form in every list and event, whatever the version that they show, so caches agree with each other; and a
//! write that carries the marker is refused, so nobody takes it for the object. GET and the answers to writes show all of it.
//!
//! `PartialObjectMetadata` and tables do not have the marker: they never promise a payload, what they show is complete, and a
//! controller that only knows metadata may apply or patch with what it was shown. The marker would refuse it for nothing.

use bytes::Bytes;
use futures::{Stream, StreamExt, stream};
use repot_api::names::TRIMMED;
use repot_apimachinery::{field::FieldError, meta::ObjectMeta};
use repot_storage::{Object, Store};

use crate::{resource::Resource, wire};

/// What fits into a frame of a watch: under the 16 MiB that client-go's decoder takes.
pub(crate) const FRAME_BYTES: usize = 15 << 20;
/// More than everything of an object that is neither metadata nor payload.
const FRAME: usize = 4 << 10;

/// The trimmed form of an object at rest; `None`: it is shown whole.
#[must_use]
pub fn of(resource: &Resource, object: &Object) -> Option<Bytes> {
    if !is(resource, object) {
        return None;
    }
    let mut meta: ObjectMeta = wire::parse_meta(object);
    meta.annotations.insert(TRIMMED.to_owned(), object.payload_len.to_string());
    let mut text = print(resource, object, &meta);
    if text.len() > FRAME_BYTES {
        // Who owns what may be nearly as long as what is owned.
        meta.managed_fields = None;
        text = print(resource, object, &meta);
    }
    Some(text)
}

/// The pieces of one object in a list or in an event of a watch: whole, or trimmed.
pub fn shown_pieces(
    store: &Store,
    resource: &Resource,
    object: &Object,
) -> impl Stream<Item = wire::Piece> + use<> {
    match of(resource, object) {
        Some(text) => stream::iter([Ok(text)]).left_stream(),
        None => wire::object_pieces(store, resource, object).right_stream(),
    }
}

/// Length of what [`shown_pieces`] gives.
#[must_use]
pub fn shown_len(resource: &Resource, object: &Object) -> u64 {
    of(resource, object).map_or_else(|| wire::object_len(resource, object), |text| text.len() as u64)
}

/// Refuses metadata of that form: whoever wrote it back would remove the payload.
#[must_use]
pub fn refusal(meta: &ObjectMeta) -> Option<FieldError> {
    let field = || format!("metadata.annotations[{TRIMMED}]");
    let why = "this is the trimmed form of an object; read the whole one with GET";
    meta.annotations.contains_key(TRIMMED).then(|| FieldError::forbidden(field(), why))
}

/// Whether an object at rest is shown in that form.
#[must_use]
pub fn is(resource: &Resource, object: &Object) -> bool {
    is_due(resource, &object.meta, object.payload_len)
}

/// The version does not count: an object is as long in the event of its removal as before.
fn is_due(resource: &Resource, meta: &[u8], payload_len: u64) -> bool {
    if meta.len() as u64 + payload_len + FRAME as u64 <= FRAME_BYTES as u64 {
        return false;
    }
    let before = wire::before_payload(resource, meta, None, payload_len > 0).len() as u64;
    before + payload_len + 1 > FRAME_BYTES as u64
}

fn print(resource: &Resource, object: &Object, meta: &ObjectMeta) -> Bytes {
    let meta = serde_json::to_vec(meta).unwrap_or_default();
    let mut text = wire::before_payload(resource, &meta, Some(object.version), false);
    wire::put(&mut text, "}");
    text.freeze()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::{self, Serve};

    #[test]
    fn is_due_beyond_what_the_default_limit_allows() {
        let resources = registry::resources(Serve::Garden, repot_api::names::CORE_GROUP);
        let resource = resources.first().expect("a kind");
        let meta = br#"{"name":"a"}"#;
        let whole = |payload| wire::before_payload(resource, meta, None, true).len() as u64 + payload + 1;
        let limit = FRAME_BYTES as u64;
        let longest = limit - whole(0);
        assert_eq!(whole(longest), limit);
        assert!(!is_due(resource, meta, 0) && !is_due(resource, meta, longest));
        assert!(is_due(resource, meta, longest + 1) && is_due(resource, meta, 16 * limit));
    }
}
