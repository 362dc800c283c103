//! Putting the chunks of one write, some requests at once, before the record that will name them.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use futures::{Stream, StreamExt, TryStreamExt, stream};
use uuid::Uuid;

use super::{
    core::Core,
    intent::Intent,
    prepare::{self, Difference, Names, run},
};
use crate::{
    Error, Result,
    backend::{self, Op, Outcome, Txn},
    chunk::Hash,
    compress::Worth,
    seal::DataKey,
};

/// Plaintext that is sealed in one go.
const BATCH: usize = 2 << 20;
/// Batches that are sealed ahead of the requests.
const AHEAD: usize = 2;
/// Bytes in one request, at most: small enough to interleave with other writes, large enough not to count. Where the backend
/// takes less, half of what it takes: a full one makes others wait.
const REQUEST: usize = 2 << 20;
/// Requests at once.
const PARALLEL: usize = 4;
/// How often a request is sent again. The chunks are invisible and of fresh names: doing it twice does no harm.
const TRIES: u32 = 3;
/// Room for the compares of a transaction.
const MARGIN: usize = 4 << 10;

/// What became of the chunks.
pub(super) enum Put {
    /// Few enough to go with the record.
    Held(Vec<Op>),
    /// They rest in the store, and the manifest with them. `settled`: every request was answered, so that none of them can
    /// still happen.
    Done { settled: bool },
    /// The intent is gone, and with it perhaps some of the chunks.
    IntentLost,
}

enum Sent {
    Done,
    IntentLost,
}

/// Puts the chunks of one object.
pub(super) struct Upload<'a> {
    pub(super) core: &'a Arc<Core>,
    pub(super) uid: Uuid,
    pub(super) data_key: &'a DataKey,
}

impl Upload<'_> {
    /// Seals the new chunks, and puts them unless they fit into one transaction beside a record of `record` bytes.
    pub(super) async fn put_chunks(
        &self,
        difference: &Difference,
        names: Names,
        intent: Option<&Intent>,
        record: usize,
    ) -> Result<Put> {
        let limits = self.core.backend.limits();
        let mut sealed = Box::pin(self.sealed(&difference.new, names));
        let (mut held, mut bytes) = (Vec::new(), record + 2 * MARGIN);
        while let Some(ops) = sealed.try_next().await? {
            bytes += ops.iter().map(op_bytes).sum::<usize>();
            held.extend(ops);
            if bytes > limits.txn_bytes || held.len() + 2 > limits.txn_ops {
                let Some(intent) = intent else {
                    return Err(Error::TooLarge { size: bytes, limit: limits.txn_bytes });
                };
                return self.upload(difference.manifest(self.uid, names), held, sealed, intent).await;
            }
        }
        Ok(Put::Held(held))
    }

    fn sealed(
        &self,
        new: &[(Hash, Bytes)],
        names: Names,
    ) -> impl Stream<Item = Result<Vec<Op>>> + Send + use<> {
        let (key, uid) = (self.data_key.clone(), self.uid);
        let worth = if self.core.backend.prefers_compression() { Worth::Tenth } else { Worth::Third };
        stream::iter(batches(new))
            .map(move |batch| {
                let key = key.clone();
                run(true, move || prepare::seal(&key, uid, names, &batch, worth))
            })
            .buffered(AHEAD)
            .map(|sealed| sealed?.map_err(|_| Error::cipher_refused()))
    }

    /// Puts the manifest with the first chunks, then the other chunks.
    async fn upload(
        &self,
        manifest: Op,
        held: Vec<Op>,
        rest: impl Stream<Item = Result<Vec<Op>>> + Send,
        intent: &Intent,
    ) -> Result<Put> {
        let limits = self.core.backend.limits();
        let (most, count) = (REQUEST.min(limits.txn_bytes / 2), limits.txn_ops - 1);
        let settled = AtomicBool::new(true);
        let mut held = requests(held, most, count).into_iter().peekable();
        let beside = |group: &Vec<Op>| {
            group.iter().chain([&manifest]).map(op_bytes).sum::<usize>() + MARGIN <= limits.txn_bytes
        };
        let mut first = held.next_if(beside).unwrap_or_default();
        first.push(manifest);
        if let Sent::IntentLost = self.send(first, intent, &settled).await? {
            return Ok(Put::IntentLost);
        }
        let rest = rest.map_ok(|ops| stream::iter(requests(ops, most, count).into_iter().map(Ok)));
        let requests = stream::iter(held.map(Ok)).chain(rest.try_flatten());
        let sent = requests.map_ok(|ops| self.send(ops, intent, &settled));
        let mut sent = Box::pin(sent.try_buffer_unordered(PARALLEL));
        while let Some(outcome) = sent.try_next().await? {
            if let Sent::IntentLost = outcome {
                return Ok(Put::IntentLost);
            }
        }
        Ok(Put::Done { settled: settled.load(Ordering::Relaxed) })
    }

    async fn send(&self, ops: Vec<Op>, intent: &Intent, settled: &AtomicBool) -> Result<Sent> {
        // Compared here too, only to stop early and to leave less behind.
        let txn = Txn { compares: vec![intent.compare()], ops };
        let mut tries = 0;
        loop {
            tries += 1;
            let before = self.core.seen();
            let answer = self.core.backend.txn(txn.clone()).await;
            if let Err(backend::Error::Unknown(_) | backend::Error::Declined(_)) = &answer {
                settled.store(false, Ordering::Relaxed); // It may happen after the answer to its repetition.
            }
            match answer {
                // Remembered, so that the commit notices a backend that was put back to before these chunks.
                Ok(Outcome::Committed(revision)) => {
                    return self.core.later(before, revision).map(|_| Sent::Done);
                }
                Ok(Outcome::Failed) => return Ok(Sent::IntentLost),
                Err(
                    backend::Error::Unavailable(_) | backend::Error::Unknown(_) | backend::Error::Declined(_),
                ) if tries < TRIES => {
                    tokio::time::sleep(Duration::from_millis(50) * tries).await;
                }
                // Whether chunks were put does not matter: nothing names them.
                Err(backend::Error::Unknown(what)) => return Err(Error::Unavailable(what)),
                Err(error) => return Err(self.core.error(error)),
            }
        }
    }
}

