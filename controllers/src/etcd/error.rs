//! Why a pass of the operator ended early.

use crate::{local_stores, reconciler::ReconcileError};

/// Why a pass ended early. The next one begins anew.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Something cannot be read.
    #[error("failed to read {kind} {name}")]
    Read {
        /// Kind of the object.
        kind: String,
        /// Name of the object.
        name: String,
        /// What kube-apiserver or the client said.
        #[source]
        source: kube::Error,
    },
    /// Something cannot be written.
    #[error("failed to apply {kind} {name}")]
    Apply {
        /// Kind of the object.
        kind: String,
        /// Name of the object.
        name: String,
        /// What kube-apiserver or the client said.
        #[source]
        source: kube::Error,
    },
    /// Something cannot be deleted.
    #[error("failed to delete {kind} {name}")]
    Delete {
        /// Kind of the object.
        kind: String,
        /// Name of the object.
        name: String,
        /// What kube-apiserver or the client said.
        #[source]
        source: kube::Error,
    },
    /// Somebody else was quicker.
    #[error("{kind} {name} has changed since it was read")]
    Changed {
        /// Kind of the object.
        kind: String,
        /// Name of the object.
        name: String,
    },
    /// Members cannot be spoken to.
    #[error("certificates of etcd.clientUrlTls cannot be used: {why}")]
    Certificate {
        /// Why they cannot be used.
        why: String,
    },
    /// A store uses a directory of a node that it may not use.
    #[error("spec.backup.{0} is refused")]
    LocalStore(&'static str, #[source] local_stores::Error),
    /// An object of that name belongs to somebody else.
    #[error("{kind} {name} is not of this Etcd; remove or rename one of them")]
    Foreign {
        /// Kind of the object.
        kind: &'static str,
        /// Name of the object.
        name: String,
    },
}

/// The result of this module.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// The operation for `status.lastErrors`; nothing for what is no fault.
    pub(super) fn code(&self) -> Option<&'static str> {
        match self {
            Self::Read { .. } => Some("ERR_READ"),
            Self::Apply { .. } => Some("ERR_APPLY"),
            Self::Delete { .. } => Some("ERR_DELETE"),
            Self::Foreign { .. } => Some("ERR_FOREIGN_OBJECT"),
            Self::LocalStore(..) => Some("ERR_LOCAL_STORE"),
            Self::Certificate { .. } => Some("ERR_CERTIFICATE"),
            Self::Changed { .. } => None,
        }
    }
}

impl ReconcileError for Error {
    fn is_conflict(&self) -> bool {
        matches!(self, Self::Changed { .. })
    }
}
