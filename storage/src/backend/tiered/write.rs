//! Transactions: large values are put into objects first, then pointers to them are committed.
//!
//! A writer may be suspended between the two for longer than the collector keeps objects to which nothing points. So the
//! transaction compares the key [`PASS`] with what it was before the upload. Every pass of the collector puts that key after it
//! has listed the objects and before it reads the pointers (see [`collect`](super::collect)). What a pass has listed is pointed
//! to by then, or never will be: a transaction that was overtaken fails, and its values are put again, under other names.

use bytes::Bytes;
use futures::{StreamExt, stream};

use super::{PARALLEL, PASS, Tiered, pointer, pointer::Pointer};
use crate::backend::{Compare, Effect, Error, Op, Outcome, Result, Revision, Txn};

/// How often the values of one transaction are put at most. A pass overtakes it twice at most, and passes are minutes apart.
const UPLOADS: usize = 4;

impl Tiered {
    /// Commits or does not. A transaction without large values is handed on as it is.
    ///
    /// # Errors
    /// As of the backend below; [`Error::Unavailable`] where the object store is out of reach, or where passes of the collector
    /// overtook each of [`UPLOADS`] tries.
    pub(super) async fn commit(&self, txn: Txn) -> Result<Outcome> {
        if !txn.ops.iter().any(|op| self.large_value(op).is_some()) {
            return self.inner.txn(txn).await;
        }
        for _ in 0..UPLOADS {
            let pass = self.known_pass().await?;
            let (mut moved, pointers) = self.move_out(txn.clone()).await?;
            let is_pointer = |op: &&Op| op.value().is_some_and(|value| pointer::is_like(value));
            let first = moved.ops.iter().filter(is_pointer).find(|op| self.moves(op.key())).cloned();
            moved.compares.push(Compare::ModifiedAt(PASS.into(), pass));
            let outcome = self.inner.txn(moved).await;
            if outcome.as_ref().is_ok_and(|outcome| *outcome == Outcome::Failed)
                && self.is_there(first.as_ref()).await
            {
                return Err(Error::Unknown(
                    "a comparison does not hold, and the values of the transaction are there".into(),
                ));
            }
            let undone = match &outcome {
                Ok(Outcome::Committed(_)) => false,
                Ok(Outcome::Failed) => true,
                // Where it may have happened the collector will see.
                Err(error) => error.effect() == Effect::None,
            };
            if undone {
                self.chunk_store.forget(&pointers).await;
            }
            if !matches!(outcome, Ok(Outcome::Failed)) || self.last_pass().await?.1 == pass {
                return outcome;
            }
        }
        Err(Error::Unavailable("the collector of the chunk store overtook this write again and again".into()))
    }

    /// Whether a pointer of a transaction that is said to have failed is there, or may be. Its name is used once, so then the
    /// transaction happened: a proxy delivered it twice, and this is the answer to the second delivery.
    async fn is_there(&self, put: Option<&Op>) -> bool {
        let Some(Op::Put(key, pointer)) = put else { return false };
        match self.inner.get(key.clone(), None).await {
            Ok(found) => found.is_some_and(|kv| kv.value == *pointer),
            Err(_) => true, // Nobody knows, so nothing is removed.
        }
    }

    /// The revision of [`PASS`], from memory where it was met before. A value that is out of date fails the transaction, so
    /// that its values are put again.
    async fn known_pass(&self) -> Result<Revision> {
        let known = *self.chunk_store.pass.lock();
        match known {
            Some(pass) => Ok(pass),
            None => Ok(self.last_pass().await?.1),
        }
    }

    /// The value of a change that goes into an object.
    fn large_value<'a>(&self, op: &'a Op) -> Option<&'a Bytes> {
        let Op::Put(key, value) = op else { return None };
        let large = value.len() >= self.chunk_store.options.least || pointer::is_like(value);
        (large && self.moves(key)).then_some(value)
    }

    /// Puts large values into objects; what is left is for the backend below. Ends with the first value that cannot be put: an
    /// object store that hangs costs one bound of time, and not one for each value.
    async fn move_out(&self, txn: Txn) -> Result<(Txn, Vec<Pointer>)> {
        let Txn { compares, ops } = txn;
        let (mut left, mut pointers) = (Vec::with_capacity(ops.len()), Vec::new());
        let mut moved = stream::iter(ops).map(|op| self.move_one(op)).buffered(PARALLEL);
        while let Some(op) = moved.next().await {
            match op {
                Ok((op, pointer)) => {
                    left.push(op);
                    pointers.extend(pointer);
                }
                Err(error) => {
                    drop(moved); // What is under way may be put all the same: the collector will see.
                    self.chunk_store.forget(&pointers).await;
                    return Err(error);
                }
            }
        }
        drop(moved);
        Ok((Txn { compares, ops: left }, pointers))
    }

    async fn move_one(&self, op: Op) -> Result<(Op, Option<Pointer>)> {
        match self.large_value(&op) {
            Some(value) => {
                let pointer = self.chunk_store.put(value.clone()).await?;
                Ok((Op::Put(op.key().clone(), pointer.bytes()), Some(pointer)))
            }
            None => Ok((op, None)),
        }
    }
}
