//! GET of one object.

use http::StatusCode;
use repot_storage::ResourceVersion;

use super::{Answer, Request, resource_version, shown::Shown, table};
use crate::{
    negotiate::{self, Form},
    pretty, wire,
};

/// Answers with the object, its metadata or its table.
pub(super) async fn get(request: Request<'_>) -> Answer {
    let form = negotiate::form(&request.call.headers, false)?;
    let store = &request.server.store;
    if let Some(version) =
        resource_version::resource_version(&request.call.query)?.filter(|version| *version > 0)
    {
        resource_version::reach(store, ResourceVersion(version)).await?;
    }
    let found = store.get(&request.key()).await.map_err(|error| request.failed(&error))?;
    let object = found.ok_or_else(|| request.not_found())?;
    let resource = request.resource;
    Ok(match form {
        Form::Object => {
            let length = wire::object_len(resource, &object);
            let held = length + pretty::held(request.call);
            request.keep(request.server.memory.to_stream(&request.flow(), held).await)?;
            // The first piece is read before the answer begins, so that damage is answered with a status.
            let pieces = wire::checked(
                &request.server.memory,
                &request.server.store,
                &request.flow(),
                resource,
                &object,
            )
            .await
            .map_err(|error| request.failed(&error))?;
            wire::sized(StatusCode::OK, length, pieces)
        }
        Form::Metadata(version) => wire::whole(StatusCode::OK, wire::partial(&object, version).freeze()),
        Form::Table(version) => {
            let include = table::Include::parse(&request.call.query)?;
            let meta =
                wire::ListMeta { resource_version: object.version.to_string(), ..wire::ListMeta::default() };
            let shown = Shown::one(&request, object, include == table::Include::Object);
            table::answer(&request, version, include, &meta, shown).await?
        }
    })
}
