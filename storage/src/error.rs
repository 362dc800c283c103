//! What can go wrong when objects are stored.

use crate::{
    keyring,
    store::types::{Key, ResourceVersion},
};

/// The result of a call to the store.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why the store did not do what was asked. Never holds key material or payload.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    /// There is an object at this key already; nothing was done.
    #[error("an object with this key exists already")]
    Exists,
    /// The object changed since it was read, or is gone; nothing was done.
    #[error("the object is not the newest version any more")]
    Conflict,
    /// The version is older than what the store still keeps.
    #[error("version is too old; the oldest kept is {oldest}")]
    Expired {
        /// What can still be read.
        oldest: ResourceVersion,
    },
    /// The version has not happened yet.
    #[error("version is in the future; the newest is {current}")]
    Future {
        /// What there is.
        current: ResourceVersion,
    },
    /// The object does not fit; nothing was done. Sizes in bytes.
    #[error("{size} bytes are over the limit of {limit}")]
    TooLarge {
        /// What was asked for.
        size: usize,
        /// What may be.
        limit: usize,
    },
    /// There is no room left in the store; nothing was done.
    #[error("no space left in the store: {0}")]
    NoSpace(String),
    /// Nothing was done; a later try may succeed.
    #[error("store is unavailable: {0}")]
    Unavailable(String),
    /// Other lists of everything are being read from the backend, and none of them ended in time. Nothing was done.
    #[error("too many lists of everything are read from the backend at a time")]
    Busy,
    /// A write may or may not have happened, and reading back did not tell.
    #[error("outcome of the write is unknown: {0}")]
    UnknownOutcome(String),
    /// What rests under this key is not what was written there. Other objects are not affected.
    #[error("{key} is corrupt: {what}")]
    Corrupt {
        /// The object.
        key: Key,
        /// What is wrong with it.
        what: &'static str,
    },
    /// The store's own bookkeeping cannot be read.
    #[error("store is damaged: {0}")]
    Damaged(String),
    /// The backend refuses a request as it stands: this server has no right to it, its token has expired, or an alarm stands. That
    /// says nothing of what is stored.
    #[error("the backend refused a request: {0}")]
    Refused(String),
    /// The watcher did not keep up and was let go; it may watch again from the last version it saw.
    #[error("watcher was too slow and was let go")]
    Slow,
    /// The call itself is wrong, such as a key with a slash in its name; nothing was done.
    #[error("invalid request to the store: {0}")]
    Invalid(&'static str),
    /// An object cannot be sealed or its key cannot be unwrapped with the encryption configuration at hand.
    #[error("cannot seal or open {key}: {source}")]
    Sealing {
        /// The object.
        key: Key,
        /// Why. Boxed, to keep results small.
        #[source]
        source: Box<keyring::Error>,
    },
}

impl Error {
    /// The cipher or the random generator refused to work. Nothing was done.
    pub(crate) fn cipher_refused() -> Self {
        Self::Unavailable("the cipher or the random generator refused to work".into())
    }

    /// Whether this is an answer about the object, and no failure of the store.
    pub(crate) fn is_answer(&self) -> bool {
        matches!(
            self,
            Self::Exists | Self::Conflict | Self::Expired { .. } | Self::Future { .. } | Self::Invalid(_)
        )
    }

    /// The name of the variant, for traces: it has no name of an object, which the message may have.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::Exists => "Exists",
            Self::Conflict => "Conflict",
            Self::Expired { .. } => "Expired",
            Self::Future { .. } => "Future",
            Self::TooLarge { .. } => "TooLarge",
            Self::NoSpace(_) => "NoSpace",
            Self::Unavailable(_) => "Unavailable",
            Self::Busy => "Busy",
            Self::UnknownOutcome(_) => "UnknownOutcome",
            Self::Corrupt { .. } => "Corrupt",
            Self::Damaged(_) => "Damaged",
            Self::Refused(_) => "Refused",
            Self::Slow => "Slow",
            Self::Invalid(_) => "Invalid",
            Self::Sealing { .. } => "Sealing",
        }
    }

    /// Whether it is proved that what is stored is damaged. Only then may a list of metadata leave an object out: whatever else keeps
    /// an object from being read may end without a write (a service that is away, a key that another configuration has), and
    /// clients that took the object for deleted would be told nothing.
    #[must_use]
    pub fn is_proven_damage(&self) -> bool {
        matches!(self, Self::Corrupt { .. })
    }
}
