//! Who may ask: anybody who reaches the port, or only who shows a certificate of an authority of ours, such as the kube-apiserver.

use std::{path::PathBuf, sync::Arc, time::Duration};

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use rustls::pki_types::{CertificateDer, UnixTime};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::{Roots, RootsError};

/// How often the file is looked at.
const RELOAD_INTERVAL: Duration = Duration::from_secs(10);
/// How long a verdict about a connection stays good.
const VERDICT_LIFETIME: Duration = Duration::from_secs(10);

/// The authorities cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file cannot be read.
    #[error("failed to read {path}")]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// It holds no authorities.
    #[error("{path} cannot be used")]
    Unusable {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: RootsError,
    },
}

/// Authorities in a file that may change.
pub struct Authorities {
    path: PathBuf,
    current: ArcSwap<Roots>,
}

impl Authorities {
    /// Reads the file.
    ///
    /// # Errors
    /// [`Error`].
    pub fn load(path: PathBuf) -> Result<Self, Error> {
        let current = ArcSwap::from_pointee(read(&path)?);
        Ok(Self { path, current })
    }

    /// Follows changes of the file until `stop`. What is unusable leaves the old authorities in place.
    pub async fn follow(&self, stop: CancellationToken) {
        let mut tick = tokio::time::interval(RELOAD_INTERVAL);
        while stop.run_until_cancelled(tick.tick()).await.is_some() {
            match read(&self.path) {
                Ok(roots) => self.current.store(Arc::new(roots)),
                Err(error) => tracing::warn!(%error, "client authorities are unusable, keeping the old ones"),
            }
        }
    }
}

fn read(path: &PathBuf) -> Result<Roots, Error> {
    let pem = std::fs::read(path).map_err(|source| Error::Read { path: path.clone(), source })?;
    Roots::from_pem(&pem).map_err(|source| Error::Unusable { path: path.clone(), source })
}

/// The other end of a connection.
pub struct Peer {
    chain: Vec<CertificateDer<'static>>,
    verdict: Mutex<Option<(Instant, bool)>>,
}

impl Peer {
    /// A peer that showed these certificates, and holds the key of the first.
    #[must_use]
    pub fn new(chain: Vec<CertificateDer<'static>>) -> Self {
        Self { chain, verdict: Mutex::new(None) }
    }

    /// Whether its certificate is one of the authorities'. One signature check a connection and interval.
    #[must_use]
    pub fn is_trusted(&self, authorities: &Authorities) -> bool {
        let mut verdict = self.verdict.lock();
        if let Some((at, trusted)) = *verdict
            && at.elapsed() < VERDICT_LIFETIME
        {
            return trusted;
        }
        let trusted = authorities.current.load().trusts(&self.chain, UnixTime::now());
        *verdict = Some((Instant::now(), trusted));
        trusted
    }
}
