//! How many requests are served at once, and how much of them may be in memory. Watches, probes and the all-powerful are not
//! counted; nobody's bytes are for free.

use std::{sync::Arc, time::Duration};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::{
    authorization::PROBES,
    request_info::RequestInfo,
    user::{MASTERS, User},
};
use crate::status::Status;

/// How long a request waits for memory. It waits unread, and others behind the same front server must not wait with it.
const PATIENCE: Duration = Duration::from_secs(5);

/// A place that is taken until it is dropped.
pub type Place = OwnedSemaphorePermit;

/// The places for requests.
pub struct Overload {
    readers: Arc<Semaphore>,
    writers: Arc<Semaphore>,
    /// In KiB.
    memory: Arc<Semaphore>,
    memory_kib: u32,
    backups: Arc<Semaphore>,
}

impl Overload {
    /// So many requests that read, so many that write, so many bytes of bodies and payloads.
    #[must_use]
    pub fn new(readers: usize, writers: usize, memory: usize) -> Self {
        let memory_kib = u32::try_from(memory >> 10).unwrap_or(u32::MAX);
        Self {
            readers: Arc::new(Semaphore::new(readers)),
            writers: Arc::new(Semaphore::new(writers)),
            memory: Arc::new(Semaphore::new(memory_kib as usize)),
            memory_kib,
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

    /// Room for so many bytes, to be held as long as they are in memory.
    ///
    /// # Errors
    /// 429 when there is none for a while.
    pub async fn room(&self, bytes: u64) -> Result<Place, Status> {
        let waiting = self.memory.clone().acquire_many_owned(self.kib(bytes));
        match tokio::time::timeout(PATIENCE, waiting).await {
            Ok(Ok(place)) => Ok(place),
            Ok(Err(_)) | Err(_) => Err(Status::too_many_requests()),
        }
    }

    /// Room for so many bytes where there is some right now.
    #[must_use]
    pub fn room_now(&self, bytes: u64) -> Option<Place> {
        self.memory.clone().try_acquire_many_owned(self.kib(bytes)).ok()
    }

    /// What is larger than all there is waits for all there is.
    fn kib(&self, bytes: u64) -> u32 {
        u32::try_from((bytes >> 10) + 1).unwrap_or(u32::MAX).min(self.memory_kib)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::Method;

    #[test]
    fn sends_away_what_has_no_place() {
        let overload = Overload::new(1, 1, 1 << 20);
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

    #[tokio::test]
    async fn memory_is_lent_and_given_back() {
        let overload = Overload::new(1, 1, 100 << 10);
        let held = overload.room(60 << 10).await.expect("room");
        assert!(overload.room_now(60 << 10).is_none());
        drop(held);
        let all = overload.room(1 << 40).await.expect("all there is");
        assert!(overload.room_now(0).is_none());
        drop(all);
    }
}
