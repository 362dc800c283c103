//! What the cluster's kube-apiserver is asked: who holds a token, who may do what, whom the front proxy is, which
//! namespaces there are.

mod access_review;
mod bounded;
mod group_conflict;
mod lease_mark;
mod namespaces;
mod reload;
mod request_header;
mod retry;
#[cfg(test)]
mod scripted;
mod token_review;

use std::path::Path;

pub use access_review::{AccessReviewer, Memory, Verdict};
pub use group_conflict::{GroupConflict, follow_group_conflict};
pub use kube::Client;
pub use lease_mark::LeaseMark;
pub use namespaces::{NamespaceState, Namespaces};
pub use request_header::{FrontProxyTrust, follow_request_header};
pub use token_review::TokenReviewer;

/// The kube-apiserver cannot be asked.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The kubeconfig is not usable.
    #[error("failed to read kubeconfig {path}")]
    Kubeconfig {
        /// The file.
        path: std::path::PathBuf,
        /// Why.
        #[source]
        source: kube::config::KubeconfigError,
    },
    /// There is no kubeconfig, and this is not a Pod.
    #[error("no kubeconfig given, and the in-cluster configuration is not usable")]
    InCluster(#[source] kube::config::InClusterError),
    /// The client cannot be made.
    #[error("failed to make a client for the kube-apiserver")]
    Client(#[source] kube::Error),
}

/// A client by kubeconfig, or from inside a Pod where there is none. It follows changes of the files.
///
/// # Errors
/// [`Error`].
pub async fn client(kubeconfig: Option<&Path>) -> Result<kube::Client, Error> {
    reload::client(kubeconfig, true).await
}

/// The same, but each request is sent once: for who passes on what others send, and leaves retries to them.
///
/// # Errors
/// [`Error`].
pub async fn client_without_retries(kubeconfig: Option<&Path>) -> Result<kube::Client, Error> {
    reload::client(kubeconfig, false).await
}
