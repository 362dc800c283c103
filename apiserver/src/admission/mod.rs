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

mod attributes;
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

pub use attributes::Attributes;
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
