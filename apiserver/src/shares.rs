//! A pool of units (requests, KiB, places in a queue) that flows share. A flow is one user; all requests without credentials
//! are one flow together. The rule keeps one flow from taking everything, and wastes nothing while few flows are busy.
//!
//! The rule is the dynamic threshold of Choudhury and Hahne ("Dynamic queue length thresholds for shared-memory packet
//! switches", 1998) with factor 1: a flow may hold as much as is free. One busy flow gets a half, two get a third each, n get
//! 1/(n+1) each, and as much stays free for the next one. kube-apiserver isolates flows by API priority and fairness for the
//! same purpose; it needs configuration objects that an aggregated server does not have.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
};

use parking_lot::Mutex;
use tokio::sync::oneshot;

/// The part of a pool that all unauthenticated requests may hold together: one in so many units, and at least one unit.
const UNAUTHENTICATED_PART: u64 = 20;

/// Who holds units of a pool: one user, or all requests without credentials.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Flow {
    /// All requests without credentials.
    Unauthenticated,
    /// One user, by name.
    User(Arc<str>),
}

/// Why a flow gets nothing now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The pool has less than that.
    Exhausted,
    /// The flow has its share.
    Share,
}

/// What a decision depends on, in units.
#[derive(Clone, Copy, Debug)]
struct Load {
    total: u64,
    used: u64,
    /// What the flow holds already.
    own: u64,
}

type Decide = fn(Load, bool, u64) -> Result<(), Refusal>;

/// Decides whether a flow may take `asked` units. A flow that holds nothing may take all that is free, so that the largest
/// request is possible; a flow that holds something may hold as much as stays free.
fn decide(load: Load, unauthenticated: bool, asked: u64) -> Result<(), Refusal> {
    let free = load.total.saturating_sub(load.used);
    within_share(load, unauthenticated, asked)?;
    if asked <= free { Ok(()) } else { Err(Refusal::Exhausted) }
}

/// As [`decide`], for a request that can be served otherwise: where its flow holds nothing it gets up to a half of what is free.
fn decide_part(load: Load, unauthenticated: bool, asked: u64) -> Result<(), Refusal> {
    let free = load.total.saturating_sub(load.used);
    if load.own == 0 && asked > free / 2 {
        return Err(Refusal::Share);
    }
    decide(load, unauthenticated, asked)
}

/// The share alone: whether the flow may wait for its turn.
fn within_share(load: Load, unauthenticated: bool, asked: u64) -> Result<(), Refusal> {
    let free = load.total.saturating_sub(load.used);
    let most = if unauthenticated { free.min(load.total / UNAUTHENTICATED_PART) } else { free };
    if load.own == 0 || load.own.saturating_add(asked) <= most { Ok(()) } else { Err(Refusal::Share) }
}

/// Pool of units that flows share by the rule of this module. Clones share the same units.
#[derive(Clone, Debug)]
pub struct FairPool(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    total: u64,
    used: u64,
    held: HashMap<Flow, u64>,
    waiting: VecDeque<Waiter>,
}

#[derive(Debug)]
struct Waiter {
    flow: Flow,
    units: u64,
    granted: oneshot::Sender<Permit>,
}

/// Units that a flow holds until it is dropped.
#[derive(Debug)]
pub struct Permit {
    pool: FairPool,
    flow: Flow,
    units: u64,
}

impl FairPool {
    /// A pool of so many units.
    #[must_use]
    pub fn new(total: u64) -> Self {
        let (held, waiting) = Default::default();
        Self(Arc::new(Mutex::new(State { total, used: 0, held, waiting })))
    }

