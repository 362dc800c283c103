//! PUT of an object, and the rules of change that patches follow too.

use std::collections::HashSet;

use axum::body::Body;
use bytes::Bytes;
use http::{Response, StatusCode};
use repot_apimachinery::{
    document::Document,
    field::{FieldError, shortened},
    meta::ObjectMeta,
};
use repot_storage::Object;

use super::{
    Answer, Request, admit, decode,
    encode::{self, EncodedObject, Origin},
    found::Found,
    namespace_quota,
    options::WriteOptions,
    read::{self, Source},
    status_part, tracking, validate,
};
use crate::{needs, negotiate::Form, status::Status, wire};

/// Finalizers that may not be added, and that a refusal names.
const NAMED_FINALIZERS: usize = 10;
/// A uid of a client is shown up to this length, in bytes.
const MAX_SHOWN: usize = 256;
/// How often a write without a version is tried against concurrent ones. The deadline of the request
/// comes first.
const TRIES: usize = 1000;

/// Replaces an object.
pub(super) async fn update(mut request: Request<'_>) -> Answer {
    let write = WriteOptions::parse(&request, "UpdateOptions")?;
    let mut warnings = Vec::new();
    let yaml = read::is_yaml(&request)?;
    let sent = request.server.receive(request.call).await?;
    let mut found = Found::look(&request).await;
    let old = found.payload_len();
    let source = Source::open(&mut request, sent, yaml, |needs| needs.replace(old), needs::written).await?;
    let mut first = Some(named(&request, source.object(&request, &write, &mut warnings).await?)?);
    for left in (0..TRIES).rev() {
        let current = found.take(&request).await?.ok_or_else(|| request.not_found())?;
        let meta = read::cost_of_meta(&current, needs::written);
        request.server.reserve(request.call, source.needs.replace(current.payload_len) + meta).await?;
        // Each try begins with what the client sent, and not with what the try before has made of it.
        let mut document = match first.take() {
            Some(document) => document,
            None => named(&request, source.object(&request, &write, &mut Vec::new()).await?)?,
        };
        expect_same(&request, &document.meta, &current)?;
        let conditional = !document.meta.resource_version.is_empty();
        if !conditional && !request.resource.strategy.unconditional_update {
            let why = "must be specified for an update";
            let error = FieldError::invalid("metadata.resourceVersion", 0, why);
            let kind = (request.resource.name.group.as_str(), request.resource.kind.kind);
            return Err(Status::invalid(kind, &document.meta.name, &[error]));
        }
        match replace(&request, &write, &mut document, &current, Origin::Written(None)).await {
            Err(status) if status.reason() == "Conflict" && !conditional && left > 0 => {}
            Err(status) => return Err(status),
            Ok(mut response) => {
                wire::warn(&mut response, &warnings);
                return Ok(response);
            }
        }
    }
    Err(Status::modified(&request.resource.name, &request.target.name))
}

fn named(request: &Request<'_>, mut document: Document) -> Result<Document, Status> {
    decode::default_name_and_namespace(request, &mut document.meta)?;
    Ok(document)
}

