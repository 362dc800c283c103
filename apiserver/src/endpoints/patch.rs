//! PATCH of an object: JSON Patch and JSON Merge Patch, on a tree that opens only where the patch enters it.

use std::sync::Arc;

use bytes::Bytes;
use repot_api::{
    document::{self, Document},
    field::{Cause, FieldError},
    json::{self, Node, merge::merge, patch::Patch},
};
use repot_storage::Object;

use super::{
    Answer, Request, admit, apply as server_side,
    found::Found,
    status_part,
    tracking::Origin,
    update,
    write::{self, WriteOptions},
};
use crate::{negotiate, server::DEFAULT_OBJECT_BYTES, status::Status, wire};

/// How often a patch that names no version is tried against concurrent writes. The deadline of the request
/// comes first.
const TRIES: usize = 1000;

/// A patch, read but not yet applied.
enum Change {
    Json(Patch),
    Merge(Node),
}

impl Change {
    fn read(headers: &http::HeaderMap, body: &Bytes) -> Result<Self, Status> {
        match negotiate::content_type(headers).as_str() {
            "application/json-patch+json" => {
                Patch::parse(body).map(Self::Json).map_err(|error| unusable(&error))
            }
            "application/merge-patch+json" => {
                let raw = json::decode_opaque(body).map_err(|e| Status::bad_request(e.to_string()))?;
                if raw.first() != b'{' {
                    return Err(Status::bad_request("a merge patch of an object is an object"));
                }
                Ok(Self::Merge(Node::Raw(raw)))
            }
            _ => Err(Status::unsupported_media_type(
                "application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml",
            )),
        }
    }

    fn apply(&self, root: &mut Node, copy_limit: usize) -> Result<(), Status> {
        match self {
            Self::Json(patch) => patch.apply(root, copy_limit).map_err(|error| unusable(&error)),
            Self::Merge(patch) => merge(root, patch.clone()).map_err(|e| Status::bad_request(e.to_string())),
        }
    }

    /// Whether nothing but metadata can be changed by this.
    fn is_of_metadata(&self) -> bool {
        match self {
            Self::Json(patch) => patch.is_within("metadata"),
            Self::Merge(patch) => {
                let mut patch = patch.clone();
                patch.open();
                let Node::Object(members) = &patch else { return false };
                members.iter().all(|(key, _)| key.text() == "metadata")
            }
        }
    }

    fn copies(&self) -> bool {
        matches!(self, Self::Json(patch) if patch.copies())
    }

    /// Whether a merge patch carries a version, even the current one.
    fn names_version(&self) -> bool {
        let Self::Merge(patch) = self else { return false };
        let mut patch = patch.clone();
        patch.open();
        let Some(meta) = patch.member_mut("metadata") else { return false };
        meta.open();
        meta.member("resourceVersion").is_some_and(|version| !version.is_null())
    }
}

fn unusable(error: &json::patch::Error) -> Status {
    use json::patch::Error as E;
    match error {
        E::Syntax(_) => Status::bad_request(error.to_string()),
        E::TooMany(_) | E::TooMuchCopied(_) | E::TooCostly => Status::too_much(error.to_string()),
        E::Apply { .. } => Status::unprocessable(format!(
            "the server rejected our request due to an error in our request: {error}"
        )),
    }
}

