//! Certificate authorities, the certificates they issue, and serving with certificates that change.
//!
//! A private key leaves this crate only as the PEM of a leaf that was asked for, as that of an authority for the Secret in which it is
//! kept, or into a file that nobody else may read.

mod authority;
pub mod clients;
pub mod connections;
mod files;
pub mod heads;
pub mod http;
pub mod inspect;
mod roots;
pub mod rotation;
pub mod tls;
pub mod unread;

pub use authority::{Authority, Leaf, LeafRequest};
pub use files::write_private;
pub use roots::{Roots, RootsError};

/// What can go wrong with certificates.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A key or certificate could not be made.
    #[error("failed to issue certificate {subject:?}")]
    Issue {
        /// Common name of the subject.
        subject: String,
        /// Why.
        #[source]
        source: rcgen::Error,
    },
    /// The certificate or the key of an authority cannot be read.
    #[error("failed to read the certificate and key of an authority")]
    AuthorityPem(#[source] rcgen::Error),
    /// A stored authority is not usable.
    #[error("failed to read the certificate authority in {path}")]
    ReadAuthority {
        /// The file.
        path: std::path::PathBuf,
        /// Why.
        #[source]
        source: rcgen::Error,
    },
    /// A stored authority has ended.
    #[error(
        "the certificate authority in {path} is no longer valid; remove it and its key to have a new one made"
    )]
    Expired {
        /// The file.
        path: std::path::PathBuf,
    },
    /// A file could not be read or written.
    #[error("failed to access {path}")]
    File {
        /// The file.
        path: std::path::PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
}

/// The result of this crate's calls.
pub type Result<T, E = Error> = std::result::Result<T, E>;
