//! How many watches a user may have, and how much memory their events may take while they are sent.
//!
//! | limit | size | for |
//! |---|---|---|
//! | watches | `--max-watches-per-user`; a twentieth of it for anonymous | one user; `system:masters` have no limit |
//! | [`SHARE`] | 32 MiB | different events on their way to one user. A watch that finds no room waits; an event counts once, however many watches of the user it goes to |
//! | [`super::shared::ROOM`] | 128 MiB | different events on their way to all users |
//!
//! Events up to 4 KiB are printed for each watch and are not counted.

use std::{
    collections::HashMap,
    sync::{Arc, Weak},
};

use parking_lot::Mutex;
use tokio::sync::{OnceCell, OwnedSemaphorePermit, Semaphore};

use super::shared::{BodyKey, kib};
use crate::{
    filters::user::{MASTERS, UNAUTHENTICATED, User},
    status::Status,
};

/// Bytes of different events that may be on their way to one user: two of the largest.
pub(super) const SHARE: u64 = 32 << 20;
/// Anonymous users share this part of what one user may have.
const ANONYMOUS: usize = 20;

/// By user, how many watches there are, and what they share.
type Open = Arc<Mutex<HashMap<String, (usize, Arc<Share>)>>>;

/// The watches that there are, by user.
pub(crate) struct Users {
    per_user: usize,
    open: Open,
}

/// The right to one watch, until it is dropped.
pub(super) struct WatchPermit {
    user: String,
    share: Arc<Share>,
    open: Open,
}

/// What is on its way to one user.
struct Share {
    room: Arc<Semaphore>,
    charges: Mutex<HashMap<BodyKey, Weak<Charge>>>,
}

/// One event that is on its way to a user, to one or more of its watches.
#[derive(Debug, Default)]
pub(super) struct Charge(OnceCell<Option<OwnedSemaphorePermit>>);

impl Users {
    pub(crate) fn new(per_user: usize) -> Self {
        Self { per_user, open: Arc::default() }
    }

    /// Another watch of this user.
    ///
    /// # Errors
    /// 429 where the user has as many as one may have.
    pub(super) fn begin(&self, user: &User) -> Result<WatchPermit, Status> {
        let most = match user {
            user if user.in_group(MASTERS) => usize::MAX,
            user if user.in_group(UNAUTHENTICATED) => (self.per_user / ANONYMOUS).max(1),
            _ => self.per_user,
        };
        let mut open = self.open.lock();
        let count = open.get(&user.name).map_or(0, |(count, _)| *count);
        if count >= most {
            return Err(Status::too_many_watches(&user.name, most));
        }
        let (count, share) = open.entry(user.name.clone()).or_insert_with(|| (0, Arc::new(Share::new())));
        *count += 1;
        Ok(WatchPermit { user: user.name.clone(), share: Arc::clone(share), open: Arc::clone(&self.open) })
    }
}

impl Drop for WatchPermit {
    fn drop(&mut self) {
        let mut open = self.open.lock();
        if let Some((count, _)) = open.get_mut(&self.user) {
            *count -= 1;
            if *count == 0 {
                open.remove(&self.user);
            }
        }
    }
}

impl WatchPermit {
    /// Waits until an event may be sent to this user, and counts it until the charge is dropped by all who got it.
    pub(super) async fn charge(&self, key: &BodyKey, bytes: u64) -> Arc<Charge> {
        let charge = self.share.charge_of(key);
        let permits = kib(bytes.min(SHARE));
        let room = Arc::clone(&self.share.room);
        // One of the watches waits for room, and the others for that one. The semaphore is never closed.
        charge.0.get_or_init(|| async { room.acquire_many_owned(permits).await.ok() }).await;
        charge
    }
}

impl Share {
    fn new() -> Self {
        Self { room: Arc::new(Semaphore::new(kib(SHARE) as usize)), charges: Mutex::default() }
    }

    fn charge_of(&self, key: &BodyKey) -> Arc<Charge> {
        let mut charges = self.charges.lock();
        if let Some(charge) = charges.get(key).and_then(Weak::upgrade) {
            return charge;
        }
        charges.retain(|_, charge| charge.strong_count() > 0);
        let charge = Arc::new(Charge::default());
        charges.insert(key.clone(), Arc::downgrade(&charge));
        charge
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mk_user(name: &str, group: &str) -> User {
        User { name: name.into(), groups: vec![group.into()], ..User::default() }
    }

    #[test]
    fn one_user_takes_no_watches_from_another() {
        let users = Users::new(40);
        let alice = mk_user("alice", "system:authenticated");
        let held: Vec<_> = (0..40).map(|_| users.begin(&alice).map_err(|_| ()).expect("a watch")).collect();
        let refused = users.begin(&alice).err().expect("41 watches");
        assert_eq!(refused.code().as_u16(), 429);
        assert!(refused.to_string().contains("--max-watches-per-user"), "{refused}");
        assert!(users.begin(&mk_user("bob", "system:authenticated")).is_ok());
        let anonymous: Vec<_> = (0..3).map(|_| users.begin(&User::anonymous()).is_ok()).collect();
        assert_eq!(anonymous, [true; 3], "they were dropped at once");
        let _two = [users.begin(&User::anonymous()), users.begin(&User::anonymous())];
        assert!(users.begin(&User::anonymous()).is_err(), "a twentieth of forty is two");
        let admin = mk_user("admin", MASTERS);
        let masters: Vec<_> = (0..100).map(|_| users.begin(&admin)).collect();
        assert!(masters.iter().all(Result::is_ok));
        drop(held);
        assert!(users.begin(&alice).is_ok());
        drop(masters);
        assert!(!users.open.lock().contains_key("admin"), "users without a watch are kept");
    }

    #[tokio::test]
    async fn an_event_counts_once_for_a_user_until_the_last_watch_has_sent_it() {
        let users = Users::new(10);
        let alice = mk_user("alice", "system:authenticated");
        let (one, two) = (users.begin(&alice), users.begin(&alice));
        let (Ok(one), Ok(two)) = (one, two) else { panic!("two watches") };
        let (event, next) = (BodyKey::sample(1), BodyKey::sample(2));
        let first = one.charge(&event, SHARE).await;
        // The same event to another watch of the user.
        let again = two.charge(&event, SHARE).await;
        let mut other = std::pin::pin!(two.charge(&next, 1));
        assert!(futures::poll!(other.as_mut()).is_pending());
        drop(first);
        assert!(futures::poll!(other.as_mut()).is_pending(), "one watch is still sending");
        let Ok(bob) = users.begin(&mk_user("bob", "system:authenticated")) else { panic!("a watch") };
        let _bobs = bob.charge(&event, SHARE).await;
        drop(again);
        other.await;
    }
}
