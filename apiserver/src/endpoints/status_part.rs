//! Which part of an object a write may change: through the resource everything but the status, through `/status` the status
//! alone. Whoever writes a spec cannot forge a status, and whoever reports a status cannot change what is wanted.

use repot_apimachinery::{
    document::{self, Document},
    field::FieldError,
    json::Node,
};
use repot_storage::Object;

use super::{Request, read};
use crate::{needs, status::Status, trimmed, wire};

/// The name of the subresource.
pub(super) const STATUS: &str = "status";

/// Whether the request is for the status alone.
pub(super) fn is_meant(request: &Request<'_>) -> bool {
    request.target.subresource == STATUS
}

/// A new object has no status yet.
pub(super) fn drop(request: &Request<'_>, document: &mut Document) {
    if request.resource.kind.has_status() {
        document.body.take(STATUS);
    }
}

/// Puts back what the write may not change as it is in `current`; finds changes of the rest that are not allowed.
pub(super) async fn confine(
    request: &Request<'_>,
    document: &mut Document,
    current: &Object,
) -> Result<Vec<FieldError>, Status> {
    // Large payloads belong to kinds without a status: they are not read.
    if !request.resource.kind.has_status() {
        return Ok(Vec::new());
    }
    let mut before = body(request, current).await?;
    if is_meant(request) {
        // The metadata that was sent goes no further.
        let errors = trimmed::refusal(&document.meta).into_iter().collect();
        confine_to_status(document, before, current);
        return Ok(errors);
    }
    document.body.take(STATUS);
    let errors = (request.resource.strategy.validate_change)(&before, &document.body);
    if let Some(status) = before.take(STATUS) {
        document.body.set(STATUS, status);
    }
    Ok(errors)
}

fn confine_to_status(document: &mut Document, before: Node, current: &Object) {
    let status = document.body.take(STATUS);
    document.body = before;
    document.body.take(STATUS);
    if let Some(status) = status {
        document.body.set(STATUS, status);
    }
    // The version and the uid say which object is meant; who manages which field of the status is told along with it.
    let sent = std::mem::replace(&mut document.meta, wire::parse_meta(current));
    document.meta.resource_version = sent.resource_version;
    document.meta.uid = sent.uid;
    document.meta.managed_fields = sent.managed_fields;
}

/// What rests beside metadata, in the form that a write of today would give it.
async fn body(request: &Request<'_>, current: &Object) -> Result<Node, Status> {
    let payload =
        request.server.store.payload_bytes(current).await.map_err(|error| request.failed(&error))?;
    read::charge_payload(request, &payload, needs::written).await?;
    let (api_version, kind) = (request.resource.api_version(), request.resource.kind);
    let meta = current.meta.clone();
    let length = payload.len();
    let read = move || Document::conform(document::tree(&api_version, kind.kind, meta, &payload), kind);
    let (mut document, _) = read::heavy(request, length, read).await?.map_err(|error| {
        tracing::error!(%error, name = current.key.name, "an object at rest cannot be read");
        Status::internal("the object at rest cannot be read")
    })?;
    (request.resource.strategy.normalise)(&mut document.body);
    Ok(document.body)
}