/// Patches an object.
pub(super) async fn patch(request: Request<'_>) -> Answer {
    if negotiate::content_type(&request.call.headers) == server_side::CONTENT_TYPE {
        return server_side::apply(request).await;
    }
    let write = WriteOptions::parse(&request, "PatchOptions")?;
    if request.call.query.maybe_flag("force")?.is_some() {
        let why = "may not be specified for non-apply patch";
        let error = FieldError::forbidden("force", why);
        return Err(Status::invalid(("meta.k8s.io", "PatchOptions"), "", &[error]));
    }
    let sent = request.server.receive(request.call).await?;
    let needs = sent.needs(false, admit::largest_review(&request));
    let mut found = Found::look(&request).await;
    let body = match sent.is_short() {
        // What it takes is known when it is read: a patch of metadata, next to nothing.
        true => request.server.read(request.call, sent).await?,
        false => request.server.open(request.call, sent, needs.lay_over(found.payload_len())).await?,
    };
    let change = Arc::new(Change::read(&request.call.headers, &body)?);
    // Webhooks see the whole object, so there has to be one; a status comes along with its object.
    let light =
        change.is_of_metadata() && !admit::may_be_judged(&request) && !status_part::is_meant(&request);
    for left in (0..TRIES).rev() {
        let current = found.take(&request).await?.ok_or_else(|| request.not_found())?;
        let mut warnings = Vec::new();
        if !light {
            let copied = if change.copies() { copy_limit(&request) } else { 0 };
            let need = needs.lay_over(current.payload_len) + copied as u64;
            request.server.reserve(request.call, need).await?;
        }
        let Patched { mut document, before, named } =
            apply(&request, &write, &change, light, &current, &mut warnings).await?;
        let replaced = if light {
            update::replace_meta(&request, write.dry_run, write.form, document.meta.clone(), &current).await
        } else {
            update::replace(&request, &write, &mut document, &current, Origin::Written(before)).await
        };
        match replaced {
            // Nobody asked for a certain version: the patch is applied to the newer one.
            Err(status) if status.reason() == "Conflict" && !named && left > 0 => {}
            Err(status) => return Err(status),
            Ok(mut response) => {
                wire::warn(&mut response, &warnings);
                return Ok(response);
            }
        }
    }
    Err(Status::modified(&request.resource.name, &request.target.name))
}

/// A patch that leaves something which is no object of the kind is itself at fault.
fn ill(status: &Status) -> Status {
    let error =
        FieldError { cause: Cause::Invalid, field: "patch".into(), value: None, detail: status.to_string() };
    Status::invalid(("", ""), "", &[error])
}

/// Unlike a whole object with another uid, which means another object, a patch of the uid tries to change it.
fn expect_uid(request: &Request<'_>, document: &Document, current: &Object) -> Result<(), Status> {
    let (uid, name) = (&document.meta.uid, &request.resource.name);
    if uid.is_empty() || *uid == current.uid.to_string() {
        return Ok(());
    }
    let error = FieldError::invalid("metadata.uid", uid, "field is immutable");
    Err(Status::invalid((&name.group, request.resource.kind.kind), &document.meta.name, &[error]))
}

/// Bytes that one patch may copy: there has to be room for them.
fn copy_limit(request: &Request<'_>) -> usize {
    request.server.limits.object_bytes.min(DEFAULT_OBJECT_BYTES)
}

/// An object with a patch applied to it.
struct Patched {
    document: Document,
    /// The members beside metadata as they were.
    before: Option<Node>,
    /// Whether the patch itself names the version it is meant for.
    named: bool,
}

async fn apply(
    request: &Request<'_>,
    write: &WriteOptions,
    change: &Arc<Change>,
    light: bool,
    current: &Object,
    warnings: &mut Vec<String>,
) -> Result<Patched, Status> {
    let resource = request.resource;
    // Labels, annotations and finalizers change often, and payloads are large: such patches never read one.
    let payload = match light {
        true => Bytes::new(),
        false => request.server.store.payload_bytes(current).await.map_err(|error| request.failed(&error))?,
    };
    let meta = wire::meta_json(&current.meta, current.version).freeze();
    let (api_version, kind) = (resource.api_version(), resource.kind);
    let (change_now, copy_limit) = (change.clone(), copy_limit(request));
    let work = move || {
        // Brought into form first, what the patch does not enter is not read again afterwards.
        let before = document::tree(&api_version, kind.kind, Bytes::from_static(b"{}"), &payload);
        let before = Document::conform(before, kind).ok().map(|(document, _)| document.body);
        let unread = if before.is_some() { Bytes::new() } else { payload };
        let mut root = document::tree(&api_version, kind.kind, meta, &unread);
        for (key, value) in before.iter().flat_map(Node::members) {
            root.set(key.clone(), value.clone());
        }
        change_now.apply(&mut root, copy_limit)?;
        Ok((Document::conform(root, kind), before))
    };
    let length = usize::try_from(current.payload_len).unwrap_or(usize::MAX);
    let (conformed, before) = write::off_the_workers(length, work).await??;
    let mut document = write::admit(request, conformed, write, warnings).map_err(|status| ill(&status))?;
    write::fit_place(request, &mut document.meta)?;
    expect_uid(request, &document, current)?;
    // Unless the patch changed it, the version is the one that was just read.
    let named = document.meta.resource_version != current.version.to_string();
    if document.meta.resource_version.is_empty() {
        document.meta.resource_version = current.version.to_string();
    }
    Ok(Patched { document, before, named: named || change.names_version() })
}
