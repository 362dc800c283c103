//! How many requests are served at once. Watches, probes and the all-powerful are not counted; nobody's bytes are for free, see
//! [`crate::memory`].

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::{
    authorization::PROBES,
    request_info::RequestInfo,
    user::{MASTERS, User},
};
use crate::status::Status;

/// A place that is taken until it is dropped.
pub type Place = OwnedSemaphorePermit;

/// The places for requests.
pub struct Overload {
    readers: Arc<Semaphore>,
    writers: Arc<Semaphore>,
    backups: Arc<Semaphore>,
}

impl Overload {
    /// So many requests that read, so many that write.
    #[must_use]
    pub fn new(readers: usize, writers: usize) -> Self {
        Self {
            readers: Arc::new(Semaphore::new(readers)),
            writers: Arc::new(Semaphore::new(writers)),
            backups: Arc::new(Semaphore::new(1)),
        }
    }

    /// The place for a backup: one at a time reads everything there is.
    ///
    /// # Errors
    /// 429 where it is taken.
    pub fn backup(&self) -> Result<Place, Status> {
        self.backups.clone().try_acquire_owned().map_err(|_| Status::too_many_requests())
    }

    /// A place for a request, to be held until its answer is sent.
    ///
    /// # Errors
    /// 429 where there is none.
    pub fn admit(&self, user: &User, info: &RequestInfo) -> Result<Option<Place>, Status> {
        if info.long_running() || user.in_group(MASTERS) || PROBES.contains(&info.path.as_str()) {
            return Ok(None);
        }
        let places = if info.mutating() { &self.writers } else { &self.readers };
        places.clone().try_acquire_owned().map(Some).map_err(|_| Status::too_many_requests())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::Method;

    #[test]
    fn sends_away_what_has_no_place() {
        let overload = Overload::new(1, 1);
        let info =
            |method, path: &str, watch| RequestInfo::parse(&method, &path.parse().expect("a URI"), watch);
        let (user, read) = (User::anonymous(), info(Method::GET, "/apis/g/v1/rs", false));
        let held = overload.admit(&user, &read).expect("a place");
        assert!(overload.admit(&user, &read).is_err());
        assert!(overload.admit(&user, &info(Method::POST, "/apis/g/v1/rs", false)).is_ok());
        assert!(overload.admit(&user, &info(Method::GET, "/apis/g/v1/rs", true)).is_ok());
        assert!(overload.admit(&user, &info(Method::GET, "/livez", false)).is_ok());
        let master = User { groups: vec![MASTERS.into()], ..User::default() };
        assert!(overload.admit(&master, &read).is_ok());
        drop(held);
        assert!(overload.admit(&user, &read).is_ok());
    }
}
