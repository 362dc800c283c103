//! How many connections there may be with credentials, in all and of one user. Each takes a file descriptor and memory, so one user
//! with a token must not have all of them: then nobody else could connect.
//!
//! A connection counts for whom it was authenticated first: the owner of its certificate, else of the token of its first request. A
//! user gets a share of the connections as in [`FairPool`]. Front proxies and members of `system:masters` have a part of their own
//! beside, an eighth, which no other user takes from. Who is beyond its share is answered with 429 on the new connection, which
//! ends then, and its oldest idle connection is ended by GOAWAY, so that it finds room when it tries again.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::Duration,
};

use parking_lot::Mutex;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::{
    filters::{
        connection::Connection,
        overload::count_refusal,
        user::{MASTERS, User},
    },
    metrics,
    shares::{FairPool, Flow, Permit, Refusal},
    status::Status,
};

/// The part that front proxies and `system:masters` have for themselves: one in so many connections.
const PRIVILEGED_PART: usize = 8;
/// How long a client may keep an idle connection after GOAWAY.
const GOAWAY_GRACE: Duration = Duration::from_secs(5);

/// Connections by default: with credentials, beside those without.
pub const CONNECTIONS: usize = 2000;
/// Fewer are of no use.
pub const LEAST_CONNECTIONS: usize = 16;
/// File descriptors for everything else at least: the store, bodies that wait on the disk, and what this program asks others.
const LEAST_RESERVE: u64 = 64;

/// How many connections there may be, without credentials and with them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionLimits {
    /// Limit on open connections without credentials.
    pub unauthenticated: usize,
    /// Limit on open connections with credentials.
    pub authenticated: usize,
}

impl ConnectionLimits {
    /// The same, or as many as this number of file descriptors allows: a quarter of them, and at least 64, are for other purposes.
    /// Of the rest, a quarter at most is for connections without credentials.
    #[must_use]
    pub fn within(self, descriptors: u64) -> Self {
        let reserve = (descriptors / 4).max(LEAST_RESERVE);
        let all = usize::try_from(descriptors.saturating_sub(reserve)).unwrap_or(usize::MAX);
        if self.unauthenticated.saturating_add(self.authenticated) <= all {
            return self;
        }
        let unauthenticated = self.unauthenticated.min(all / 4).max(1);
        let authenticated = self.authenticated.min(all - all / 4).max(LEAST_CONNECTIONS);
        Self { unauthenticated, authenticated }
    }
}

/// Raises the number of files that this process may open to what it may be raised to; tells which that is.
#[must_use]
pub fn raise_descriptors() -> u64 {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, ..limit };
    match setrlimit(Resource::Nofile, raised) {
        Ok(()) => limit.maximum.unwrap_or(u64::MAX),
        Err(_) => limit.current.unwrap_or(u64::MAX),
    }
}

/// For whom a connection counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Owner {
    flow: Flow,
    privileged: bool,
}

impl Owner {
    /// The front proxy with this common name.
    pub(crate) fn front_proxy(common_name: &str) -> Self {
        Self { flow: Flow::User(format!("front proxy {common_name}").into()), privileged: true }
    }

    /// A user; `None`: one without credentials.
    pub(crate) fn user(user: &User) -> Option<Self> {
        let flow = user.flow();
        (flow != Flow::Unauthenticated).then(|| Self { flow, privileged: user.in_group(MASTERS) })
    }
}

/// See the module.
pub(crate) struct ConnectionShares {
    privileged: FairPool,
    users: FairPool,
    open: Arc<Mutex<Open>>,
    grace: Duration,
}

#[derive(Default)]
struct Open {
    next: u64,
    /// Of each owner, by age. An owner without a connection has no entry.
    by_owner: HashMap<Flow, BTreeMap<u64, Connection>>,
}

/// A connection counts for its owner for as long as this lives.
pub(crate) struct ConnectionPermit {
    open: Arc<Mutex<Open>>,
    owner: Flow,
    number: u64,
    _permit: Permit,
}

impl std::fmt::Debug for ConnectionPermit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ConnectionPermit").field("owner", &self.owner).finish_non_exhaustive()
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        let mut open = self.open.lock();
        if let Some(own) = open.by_owner.get_mut(&self.owner) {
            own.remove(&self.number);
            if own.is_empty() {
                open.by_owner.remove(&self.owner);
            }
        }
    }
}

impl ConnectionShares {
    /// So many connections in all.
    pub(crate) fn new(connections: usize) -> Self {
        let connections = connections.max(LEAST_CONNECTIONS);
        let privileged = connections / PRIVILEGED_PART;
        Self {
            privileged: FairPool::new(privileged as u64),
            users: FairPool::new((connections - privileged) as u64),
            open: Arc::default(),
            grace: GOAWAY_GRACE,
        }
    }

    /// Counts a connection for its owner, once. From then on it has what connections with credentials have.
    ///
    /// # Errors
    /// 429 where the owner has its share, or where there are no more. The oldest idle connection of whoever has too many is
    /// ended then.
    pub(crate) fn admit(&self, connection: &Connection, owner: &Owner) -> Result<(), Status> {
        connection.authenticate(|| self.take(connection, owner)).map_err(|refusal| {
            count_refusal(&metrics::REJECTED_REQUESTS, "connection", &owner.flow, refusal);
            self.make_room(owner, refusal);
            Status::too_many_connections()
        })
    }