    /// All there are, free or not.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.0.lock().total
    }

    /// Units for a flow where it may have them now. Nobody overtakes a request that waits and may have its turn.
    ///
    /// # Errors
    /// [`Refusal`].
    pub fn try_take(&self, flow: &Flow, units: u64) -> Result<Permit, Refusal> {
        self.try_take_by(decide, flow, units)
    }

    /// As [`FairPool::try_take`], for a request that can be served otherwise: it never gets more than half of what is free, also
    /// where its flow holds nothing.
    ///
    /// # Errors
    /// [`Refusal`].
    pub fn try_take_part(&self, flow: &Flow, units: u64) -> Result<Permit, Refusal> {
        self.try_take_by(decide_part, flow, units)
    }

    fn try_take_by(&self, decide: Decide, flow: &Flow, units: u64) -> Result<Permit, Refusal> {
        let mut state = self.0.lock();
        state.waiting.retain(|waiter| !waiter.granted.is_closed());
        decide(state.load(flow), *flow == Flow::Unauthenticated, units)?;
        if state.waiting.iter().any(|waiter| state.may_wait(waiter)) {
            return Err(Refusal::Exhausted);
        }
        state.add(flow, units);
        Ok(Permit { pool: self.clone(), flow: flow.clone(), units })
    }

    /// Units for a flow, as soon as it may have them: in the order in which requests came, but for those whose flow has its
    /// share. Whoever drops the future waits no more. More units than the pool has are never granted.
    pub async fn take(&self, flow: &Flow, units: u64) -> Permit {
        if let Ok(permit) = self.try_take(flow, units) {
            return permit;
        }
        let (granted, turn) = oneshot::channel();
        self.0.lock().waiting.push_back(Waiter { flow: flow.clone(), units, granted });
        // Between the two locks somebody may have left.
        self.grant();
        match turn.await {
            Ok(permit) => permit,
            // The sender is dropped with its waiter, and that only after the receiver.
            Err(_) => std::future::pending().await,
        }
    }

    /// Grants what is free to those who wait. The first one that may have its turn and does not fit holds up those behind it:
    /// large requests would never be served otherwise.
    fn grant(&self) {
        loop {
            let mut state = self.0.lock();
            state.waiting.retain(|waiter| !waiter.granted.is_closed());
            let Some(at) = state.waiting.iter().position(|waiter| state.may_wait(waiter)) else { return };
            let (flow, units) = (state.waiting[at].flow.clone(), state.waiting[at].units);
            if units > state.total.saturating_sub(state.used) {
                return;
            }
            let Some(waiter) = state.waiting.remove(at) else { return };
            state.add(&flow, units);
            drop(state);
            // A permit that nobody takes is given back when it is dropped here, outside of the lock.
            drop(waiter.granted.send(Permit { pool: self.clone(), flow, units }));
        }
    }

    #[cfg(test)]
    pub(crate) fn used(&self) -> u64 {
        self.0.lock().used
    }
}

impl State {
    fn load(&self, flow: &Flow) -> Load {
        Load { total: self.total, used: self.used, own: self.held.get(flow).copied().unwrap_or_default() }
    }

    fn may_wait(&self, waiter: &Waiter) -> bool {
        let unauthenticated = waiter.flow == Flow::Unauthenticated;
        within_share(self.load(&waiter.flow), unauthenticated, waiter.units).is_ok()
    }

    fn add(&mut self, flow: &Flow, units: u64) {
        self.used += units;
        *self.held.entry(flow.clone()).or_default() += units;
    }

    fn give_back(&mut self, flow: &Flow, units: u64) {
        self.used = self.used.saturating_sub(units);
        if let Some(held) = self.held.get_mut(flow) {
            *held = held.saturating_sub(units);
            if *held == 0 {
                self.held.remove(flow);
            }
        }
    }
}

impl Permit {
    /// The flow that holds the units.
    #[must_use]
    pub fn flow(&self) -> &Flow {
        &self.flow
    }

    /// How many units it is.
    #[must_use]
    pub fn units(&self) -> u64 {
        self.units
    }

    /// So many units in all, where the missing ones are free now. It does not wait: two that held units and waited for more could
    /// wait for each other. What this permit holds itself does not count against its flow.
    ///
    /// # Errors
    /// [`Refusal`].
    pub fn grow_to(&mut self, units: u64) -> Result<(), Refusal> {
        let missing = units.saturating_sub(self.units);
        if missing == 0 {
            return Ok(());
        }
        let mut state = self.pool.0.lock();
        let load = state.load(&self.flow);
        let others = Load { own: load.own.saturating_sub(self.units), ..load };
        decide(others, self.flow == Flow::Unauthenticated, missing)?;
        state.add(&self.flow, missing);
        self.units = units;
        Ok(())
    }

