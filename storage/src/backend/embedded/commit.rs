//! The one writer: takes transactions from a queue, judges them in order, and makes a whole group durable with one sync.

use std::{collections::HashMap, sync::Arc};

use bytes::Bytes;
use fjall::{OwnedWriteBatch, PersistMode, Snapshot};
use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot, watch};

use super::{
    super::{Compare, Error, Op, Outcome, Result, Revision, Txn},
    engine::{Engine, storage},
    layout::{self, Entry, Head, SMALL},
    recent::Change,
};

/// Bytes after which a group is closed: enough to hide the sync behind the copying.
const GROUP_BYTES: usize = 4 << 20;
const GROUP_TXNS: usize = 512;

/// A transaction that waits for its outcome.
pub(super) struct Job {
    pub(super) txn: Txn,
    pub(super) answer: oneshot::Sender<Result<Outcome>>,
    /// Its share of the memory that waiting transactions may hold.
    pub(super) _room: OwnedSemaphorePermit,
}

/// What the committer is made of.
pub(super) struct Committer {
    pub(super) engine: Arc<Engine>,
    /// Tells watches of every newest revision. They end when it is gone.
    pub(super) newest: watch::Sender<Revision>,
    /// Writes are refused below this.
    pub(super) min_free_bytes: u64,
    /// Why nothing more is written. A failed sync leaves it open what is on disk: only opening the store again tells.
    poison: Option<String>,
}

impl Committer {
    pub(super) fn new(engine: Arc<Engine>, newest: watch::Sender<Revision>, min_free_bytes: u64) -> Self {
        Self { engine, newest, min_free_bytes, poison: None }
    }

    /// Works until the queue is closed and empty.
    pub(super) fn run(mut self, mut queue: mpsc::Receiver<Job>) {
        while let Some(first) = queue.blocking_recv() {
            let group = gather(first, &mut queue);
            let (txns, waiters): (Vec<_>, Vec<_>) =
                group.into_iter().map(|job| (job.txn, (job.answer, job._room))).unzip();
            let answers = self.commit(txns);
            for ((waiter, _room), answer) in waiters.into_iter().zip(answers) {
                // Nobody listens any more; the transaction stands all the same.
                let _ = waiter.send(answer);
            }
        }
    }

    /// Judges a group in order and makes it durable: an answer for each.
    pub(super) fn commit(&mut self, group: Vec<Txn>) -> Vec<Result<Outcome>> {
        if let Some(why) = &self.poison {
            return group.iter().map(|_| Err(Error::Unavailable(why.clone()))).collect();
        }
        let full = self.engine.free_bytes().is_ok_and(|free| free < self.min_free_bytes);
        let mut draft = Draft::new(&self.engine);
        let answers: Vec<_> = group.into_iter().map(|txn| draft.judge(txn, full)).collect();
        let Drafted { batch, newest, bytes, changes } = draft.finish();
        if batch.is_empty() {
            return answers;
        }
        if let Err(error) = batch.durability(Some(PersistMode::SyncData)).commit() {
            return self.fail(&error, answers);
        }
        // All at once: nobody may read at a revision, and then be told that the newest is an older one.
        self.newest.send_modify(|told| {
            self.engine.recent().publish(newest, changes, || self.engine.set_newest(newest));
            *told = newest;
        });
        if let Err(error) = self.engine.wrote(bytes) {
            // The group is durable; the next one will meet whatever is wrong.
            tracing::warn!(%error, "tables could not be asked to write out");
        }
        answers
    }

    fn fail(&mut self, error: &fjall::Error, answers: Vec<Result<Outcome>>) -> Vec<Result<Outcome>> {
        let why = format!("a commit failed and the store must be opened again: {error}");
        tracing::error!(%error, "commit failed; the store takes no more writes");
        self.poison = Some(why.clone());
        let unless_untouched = |answer| match answer {
            Ok(Outcome::Committed(_)) => Err(Error::Unknown(why.clone())),
            // It may have been judged against a transaction of this very group.
            Ok(Outcome::Failed) => Err(Error::Unavailable(why.clone())),
            Err(error) => Err(error),
        };
        answers.into_iter().map(unless_untouched).collect()
    }
}

fn gather(first: Job, queue: &mut mpsc::Receiver<Job>) -> Vec<Job> {
    let mut bytes = first.txn.size();
    let mut group = vec![first];
    while bytes < GROUP_BYTES && group.len() < GROUP_TXNS {
        let Ok(job) = queue.try_recv() else { break };
        bytes += job.txn.size();
        group.push(job);
    }
    group
}

/// A group on its way to disk. Later transactions of the group see earlier ones.
struct Draft<'a> {
    engine: &'a Engine,
    view: Snapshot,
    heads: HashMap<Bytes, Option<Head>>,
    done: Drafted,
}

/// What a group changes.
struct Drafted {
    batch: OwnedWriteBatch,
    newest: Revision,
    bytes: u64,
    changes: Vec<Change>,
}

