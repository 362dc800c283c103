//! Who owns which fields after a write: gathers what the pure engine compares, reading no payload that need not be read.
//! It is settled before admission, and what webhooks change is nobody's.

use std::sync::Arc;

use bytes::Bytes;
use repot_apimachinery::{
    document::{self, Document},
    json::Node,
    managed::{self, Bodies, Writer, entries::MAX_MANAGER},
    meta::{ObjectMeta, OwnerReference},
    schema::Schema,
};
use repot_storage::Object;
use serde_json::value::RawValue;

use super::{
    Request,
    encode::{EncodedObject, Origin},
    read,
};
use crate::{
    call::Call,
    heavy::{NotDone, UserWork},
    needs,
    status::Status,
    wire::{self, Summary},
};

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
///
/// # Errors
/// 429 and 500 where it could not be worked out.
pub(super) async fn created(request: &Request<'_>, document: &mut Document) -> Result<(), Status> {
    let length = document.body.size() + length_of(&document.meta);
    let after = std::mem::replace(&mut document.body, Node::object());
    let bodies = Compared::Changed { before: None, after };
    track(request, None, document, bodies, length).await
}

/// New metadata beside a payload that nobody touched.
///
/// # Errors
/// As [`created`].
pub(super) async fn meta_replaced(
    request: &Request<'_>,
    meta: &mut ObjectMeta,
    before: &ObjectMeta,
) -> Result<(), Status> {
    let length = length_of(meta) + length_of(before);
    let mut change = Change::of(request, Some(before.clone()), std::mem::take(meta), Compared::Same);
    change = change.track(&request.work(), length).await.map_err(read::not_done)?;
    *meta = change.after;
    Ok(())
}

/// A new state of an object at rest. The old payload is read only where the new one is another and it is not at hand.
///
/// # Errors
/// As [`created`]; 413 and 429 where there is no memory.
pub(super) async fn replaced(
    request: &Request<'_>,
    document: &mut Document,
    before: &ObjectMeta,
    current: &Object,
    ready: &EncodedObject,
    origin: &Origin,
) -> Result<(), Status> {
    let Origin::Written(at_hand) = origin else { return Ok(()) };
    let metas = current.meta.len() + ready.meta.len();
    if ready.summary.digests == Summary::of(current).digests {
        return track(request, Some(before), document, Compared::Same, metas).await;
    }
    let old = match at_hand {
        Some(at_hand) => Some(at_hand.clone()),
        None => old_body(request, current).await?.map(Arc::new),
    };
    let length = read::length_with(current, metas + ready.payload.text.len());
    let after = std::mem::replace(&mut document.body, Node::object());
    track(request, Some(before), document, Compared::Changed { before: old, after }, length).await
}

/// What others have made of who owns what stays only where it can be read. What else they change is nobody's, as in
/// kube-apiserver.
pub(super) fn keep_readable(request: &Request<'_>, meta: &mut ObjectMeta, owners: Option<Box<RawValue>>) {
    if owners.as_deref().map(RawValue::get) == meta.managed_fields.as_deref().map(RawValue::get) {
        return; // Nobody has changed them: `managed::track` wrote them, or an apply did.
    }
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

/// `length`: of all that is compared, in bytes.
async fn track(
    request: &Request<'_>,
    before: Option<&ObjectMeta>,
    document: &mut Document,
    bodies: Compared,
    length: usize,
) -> Result<(), Status> {
    let change = Change::of(request, before.cloned(), std::mem::take(&mut document.meta), bodies);
    let change = change.track(&request.work(), length).await.map_err(read::not_done)?;
    document.meta = change.after;
    if let Compared::Changed { after, .. } = change.bodies {
        document.body = after;
    }
    Ok(())
}

/// About how long the parts of metadata are that can be owned, and who owns what, in bytes.
fn length_of(meta: &ObjectMeta) -> usize {
    let owners = meta.managed_fields.as_deref().map_or(0, |owners| owners.get().len());
    let pairs = meta.labels.iter().chain(&meta.annotations);
    let references = meta.owner_references.len() * size_of::<OwnerReference>();
    let finalizers: usize = meta.finalizers.iter().map(String::len).sum();
    owners + pairs.map(|(key, value)| key.len() + value.len()).sum::<usize>() + references + finalizers
}

/// Who writes, and through what.
pub(super) struct Owner {
    pub(super) manager: String,
    pub(super) api_version: String,
    pub(super) subresource: String,
    pub(super) time: String,
}

impl Owner {
    pub(super) fn of(request: &Request<'_>, manager: String) -> Self {
        let (api_version, subresource) = (request.resource.api_version(), request.target.subresource.clone());
        Self { manager, api_version, subresource, time: wire::now() }
    }

    pub(super) fn writer(&self) -> Writer<'_> {
        let Self { manager, api_version, subresource, time } = self;
        Writer { manager, api_version, subresource, time }
    }
}

/// [`Bodies`] that can be compared on another thread.
enum Compared {
    Same,
    Changed { before: Option<Arc<Node>>, after: Node },
}

/// A write, of which it is to be told who owns what then.
struct Change {
    schema: &'static Schema,
    before: Option<ObjectMeta>,
    /// With the owners, when they are told.
    after: ObjectMeta,
    bodies: Compared,
    owner: Owner,
}

impl Change {
    fn of(request: &Request<'_>, before: Option<ObjectMeta>, after: ObjectMeta, bodies: Compared) -> Self {
        let owner = Owner::of(request, manager(request.call));
        Self { schema: request.resource.kind.schema, before, after, bodies, owner }
    }

    /// Tells who owns what. `length`: of all that is compared, in bytes.
    async fn track(mut self, work: &UserWork, length: usize) -> Result<Self, NotDone> {
        let track = move || {
            let bodies = match &self.bodies {
                Compared::Same => Bodies::Same,
                Compared::Changed { before, after } => Bodies::Changed { before: before.as_deref(), after },
            };
            let (before, writer) = (self.before.as_ref(), self.owner.writer());
            self.after.managed_fields = managed::track(self.schema, before, &self.after, bodies, writer);
            self
        };
        work.run_sized(length, track).await
    }
}

#[cfg(test)]
pub(super) mod tests {
    use axum::body::Body;
    use futures::poll;
    use repot_apimachinery::json::Raw;

    use crate::heavy::LIGHT;

    use super::*;

    #[tokio::test]
    async fn owners_of_large_objects_are_told_on_the_threads_for_heavy_work() {
        let work = UserWork::for_tests();
        let _held = work.hold();
        let node = || Node::Raw(Raw::from_compact(Bytes::from_static(b"{}")));
        for (length, waits) in [(LIGHT, false), (LIGHT + 1, true)] {
            let change = Change {
                schema: repot_api::shoot_state::KIND_INFO.schema,
                before: None,
                after: ObjectMeta::default(),
                bodies: Compared::Changed { before: None, after: node() },
                owner: owner(),
            };
            assert_eq!(poll!(Box::pin(change.track(&work, length))).is_pending(), waits, "{length} bytes");
        }
    }

    pub(in crate::endpoints) fn owner() -> Owner {
        let [manager, api_version, subresource, time] =
            ["m", "g/v1", "", "2026-01-01T00:00:00Z"].map(str::to_owned);
        Owner { manager, api_version, subresource, time }
    }

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
