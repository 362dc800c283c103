//! PATCH of an object: JSON Patch and JSON Merge Patch, on a tree that opens only where the patch enters it.

use std::sync::Arc;

use bytes::Bytes;
use repot_apimachinery::{
    document::{self, Document},
    field::{Cause, FieldError},
    json::{
        self, Key, Node, Raw, census,
        merge::{members_to_open, merge},
        patch::Patch,
    },
};
use repot_storage::Object;

use super::{
    Answer, Request, admit, apply as server_side, decode, encode::Origin, found::Found,
    options::WriteOptions, read, status_part, update,
};
use crate::{needs, negotiate, server::DEFAULT_OBJECT_BYTES, status::Status, wire};

/// How often a patch that names no version is tried against concurrent writes. The deadline of the request
/// comes first.
const TRIES: usize = 1000;

/// A patch, read but not yet applied.
enum Change {
    /// With its length in bytes.
    Json(Patch, usize),
    Merge(Raw),
}

impl Change {
    fn read(content_type: &str, body: &Bytes) -> Result<Self, Status> {
        match content_type {
            "application/json-patch+json" => {
                let patch = Patch::parse(body).map_err(|error| unusable(&error))?;
                Ok(Self::Json(patch, body.len()))
            }
            "application/merge-patch+json" => {
                let raw = json::decode_opaque(body).map_err(|e| Status::bad_request(e.to_string()))?;
                if raw.first() != b'{' {
                    return Err(Status::bad_request("a merge patch of an object is an object"));
                }
                Ok(Self::Merge(raw))
            }
            _ => Err(Status::unsupported_media_type(
                "application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml",
            )),
        }
    }

    fn apply(&self, root: &mut Node, copy_limit: usize) -> Result<(), Status> {
        match self {
            Self::Json(patch, _) => patch.apply(root, copy_limit).map_err(|error| unusable(&error)),
            Self::Merge(patch) => {
                merge(root, Node::Raw(patch.clone())).map_err(|e| Status::bad_request(e.to_string()))
            }
        }
    }

    /// Whether nothing but metadata can be changed by this.
    fn is_of_metadata(&self) -> bool {
        match self {
            Self::Json(patch, _) => patch.is_within("metadata"),
            Self::Merge(patch) => {
                patch.members().into_iter().flatten().all(|(key, _)| key.bytes() == &b"\"metadata\""[..])
            }
        }
    }

    /// What it opens of itself and of an object with texts of so many bytes, in bytes of memory.
    fn cost(&self, meta: &Bytes, payload_len: u64) -> u64 {
        match self {
            Self::Json(..) => needs::opened(meta.len() as u64 + payload_len),
            // It enters no array, and nothing but metadata has many members outside of arrays.
            Self::Merge(patch) => needs::merged(members_to_open(patch.bytes()) + members_to_open(meta)),
        }
    }

    /// Its length, in bytes.
    fn bytes(&self) -> usize {
        match self {
            Self::Json(_, bytes) => *bytes,
            Self::Merge(patch) => patch.bytes().len(),
        }
    }

    fn copies(&self) -> bool {
        matches!(self, Self::Json(patch, _) if patch.copies())
    }

    /// Whether a merge patch carries a version, even the current one.
    fn names_version(&self) -> bool {
        let Self::Merge(patch) = self else { return false };
        let last = |raw: &Raw, name: &str| {
            let members = raw.members().into_iter().flatten();
            members.filter(|(key, _)| Key::from_token(key).text() == name).last().map(|(_, value)| value)
        };
        let version = last(patch, "metadata").and_then(|meta| last(&meta, "resourceVersion"));
        version.is_some_and(|version| version.first() != b'n')
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
    if request.call.query.maybe_flag("force").is_some() {
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
    let content_type = negotiate::content_type(&request.call.headers);
    let change = read::heavy(&request, body.len(), move || Change::read(&content_type, &body)).await??;
    let change = Arc::new(change);
    // Webhooks see the whole object, so there has to be one; a status comes along with its object.
    let light =
        change.is_of_metadata() && !admit::may_be_judged(&request) && !status_part::is_meant(&request);
    let copied = if change.copies() { copy_limit(&request) as u64 } else { 0 };
    for left in (0..TRIES).rev() {
        let current = found.take(&request).await?.ok_or_else(|| request.not_found())?;
        let mut warnings = Vec::new();
        let texts = match light {
            true => needs.body,
            false => needs.lay_over(current.payload_len) + copied,
        };
        let payload_len = if light { 0 } else { current.payload_len };
        let meta = read::cost_of_meta(&current, needs::written) + change.cost(&current.meta, payload_len);
        request.server.reserve(request.call, texts + meta).await?;
        let Patched { mut document, before, named } =
            apply(&request, &write, &change, light, &current, &mut warnings).await?;
        update::expect_same(&request, &document.meta, &current)?;
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

/// Bytes that one patch may copy: there has to be room for them.
fn copy_limit(request: &Request<'_>) -> usize {
    request.server.limits.object_bytes.min(DEFAULT_OBJECT_BYTES)
}

/// An object with a patch applied to it.
struct Patched {
    document: Document,
    /// The members beside metadata as they were.
    before: Option<Arc<Node>>,
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
    read::charge_payload(request, &payload, needs::written).await?;
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
        let census = census::count_tree(&root, kind.schema);
        Ok::<_, Status>((root, before.map(Arc::new), census))
    };
    let length = read::length_with(current, change.bytes());
    let (root, before, census) = read::heavy(request, length, work).await??;
    request.server.charge(request.call, needs::written(census))?;
    let conformed = read::heavy(request, length, move || Document::conform(root, kind)).await?;
    let mut document = decode::admit(request, conformed, write, warnings).map_err(|status| ill(&status))?;
    decode::default_name_and_namespace(request, &mut document.meta)?;
    update::expect_uid(request, &document.meta, current)?;
    // Unless the patch changed it, the version is the one that was just read.
    let named = document.meta.resource_version != current.version.to_string();
    if document.meta.resource_version.is_empty() {
        document.meta.resource_version = current.version.to_string();
    }
    Ok(Patched { document, before, named: named || change.names_version() })
}
