//! Admission of writes: webhooks, quotas and namespaces of a real kube-apiserver, behind which Repot runs.

mod failures;
mod mutating;
mod validating;
mod world;
