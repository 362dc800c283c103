//! Transactions to the private etcd: many at once, and all in one order.
//!
//! A server may take what comes at once in any order. So each transaction demands to find what those before it have done; one that
//! was taken too early does nothing, and goes first the next time. One that demands nothing has to be sent alone or first.

use std::{collections::VecDeque, ops::RangeInclusive};

use etcd_client::{KvClient, Txn, TxnResponse};
use futures::future::try_join_all;
use repot_etcd_core::snapshot::Revision;

use super::{Error, Result};

/// How many transactions are sent at once. The more there are, the less they are taken in order.
const BATCH: RangeInclusive<usize> = 8..=64;
/// And so many bytes of keys and values, or one transaction: the time that etcd gives a request runs for all of a batch at once.
const BATCH_BYTES: usize = 1 << 20;

/// All events of one revision. It demands to find what the steps before it have done, and does nothing where it does not.
pub(super) struct Step<T = Txn> {
    pub(super) revision: Revision,
    pub(super) bytes: usize,
    pub(super) txn: T,
}

/// Sends steps.
pub(super) struct Queue {
    kv: KvClient,
    order: Order<Txn>,
}

impl Queue {
    /// Nothing waits, and everything up to `at` is there.
    pub(super) fn new(kv: KvClient, at: Revision) -> Self {
        Self { kv, order: Order::new(at) }
    }

    /// The last revision that is known to be there.
    pub(super) fn at(&self) -> Revision {
        self.order.at
    }

    /// Takes a step, and sends those before it when they are enough.
    ///
    /// # Errors
    /// [`Error::Etcd`], [`Error::RevisionOff`].
    pub(super) async fn push(&mut self, step: Step) -> Result<()> {
        while self.order.is_full(step.bytes) {
            self.send().await?;
        }
        self.order.push(step);
        Ok(())
    }

    /// Sends all that wait until they are done.
    ///
    /// # Errors
    /// [`Error::Etcd`], [`Error::RevisionOff`].
    pub(super) async fn drain(&mut self) -> Result<()> {
        while !self.order.waiting.is_empty() {
            self.send().await?;
        }
        Ok(())
    }

    /// Sends a batch of those that wait; at least the first is done then.
    async fn send(&mut self) -> Result<()> {
        let calls = self.order.waiting.iter().take(self.order.batch).map(|step| {
            let (mut kv, txn) = (self.kv.clone(), step.txn.clone());
            async move { kv.txn(txn).await }
        });
        let answers = try_join_all(calls).await;
        let answers = answers.map_err(|source| Error::Etcd { task: "apply a revision", source })?;
        self.order.take(answers.iter().map(Answer::of))
    }
}

/// What a server said of a step.
#[derive(Clone, Copy, Debug)]
struct Answer {
    /// False where it was taken too early.
    done: bool,
    /// The revision after it.
    revision: Revision,
}

impl Answer {
    fn of(answer: &TxnResponse) -> Self {
        let revision = answer.header().map_or(0, etcd_client::ResponseHeader::revision);
        Self { done: answer.succeeded(), revision: Revision(revision) }
    }
}

/// Steps that are not yet known to be done.
struct Order<T> {
    waiting: VecDeque<Step<T>>,
    bytes: usize,
    /// How many are sent at once: twice as many as were last taken in order.
    batch: usize,
    at: Revision,
}

impl<T> Order<T> {
    fn new(at: Revision) -> Self {
        Self { waiting: VecDeque::new(), bytes: 0, batch: *BATCH.end(), at }
    }

    fn is_full(&self, more: usize) -> bool {
        let beyond = self.waiting.len() >= self.batch || self.bytes + more > BATCH_BYTES;
        beyond && !self.waiting.is_empty()
    }

    fn push(&mut self, step: Step<T>) {
        self.bytes += step.bytes;
        self.waiting.push_back(step);
    }