/// The bytes of a change in a transaction.
pub(super) fn op_bytes(op: &Op) -> usize {
    match op {
        Op::Put(key, value) | Op::PutEphemeral(key, value) => key.len() + value.len(),
        Op::Delete(key) => key.len(),
    }
}

fn batches(pieces: &[(Hash, Bytes)]) -> Vec<Vec<(Hash, Bytes)>> {
    grouped(pieces.iter().cloned(), |(_, piece)| piece.len(), BATCH, usize::MAX)
}

fn requests(ops: Vec<Op>, most: usize, count: usize) -> Vec<Vec<Op>> {
    grouped(ops.into_iter(), op_bytes, most, count)
}

/// Groups of at most so many bytes and items; an item that is larger alone is a group of its own.
fn grouped<T>(
    items: impl Iterator<Item = T>,
    size: impl Fn(&T) -> usize,
    most: usize,
    count: usize,
) -> Vec<Vec<T>> {
    let mut groups: Vec<Vec<T>> = Vec::new();
    let mut bytes = 0;
    for item in items {
        bytes += size(&item);
        match groups.last_mut() {
            Some(group) if bytes <= most && group.len() < count => group.push(item),
            Some(_) | None => {
                bytes = size(&item);
                groups.push(vec![item]);
            }
        }
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_keep_to_both_limits() {
        let group = |items: &[usize], most, count| grouped(items.iter().copied(), |size| *size, most, count);
        assert_eq!(group(&[3, 3, 3, 9, 1], 6, 9), [vec![3, 3], vec![3], vec![9], vec![1]]);
        assert_eq!(group(&[1, 1, 1], 6, 2), [vec![1, 1], vec![1]]);
        assert!(group(&[], 6, 2).is_empty());
    }
}