/// Brings a new state of an object to rest in place of `current`, which is the one that is meant: see [`expect_same`]. So a
/// conflict says that another write came between.
pub(super) async fn replace(
    request: &Request<'_>,
    write: &WriteOptions,
    document: &mut Document,
    current: &Object,
    origin: Origin,
) -> Answer {
    let before = wire::parse_meta(current);
    inherit(&mut document.meta, &before);
    let mut forbidden = status_part::confine(request, document, current).await?;
    let mut ready = EncodedObject::fitting(request, document, &origin).await?;
    tracking::replaced(request, document, &before, current, &ready, &origin).await?;
    if admit::may_be_judged(request) {
        let owners = document.meta.managed_fields.clone();
        admit::mutate(request, write, document, Some(current)).await?;
        tracking::keep_readable(request, &mut document.meta, owners);
        decode::default_name_and_namespace(request, &mut document.meta)?;
        inherit(&mut document.meta, &before);
        forbidden = status_part::confine(request, document, current).await?;
        ready = EncodedObject::fitting(request, document, &origin).await?;
    }
    forbidden.extend(changes(&document.meta, &before));
    validate::validate(request, document, forbidden)?;
    admit::judge(request, write, document, Some(current)).await?;
    if spec_changed(&ready, current) {
        document.meta.generation = before.generation + 1;
    }
    ready.restate(request, &mut document.meta, &origin)?;
    let store = &request.server.store;
    if document.meta.deleting() && document.meta.finalizers.is_empty() {
        // The last finalizer is gone: the object goes in the same write, and nobody sees it without finalizers.
        if write.dry_run {
            return Ok(ready.answer(request, StatusCode::OK, Some(current), write.form));
        }
        let gone = store.delete(current).await.map_err(|error| request.failed(&error))?;
        return Ok(ready.answer(request, StatusCode::OK, Some(&gone), write.form));
    }
    if write.dry_run || ready.same_as(current) {
        return Ok(ready.answer(request, StatusCode::OK, Some(current), write.form));
    }
    // An object that goes is never held up.
    if !document.meta.deleting() {
        namespace_quota::check(request, &current.key.name, ready.length(), Some(current)).await?;
    }
    let stored = if ready.summary == wire::Summary::of(current) {
        store.update_head(current, ready.meta.clone(), ready.summary_json()).await
    } else {
        store.update(current, ready.draft(current.uid)).await
    };
    let stored = stored.map_err(|error| request.failed(&error))?;
    Ok(ready.answer(request, StatusCode::OK, Some(&stored), write.form))
}

/// Brings new metadata of an object to rest, as [`replace`]; its payload stays, unread.
pub(super) async fn replace_meta(
    request: &Request<'_>,
    dry_run: bool,
    form: Form,
    mut meta: ObjectMeta,
    current: &Object,
) -> Answer {
    let before = wire::parse_meta(current);
    inherit(&mut meta, &before);
    validate::validate_meta(request, &meta, changes(&meta, &before))?;
    tracking::meta_replaced(request, &mut meta, &before).await?;
    let shown = rest_meta(request, dry_run, &meta, current).await?;
    Ok(show(request, &shown, form).await)
}

/// Brings metadata that has been judged, or that the server itself has made, to rest; gives what is there then.
pub(super) async fn rest_meta(
    request: &Request<'_>,
    dry_run: bool,
    meta: &ObjectMeta,
    current: &Object,
) -> Result<Object, Status> {
    let store = &request.server.store;
    let print = |meta: &ObjectMeta| Bytes::from(serde_json::to_vec(meta).unwrap_or_default());
    let mut shown = current.clone();
    shown.meta = print(meta);
    let limit = request.server.limits.object_bytes;
    let too_large = |shown: &Object| {
        shown.meta.len() > encode::MAX_METADATA || wire::object_len(request.resource, shown) > limit as u64
    };
    if too_large(&shown) {
        // Rather forget who owns what than refuse.
        shown.meta = print(&ObjectMeta { managed_fields: None, ..meta.clone() });
    }
    if too_large(&shown) {
        return Err(Status::too_large(limit));
    }
    let text = shown.meta.clone();
    let last = meta.deleting() && meta.finalizers.is_empty();
    if last && !dry_run {
        shown.version = store.delete(current).await.map_err(|error| request.failed(&error))?.version;
    } else if !last && !dry_run && (current.stale || current.meta != text) {
        // An object that goes is never held up.
        if !meta.deleting() {
            namespace_quota::check(request, &current.key.name, shown.length(), Some(current)).await?;
        }
        let stored = store.update_head(current, text, current.summary.clone()).await;
        shown = stored.map_err(|error| request.failed(&error))?;
    }
    Ok(shown)
}