    /// Gives back what is more than so many units.
    pub fn shrink_to(&mut self, units: u64) {
        let surplus = self.units.saturating_sub(units);
        if surplus > 0 {
            self.units = units;
            self.pool.0.lock().give_back(&self.flow, surplus);
            self.pool.grant();
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.shrink_to(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user(name: &str) -> Flow {
        Flow::User(name.into())
    }

    fn take_all(pool: &FairPool, flow: &Flow) -> (Vec<Permit>, Refusal) {
        let mut held = Vec::new();
        loop {
            match pool.try_take(flow, 1) {
                Ok(permit) => held.push(permit),
                Err(refusal) => return (held, refusal),
            }
        }
    }

    #[test]
    fn the_share_of_a_flow_is_what_stays_free() {
        let load = |used, own| Load { total: 100, used, own };
        for (load, unauthenticated, asked, expected) in [
            (load(0, 0), false, 100, Ok(())),
            (load(0, 0), false, 101, Err(Refusal::Exhausted)),
            (load(49, 49), false, 1, Ok(())),
            (load(50, 50), false, 1, Err(Refusal::Share)),
            (load(99, 0), false, 1, Ok(())),
            (load(100, 0), false, 1, Err(Refusal::Exhausted)),
            (load(66, 33), false, 1, Ok(())),
            (load(67, 34), false, 1, Err(Refusal::Share)),
            (load(4, 4), true, 1, Ok(())),
            (load(5, 5), true, 1, Err(Refusal::Share)),
            (load(98, 2), true, 1, Err(Refusal::Share)),
            (load(u64::MAX, 1), false, u64::MAX, Err(Refusal::Share)),
        ] {
            assert_eq!(decide(load, unauthenticated, asked), expected, "{load:?} {unauthenticated} {asked}");
        }
    }

    #[test]
    fn a_request_that_can_be_served_otherwise_takes_half_of_what_is_free_at_most() {
        let pool = FairPool::new(100);
        let (a, b) = (user("a"), user("b"));
        assert!(matches!(pool.try_take_part(&a, 51), Err(Refusal::Share)));
        let first = pool.try_take_part(&a, 50).expect("a half");
        assert!(matches!(pool.try_take_part(&a, 1), Err(Refusal::Share)));
        assert!(matches!(pool.try_take_part(&b, 26), Err(Refusal::Share)));
        let second = pool.try_take_part(&b, 25).expect("a half of the rest");
        assert!(matches!(pool.try_take(&user("c"), 26), Err(Refusal::Exhausted)));
        let third = pool.try_take(&user("c"), 25).expect("what cannot be served otherwise");
        drop((first, second, third));
        assert_eq!(pool.used(), 0);
    }

    #[test]
    fn every_flow_finds_something_after_others_took_all_they_may() {
        let pool = FairPool::new(400);
        let (nobody, refusal) = take_all(&pool, &Flow::Unauthenticated);
        assert_eq!((nobody.len(), refusal), (20, Refusal::Share));
        let mut held = vec![nobody];
        for number in 0..7 {
            let (taken, refusal) = take_all(&pool, &user(&number.to_string()));
            assert!(!taken.is_empty(), "{number} got nothing");
            assert_eq!(refusal, Refusal::Share);
            held.push(taken);
        }
        assert_eq!(held[1].len(), 190);
        drop(held);
        assert_eq!(pool.used(), 0);
        assert!(pool.0.lock().held.is_empty(), "flows that hold nothing are remembered");
    }

    #[tokio::test]
    async fn who_waits_is_served_in_order_but_not_beyond_its_share() {
        let pool = FairPool::new(10);
        let (a, b) = (user("a"), user("b"));
        let first = pool.try_take(&a, 6).expect("free");
        let mut more = Box::pin(pool.take(&a, 5));
        let mut other = Box::pin(pool.take(&b, 4));
        assert!(futures::poll!(&mut more).is_pending(), "a flow got more than its share");
        let held = match futures::poll!(&mut other) {
            std::task::Poll::Ready(permit) => permit,
            std::task::Poll::Pending => panic!("one waits behind a flow that has its share"),
        };
        // A large one that may have its turn is not overtaken for ever.
        let c = user("c");
        let mut large = Box::pin(pool.take(&c, 10));
        assert!(futures::poll!(&mut large).is_pending());
        drop(held);
        assert_eq!(pool.try_take(&b, 1).err(), Some(Refusal::Exhausted), "it was overtaken");
        drop((more, first));
        let all = large.await;
        assert_eq!((all.units(), pool.used()), (10, 10));
    }

    #[tokio::test]
    async fn who_waits_no_more_holds_up_nobody_and_takes_nothing_with_it() {
        let pool = FairPool::new(2);
        let (a, b) = (user("a"), user("b"));
        let first = pool.try_take(&a, 2).expect("free");
        let mut given_up = Box::pin(pool.take(&b, 2));
        assert!(futures::poll!(&mut given_up).is_pending());
        drop(given_up);
        drop(first);
        assert_eq!(pool.used(), 0);
        let mut granted = Box::pin(pool.take(&b, 2));
        let second = pool.try_take(&a, 2).ok();
        assert!(second.is_some());
        assert!(futures::poll!(&mut granted).is_pending());
        // Granted, and dropped before it is looked at.
        drop(second);
        assert_eq!(pool.used(), 2);
        drop(granted);
        assert_eq!(pool.used(), 0);
    }

    #[test]
    fn a_permit_grows_as_far_as_others_leave_room_and_shrinks() {
        let pool = FairPool::new(10);
        let mut permit = pool.try_take(&user("a"), 4).expect("free");
        permit.grow_to(9).expect("alone, it may have all");
        let other = pool.try_take(&user("b"), 1).expect("free");
        assert_eq!(permit.grow_to(10), Err(Refusal::Exhausted));
        permit.shrink_to(3);
        assert_eq!((permit.units(), pool.used()), (3, 4));
        permit.grow_to(2).expect("it has more");
        assert_eq!(permit.units(), 3);
        drop((permit, other));
        assert_eq!(pool.used(), 0);
    }
}
