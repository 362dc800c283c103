//! The standby of a member, which lives from one attempt to found its etcd to the next.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use tokio::time::Instant;

use crate::snapshot::{restore::follow::Follower, store};

/// The standby of a member, where it has one.
#[derive(Debug, Default)]
pub struct Standby {
    follower: Mutex<Option<Arc<Follower>>>,
    /// Since when the member may found its etcd.
    may_found: OnceLock<Instant>,
}

impl Standby {
    /// The one that runs; `start` begins it where none does.
    pub(super) fn run(
        &self,
        start: impl FnOnce() -> Result<Follower, store::Error>,
    ) -> Result<Arc<Follower>, store::Error> {
        let mut held = self.follower.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(follower) = held.as_ref() {
            return Ok(Arc::clone(follower));
        }
        let follower = Arc::new(start()?);
        *held = Some(Arc::clone(&follower));
        Ok(follower)
    }

    /// Lets go of it, once it has taken over.
    pub(super) fn end(&self) {
        *self.follower.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// When this was first asked.
    pub(super) fn may_found_since(&self) -> Instant {
        *self.may_found.get_or_init(Instant::now)
    }
}
