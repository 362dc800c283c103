//! Why a pass of a migration ended early.

use std::time::Duration;

use crate::{errors, reconciler::ReconcileError};

/// How long a store may take for its answer.
pub(super) const STORE_ANSWER: Duration = Duration::from_secs(10);

/// Why a pass, or a part of it, failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// An API server did not give what was asked for.
    #[error("failed to read {what}")]
    Read {
        /// What was read.
        what: String,
        /// Why it failed.
        #[source]
        source: kube::Error,
    },
    /// An API server refused a change.
    #[error("failed to {task}")]
    Write {
        /// What was to be done.
        task: String,
        /// Why it failed.
        #[source]
        source: kube::Error,
    },
    /// Something that is needed does not exist.
    #[error("{0} is missing")]
    Missing(String),
    /// An object exists already, and this migration did not make it.
    #[error("{0} exists already, and this migration did not make it; delete it")]
    Foreign(String),
    /// A carried object cannot be made for this seed.
    #[error(transparent)]
    Binding(#[from] super::destination::bindings::BindingError),
    /// A certificate of a carried Secret cannot be issued.
    #[error("certificates of Secret {secret} cannot be issued: {why}")]
    Certificate {
        /// Name of the Secret.
        secret: String,
        /// Why not.
        why: String,
    },
    /// The ShootState cannot be read or written.
    #[error(transparent)]
    State(#[from] crate::shootstate::Error),
    /// A store of snapshots cannot be opened or read.
    #[error("failed to read the store of snapshots")]
    Store(#[from] repot_etcd::snapshot::store::Error),
    /// The report of a late snapshot cannot be read.
    #[error("failed to read the report of a late snapshot")]
    LateReport(#[source] repot_etcd::snapshot::late::Error),
    /// A store of snapshots does not answer.
    #[error("the store of snapshots gives no answer within {STORE_ANSWER:?}")]
    SilentStore,
    /// The owner check of the Etcd cannot be used.
    #[error("spec.backup.ownerCheck of the Etcd: {0}")]
    OwnerCheck(String),
    /// The certificates of an Etcd cannot be used.
    #[error(transparent)]
    Access(#[from] crate::etcd::Error),
    /// Members cannot be connected to.
    #[error("failed to connect to the members")]
    Connect(#[source] etcd_client::Error),
    /// A client of the API of the Shoot cannot be made.
    #[error("failed to make a client of the API of the Shoot: {0}")]
    ShootClient(String),
    /// An object has a form that is not expected.
    #[error("{what} has an unexpected form")]
    Form {
        /// Which object.
        what: String,
        /// What is wrong with it.
        #[source]
        source: serde_json::Error,
    },
}

impl Error {
    /// Makes the error of a read.
    pub(crate) fn read(what: impl Into<String>) -> impl FnOnce(kube::Error) -> Self {
        move |source| Self::Read { what: what.into(), source }
    }

    /// Makes the error of a write.
    pub(crate) fn write(task: impl Into<String>) -> impl FnOnce(kube::Error) -> Self {
        move |source| Self::Write { task: task.into(), source }
    }
}

impl ReconcileError for Error {
    fn is_conflict(&self) -> bool {
        match self {
            Self::Write { source, .. } => errors::is_conflict(source),
            Self::State(error) => error.is_conflict(),
            _ => false,
        }
    }
}

/// The result of this module's calls.
pub type Result<T, E = Error> = std::result::Result<T, E>;
