//! What all writes share: reading the body, judging it, and bringing it to rest.

use std::{collections::HashSet, ops::Range};

use axum::body::Body;
use bytes::Bytes;
use futures::stream;
use http::{Response, StatusCode};
use repot_apimachinery::{
    document::{Document, Printed},
    field::{FieldError, shortened},
    json::Node,
    kind::Kind,
    meta::ObjectMeta,
};
use repot_storage::{Draft, Object, Segmented};
use uuid::Uuid;

use super::{
    Request,
    options::{self, FieldValidation},
    read::{self, Decoded},
    status_part,
    tracking::Origin,
};
use crate::{
    delegation::NamespaceState,
    negotiate::{self, Form},
    status::Status,
    wire::{self, Summary},
};

/// Metadata may have so many bytes as JSON: what a whole object may have in etcd. It is in memory for every object that is served.
pub(super) const MAX_METADATA: usize = 3 << 19;

/// The options of a write.
pub(super) struct WriteOptions {
    pub(super) dry_run: bool,
    pub(super) form: Form,
    pub(super) validation: FieldValidation,
}

impl WriteOptions {
    pub(super) fn parse(request: &Request<'_>, kind: &str) -> Result<Self, Status> {
        let query = &request.call.query;
        let form = match negotiate::form(&request.call.headers, false)? {
            Form::Table(_) => Form::Object,
            form => form,
        };
        let dry_run: Vec<&str> = query.all("dryRun").collect();
        let validation = FieldValidation::parse(query);
        let mut errors: Vec<FieldError> = options::check_field_manager(query).into_iter().collect();
        errors.extend(options::check_dry_run(&dry_run));
        errors.extend(validation.as_ref().err().cloned());
        options::refuse(kind, &errors)?;
        let validation = validation.unwrap_or(FieldValidation::Warn);
        Ok(Self { dry_run: options::is_dry_run(&dry_run), form, validation })
    }
}

/// Takes over what decoding gave: unknown and duplicate fields are refused or warned of, older shapes made new.
pub(super) fn admit(
    request: &Request<'_>,
    decoded: Decoded,
    write: &WriteOptions,
    warnings: &mut Vec<String>,
) -> Result<Document, Status> {
    let kind = request.resource.kind.kind;
    let unreadable = |error| {
        let api_version = &request.resource.version;
        Status::bad_request(format!(
            "{kind} in version {api_version:?} cannot be handled as a {kind}: {error}"
        ))
    };
    let (mut document, strict) = decoded.map_err(unreadable)?;
    match write.validation {
        FieldValidation::Strict if !strict.is_empty() => {
            let all = strict.join(", ");
            let message = format!(
                "{kind} in version {:?} cannot be handled as a {kind}: strict decoding error: {all}",
                request.resource.version
            );
            return Err(Status::bad_request(message));
        }
        FieldValidation::Warn => warnings.extend(strict),
        _ => {}
    }
    expect_kind(request, &document)?;
    warnings.extend((request.resource.strategy.normalise)(&mut document.body));
    dedupe_owners(&mut document.meta, warnings);
    Ok(document)
}

pub(super) fn expect_kind(request: &Request<'_>, document: &Document) -> Result<(), Status> {
    let (kind, api_version) = (request.resource.kind.kind, request.resource.api_version());
    let wrong = |what: &str, got: &str, expected: &str| {
        let got = shortened(got.to_owned(), MAX_SHOWN);
        let message =
            format!("the {what} in the data ({got:?}) does not match the expected {what} ({expected:?})");
        Err(Status::bad_request(message))
    };
    if !document.api_version.is_empty() && document.api_version != api_version {
        return wrong("API version", &document.api_version, &api_version);
    }
    if !document.kind.is_empty() && document.kind != kind {
        return wrong("kind", &document.kind, kind);
    }
    if document.kind.is_empty() || document.api_version.is_empty() {
        return Err(Status::bad_request("Object 'Kind' and 'apiVersion' must be set in the body"));
    }
    Ok(())
}

/// What a client says that it sends is shown up to this length, in bytes.
const MAX_SHOWN: usize = 512;
/// A uid is shown up to this length, in bytes.
const MAX_UID: usize = 64;
/// Duplicates of owners that a warning names.
const NAMED_DUPLICATES: usize = 10;

/// Takes out owners that are named twice, and warns of them, as kube-apiserver does.
fn dedupe_owners(meta: &mut ObjectMeta, warnings: &mut Vec<String>) {
    let (mut seen, mut duplicates) = (HashSet::new(), Vec::new());
    meta.owner_references.retain(|owner| {
        let first = seen.insert(owner.clone());
        if !first && duplicates.len() < NAMED_DUPLICATES {
            duplicates.push(shortened(owner.uid.clone(), MAX_UID));
        }
        first
    });
    if !duplicates.is_empty() {
        let all = duplicates.join(", ");
        warnings.push(format!(
            "metadata.ownerReferences contains duplicates, which are left out; their uids: {all}"
        ));
    }
}

