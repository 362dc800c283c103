//! What webhooks are told of a request beside the objects.

use serde_json::Value;

use super::Operation;
use crate::{call::Call, filters::request_info::Target, resource::Resource, server::Server};

/// What is to be admitted, apart from the objects.
pub struct Attributes<'a> {
    /// The server that handles the request.
    pub server: &'a Server,
    /// Group, version and kind of the object.
    pub resource: &'a Resource,
    /// What the request's path names: resource, subresource, namespace and name.
    pub target: &'a Target,
    /// Who asks, and where warnings and annotations go.
    pub call: &'a Call,
    /// Whether the object is created, updated or deleted.
    pub operation: Operation,
    /// The object's name; empty while none has been generated.
    pub name: String,
    /// Whether nothing is going to be stored.
    pub dry_run: bool,
    /// `CreateOptions`, `UpdateOptions` or `DeleteOptions`.
    pub options: Value,
}
