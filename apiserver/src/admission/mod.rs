//! Admission of writes to our own kinds. The aggregator runs none for the servers behind it, so a policy of the cluster
//! would be passed over in silence if this server did not ask for itself.
//!
//! | file | does |
//! |---|---|
//! | [`matching`] | which webhooks a request concerns; pure |
//! | [`conditions`] | expressions that narrow that down |
//! | [`hook`] | a webhook as its configuration says it, read once |
//! | [`follow`] | the configurations of the cluster, by watches |
//! | [`review`] | the question and the answer, `AdmissionReview`; pure |
//! | [`call`] | one question on its way: address, TLS, time, size |
//! | [`mutation`] | a patch applied to the object; pure |
//! | [`dispatch`] | the order of the questions |
//! | `invocation`, `denial` | a request as webhooks are shown it, and what an answer means |
//!
//! Beside webhooks, [`quota`] holds ResourceQuotas against new objects.
//!
//! A request that no webhook matches costs the comparison of its resource with the rules and nothing else: the object is
//! not printed, and an object at rest is not read.

pub mod call;
pub mod conditions;
mod denial;
pub mod dispatch;
pub mod follow;
pub mod hook;
mod invocation;
pub mod matching;
pub mod metrics;
pub mod mutation;
pub mod quantity;
pub mod quota;
pub mod review;

use serde_json::{Value, json};

use crate::{endpoints::Request, filters::request_info::Target, resource::Resource, server::Server};

pub use dispatch::{may_concern, mutate, validate};
pub use follow::Admission;

/// What a request does to an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// A new object.
    Create,
    /// A new state of an object, by whatever verb.
    Update,
    /// The end of an object.
    Delete,
}

impl Operation {
    /// As webhooks know it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Create => "CREATE",
            Self::Update => "UPDATE",
            Self::Delete => "DELETE",
        }
    }
}

/// What is to be admitted, apart from the objects.
pub struct Attributes<'a> {
    /// The server that handles the request.
    pub server: &'a Server,
    /// Group, version and kind of the object.
    pub resource: &'a Resource,
    /// What the request's path names: resource, subresource, namespace and name.
    pub target: &'a Target,
    /// Who asks, and where warnings and annotations go.
    pub call: &'a crate::call::Call,
    /// Whether the object is created, updated or deleted.
    pub operation: Operation,
    /// The object's name; empty while none has been generated.
    pub name: String,
    /// Whether nothing is going to be stored.
    pub dry_run: bool,
    /// `CreateOptions`, `UpdateOptions` or `DeleteOptions`.
    pub options: Value,
}

impl<'a> Attributes<'a> {
    /// Of a request that creates or updates.
    #[must_use]
    pub fn of_write(request: &'a Request<'_>, operation: Operation, dry_run: bool, name: &str) -> Self {
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
        Self::new(request, operation, dry_run, name, options)
    }

    /// Attributes of any request, with `options` as the caller gives them.
    #[must_use]
    pub fn new(
        request: &'a Request<'_>,
        operation: Operation,
        dry_run: bool,
        name: &str,
        options: Value,
    ) -> Self {
        let Request { server, resource, target, call } = request;
        Self { server, resource, target, call, operation, name: name.to_owned(), dry_run, options }
    }
}
