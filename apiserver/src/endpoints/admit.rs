//! Where writes meet admission: one call before a write is judged by us, one after.

use repot_apimachinery::document::Document;
use repot_storage::Object;
use serde_json::{Value, json};

use super::{Request, options::WriteOptions};
use crate::{
    admission::{self, Attributes, Operation},
    status::Status,
};

/// Lets others change a new state. `old`: what it replaces; none where it is new.
pub(super) async fn mutate(
    request: &Request<'_>,
    write: &WriteOptions,
    document: &mut Document,
    old: Option<&Object>,
) -> Result<(), Status> {
    let attributes = attributes(request, write, &document.meta.name, old);
    admission::mutate(&attributes, Some(document), old).await
}

/// Lets others judge a state that is about to rest.
pub(super) async fn judge(
    request: &Request<'_>,
    write: &WriteOptions,
    document: &Document,
    old: Option<&Object>,
) -> Result<(), Status> {
    let attributes = attributes(request, write, &document.meta.name, old);
    admission::validate(&attributes, Some(document), old).await?;
    // Last, as upstream: a place is taken only for what everybody else lets pass.
    match (request.server.admission.cluster(), old) {
        (Some(cluster), None) if !request.target.namespace.is_empty() => {
            let (resource, target) = (&request.resource.name, &request.target);
            cluster.quotas()?.take(resource, &target.namespace, &document.meta.name, write.dry_run).await
        }
        _ => Ok(()),
    }
}

/// Lets others judge the removal of an object. Both sorts of webhooks are asked, and neither can change anything.
pub(super) async fn judge_removal(
    request: &Request<'_>,
    dry_run: bool,
    options: Value,
    current: &Object,
) -> Result<(), Status> {
    let attributes = attributes_of(request, Operation::Delete, dry_run, &current.key.name, options);
    admission::mutate(&attributes, None, Some(current)).await?;
    admission::validate(&attributes, None, Some(current)).await
}

/// Whether somebody may want to see a new state of this resource: then a change has to be made on the whole object.
pub(super) fn may_be_judged(request: &Request<'_>) -> bool {
    admission::may_concern(&attributes_of_write(request, Operation::Update, false, &request.target.name))
}

/// How large a question about this write may become, in bytes; `None`: nobody will ask one.
pub(super) fn largest_review(request: &Request<'_>) -> Option<u64> {
    let operations = [Operation::Create, Operation::Update];
    let concerns = |operation| {
        admission::may_concern(&attributes_of_write(request, operation, false, &request.target.name))
    };
    let cluster = request.server.admission.cluster()?;
    operations.into_iter().any(concerns).then_some(cluster.max_review_bytes as u64)
}

fn attributes<'a>(
    request: &'a Request<'_>,
    write: &WriteOptions,
    name: &str,
    old: Option<&Object>,
) -> Attributes<'a> {
    let operation = if old.is_some() { Operation::Update } else { Operation::Create };
    attributes_of_write(request, operation, write.dry_run, name)
}

/// Attributes of a request that creates or updates.
fn attributes_of_write<'a>(
    request: &'a Request<'_>,
    operation: Operation,
    dry_run: bool,
    name: &str,
) -> Attributes<'a> {
    let kind = if operation == Operation::Create { "CreateOptions" } else { "UpdateOptions" };
    let mut options = json!({"kind": kind, "apiVersion": "meta.k8s.io/v1"});
    if dry_run {
        options["dryRun"] = json!(["All"]);
    }
    for parameter in ["fieldManager", "fieldValidation"] {
        if let Some(value) = request.call.query.get(parameter) {
            options[parameter] = value.into();
        }
    }
    attributes_of(request, operation, dry_run, name, options)
}

/// Attributes of any request, with `options` as the caller gives them.
fn attributes_of<'a>(
    request: &'a Request<'_>,
    operation: Operation,
    dry_run: bool,
    name: &str,
    options: Value,
) -> Attributes<'a> {
    let Request { server, resource, target, call } = request;
    Attributes { server, resource, target, call, operation, name: name.to_owned(), dry_run, options }
}
