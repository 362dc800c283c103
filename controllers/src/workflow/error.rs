//! Why a pass of a workflow ended early.

use std::time::Duration;

use crate::{errors, local_stores, reconciler::ReconcileError, term::LeaseExpired};

/// How long a store may take for its answer.
pub(super) const STORE_ANSWER: Duration = Duration::from_secs(20);

/// Why a pass, or a part of it, failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// kube-apiserver did not give what was asked for.
    #[error("failed to read {what}")]
    Read {
        /// What.
        what: String,
        /// Why.
        #[source]
        source: kube::Error,
    },
    /// kube-apiserver refused a change.
    #[error("failed to {task}")]
    Write {
        /// What was to be done.
        task: &'static str,
        /// Why.
        #[source]
        source: kube::Error,
    },
    /// Something that is needed is not there.
    #[error("{0} is missing")]
    Missing(String),
    /// Backups cannot be read or removed.
    #[error(transparent)]
    Backups(#[from] repot_etcd::backup::Error),
    /// A store uses a directory that it may not use.
    #[error("the store is refused")]
    LocalStore(#[from] local_stores::Error),
    /// The store does not answer.
    #[error("the store gives no answer within {STORE_ANSWER:?}")]
    SilentStore,
    /// Members cannot be connected to.
    #[error("failed to connect to the members")]
    Connect(#[source] etcd_client::Error),
    /// Members do not answer.
    #[error("no member that is ready, or no answer in time")]
    NoQuorum,
    /// What members hold cannot be read.
    #[error(transparent)]
    Digest(#[from] repot_etcd::digest::Error),
    /// The etcd is run by a StatefulSet of somebody else.
    #[error("the HostedEtcd refers to a StatefulSet; only the members of an Etcd can be made anew")]
    Unmanaged,
    /// Somebody else may act.
    #[error(transparent)]
    LeaseExpired(#[from] LeaseExpired),
    /// A rendered object is none.
    #[error("a Job could not be rendered")]
    Render(#[source] serde_json::Error),
}

impl ReconcileError for Error {
    fn is_conflict(&self) -> bool {
        matches!(self, Self::Write { source, .. } if errors::is_conflict(source))
    }
}

/// The result of this module's calls.
pub type Result<T, E = Error> = std::result::Result<T, E>;
