//! What can go wrong at a backend.

use super::Revision;

/// The result of a call to a backend.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a backend did not do what was asked. Cheap to clone, so that one failure can answer many waiters.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    /// The revision is no longer kept.
    #[error("revision {requested} is compacted; the oldest kept is {oldest}")]
    Compacted {
        /// What was asked for.
        requested: Revision,
        /// What can still be read.
        oldest: Revision,
    },
    /// The revision has not happened yet.
    #[error("revision {requested} is in the future; the newest is {newest}")]
    Future {
        /// What was asked for.
        requested: Revision,
        /// What there is.
        newest: Revision,
    },
    /// The request is larger than the backend takes; nothing was done.
    #[error("request of {size} bytes or operations is over the limit of {limit}")]
    TooLarge {
        /// What was asked for.
        size: usize,
        /// What may be.
        limit: usize,
    },
    /// There is no room left, or a quota alarm stands. A transaction may be in effect nevertheless: etcd applies one
    /// that passes the quota, and answers so afterwards. A read tells; nothing happens later.
    #[error("no space left in the store: {0}")]
    NoSpace(String),
    /// The store refuses the request as it stands: it is malformed (a key twice in a transaction, a NUL in a key) or this
    /// client has no right to it. The same request will not succeed later.
    #[error("store refuses the request: {0}")]
    Refused(String),
    /// Nothing was done; a later try may succeed.
    #[error("store is unavailable: {0}")]
    Unavailable(String),
    /// The store says that it did not begin a transaction. This may be wrong: a proxy in front of the store may have sent the
    /// transaction twice, so only a read proves it. A transaction that creates a key which it expects to be absent was sent
    /// once: somebody may have removed that key since, and then it would be created twice.
    #[error("store says that it did not begin: {0}")]
    Declined(String),
    /// A write may or may not have happened.
    #[error("outcome of the write is unknown: {0}")]
    Unknown(String),
    /// What was read back is not what was written.
    #[error("store is corrupt: {0}")]
    Corrupt(String),
}

/// What a transaction that failed may have done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Nothing, and nothing will happen later.
    None,
    /// All of it or nothing. It is not on its way any more, so a linearizable read that begins now tells which.
    ReadTells,
    /// All of it or nothing, now or later.
    Open,
}

impl Error {
    /// What a transaction that failed with this error may have done.
    #[must_use]
    pub fn effect(&self) -> Effect {
        match self {
            Self::Unavailable(_) => Effect::None,
            // Most of these are refusals, but only a read proves it: the backend has answered, so one read is enough.
            Self::NoSpace(_)
            | Self::Refused(_)
            | Self::TooLarge { .. }
            | Self::Declined(_)
            | Self::Compacted { .. }
            | Self::Future { .. }
            | Self::Corrupt(_) => Effect::ReadTells,
            Self::Unknown(_) => Effect::Open,
        }
    }
}
