//! Admission of writes: webhooks, quotas and namespaces of a real kube-apiserver, behind which Repot runs.

mod failures;
mod lifecycle;
mod mutating;
mod quota;
mod retries;
mod validating;
mod world;
