//! One lease for all ephemeral keys of a handle, granted when it is first needed and kept alive until the end.

use std::{sync::Arc, time::Duration};

use tokio::{
    sync::Mutex,
    time::{Instant, sleep, timeout_at},
};

use super::{
    super::{Error, Result},
    error::{Failure, Kind},
    link::Link,
};

/// The lease of a handle.
pub(super) struct Lease {
    ttl: Duration,
    held: Arc<parking_lot::Mutex<Option<i64>>>,
    /// One grant at a time.
    granting: Mutex<()>,
}

impl Lease {
    pub(super) fn new(ttl: Duration) -> Self {
        Self { ttl, held: Arc::default(), granting: Mutex::new(()) }
    }

    /// The lease, granted now where there is none. Takes one deadline at most, with the wait for others who ask for it.
    pub(super) async fn id(&self, link: &Arc<Link>) -> Result<i64> {
        let end = Instant::now() + link.deadline;
        let waited = timeout_at(end, self.granting.lock()).await;
        let _one = waited.map_err(|_| Error::Unavailable("etcd has not granted a lease in time".into()))?;
        if let Some(id) = *self.held.lock() {
            return Ok(id);
        }
        let ttl = i64::try_from(self.ttl.as_secs().max(1)).unwrap_or(i64::MAX);
        let mut client = link.lease();
        let granted = link
            .within(end, client.grant(ttl, None))
            .await
            // A lease of which the answer was lost, or is not understood, expires by itself: nothing was done as far as callers
            // can tell.
            .map_err(|failure| match failure.into_error(Kind::Write) {
                Error::Unknown(why) | Error::Declined(why) => Error::Unavailable(why),
                error => error,
            })?;
        let id = granted.id();
        *self.held.lock() = Some(id);
        tokio::spawn(keep_alive(Arc::clone(link), Arc::clone(&self.held), id, self.ttl));
        Ok(id)
    }

    /// The lease turned out to have expired.
    pub(super) fn forget(&self, id: i64) {
        forget(&self.held, id);
    }

    /// Gives up the lease, and with it all ephemeral keys, at once.
    pub(super) async fn revoke(&self, link: &Link) {
        let Some(id) = self.held.lock().take() else { return };
        let mut client = link.lease();
        let end = Instant::now() + link.deadline;
        if let Err(failure) = link.within(end, client.revoke(id)).await {
            tracing::warn!(?failure, "lease could not be revoked; it will expire");
        }
    }
}

/// Renews the lease three times in its life, until it has expired or the handle is closed.
async fn keep_alive(link: Arc<Link>, held: Arc<parking_lot::Mutex<Option<i64>>>, id: i64, ttl: Duration) {
    while *held.lock() == Some(id) {
        tokio::select! {
            () = sleep(ttl / 3) => {}
            () = link.closed.cancelled() => return,
        }
        let mut client = link.lease();
        match link.within(Instant::now() + ttl / 3, client.keep_alive(id)).await {
            Ok(_) => {}
            Err(Failure::LeaseGone) => {
                tracing::warn!("lease expired; ephemeral keys of this process are gone");
                forget(&held, id);
            }
            Err(failure) => tracing::debug!(?failure, "lease not renewed; trying again"),
        }
    }
}

fn forget(held: &parking_lot::Mutex<Option<i64>>, id: i64) {
    let mut held = held.lock();
    if *held == Some(id) {
        *held = None;
    }
}
