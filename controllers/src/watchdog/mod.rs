//! A proxy between one extension controller and the kube-apiserver of its seed, which refuses writes for Shoots that the seed does not
//! own (GEP-7, bad case: the extension controller watchdog, for controllers that are not written with `repot-extension`).
//!
//! | file | has |
//! |---|---|
//! | `target.rs` | what a request is about, by its path (pure) |
//! | `names.rs` | names in the body of a new object (pure) |
//! | `owner.rs` | one owner record: queried, judged, for how long an answer counts |
//! | `owners.rs` | the owner records of a seed, by its Etcds |
//! | `exceptions.rs` | writes without ownership: of a migration, and of the owner record itself |
//! | `proxy.rs` | what becomes of one request |
//! | `forward.rs` | the way to kube-apiserver and back |
//! | `listen.rs`, `files.rs` | connections, certificates, the kubeconfig of the controller |
//! | `reply.rs`, `metrics.rs` | answers of the proxy itself, and what it counts |
//!
//! **Bound.** A write begins only behind a check, and is broken off when a check says no before its answer begins. So no write begins
//! later than `interval + timeout` after the servers of the zone name another owner, or `max_age` after the last confirmation where
//! nobody answers. Only bytes that were handed to the network before may still arrive.

mod exceptions;
mod files;
mod forward;
mod listen;
mod metrics;
mod names;
mod owner;
mod owners;
mod proxy;
mod reply;
mod target;

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use kube::Client;
use time::OffsetDateTime;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use self::{metrics::ProxyMetrics, owners::Owners, proxy::Proxy};
use crate::{errors::causes, metrics::Metrics, server::Readiness};

pub use self::{files::Error as FilesError, owner::Timing};

/// How often the serving certificate is made anew; it is valid for a year.
const RENEWAL: Duration = Duration::from_secs(30 * 24 * 3600);

/// What the proxy is to do.
#[derive(Clone, Debug)]
pub struct Options {
    /// Directory of the kubeconfig for the controller, and of keys of the proxy.
    pub dir: PathBuf,
    /// Plural names of the extension kinds that the controller serves; see `exceptions.rs`.
    pub kinds: Vec<String>,
    /// When the owner is queried, and for how long an answer counts.
    pub timing: Timing,
}

/// The proxy cannot start.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The address is not one of loopback.
    #[error("{0} is not a loopback address: the proxy lends the rights of the controller to its clients")]
    NotLoopback(SocketAddr),
    /// The listener has no address.
    #[error("the listener has no address")]
    Address(#[source] std::io::Error),
    /// Certificates or the kubeconfig.
    #[error(transparent)]
    Files(#[from] FilesError),
    /// A metric is there twice.
    #[error("failed to create metrics")]
    Metrics(#[from] prometheus::Error),
}

/// A proxy that is about to serve.
pub struct Watchdog {
    listener: TcpListener,
    tls: Arc<files::Tls>,
    address: SocketAddr,
    dir: PathBuf,
    owners: Arc<Owners>,
    proxy: Arc<Proxy>,
    client: Client,
}

impl Watchdog {
    /// Prepares certificates and the kubeconfig. `client` has the credentials of the controller and must not retry.
    ///
    /// # Errors
    /// [`Error`].
    pub fn new(
        listener: TcpListener,
        client: Client,
        options: Options,
        metrics: &Metrics,
        stop: &CancellationToken,
    ) -> Result<Self, Error> {
        let address = listener.local_addr().map_err(Error::Address)?;
        if !address.ip().is_loopback() {
            return Err(Error::NotLoopback(address));
        }
        let tls = Arc::new(files::make(&options.dir, address, OffsetDateTime::now_utc())?);
        let owners = Owners::new(options.timing);
        let metrics = Arc::new(ProxyMetrics::new(metrics)?);
        let proxy = Proxy::new(client.clone(), owners.clone(), options.kinds, metrics, stop.clone());
        Ok(Self { listener, tls, address, dir: options.dir, owners, proxy: Arc::new(proxy), client })
    }

    /// Address of the proxy.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The kubeconfig for the controller.
    #[must_use]
    pub fn kubeconfig(&self) -> &Path {
        &self.tls.kubeconfig
    }

    /// Serves until `stop`; ready as soon as the Etcds of the seed are listed. Reads are forwarded from the beginning.
    pub async fn run(self, readiness: Readiness, ready: impl FnOnce() + Send, stop: CancellationToken) {
        let Self { listener, tls, address, dir, owners, proxy, client } = self;
        let end = CancellationToken::new();
        let follow = tokio::spawn({
            let (owners, end) = (owners.clone(), end.clone());
            async move { end.run_until_cancelled(owners.follow(client)).await }
        });
        let files = tokio::spawn(keep_files(tls.clone(), dir, address, end.clone()));
        let announce = async {
            if stop.run_until_cancelled(owners.synced()).await.is_some() {
                readiness.set_ready();
                ready();
                stop.cancelled().await;
            }
            readiness.set_not_ready("stopping");
        };
        tokio::join!(announce, listen::serve(listener, tls, proxy, stop.clone()));
        end.cancel();
        let _ = tokio::join!(follow, files);
    }
}

async fn keep_files(tls: Arc<files::Tls>, dir: PathBuf, address: SocketAddr, end: CancellationToken) {
    let renew = async {
        while end.run_until_cancelled(tokio::time::sleep(RENEWAL)).await.is_some() {
            if let Err(error) = files::renew(&dir, address, OffsetDateTime::now_utc()) {
                tracing::error!(error = causes(&error), "failed to renew the serving certificate");
            }
        }
    };
    tokio::join!(tls.serving.follow(end.clone()), renew);
}
