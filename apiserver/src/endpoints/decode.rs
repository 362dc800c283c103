//! Takes what a request body holds for the object that a write is about.

use std::collections::HashSet;

use repot_apimachinery::{
    document::{self, Document},
    field::shortened,
    meta::ObjectMeta,
};

use super::{
    Request,
    options::{FieldValidation, WriteOptions},
};
use crate::status::Status;

/// A decoded object and its unknown or duplicate fields, or why the text is no such object.
pub(super) type Decoded = Result<(Document, Vec<String>), document::Error>;

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
