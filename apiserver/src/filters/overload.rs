//! How many requests are served at once. Watches and the all-powerful are not counted.

use tokio::sync::{Semaphore, SemaphorePermit};

use super::{
    request_info::RequestInfo,
    user::{MASTERS, User},
};
use crate::status::Status;

/// The places for requests.
pub struct Overload {
    readers: Semaphore,
    writers: Semaphore,
}

impl Overload {
    /// So many requests that read and so many that write.
    #[must_use]
    pub fn new(readers: usize, writers: usize) -> Self {
        Self { readers: Semaphore::new(readers), writers: Semaphore::new(writers) }
    }

    /// A place for a request until the permit is dropped.
    ///
    /// # Errors
    /// 429 where there is none.
    pub fn admit(&self, user: &User, info: &RequestInfo) -> Result<Option<SemaphorePermit<'_>>, Status> {
        if info.long_running() || user.in_group(MASTERS) {
            return Ok(None);
        }
        let places = if info.mutating() { &self.writers } else { &self.readers };
        places.try_acquire().map(Some).map_err(|_| Status::too_many_requests())
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
        let master = User { groups: vec![MASTERS.into()], ..User::default() };
        assert!(overload.admit(&master, &read).is_ok());
        drop(held);
        assert!(overload.admit(&user, &read).is_ok());
    }
}
