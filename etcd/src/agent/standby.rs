//! The standby of a member, which lives from one attempt to found its etcd to the next.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use tokio::time::Instant;

use super::standby_etcd::StandbyEtcd;
use crate::snapshot::{restore::follow::Follower, store};

/// Why no etcd is founded where a standby was begun.
pub(super) const STANDBY_LEFT: &str = "StandbyLeft: a standby was begun beside the data directory, and an empty etcd would lose what it \
                                       holds: set `restore` again, or remove <dataDir>/new.etcd.part";

/// What follows, and the etcd of the member that it does so with, unless that is a private one.
type Following = (Arc<Follower>, Option<Arc<StandbyEtcd>>);

/// The standby of a member, where it has one.
#[derive(Debug, Default)]
pub struct Standby {
    follower: Mutex<Option<Following>>,
    /// Since when the member may found its etcd.
    may_found: OnceLock<Instant>,
}

impl Standby {
    /// The one that runs; `start` begins it where none does.
    pub(super) fn run(
        &self,
        start: impl FnOnce() -> Result<(Follower, Option<Arc<StandbyEtcd>>), store::Error>,
    ) -> Result<Arc<Follower>, store::Error> {
        let mut held = self.follower.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((follower, _)) = held.as_ref() {
            return Ok(Arc::clone(follower));
        }
        let (follower, etcd) = start()?;
        let follower = Arc::new(follower);
        *held = Some((Arc::clone(&follower), etcd));
        Ok(follower)
    }

    /// Lets go of it, once it has taken over. It gives the etcd of the member.
    pub(super) fn end(&self) -> Option<Arc<StandbyEtcd>> {
        self.follower.lock().unwrap_or_else(PoisonError::into_inner).take().and_then(|(_, etcd)| etcd)
    }

    /// When this was first asked.
    pub(super) fn may_found_since(&self) -> Instant {
        *self.may_found.get_or_init(Instant::now)
    }
}
