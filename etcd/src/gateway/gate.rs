//! The gate of writes: shut while the leader moves, and open again by itself.

use std::{sync::Arc, time::Duration};

use parking_lot::Mutex;
use tokio::{
    sync::Notify,
    time::{Instant, sleep_until, timeout_at},
};

/// Writes were still on their way when half of the time had passed; they are no longer held.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{left} writes did not end within {waited:?}")]
pub struct NotDrained {
    /// Number of writes that were still on their way.
    pub left: usize,
    /// How long they were waited for.
    pub waited: Duration,
}

/// The gate.
#[derive(Debug, Default)]
pub(super) struct Gate {
    state: Mutex<State>,
    opened: Notify,
    drained: Notify,
}

#[derive(Debug, Default)]
struct State {
    held_until: Option<Instant>,
    /// Grows with each time that it is shut or opened by somebody.
    turn: u64,
    passing: usize,
    waiting: usize,
}

/// How the gate stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Standing {
    pub held_until: Option<Instant>,
    pub passing: usize,
    pub waiting: usize,
}

/// A write that is on its way. It has ended when this is dropped.
#[derive(Debug)]
pub(super) struct Pass(Arc<Gate>);

/// A write that waits at the gate.
struct Waiting<'a>(&'a Gate);

impl Gate {
    /// Waits until the gate is open, and goes through.
    pub(super) async fn enter(self: &Arc<Self>) -> Pass {
        if let Ok(pass) = self.try_enter() {
            return pass;
        }
        self.state.lock().waiting += 1;
        let _waiting = Waiting(self);
        loop {
            // It hears of what happens after this line, so nothing is missed.
            let opened = self.opened.notified();
            match self.try_enter() {
                Ok(pass) => return pass,
                Err(until) => tokio::select! {
                    () = opened => {}
                    () = sleep_until(until) => {}
                },
            }
        }
    }

    /// # Errors
    /// Until when it is shut.
    fn try_enter(self: &Arc<Self>) -> Result<Pass, Instant> {
        let mut state = self.state.lock();
        if let Some(until) = state.held_until.filter(|until| *until > Instant::now()) {
            return Err(until);
        }
        state.held_until = None;
        state.passing += 1;
        Ok(Pass(self.clone()))
    }

    /// Shuts the gate for at most so long, and waits until no write is on its way any more, for at most half of it: the other half
    /// is for what it is shut for. Gives when it opens by itself. Who shuts it while somebody else waits takes it over.
    pub(super) async fn hold(&self, longest: Duration) -> Result<Instant, NotDrained> {
        let now = Instant::now();
        let (drained_by, until) = (now + longest / 2, now + longest);
        let mine = self.shut(until);
        loop {
            let drained = self.drained.notified();
            let (left, turn) = {
                let state = self.state.lock();
                (state.passing, state.turn)
            };
            let not_drained = NotDrained { left, waited: now.elapsed() };
            if turn != mine {
                return Err(not_drained);
            }
            if left == 0 {
                return Ok(until);
            }
            if timeout_at(drained_by, drained).await.is_err() {
                self.open(Some(mine));
                return Err(NotDrained { left, waited: longest / 2 });
            }
        }
    }

    /// Shuts it; gives the number of this.
    fn shut(&self, until: Instant) -> u64 {
        let mut state = self.state.lock();
        state.held_until = Some(until);
        state.turn += 1;
        state.turn
    }

    /// Opens it.
    pub(super) fn release(&self) {
        self.open(None);
    }

    /// Opens it; `turn`: only where it was shut by this.
    fn open(&self, turn: Option<u64>) {
        {
            let mut state = self.state.lock();
            if turn.is_some_and(|turn| state.turn != turn) {
                return;
            }
            state.held_until = None;
            state.turn += 1;
        }
        self.opened.notify_waiters();
        // Who waits for the last write learns that it is not held any more.
        self.drained.notify_waiters();
    }

    pub(super) fn standing(&self) -> Standing {
        let State { held_until, passing, waiting, .. } = *self.state.lock();
        Standing { held_until: held_until.filter(|until| *until > Instant::now()), passing, waiting }
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.passing -= 1;
        if state.passing == 0 {
            drop(state);
            self.0.drained.notify_waiters();
        }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.state.lock().waiting -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHORT: Duration = Duration::from_millis(40);
    const LONG: Duration = Duration::from_secs(600);

    async fn until(holds: impl Fn() -> bool) {
        while !holds() {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn waits_for_those_on_their_way_and_holds_the_next() {
        let gate = Arc::new(Gate::default());
        let pass = gate.enter().await;
        let holds = tokio::spawn({
            let gate = gate.clone();
            async move { gate.hold(LONG).await }
        });
        until(|| gate.standing().held_until.is_some()).await;
        let enters = tokio::spawn({
            let gate = gate.clone();
            async move { drop(gate.enter().await) }
        });
        until(|| gate.standing().waiting == 1).await;
        assert!(!holds.is_finished() && !enters.is_finished());
        drop(pass);
        holds.await.expect("no panic").expect("drained");
        let standing = gate.standing();
        assert_eq!((standing.passing, standing.waiting), (0, 1));
        assert!(standing.held_until.is_some() && !enters.is_finished());
        gate.release();
        enters.await.expect("no panic");
        assert_eq!(gate.standing(), Standing { held_until: None, passing: 0, waiting: 0 });
    }

    #[tokio::test]
    async fn opens_by_itself() {
        let gate = Arc::new(Gate::default());
        let until = gate.hold(SHORT).await.expect("nothing is on its way");
        drop(gate.enter().await);
        assert!(Instant::now() >= until);
    }

    #[tokio::test]
    async fn gives_up_holding_when_writes_do_not_end() {
        let gate = Arc::new(Gate::default());
        let _pass = gate.enter().await;
        assert_eq!(gate.hold(SHORT).await, Err(NotDrained { left: 1, waited: SHORT / 2 }));
        assert_eq!(gate.standing().held_until, None);
        drop(gate.enter().await);
    }

    #[tokio::test]
    async fn who_opens_it_ends_the_wait_of_who_shut_it() {
        let gate = Arc::new(Gate::default());
        let _pass = gate.enter().await;
        let holds = |longest| {
            let gate = gate.clone();
            tokio::spawn(async move { gate.hold(longest).await })
        };
        let first = holds(LONG);
        until(|| gate.standing().held_until.is_some()).await;
        gate.release();
        assert_eq!(first.await.expect("no panic").expect_err("it is open").left, 1);

        // One that gives up leaves it shut for the other.
        let first = holds(SHORT);
        until(|| gate.standing().held_until.is_some()).await;
        let shut = gate.standing().held_until;
        let second = holds(LONG);
        until(|| gate.standing().held_until != shut).await;
        first.await.expect("no panic").expect_err("the other has taken it over");
        assert!(gate.standing().held_until.is_some() && !second.is_finished());
        second.abort();
    }

    #[tokio::test]
    async fn one_that_leaves_while_it_waits_is_not_counted() {
        let gate = Arc::new(Gate::default());
        gate.hold(LONG).await.expect("drained");
        assert!(tokio::time::timeout(SHORT, gate.enter()).await.is_err());
        assert_eq!(gate.standing().waiting, 0);
    }
}
