//! What the cluster's kube-apiserver is asked: who holds a token, who may do what, whom the front proxy is, which
//! namespaces there are.

mod access_review;
mod namespaces;
mod request_header;
mod retry;
mod token_review;

use std::path::Path;

pub use access_review::AccessReviewer;
pub use namespaces::{NamespaceState, Namespaces};
pub use request_header::{Known, follow_request_header};
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

/// A client by kubeconfig, or from inside a Pod where there is none.
///
/// # Errors
/// [`Error`].
pub async fn client(kubeconfig: Option<&Path>) -> Result<kube::Client, Error> {
    let config = match kubeconfig {
        None => kube::Config::incluster().map_err(Error::InCluster)?,
        Some(path) => {
            let failed = |source| Error::Kubeconfig { path: path.to_owned(), source };
            let file = kube::config::Kubeconfig::read_from(path).map_err(failed)?;
            kube::Config::from_custom_kubeconfig(file, &kube::config::KubeConfigOptions::default())
                .await
                .map_err(failed)?
        }
    };
    kube::Client::try_from(config).map_err(Error::Client)
}