impl<'a> Draft<'a> {
    fn new(engine: &'a Engine) -> Self {
        let (view, batch, newest) = (engine.snapshot(), engine.batch(), engine.newest());
        let done = Drafted { batch, newest, bytes: 0, changes: Vec::new() };
        Self { engine, view, heads: HashMap::new(), done }
    }

    fn finish(self) -> Drafted {
        self.done
    }

    /// What becomes of one transaction if the group becomes durable. A removal is taken on a full disk too: it is the
    /// way back.
    fn judge(&mut self, txn: Txn, full: bool) -> Result<Outcome> {
        for compare in &txn.compares {
            if !self.holds(compare)? {
                return Ok(Outcome::Failed);
            }
        }
        if full && txn.ops.iter().any(|op| !matches!(op, Op::Delete(_))) {
            return Err(Error::NoSpace("the file system of the store is nearly full".into()));
        }
        // Look everything up first: an error half way must not leave half a transaction in the batch.
        let heads = txn.ops.iter().map(|op| self.head(op.key())).collect::<Result<Vec<_>>>()?;
        let revision = self.done.newest.0 + 1;
        let mut changed = false;
        for (seq, (op, previous)) in (0u32..).zip(txn.ops.into_iter().zip(heads)) {
            changed |= self.apply(revision, seq, op, previous);
        }
        if changed {
            self.done.newest = Revision(revision);
        }
        Ok(Outcome::Committed(self.done.newest))
    }

    fn holds(&mut self, compare: &Compare) -> Result<bool> {
        Ok(match compare {
            Compare::ModifiedAt(key, revision) => {
                self.head(key)?.map_or(Revision(0), |head| Revision(head.modified)) == *revision
            }
            Compare::Exists(key) => self.head(key)?.is_some(),
        })
    }

    /// The present version of a key; a removed key has none.
    fn head(&mut self, key: &Bytes) -> Result<Option<Head>> {
        if let Some(head) = self.heads.get(key) {
            return Ok(*head);
        }
        let found = self.engine.head(&self.view, key, u64::MAX)?;
        Ok(found.map(|(head, _)| head).filter(|head| !head.removed))
    }

    /// Puts one change in the batch; false where there is nothing to change.
    fn apply(&mut self, revision: u64, seq: u32, op: Op, previous: Option<Head>) -> bool {
        let (key, value, ephemeral) = match op {
            Op::Put(key, value) => (key, Some(value), false),
            Op::PutEphemeral(key, value) => (key, Some(value), true),
            Op::Delete(_) if previous.is_none() => return false,
            Op::Delete(key) => (key, None, false),
        };
        let head = match &value {
            None => Head::removal(revision, seq),
            Some(value) => Head {
                modified: revision,
                created: previous.map_or(revision, |head| head.created),
                seq,
                len: u32::try_from(value.len()).unwrap_or(u32::MAX),
                removed: false,
                apart: value.len() >= SMALL,
                ephemeral,
            },
        };
        let entry = Entry { revision, seq, removed: head.removed, previous: previous.map(Into::into), key };
        self.mark(&entry.key, previous.is_some_and(|head| head.ephemeral), ephemeral);
        self.write(head, entry, value.unwrap_or_default());
        true
    }

    fn mark(&mut self, key: &[u8], was_ephemeral: bool, is_ephemeral: bool) {
        match (was_ephemeral, is_ephemeral) {
            (false, true) => self.done.batch.insert(&self.engine.meta, layout::ephemeral_mark(key), b""),
            (true, false) => self.done.batch.remove(&self.engine.meta, layout::ephemeral_mark(key)),
            _ => {}
        }
    }

    fn write(&mut self, head: Head, entry: Entry, value: Bytes) {
        self.done.bytes += (2 * entry.key.len() + value.len() + 128) as u64;
        let engine = self.engine;
        let inline = if head.apart { &[][..] } else { &value[..] };
        self.done.batch.insert(&engine.versions, head.key(&entry.key), head.encode(inline));
        self.done.batch.insert(&engine.log, entry.place(), entry.encode());
        if head.apart {
            self.done.batch.insert(&engine.values, head.place(), value.clone());
        }
        self.done.changes.push(Change { key: entry.key.clone(), head, value });
        self.heads.insert(entry.key, Some(head).filter(|head| !head.removed));
    }
}

/// Removes what an earlier process left behind as ephemeral.
pub(super) fn sweep(committer: &mut Committer) -> Result<()> {
    let mut marks = Vec::new();
    for guard in committer.engine.meta.prefix(layout::EPHEMERAL_MARKS) {
        let mark = guard.key().map_err(storage)?;
        marks.push(Op::Delete(Bytes::copy_from_slice(&mark[layout::EPHEMERAL_MARKS.len()..])));
    }
    for ops in marks.chunks(100) {
        let txn = Txn { compares: vec![], ops: ops.to_vec() };
        for answer in committer.commit(vec![txn]) {
            answer?;
        }
    }
    Ok(())
}
