//! Whether an object may be stored: what is wrong with it, and whether its namespace lives.

use repot_apimachinery::{document::Document, field::FieldError, meta::ObjectMeta};

use super::{Request, status_part};
use crate::{delegation::NamespaceState, resource::GroupResource, status::Status, trimmed};

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
    errors.extend(trimmed::refusal(meta));
    refuse(request, meta, &errors)
}

/// Refuses metadata of the trimmed form of an object, where nothing else of it is looked at.
pub(super) fn refuse_trimmed(request: &Request<'_>, meta: &ObjectMeta) -> Result<(), Status> {
    refuse(request, meta, trimmed::refusal(meta).as_slice())
}

fn refuse(request: &Request<'_>, meta: &ObjectMeta, errors: &[FieldError]) -> Result<(), Status> {
    if errors.is_empty() {
        return Ok(());
    }
    Err(Status::invalid((&request.resource.name.group, request.resource.kind.kind), &meta.name, errors))
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
            let namespaces = GroupResource { group: String::new(), resource: "namespaces".into() };
            Err(Status::not_found(&namespaces, namespace))
        }
    }
}
