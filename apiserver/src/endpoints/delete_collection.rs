//! DELETE of a collection: not atomic, each object by the rules of a single deletion.

use futures::{StreamExt, stream};
use http::StatusCode;
use serde_json::json;

use super::{
    Answer, Request,
    delete::{DeleteOptions, remove},
    list,
    options::Selectors,
    read,
};
use crate::{status::Status, wire};

const AT_ONCE: usize = 8;
const TRIES: usize = 8;

/// Deletes everything that is selected. Whoever calls again after a failure finds less to do.
pub(super) async fn delete_collection(request: Request<'_>) -> Answer {
    let options = DeleteOptions::read(request.server, request.call).await?;
    let selectors = Selectors::parse(&request.call.query, request.resource.kind)?;
    let page = list::page(&request, &selectors, false).await?;
    let unreadable = page.unreadable;
    read::reserve_to_delete(&request, &page.objects, AT_ONCE).await?;
    let (request, options, selectors) = (&request, &options, &selectors);
    let mut removals = stream::iter(page.objects)
        .map(|object| async move { remove_one(request, options, selectors, object).await })
        .buffer_unordered(AT_ONCE);
    while let Some(done) = removals.next().await {
        done?;
    }
    // Success would say that nothing is left: a namespace could then vanish around what is.
    if let Some(error) = unreadable {
        return Err(request.failed(&error));
    }
    let status = json!({
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Success",
        "details": {"group": request.resource.name.group, "kind": request.resource.name.resource},
    });
    Ok(wire::whole(StatusCode::OK, status.to_string()))
}

async fn remove_one(
    request: &Request<'_>,
    options: &DeleteOptions,
    selectors: &Selectors,
    mut object: repot_storage::Object,
) -> Result<(), Status> {
    for _ in 0..TRIES {
        match remove(request, options, &object).await {
            Err(status) if status.reason() == "Conflict" && options.may_mean_another(&object) => {}
            Err(status) => return Err(status),
            Ok(_) => return Ok(()),
        }
        match request.server.store.get(&object.key).await.map_err(|error| request.failed(&error))? {
            // Somebody else was faster: that is what was asked for.
            None => return Ok(()),
            Some(newer) if newer.uid != object.uid || !selectors.matches(&newer) => return Ok(()),
            Some(newer) => object = newer,
        }
    }
    Err(Status::modified(&request.resource.name, &object.key.name))
}
