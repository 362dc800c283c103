//! The verbs, a file a verb, and the documents that describe them.

mod admit;
mod apply;
pub mod backup;
mod config;
pub(crate) mod continuation;
pub mod create;
mod decode;
pub mod delete;
pub mod delete_collection;
pub mod discovery;
mod encode;
mod found;
pub mod get;
pub mod heads;
mod health;
pub mod list;
mod namespace_quota;
pub mod openapi;
mod options;
pub mod patch;
pub(crate) mod profiling;
mod read;
mod resource_version;
mod shown;
mod status_part;
pub mod table;
mod tracking;
pub mod update;
mod validate;
mod version;
pub mod watch;

use axum::body::Body;
use http::Response;
use repot_storage::{Key, Scope};

use crate::{
    call::Call,
    filters::request_info::{BACKUP_PATH, PROFILE_PATH, PROFILING_PATH, PROFILING_PREFIX, Target},
    heavy::UserWork,
    memory::MemoryPermit,
    resource::Resource,
    server::Server,
    shares::Flow,
    status::Status,
};

type Answer = Result<Response<Body>, Status>;

/// A request for a resource that is served.
pub struct Request<'a> {
    /// The server that answers the request.
    pub server: &'a Server,
    /// What is asked for.
    pub resource: &'a Resource,
    /// What the path names: resource, subresource, namespace and name.
    pub target: Target,
    /// The rest of the request.
    pub call: &'a mut Call,
}

impl Request<'_> {
    /// Keeps room for the answer until it is sent.
    ///
    /// # Errors
    /// 429 where there was none.
    fn keep(&self, room: Option<MemoryPermit>) -> Result<(), Status> {
        *self.call.room.lock() = Some(room.ok_or_else(Status::too_many_requests)?);
        Ok(())
    }

    /// Threads for work on large bodies. What does not begin in time is refused.
    fn work(&self) -> UserWork {
        self.server.heavy.of(self.flow()).beginning_within(self.server.patience(self.call))
    }

    /// With whom the request shares memory.
    fn flow(&self) -> Flow {
        self.call.user.flow()
    }

    fn key(&self) -> Key {
        self.key_of(&self.target.name)
    }

    fn key_of(&self, name: &str) -> Key {
        Key {
            group: self.resource.name.group.clone(),
            resource: self.resource.name.resource.clone(),
            namespace: self.target.namespace.clone(),
            name: name.to_owned(),
        }
    }

    fn scope(&self) -> Scope {
        let namespace = (!self.target.namespace.is_empty()).then(|| self.target.namespace.clone());
        let name = &self.resource.name;
        Scope { group: name.group.clone(), resource: name.resource.clone(), namespace }
    }

    fn failed(&self, error: &repot_storage::Error) -> Status {
        crate::status::from_storage(error, &self.resource.name, &self.target.name)
    }

    fn not_found(&self) -> Status {
        Status::not_found(&self.resource.name, &self.target.name)
    }
}

/// Answers a request that has passed the chain.
///
/// # Errors
/// The status to answer with.
pub async fn dispatch(server: &Server, call: &mut Call) -> Answer {
    match call.info.target.clone() {
        Some(target) => dispatch_resource(server, target, call).await,
        None => dispatch_path(server, call).await,
    }
}

async fn dispatch_resource(server: &Server, target: Target, call: &mut Call) -> Answer {
    let resource = server.resource(&target).ok_or_else(Status::no_such_path)?;
    if resource.kind.namespaced == target.namespace.is_empty() && !matches!(call.info.verb, "list" | "watch")
    {
        return Err(Status::method_not_allowed("a request for a namespaced object outside of a namespace"));
    }
    let verb = call.info.verb;
    match target.subresource.as_str() {
        "" => {}
        status_part::STATUS if resource.kind.has_status() => {
            if !matches!(verb, "get" | "update" | "patch") {
                return Err(Status::method_not_allowed(verb));
            }
        }
        _ => return Err(Status::no_such_path()),
    }
    let mut target = target;
    if matches!(verb, "list" | "deletecollection") {
        // A field selector may have singled out a name for authorization; the collection stays a collection.
        target.name.clear();
    }
    let request = Request { server, resource, target, call };
    match verb {
        "get" => get::get(request).await,
        "list" => list::list(request).await,
        "watch" => watch::watch(request).await,
        "create" if request.target.name.is_empty() => create::create(request).await,
        "update" if !request.target.name.is_empty() => update::update(request).await,
        "patch" if !request.target.name.is_empty() => patch::patch(request).await,
        "delete" => delete::delete(request).await,
        "deletecollection" => delete_collection::delete_collection(request).await,
        other => Err(Status::method_not_allowed(other)),
    }
}

async fn dispatch_path(server: &Server, call: &mut Call) -> Answer {
    let path = call.info.path.trim_end_matches('/').to_owned();
    if call.info.verb != "get" {
        return Err(Status::method_not_allowed(call.method.as_str()));
    }
    match path.as_str() {
        "/version" => version::version(),
        BACKUP_PATH => backup::backup(server, call),
        "/metrics" => Ok(server.metrics.render()),
        PROFILING_PATH => profiling::index(server, call),
        PROFILE_PATH => profiling::profile(server, call).await,
        _ if path.starts_with(PROFILING_PREFIX) => profiling::not_offered(server, call),
        "" | "/apis" | "/api" => discovery::root(server, call, &path),
        "/openapi/v2" | "/openapi/v3" => openapi::document(server, call, &path),
        _ if path.starts_with("/openapi/v3/") => openapi::document(server, call, &path),
        _ if path.starts_with("/apis/") => discovery::below(server, call, &path),
        _ => health::check(server, call, &path),
    }
}
