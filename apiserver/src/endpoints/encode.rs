//! Encodes an object for the store and for the answer, within the limits of size.

use std::{ops::Range, sync::Arc};

use axum::body::Body;
use bytes::Bytes;
use futures::stream;
use http::{Response, StatusCode};
use repot_apimachinery::{
    document::{Document, Printed},
    json::{Node, Raw, segments::KEPT_FOR_NOTHING},
    kind::Kind,
    meta::ObjectMeta,
};
use repot_storage::{Draft, Object, Segmented};
use uuid::Uuid;

use super::{Request, read};
use crate::{
    negotiate::Form,
    status::Status,
    wire::{self, Summary},
};

/// Metadata may have so many bytes as JSON: what a whole object may have in etcd. It is in memory for every object that is served.
pub(super) const MAX_METADATA: usize = 3 << 19;

/// How a new state of an object came about.
pub(super) enum Origin {
    /// By a write that says how everything shall be. With the members beside metadata as they were, where they are at hand.
    Written(Option<Arc<Node>>),
    /// By an apply, which has settled who owns what.
    Applied,
}

/// An object that can be stored, in the very bytes that clients will read.
pub(super) struct EncodedObject {
    pub(super) meta: Bytes,
    pub(super) summary: Summary,
    pub(super) payload: Printed,
}

impl EncodedObject {
    /// Prints the object and measures it. The document is the same afterwards.
    ///
    /// # Errors
    /// 413 when it is too large; 429 and 500 where it could not be printed.
    async fn new(request: &Request<'_>, document: &mut Document) -> Result<Self, Status> {
        let limit = request.server.limits.object_bytes;
        // A rough measure, a little too long for what is escaped: what is far too large is not printed first.
        let length = document.body.size();
        if length / 2 > limit {
            return Err(Status::too_large(limit));
        }
        let (body, kind) = (std::mem::replace(&mut document.body, Node::object()), request.resource.kind);
        let source = document.source.clone();
        let print = move || {
            let (payload, summary) = print(&body, source.as_ref(), kind);
            (payload, summary, body)
        };
        let (payload, summary, body) = read::heavy(request, length, print).await?;
        document.body = body;
        let mut ready = Self { meta: Bytes::new(), summary, payload };
        ready.print_meta(&document.meta);
        ready.check_size(request)?;
        Ok(ready)
    }

    /// As [`EncodedObject::new`]. Who owns what may take much room: where the object does not fit otherwise, that is forgotten,
    /// as kube-apiserver does, but for an apply, which would be in vain.
    pub(super) async fn fitting(
        request: &Request<'_>,
        document: &mut Document,
        origin: &Origin,
    ) -> Result<Self, Status> {
        let owners = document.meta.managed_fields.take();
        let mut ready = Self::new(request, document).await?;
        document.meta.managed_fields = owners;
        ready.restate(request, &mut document.meta, origin)?;
        Ok(ready)
    }

    /// Prints metadata again, which has changed.
    pub(super) fn restate(
        &mut self,
        request: &Request<'_>,
        meta: &mut ObjectMeta,
        origin: &Origin,
    ) -> Result<(), Status> {
        self.print_meta(meta);
        let may_forget = matches!(origin, Origin::Written(_));
        if may_forget && self.check_size(request).is_err() && meta.managed_fields.take().is_some() {
            self.print_meta(meta);
        }
        self.check_size(request)
    }

    fn print_meta(&mut self, meta: &ObjectMeta) {
        self.meta = serde_json::to_vec(meta).unwrap_or_default().into();
    }

    fn check_size(&self, request: &Request<'_>) -> Result<(), Status> {
        if self.meta.len() > MAX_METADATA {
            return Err(Status::too_much(format!("metadata may have {MAX_METADATA} bytes as JSON")));
        }
        let limit = request.server.limits.object_bytes;
        let before = wire::before_payload(request.resource, &self.meta, None, true);
        let whole = before.len() + self.payload.text.len() + 1;
        if whole > limit { Err(Status::too_large(limit)) } else { Ok(()) }
    }

    /// What it counts as where namespaces are limited.
    pub(super) fn length(&self) -> u64 {
        (self.meta.len() + self.payload.text.len()) as u64
    }

    pub(super) fn draft(&self, uid: Uuid) -> Draft {
        let payload = Segmented::new(self.payload.text.clone(), self.payload.joints.clone());
        Draft { uid, meta: self.meta.clone(), summary: self.summary_json(), payload }
    }

    pub(super) fn summary_json(&self) -> Bytes {
        serde_json::to_vec(&self.summary).unwrap_or_default().into()
    }

    /// Whether the object at rest is the same but for its version.
    pub(super) fn same_as(&self, object: &Object) -> bool {
        !object.stale && object.meta == self.meta && Summary::of(object) == self.summary
    }

    /// The answer to a write: from the bytes at hand. `object`: as stored; `None` for a dry run.
    pub(super) fn answer(
        self,
        request: &Request<'_>,
        code: StatusCode,
        object: Option<&Object>,
        form: Form,
    ) -> Response<Body> {
        let version = object.map(|object| object.version);
        if let Form::Metadata(meta_version) = form {
            return wire::whole(code, wire::partial_of(&self.meta, version, meta_version).freeze());
        }
        let text = self.payload.text;
        let before = wire::before_payload(request.resource, &self.meta, version, !text.is_empty()).freeze();
        let (payload_len, end) = (text.len() as u64, Bytes::from_static(b"}"));
        let length = (before.len() + end.len()) as u64 + payload_len;
        let at_rest = object.filter(|object| {
            payload_len > HELD && object.payload_len == payload_len && Summary::of(object) == self.summary
        });
        if let Some(object) = at_rest {
            // It is read again as it is sent, and others have the room meanwhile.
            drop(text);
            *request.call.room.lock() = None;
            return wire::sized(
                code,
                length,
                wire::around(before, request.server.store.payload(object), end),
            );
        }
        if let Some(room) = request.call.room.lock().as_mut() {
            // The text may be a part of the body, which is then kept.
            room.shrink_to(length + length / (KEPT_FOR_NOTHING as u64 - 1));
        }
        wire::sized(code, length, stream::iter([before, text, end].map(Ok)))
    }
}

/// Longer payloads are not held in memory until a client has read them.
const HELD: u64 = 16 << 20;

/// The members beside metadata as text, and what is kept beside it.
fn print(body: &Node, source: Option<&Raw>, kind: &Kind) -> (Printed, Summary) {
    let payload = Printed::of(body, source);
    let digest =
        |(name, range): &(String, Range<usize>)| (name.clone(), digest(&payload.text[range.clone()]));
    let digests = payload.parts.iter().map(digest).collect();
    let cells = (kind.cells)(body, payload.text.len());
    let fields = kind.selected_values(body);
    (payload, Summary { digests, cells, fields })
}

fn digest(text: &[u8]) -> String {
    blake3::hash(text).to_hex()[..32].to_owned()
}