    /// What was said of the first that wait, in their order.
    fn take(&mut self, answers: impl Iterator<Item = Answer>) -> Result<()> {
        let (sent, mut last) = (self.waiting.len(), Revision(0));
        for answer in answers {
            last = answer.revision;
            // None is done before those before it, so it is always the first that waits.
            if answer.done
                && let Some(step) = self.waiting.pop_front()
            {
                self.bytes -= step.bytes;
                self.at = step.revision;
                step.expect(answer.revision)?;
            }
        }
        let done = sent - self.waiting.len();
        self.batch = (2 * done).clamp(*BATCH.start(), *BATCH.end());
        match self.waiting.front() {
            // What it demands was there; if it is not, something else has changed it.
            Some(first) if done == 0 => Err(first.off(last)),
            _ => Ok(()),
        }
    }
}

impl<T> Step<T> {
    fn expect(&self, found: Revision) -> Result<()> {
        if found == self.revision { Ok(()) } else { Err(self.off(found)) }
    }

    fn off(&self, found: Revision) -> Error {
        let after = format!("the events of revision {}", self.revision);
        Error::RevisionOff { after, expected: self.revision, found }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Takes steps in an order of its own, and does one only after the one before it.
    struct Server {
        revision: Revision,
    }

    impl Server {
        fn answer(&mut self, order: &Order<()>, turns: &[usize]) -> Vec<Answer> {
            let sent = order.waiting.iter().take(order.batch);
            let revisions: Vec<Revision> = sent.map(|step| step.revision).collect();
            let mut places: Vec<usize> = (0..revisions.len()).collect();
            places.sort_by_key(|at| turns.get(*at).copied().unwrap_or(*at));
            let mut answers = vec![Answer { done: false, revision: Revision(0) }; places.len()];
            for at in places {
                let done = revisions[at] == self.revision.next();
                if done {
                    self.revision = revisions[at];
                }
                answers[at] = Answer { done, revision: self.revision };
            }
            answers
        }
    }

    proptest! {
        #[test]
        fn every_step_is_done_once_and_in_order(
            sizes in proptest::collection::vec(0_usize..(BATCH_BYTES / 10), 0..300),
            turns in proptest::collection::vec(proptest::collection::vec(0_usize..100, 0..64), 1..20),
        ) {
            let (mut order, mut server) = (Order::new(Revision(7)), Server { revision: Revision(7) });
            let mut turns = turns.iter().cycle();
            let mut send = |order: &mut Order<()>| {
                let answers = server.answer(order, turns.next().map_or(&[], Vec::as_slice));
                order.take(answers.into_iter()).map(|()| server.revision)
            };
            for (at, bytes) in (8_i64..).zip(&sizes) {
                while order.is_full(*bytes) {
                    let there = send(&mut order).expect("the first is always done");
                    prop_assert_eq!(order.at, there);
                }
                order.push(Step { revision: Revision(at), bytes: *bytes, txn: () });
                prop_assert!(order.waiting.len() <= *BATCH.end() && (order.waiting.len() == 1 || order.bytes <= BATCH_BYTES));
            }
            while !order.waiting.is_empty() {
                send(&mut order).expect("the first is always done");
            }
            prop_assert_eq!((order.at.0, order.bytes), (7 + i64::try_from(sizes.len()).expect("few"), 0));
        }
    }

    #[test]
    fn what_something_else_has_changed_is_noticed() {
        let with_two = || {
            let mut order = Order::new(Revision(7));
            for at in [8, 9] {
                order.push(Step { revision: Revision(at), bytes: 1, txn: () });
            }
            order
        };
        let said = |done, at| Answer { done, revision: Revision(at) };
        let off =
            |answers: [Answer; 2]| with_two().take(answers.into_iter()).expect_err("it is off").to_string();
        assert!(
            off([said(true, 8), said(true, 10)]).contains("revision 9 the private etcd is at revision 10")
        );
        assert!(off([said(true, 9), said(false, 9)]).contains("at revision 9, and should be at 8"));
        // Nothing was done though what the first demands was there.
        assert!(off([said(false, 8), said(false, 8)]).contains("should be at 8"));
        let mut order = with_two();
        order.take([said(true, 8), said(false, 7)].into_iter()).expect("the second came too early");
        assert_eq!((order.at, order.waiting.len()), (Revision(8), 1));
    }
}