/// Name and namespace of the body have to be those of the URL; what is empty is filled in.
pub(super) fn default_name_and_namespace(request: &Request<'_>, meta: &mut ObjectMeta) -> Result<(), Status> {
    let target = &request.target;
    if meta.namespace.is_empty() {
        meta.namespace.clone_from(&target.namespace);
    }
    if meta.namespace != target.namespace {
        return Err(Status::bad_request(
            "the namespace of the provided object does not match the namespace sent on the request",
        ));
    }
    if !target.name.is_empty() && meta.name != target.name {
        let message = format!(
            "the name of the object ({:?}) does not match the name on the URL ({:?})",
            shortened(meta.name.clone(), MAX_SHOWN),
            target.name
        );
        return Err(Status::bad_request(message));
    }
    Ok(())
}

/// Everything that is wrong with an object, at once.
pub(super) fn validate(
    request: &Request<'_>,
    document: &Document,
    more: Vec<FieldError>,
) -> Result<(), Status> {
    let strategy = request.resource.strategy;
    let validate = if status_part::is_meant(request) { strategy.validate_status } else { strategy.validate };
    let mut errors = validate(&document.body);
    errors.extend(more);
    validate_meta(request, &document.meta, errors)
}

/// Everything that is wrong with metadata, and what was found elsewhere.
pub(super) fn validate_meta(
    request: &Request<'_>,
    meta: &ObjectMeta,
    more: Vec<FieldError>,
) -> Result<(), Status> {
    let kind = request.resource.kind;
    let mut errors = meta.validate(kind.namespaced, request.resource.strategy.name_rule);
    errors.extend(more);
    errors.extend(trimmed(meta));
    refuse(request, meta, &errors)
}

/// Refuses metadata of the trimmed form of an object, where nothing else of it is looked at.
pub(super) fn refuse_trimmed(request: &Request<'_>, meta: &ObjectMeta) -> Result<(), Status> {
    refuse(request, meta, trimmed(meta).as_slice())
}

fn refuse(request: &Request<'_>, meta: &ObjectMeta, errors: &[FieldError]) -> Result<(), Status> {
    if errors.is_empty() {
        return Ok(());
    }
    Err(Status::invalid((&request.resource.name.group, request.resource.kind.kind), &meta.name, errors))
}

/// Whoever writes the form back that lists and watches show of an object too long for them would remove its payload.
pub(super) fn trimmed(meta: &ObjectMeta) -> Option<FieldError> {
    let field = || format!("metadata.annotations[{}]", repot_api::names::TRIMMED);
    let why = "this is the trimmed form of an object; read the whole one with GET";
    meta.annotations.contains_key(repot_api::names::TRIMMED).then(|| FieldError::forbidden(field(), why))
}

/// New objects need a namespace that lives.
pub(super) async fn need_namespace(request: &Request<'_>, name: &str) -> Result<(), Status> {
    let namespace = &request.target.namespace;
    if namespace.is_empty() {
        return Ok(());
    }
    match request.server.namespaces.state(namespace).await? {
        NamespaceState::Active => Ok(()),
        NamespaceState::Terminating => {
            Err(Status::namespace_terminating(&request.resource.name, name, namespace))
        }
        NamespaceState::Missing => {
            let namespaces =
                crate::resource::GroupResource { group: String::new(), resource: "namespaces".into() };
            Err(Status::not_found(&namespaces, namespace))
        }
    }
}

/// An object ready to rest, in the very bytes that clients will read.
pub(super) struct Ready {
    pub(super) meta: Bytes,
    pub(super) summary: Summary,
    pub(super) payload: Printed,
}

impl Ready {
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
        let print = move || {
            let (payload, summary) = print(&body, kind);
            (payload, summary, body)
        };
        let (payload, summary, body) = read::heavy(request, length, print).await?;
        document.body = body;
        let mut ready = Self { meta: Bytes::new(), summary, payload };
        ready.print_meta(&document.meta);
        ready.check_size(request)?;
        Ok(ready)
    }

    /// As [`Ready::new`]. Who owns what may take much room: where the object does not fit otherwise, that is forgotten,
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
            room.shrink_to(length);
        }
        wire::sized(code, length, stream::iter([before, text, end].map(Ok)))
    }
}

/// Longer payloads are not held in memory until a client has read them.
const HELD: u64 = 16 << 20;

/// The members beside metadata as text, and what is kept beside it.
fn print(body: &Node, kind: &Kind) -> (Printed, Summary) {
    let payload = Printed::of(body);
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

/// Now, as Kubernetes writes times.
pub(super) fn now() -> String {
    jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}
