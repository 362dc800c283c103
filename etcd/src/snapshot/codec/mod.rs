//! The two formats as streams, in memory that does not grow with the object.
//!
//! ```text
//! full:   database of etcd (bbolt) · 32 bytes of SHA-256        then compressed as a whole
//! delta:  [{"etcdEvent": …, "time": …}, …] · 32 bytes of SHA-256  then compressed as a whole
//! ```
//!
//! Everything here is synchronous and belongs on a thread that may block; [`feed`] joins it to streams.

mod blocks;
mod bolt;
pub mod changes;
mod compress;
pub mod delta;
mod event;
pub mod feed;
mod full;
mod list;
mod raise;
mod trailer;

use std::io;

pub use bolt::{Revisions, is_removed, read_revisions};
pub use compress::{Encoder, decoder};
pub use event::{Event, EventKind};
pub use full::{Database, read_full};
pub use raise::raise_revision;
pub use trailer::{HASH_BYTES, Sha256, Trailed};

use repot_etcd_core::snapshot::Revision;
use repot_storage::stream;

/// What is wrong with the bytes of a snapshot.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It cannot be read to its end.
    #[error("failed to read the snapshot")]
    Read(#[source] io::Error),
    /// The compressed form is followed by something else.
    #[error("bytes follow after the end of the compressed data")]
    Leftover,
    /// There is not even room for the hash.
    #[error("it ends before its hash trailer")]
    NoTrailer,
    /// The hash at its end is not that of its content.
    #[error("its hash trailer does not match its content")]
    Hash,
    /// The content has not the length of a database.
    #[error("its content of {bytes} bytes is no database: the hash trailer is missing or the file was cut")]
    DatabaseLength {
        /// Length without the trailer.
        bytes: u64,
    },
    /// The database cannot be understood.
    #[error("its database is damaged: {0}")]
    Database(String),
    /// The list of events is not as it has to be.
    #[error("its events are damaged: {0}")]
    Events(String),
    /// One event is larger than any that etcd would take.
    #[error("an event is larger than {limit} bytes")]
    EventSize {
        /// The limit.
        limit: u64,
    },
    /// A delta holds an event of another time.
    #[error("it holds an event of revision {found}, and its name says {start} to {last}")]
    OutOfRange {
        /// What it holds.
        found: Revision,
        /// First revision in the name.
        start: Revision,
        /// Last revision in the name.
        last: Revision,
    },
    /// A delta leaves something out.
    #[error("it has no event of revision {0}")]
    MissingRevision(Revision),
    /// A delta goes back.
    #[error("its events go back from revision {from} to {to}")]
    Backwards {
        /// Before.
        from: Revision,
        /// After.
        to: Revision,
    },
    /// There is no event in a delta.
    #[error("it has no events")]
    Empty,
    /// A database could not be kept for a closer look.
    #[error("failed to write or read a scratch file")]
    Scratch(#[source] io::Error),
    /// It is sealed, and cannot be opened; whether it is to blame, the cause tells.
    #[error("it cannot be opened")]
    Sealed(#[source] stream::Error),
    /// This compression is only read.
    #[error("snapshots are not written in LZW; use gzip or zlib")]
    LzwWriting,
}

impl Error {
    /// Takes the cause out of an error of a reader of this module, where there is one.
    #[must_use]
    pub fn of(error: io::Error) -> Self {
        match error.downcast::<Self>() {
            Ok(own) => own,
            Err(other) => Self::Read(other),
        }
    }

    /// As an error of a reader.
    #[must_use]
    pub fn into_io(self) -> io::Error {
        match self {
            Self::Read(error) => error,
            other => io::Error::new(io::ErrorKind::InvalidData, other),
        }
    }
}
