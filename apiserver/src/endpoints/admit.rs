//! Where writes meet admission: one call before a write is judged by us, one after.

use repot_apimachinery::document::Document;
use repot_storage::Object;

use super::{Request, write::WriteOptions};
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
    options: serde_json::Value,
    current: &Object,
) -> Result<(), Status> {
    let attributes = Attributes::new(request, Operation::Delete, dry_run, &current.key.name, options);
    admission::mutate(&attributes, None, Some(current)).await?;
    admission::validate(&attributes, None, Some(current)).await
}

/// Whether somebody may want to see a new state of this resource: then a change has to be made on the whole object.
pub(super) fn may_be_judged(request: &Request<'_>) -> bool {
    admission::may_concern(&Attributes::of_write(request, Operation::Update, false, &request.target.name))
}

/// How large a question about this write may become, in bytes; `None`: nobody will ask one.
pub(super) fn largest_review(request: &Request<'_>) -> Option<u64> {
    let operations = [Operation::Create, Operation::Update];
    let concerns = |operation| {
        admission::may_concern(&Attributes::of_write(request, operation, false, &request.target.name))
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
    Attributes::of_write(request, operation, write.dry_run, name)
}
