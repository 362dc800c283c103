//! Who owns which fields after a write: gathers what the pure engine compares, reading no payload that need not be read.
//! It is settled before admission, and what webhooks change is nobody's.

use bytes::Bytes;
use repot_api::{
    document::{self, Document},
    json::Node,
    managed::{self, Bodies, Writer, entries::MAX_MANAGER},
    meta::ObjectMeta,
};
use repot_storage::Object;
use serde_json::value::RawValue;

use super::{
    Request, read,
    write::{self, Ready},
};
use crate::{call::Call, needs, status::Status, wire::Summary};

/// How a new state of an object came about.
pub(super) enum Origin {
    /// By a write that says how everything shall be. With the members beside metadata as they were, where they are at hand.
    Written(Option<Node>),
    /// By an apply, which has settled who owns what.
    Applied,
}

/// The name under which a request owns fields: what it asks for, or what the client's program is called.
pub(super) fn manager(call: &Call) -> String {
    if let Some(name) = call.query.get("fieldManager") {
        return name.to_owned();
    }
    let agent = call.headers.get(http::header::USER_AGENT).map(http::HeaderValue::as_bytes);
    let agent = String::from_utf8_lossy(agent.unwrap_or_default()).into_owned();
    let program = agent.split('/').next().unwrap_or_default();
    program.chars().filter(|c| !c.is_control()).take(MAX_MANAGER).collect()
}

/// A new object: all of it belongs to who made it.
pub(super) fn created(request: &Request<'_>, document: &mut Document) {
    let bodies = Bodies::Changed { before: None, after: &document.body };
    document.meta.managed_fields = track(request, None, &document.meta, bodies);
}

/// New metadata beside a payload that nobody touched.
pub(super) fn meta_replaced(request: &Request<'_>, meta: &mut ObjectMeta, before: &ObjectMeta) {
    meta.managed_fields = track(request, Some(before), meta, Bodies::Same);
}

/// A new state of an object at rest. The old payload is read only where the new one is another and it is not at hand.
pub(super) async fn replaced(
    request: &Request<'_>,
    document: &mut Document,
    before: &ObjectMeta,
    current: &Object,
    ready: &Ready,
    origin: &Origin,
) -> Result<(), Status> {
    let Origin::Written(at_hand) = origin else { return Ok(()) };
    let read;
    let bodies = if ready.summary.digests == Summary::of(current).digests {
        Bodies::Same
    } else if at_hand.is_some() {
        Bodies::Changed { before: at_hand.as_ref(), after: &document.body }
    } else {
        read = old_body(request, current).await?;
        Bodies::Changed { before: read.as_ref(), after: &document.body }
    };
    document.meta.managed_fields = track(request, Some(before), &document.meta, bodies);
    Ok(())
}

/// What others have made of who owns what stays only where it can be read. What else they change is nobody's, as in
/// kube-apiserver.
pub(super) fn keep_readable(request: &Request<'_>, meta: &mut ObjectMeta, owners: Option<Box<RawValue>>) {
    let Some(Err(error)) = meta.managed_fields.as_deref().map(managed::validate) else { return };
    meta.managed_fields = owners;
    request.call.notes.lock().warnings.push(format!(
        ".metadata.managedFields was in an invalid state after admission; this could be caused by an outdated mutating \
         admission controller; please fix your requests: {error}"
    ));
}

/// The members beside metadata of an object at rest. `None`: they cannot be read. Who replaces a damaged object owns all
/// of the new one, and must not be kept from it.
async fn old_body(request: &Request<'_>, current: &Object) -> Result<Option<Node>, Status> {
    let Ok(payload) = request.server.store.payload_bytes(current).await else { return Ok(None) };
    read::charge_payload(request, &payload, needs::written).await?;
    let kind = request.resource.kind;
    let read = move || {
        let tree = document::tree("", kind.kind, Bytes::from_static(b"{}"), &payload);
        Document::conform(tree, kind).ok().map(|(document, _)| document.body)
    };
    read::heavy(request, usize::try_from(current.payload_len).unwrap_or(usize::MAX), read).await
}

fn track(
    request: &Request<'_>,
    before: Option<&ObjectMeta>,
    after: &ObjectMeta,
    bodies: Bodies<'_>,
) -> Option<Box<RawValue>> {
    let (manager, api_version, time) = (manager(request.call), request.resource.api_version(), write::now());
    let subresource = &request.target.subresource;
    let writer = Writer { manager: &manager, api_version: &api_version, subresource, time: &time };
    managed::track(request.resource.kind.schema, before, after, bodies, writer)
}

#[cfg(test)]
mod tests {
    use axum::body::Body;

    use super::*;

    fn named(uri: &str, agent: Option<&str>) -> String {
        let mut request = http::Request::builder().uri(uri);
        if let Some(agent) = agent {
            request = request.header("User-Agent", agent);
        }
        let request = request.body(Body::empty()).expect("a request");
        let call = Call::begin(request, std::sync::Arc::default()).map_err(|(status, _)| status);
        manager(&call.expect("a call"))
    }

    #[test]
    fn a_program_is_called_what_comes_before_the_slash() {
        assert_eq!(named("/apis/g/v1/rs", Some("kubectl/v1.36 (linux/amd64)")), "kubectl");
        assert_eq!(named("/apis/g/v1/rs?fieldManager=me", Some("kubectl/v1.36")), "me");
        assert_eq!(named("/apis/g/v1/rs?fieldManager=", Some("curl")), "curl");
        assert_eq!(named("/apis/g/v1/rs", None), "");
        assert_eq!(named("/apis/g/v1/rs", Some(&"x".repeat(300))).len(), MAX_MANAGER);
    }
}
