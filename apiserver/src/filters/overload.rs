//! How many requests are served at once, in all and for one user. Watches, probes and `system:masters` are not counted, as in
//! kube-apiserver; memory is counted for everybody, see [`crate::memory`].
//!
//! A request is counted from its authentication until its answer is produced (for an answer that is whole in memory: when the
//! handler returns), not until the client has read it. So a client that does not read holds nothing that others wait for.

use std::sync::Arc;

use prometheus::IntCounterVec;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::{
    authorization::PROBES,
    request_info::RequestInfo,
    user::{MASTERS, User},
};
use crate::{
    metrics,
    shares::{FairPool, Flow, Permit, Refusal},
    status::Status,
};

/// A place that is taken until it is dropped.
#[derive(Debug)]
pub enum InflightPermit {
    /// Among the requests that are served.
    Request(Permit),
    /// For the one backup.
    Backup(OwnedSemaphorePermit),
}

/// The places for requests.
pub struct Overload {
    /// `None`: without a limit.
    readers: Option<FairPool>,
    writers: Option<FairPool>,
    backups: Arc<Semaphore>,
}

impl Overload {
    /// So many requests that read, so many that write; 0: without a limit, as in kube-apiserver.
    #[must_use]
    pub fn new(readers: usize, writers: usize) -> Self {
        let pool = |requests: usize| (requests > 0).then(|| FairPool::new(requests as u64));
        Self { readers: pool(readers), writers: pool(writers), backups: Arc::new(Semaphore::new(1)) }
    }

    /// The place for a backup: one at a time reads everything there is.
    ///
    /// # Errors
    /// 429 where it is taken.
    pub fn backup(&self) -> Result<InflightPermit, Status> {
        let place = self.backups.clone().try_acquire_owned();
        place.map(InflightPermit::Backup).map_err(|_| Status::too_many_requests())
    }

    /// A place for a request, to be held until its answer is produced.
    ///
    /// # Errors
    /// 429 where there is none, or where the user has its share.
    pub fn admit(&self, user: &User, info: &RequestInfo) -> Result<Option<InflightPermit>, Status> {
        if info.long_running() || user.in_group(MASTERS) || PROBES.contains(&info.path.as_str()) {
            return Ok(None);
        }
        let (pool, kind) = match info.mutating() {
            true => (&self.writers, "mutating"),
            false => (&self.readers, "readOnly"),
        };
        let Some(pool) = pool else { return Ok(None) };
        let flow = user.flow();
        pool.try_take(&flow, 1).map(|permit| Some(InflightPermit::Request(permit))).map_err(|refusal| {
            count_refusal(&metrics::REJECTED_REQUESTS, kind, &flow, refusal);
            Status::too_many_requests()
        })
    }
}

/// Counts a request that a limit turned away, under labels of kube-apiserver's flow control.
pub(crate) fn count_refusal(counter: &IntCounterVec, limit: &str, flow: &Flow, refusal: Refusal) {
    let schema = match flow {
        Flow::Unauthenticated => "unauthenticated",
        Flow::User(_) => "user",
    };
    let reason = match refusal {
        Refusal::Exhausted => "concurrency-limit",
        Refusal::Share => "share-limit",
    };
    counter.with_label_values(&[limit, schema, reason]).inc();
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::Method;

    fn info(method: Method, path: &str, watch: bool) -> RequestInfo {
        RequestInfo::parse(&method, &path.parse().expect("a URI"), watch)
    }

    fn user(name: &str) -> User {
        User { name: name.into(), ..User::default() }.known()
    }

    #[test]
    fn sends_away_what_has_no_place() {
        let overload = Overload::new(1, 1);
        let (user, read) = (user("alice"), info(Method::GET, "/apis/g/v1/rs", false));
        let held = overload.admit(&user, &read).expect("a place");
        let refused = overload.admit(&user, &read).expect_err("no place");
        assert_eq!(refused.code(), http::StatusCode::TOO_MANY_REQUESTS);
        assert!(overload.admit(&user, &info(Method::POST, "/apis/g/v1/rs", false)).is_ok());
        assert!(overload.admit(&user, &info(Method::GET, "/apis/g/v1/rs", true)).is_ok());
        assert!(overload.admit(&user, &info(Method::GET, "/livez", false)).is_ok());
        let master = User { groups: vec![MASTERS.into()], ..User::default() };
        assert!(overload.admit(&master, &read).is_ok());
        drop(held);
        assert!(overload.admit(&user, &read).is_ok());
    }

    #[test]
    fn neither_anonymous_requests_nor_one_user_take_the_places_of_others() {
        let overload = Overload::new(400, 200);
        for method in [Method::GET, Method::POST] {
            let request = info(method, "/apis/g/v1/rs", false);
            let mut held = Vec::new();
            for (user, most) in [(User::anonymous(), 20), (user("mallory"), 200)] {
                let got = std::iter::from_fn(|| overload.admit(&user, &request).ok());
                let got: Vec<_> = got.take(1000).collect();
                assert!(!got.is_empty() && got.len() <= most, "{}: {}", user.name, got.len());
                held.push(got);
            }
            for _ in 0..60 {
                assert!(overload.admit(&user("alice"), &request).is_ok());
            }
        }
    }

    #[test]
    fn zero_is_no_limit() {
        let overload = Overload::new(0, 0);
        let request = info(Method::GET, "/apis/g/v1/rs", false);
        let held: Vec<_> = (0..1000).map(|_| overload.admit(&user("alice"), &request)).collect();
        assert!(held.iter().all(Result::is_ok));
    }
}