/// An answer with an object at rest. The change it tells of is done: where its payload cannot be read, metadata has to do.
pub(super) async fn show(request: &Request<'_>, object: &Object, form: Form) -> Response<Body> {
    if let Form::Metadata(version) = form {
        return wire::whole(StatusCode::OK, wire::partial(object, version).freeze());
    }
    match wire::checked(
        &request.server.memory,
        &request.server.store,
        &request.flow(),
        request.resource,
        object,
    )
    .await
    {
        Ok(pieces) => wire::sized(StatusCode::OK, wire::object_len(request.resource, object), pieces),
        Err(error) => {
            tracing::error!(%error, "the answer to a change shows no payload");
            let mut text = wire::before_payload(request.resource, &object.meta, Some(object.version), false);
            wire::put(&mut text, "}");
            wire::whole(StatusCode::OK, text.freeze())
        }
    }
}

/// The writer has to mean the object that is there: first its uid is looked at, then its version, as in kube-apiserver. What
/// does not hold now never will, so a write is not tried again for it.
///
/// # Errors
/// 409; 422 for what is no version.
pub(super) fn expect_same(request: &Request<'_>, meta: &ObjectMeta, current: &Object) -> Result<(), Status> {
    let (resource, name) = (&request.resource.name, &request.target.name);
    let uid = current.uid.to_string();
    if !meta.uid.is_empty() && meta.uid != uid {
        let sent = shortened(meta.uid.clone(), MAX_SHOWN);
        let why = format!("Precondition failed: UID in precondition: {sent}, UID in object meta: {uid}");
        return Err(Status::conflict(resource, name, &why));
    }
    expect_version(request, meta, current)
}

fn expect_version(request: &Request<'_>, meta: &ObjectMeta, current: &Object) -> Result<(), Status> {
    let (resource, name, version) = (&request.resource.name, &request.target.name, &meta.resource_version);
    if version.bytes().any(|b| !b.is_ascii_digit()) {
        let why = "must be a version that the server gave";
        let error = FieldError::invalid("metadata.resourceVersion", version, why);
        let kind = (resource.group.as_str(), request.resource.kind.kind);
        return Err(Status::invalid(kind, name, &[error]));
    }
    match version.is_empty() || *version == current.version.to_string() {
        true => Ok(()),
        false => Err(Status::modified(resource, name)),
    }
}

/// Unlike a whole object with another uid, which means another object, a patch of the uid tries to change it. Its version is
/// looked at first.
///
/// # Errors
/// 409, 422.
pub(super) fn expect_uid(request: &Request<'_>, meta: &ObjectMeta, current: &Object) -> Result<(), Status> {
    expect_version(request, meta, current)?;
    if meta.uid.is_empty() || meta.uid == current.uid.to_string() {
        return Ok(());
    }
    let error = FieldError::invalid("metadata.uid", &meta.uid, "field is immutable");
    let kind = (request.resource.name.group.as_str(), request.resource.kind.kind);
    Err(Status::invalid(kind, &meta.name, &[error]))
}

/// What writers cannot change stays as it was.
fn inherit(meta: &mut ObjectMeta, before: &ObjectMeta) {
    meta.uid.clone_from(&before.uid);
    meta.creation_timestamp.clone_from(&before.creation_timestamp);
    meta.deletion_timestamp.clone_from(&before.deletion_timestamp);
    meta.deletion_grace_period_seconds = before.deletion_grace_period_seconds;
    meta.generation = before.generation;
    if meta.generate_name.is_empty() {
        meta.generate_name.clone_from(&before.generate_name);
    }
}

/// What may not be changed in this way.
fn changes(meta: &ObjectMeta, before: &ObjectMeta) -> Vec<FieldError> {
    let known: HashSet<_> = before.finalizers.iter().collect();
    let added: Vec<_> =
        meta.finalizers.iter().filter(|f| !known.contains(f)).take(NAMED_FINALIZERS).collect();
    if !before.deleting() || added.is_empty() {
        return Vec::new();
    }
    let why = format!(
        "no new finalizers can be added if the object is being deleted, found new finalizers {added:?}"
    );
    vec![FieldError::forbidden("metadata.finalizers", why)]
}

fn spec_changed(ready: &EncodedObject, current: &Object) -> bool {
    let mut before = wire::Summary::of(current).digests;
    let mut after = ready.summary.digests.clone();
    before.remove("status");
    after.remove("status");
    before != after
}
