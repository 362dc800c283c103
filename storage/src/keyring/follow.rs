//! Following the file of a configuration while running.

use std::{path::PathBuf, sync::Arc, time::Duration};

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{Error, Keyring, config, file, metrics::Metrics, ring::Ring};

/// Seconds between looks at the file.
const LOOK: u32 = 60;
/// Seconds that new services get at least to show that they are well.
const PATIENCE: u32 = 10;
/// Pause between questions to them.
const PAUSE: Duration = Duration::from_millis(100);

/// Which configuration to use, and how.
#[derive(Clone, Debug)]
pub struct Follow {
    /// Path of the file with the `EncryptionConfiguration`.
    pub path: PathBuf,
    /// Whether the file is read again when its content changes.
    pub reload: bool,
    /// What this server is called; its hash is a label of metrics.
    pub server: String,
    /// How long a second is, where this module and its key management services count some: one second, but in tests.
    pub second: Duration,
}

impl Keyring {
    /// Reads the file, asks its services for the first time, and follows both until `stop`. A service that is not well yet is no
    /// error: it may start later than this process.
    ///
    /// # Errors
    /// [`Error::File`] and [`Error::Config`].
    pub async fn follow(follow: Follow, stop: CancellationToken) -> Result<Arc<Self>, Error> {
        let text = file::read(&follow.path)?;
        let metrics = metrics(&follow.server)?;
        let mut ring = config::parse(&text, follow.second, &metrics)?;
        ring.probe().await;
        ring.keep_polling(&stop);
        let hash = file::hash(&text);
        metrics.in_use(&hash);
        let keyring = Arc::new(Self::new(ring, metrics));
        if follow.reload {
            tokio::spawn(Follower { keyring: Arc::clone(&keyring), follow, hash, stop }.run());
        }
        Ok(keyring)
    }
}

/// Counters for the server of this name.
pub(super) fn metrics(server: &str) -> Result<Arc<Metrics>, Error> {
    let wrong = |_| Error::Config { at: "metrics".into(), what: "cannot be made".into() };
    Metrics::new(file::hash(server)).map(Arc::new).map_err(wrong)
}

struct Follower {
    keyring: Arc<Keyring>,
    follow: Follow,
    /// Of the configuration in use.
    hash: String,
    stop: CancellationToken,
}

impl Follower {
    async fn run(mut self) {
        let stop = self.stop.clone();
        while stop.run_until_cancelled(tokio::time::sleep(self.follow.second * LOOK)).await.is_some() {
            match stop.run_until_cancelled(self.look()).await {
                Some(Ok(false)) => {}
                Some(Ok(true)) => {
                    self.keyring.metrics.reloaded(true);
                    self.keyring.metrics.in_use(&self.hash);
                    tracing::info!(hash = self.hash, "encryption configuration read again");
                }
                Some(Err(error)) => {
                    self.keyring.metrics.reloaded(false);
                    tracing::error!(%error, "encryption configuration not taken, the earlier one stays in use");
                }
                None => return,
            }
        }
    }

    /// Takes another configuration where there is one that works. Whether it did.
    async fn look(&mut self) -> Result<bool, Error> {
        let text = file::read(&self.follow.path)?;
        let hash = file::hash(&text);
        if hash == self.hash {
            return Ok(false);
        }
        let mut ring = config::parse(&text, self.follow.second, &self.keyring.metrics)?;
        self.wait_until_well(&ring).await?;
        ring.keep_polling(&self.stop);
        self.keyring.replace(ring);
        self.hash = hash;
        Ok(true)
    }

    /// A configuration whose services do not answer would stop all writes.
    async fn wait_until_well(&self, ring: &Ring) -> Result<(), Error> {
        let deadline = Instant::now() + ring.patience().max(self.follow.second * PATIENCE);
        loop {
            ring.probe().await;
            match ring.failing() {
                None => return Ok(()),
                Some(why) if Instant::now() >= deadline => return Err(Error::NotWell(why)),
                Some(_) => tokio::time::sleep(PAUSE).await,
            }
        }
    }
}
