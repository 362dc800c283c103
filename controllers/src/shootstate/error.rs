//! Why a ShootState could not be read, compared or written.

use crate::{errors, reconciler::ReconcileError};

/// With this, kube-apiserver and Repot begin the answer to a JSON Patch that does not apply (status 422).
const PATCH_REFUSED: &str = "the server rejected our request due to an error in our request";

/// Why a ShootState could not be read, compared or written.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// An API server did not give what was asked for.
    #[error("failed to read {what}")]
    Read {
        /// What.
        what: String,
        /// Why.
        #[source]
        source: kube::Error,
    },
    /// The garden refused a change of the ShootState.
    #[error("failed to write ShootState {name}")]
    Write {
        /// Namespace and name of the ShootState.
        name: String,
        /// Why.
        #[source]
        source: kube::Error,
    },
    /// An answer or a part of it has not the expected shape. The parser's words are left out, as they may quote secrets.
    #[error("{0} has an unexpected shape")]
    Malformed(String),
    /// Two entries of a ShootState have the same key.
    #[error("the ShootState has two entries {0}; remove one of them")]
    Duplicate(String),
    /// The machine state of a ShootState cannot be decompressed.
    #[error("the machine state cannot be decompressed")]
    Compression(#[source] std::io::Error),
    /// An extension object refers to an object that does not exist.
    #[error("{referrer} refers to {reference}, which does not exist in namespace {namespace}")]
    DanglingReference {
        /// Kind and name of the extension object.
        referrer: String,
        /// Kind and name of the missing object.
        reference: String,
        /// Namespace of both.
        namespace: String,
    },
    /// The garden serves no ShootStates.
    #[error("the garden serves ShootStates neither in {0} nor in {1}: install repot apiserver there")]
    NotServed(&'static str, &'static str),
    /// The ShootState is gone, and only a part of the state was read.
    #[error("ShootState {0} was deleted; all of it is read and written again")]
    Deleted(String),
    /// A synchronization took too long.
    #[error("the ShootState was not synchronized within {0:?}")]
    Deadline(std::time::Duration),
    /// The ShootState belongs to an earlier Shoot of the same name.
    #[error("ShootState {name} belongs to an earlier Shoot with uid {owner}; delete it")]
    OtherShoot {
        /// Namespace and name of the ShootState.
        name: String,
        /// Uid of that Shoot.
        owner: String,
    },
}

impl Error {
    pub(super) fn read(what: impl Into<String>) -> impl FnOnce(kube::Error) -> Self {
        let what = what.into();
        |source| Self::Read { what, source }
    }
}

impl ReconcileError for Error {
    fn is_conflict(&self) -> bool {
        match self {
            Self::Write { source, .. } => errors::is_conflict(source) || is_patch_refused(source),
            Self::Deleted(_) => true,
            _ => false,
        }
    }
}

/// Whether a `test` of a JSON Patch did not hold, or its path is gone: the object has changed since it was read.
fn is_patch_refused(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 422 && status.message.contains(PATCH_REFUSED))
}

/// The result of this module's calls.
pub type Result<T, E = Error> = std::result::Result<T, E>;