    fn take(&self, connection: &Connection, owner: &Owner) -> Result<ConnectionPermit, Refusal> {
        let own = if owner.privileged { self.privileged.try_take(&owner.flow, 1).ok() } else { None };
        let permit = match own {
            Some(permit) => permit,
            None => self.users.try_take(&owner.flow, 1)?,
        };
        let mut open = self.open.lock();
        let number = open.next;
        open.next += 1;
        open.by_owner.entry(owner.flow.clone()).or_default().insert(number, connection.clone());
        drop(open);
        Ok(ConnectionPermit { open: self.open.clone(), owner: owner.flow.clone(), number, _permit: permit })
    }

    /// Ends the oldest idle connection of an owner that has its share; where there are no more connections, of the owner with the
    /// most. An owner that keeps all of them busy is refused and nothing else.
    fn make_room(&self, owner: &Owner, refusal: Refusal) {
        let open = self.open.lock();
        let from = match refusal {
            Refusal::Share => open.by_owner.get(&owner.flow),
            Refusal::Exhausted => open.by_owner.values().max_by_key(|own| own.len()),
        };
        let idle = from.and_then(|own| own.values().find(|connection| connection.is_idle()).cloned());
        drop(open);
        let Some(idle) = idle else { return };
        idle.send_away();
        let grace = self.grace;
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move {
                tokio::time::sleep(grace).await;
                // A client that does not leave. What it asked for meanwhile is answered.
                if idle.has_no_request() {
                    idle.end().cancel();
                }
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owner(name: &str) -> Owner {
        let user = User { name: name.into(), ..User::default() }.known();
        Owner::user(&user).expect("a known user")
    }

    fn master() -> Owner {
        let user = User { name: "root".into(), groups: vec![MASTERS.into()], ..User::default() }.known();
        Owner::user(&user).expect("a known user")
    }

    /// Connections until one is refused.
    fn take_all(shares: &ConnectionShares, owner: &Owner) -> Vec<Connection> {
        let mut held = Vec::new();
        loop {
            let connection = Connection::default();
            match shares.admit(&connection, owner) {
                Ok(()) => held.push(connection),
                Err(status) => {
                    assert_eq!(status.code(), http::StatusCode::TOO_MANY_REQUESTS);
                    assert!(!connection.is_authenticated());
                    return held;
                }
            }
        }
    }

    #[test]
    fn one_user_takes_no_connections_from_others() {
        let shares = ConnectionShares::new(96);
        let mallory = take_all(&shares, &owner("mallory"));
        assert_eq!(mallory.len(), 42, "a half of what is for users");
        assert!(mallory.iter().all(Connection::is_authenticated));
        assert!(take_all(&shares, &owner("alice")).len() >= 14);
        // Whatever users take, some are for the front proxy and for administrators.
        let users: Vec<_> = (0..100).map(|number| take_all(&shares, &owner(&number.to_string()))).collect();
        assert!(users.iter().any(Vec::is_empty), "users have not taken everything");
        for privileged in [Owner::front_proxy("front-proxy-client"), master()] {
            assert!(take_all(&shares, &privileged).len() >= 3, "{privileged:?}");
        }
    }

    #[test]
    fn a_connection_counts_once_and_until_it_is_closed() {
        let shares = ConnectionShares::new(96);
        let connection = Connection::default();
        for _ in 0..100 {
            shares.admit(&connection, &owner("alice")).expect("it is counted already");
        }
        assert_eq!(shares.users.used(), 1);
        let kept = connection.clone();
        drop(connection.closes());
        assert_eq!((shares.users.used(), shares.open.lock().by_owner.len()), (0, 0));
        // A request may end after its connection.
        shares.admit(&kept, &owner("alice")).expect("nobody is told");
        assert_eq!(shares.users.used(), 0, "a connection that is closed is counted");
    }

    #[tokio::test]
    async fn who_has_its_share_gives_up_its_oldest_idle_connection() {
        let grace = Duration::from_millis(200);
        let shares = ConnectionShares { grace, ..ConnectionShares::new(96) };
        let first = Connection::default();
        shares.admit(&first, &owner("mallory")).expect("the first");
        let busy = first.busy();
        let held = take_all(&shares, &owner("mallory"));
        assert!(!first.is_leaving() && held[0].is_leaving() && !held[1].is_leaving());
        let told = tokio::time::Instant::now();
        held[0].end().cancelled().await;
        assert!(told.elapsed() >= grace / 2, "the client has no time to leave");
        assert!(!held[1].end().is_cancelled() && !first.end().is_cancelled());
        drop(held[0].closes());
        shares.admit(&Connection::default(), &owner("mallory")).expect("room was made");
        drop(busy);
    }

    #[test]
    fn where_there_are_no_more_the_one_with_the_most_gives_one_up() {
        let shares = ConnectionShares::new(96);
        let all: Vec<_> = (0..100).map(|number| take_all(&shares, &owner(&number.to_string()))).collect();
        let leaving = |held: &Vec<Connection>| held.iter().filter(|one| one.is_leaving()).count();
        assert!(all.iter().any(Vec::is_empty));
        assert!(leaving(&all[0]) > 1, "the user with the most connections keeps them");
    }

    #[test]
    fn connections_leave_file_descriptors_for_other_purposes() {
        let limits = ConnectionLimits { unauthenticated: 500, authenticated: 2000 };
        for (descriptors, unauthenticated, authenticated) in
            [(u64::MAX, 500, 2000), (4096, 500, 2000), (1024, 192, 576), (256, 48, 144), (64, 1, 16)]
        {
            let expected = ConnectionLimits { unauthenticated, authenticated };
            assert_eq!(limits.within(descriptors), expected, "{descriptors}");
        }
    }
}
