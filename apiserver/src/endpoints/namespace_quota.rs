//! How much a namespace may hold: what grows beyond that is refused, what shrinks or is being deleted never is. Who owns which
//! field counts as well, so the first change by somebody new makes an object a little longer.

use repot_storage::{Object, Scope};

use super::Request;
use crate::status::Status;

/// Sees whether an object may become so long. `before`: the state that it replaces.
///
/// Writes that run at the same time do not know of each other, so together they may end a little above the limit.
///
/// # Errors
/// 403, as for a ResourceQuota; what the store answers when it cannot tell.
pub(super) async fn check(
    request: &Request<'_>,
    name: &str,
    length: u64,
    before: Option<&Object>,
) -> Result<(), Status> {
    let before = before.map_or(0, Object::length);
    let Some(limit) = request.server.limits.namespace_bytes else { return Ok(()) };
    if length <= before || request.target.namespace.is_empty() {
        return Ok(());
    }
    let (resource, namespace) = (&request.resource.name, &request.target.namespace);
    let scope = Scope {
        group: resource.group.clone(),
        resource: resource.resource.clone(),
        namespace: Some(namespace.clone()),
    };
    let usage = request.server.store.usage(&scope).await.map_err(|error| request.failed(&error))?;
    let usage = usage.get(namespace).copied().unwrap_or_default();
    if usage.unknown > 0 {
        let unknown = usage.unknown;
        let why = format!(
            "{unknown} {resource} of namespace {namespace} cannot be decrypted now, so it cannot be told whether the namespace is \
             within --max-namespace-bytes"
        );
        return Err(Status::unavailable(why, 5));
    }
    let used = usage.bytes;
    if used.saturating_add(length - before) <= limit {
        return Ok(());
    }
    let more = length - before;
    let why = format!(
        "exceeded quota: --max-namespace-bytes, requested: {more} bytes, used: {used}, limited: {limit}; delete \
         {resource} of namespace {namespace} that are not needed any more"
    );
    Err(Status::forbidden(resource, name, &why))
}
