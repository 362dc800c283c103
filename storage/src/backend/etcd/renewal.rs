//! Certificates that are replaced in their files while a handle is used.
//!
//! A client is made with what the files hold, so another one takes its place when that changes. It has to reach etcd first: the
//! connections of the earlier one may go on for long, and files are written one after the other.

use std::{
    sync::{Arc, Weak},
    time::Duration,
};

use tokio::time::{Instant, sleep};

use super::{
    super::{Error, Result},
    error::Kind,
    link::Link,
    options::Options,
};

/// Pause between looks at the files.
const LOOK: Duration = Duration::from_secs(1);

/// Looks at the files as long as there is a handle.
pub(super) struct Renewal {
    options: Options,
    link: Weak<Link>,
    /// Of what is in use.
    hash: blake3::Hash,
    /// What was last said of files that are not taken.
    told: Option<String>,
}

impl Renewal {
    /// Begins where the files may change. `hash`: of what the link was made with.
    pub(super) fn begin(options: Options, link: &Arc<Link>, hash: blake3::Hash) {
        if options.tls.ca_file.is_some() || options.tls.client.is_some() {
            let renewal = Self { options, link: Arc::downgrade(link), hash, told: None };
            tokio::spawn(renewal.run(link.closed.clone()));
        }
    }

    async fn run(mut self, closed: tokio_util::sync::CancellationToken) {
        while closed.run_until_cancelled(sleep(LOOK)).await.is_some() {
            let Some(link) = self.link.upgrade() else { return };
            match self.look(&link).await {
                Ok(false) => self.told = None,
                Ok(true) => {
                    self.told = None;
                    tracing::info!("certificates for etcd read again");
                }
                Err(error) => self.tell(&error),
            }
        }
    }

    /// Takes what is in the files where that is something else and etcd answers to it. Whether it did.
    async fn look(&mut self, link: &Link) -> Result<bool> {
        let certificates = self.options.tls.read().await?;
        let hash = certificates.hash();
        if hash == self.hash {
            return Ok(false);
        }
        let client = self.options.client(Some(&certificates)).await?;
        let mut asked = client.maintenance_client();
        let answer = link.within(Instant::now() + link.deadline, asked.status()).await;
        answer.map_err(|failure| failure.into_error(Kind::Read))?;
        link.renew(client);
        self.hash = hash;
        Ok(true)
    }

    /// Once, and not at every look.
    fn tell(&mut self, error: &Error) {
        let why = error.to_string();
        if self.told.as_ref() != Some(&why) {
            tracing::warn!(%error, "new certificates for etcd not taken yet, the earlier ones stay in use");
            self.told = Some(why);
        }
    }
}
