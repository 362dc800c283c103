//! Committing: one transaction that happens entirely or not, and finding out which where the backend cannot say.

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use bytes::Bytes;
use futures::StreamExt;

use super::{core::Core, intent, path};
use crate::{
    Error, Result,
    backend::{self, Compare, Effect, KeyEvent, KeyValue, Op, Outcome, Revision, Txn, WatchItem},
    record::Token,
    seal,
};

/// How often a transaction of unknown outcome is sent again.
const TRIES: usize = 4;
/// How long history is searched for a write.
const SEARCH: Duration = Duration::from_secs(5);

/// A transaction on one record. It compares the record with `expected`, so it can happen only once, however often it is
/// sent: that is what makes sending it again safe. A record that is to be absent may be so again after it was made and
/// removed; there a [`Fence`] does what a revision does elsewhere.
pub(crate) struct Commit {
    /// Path of the record.
    pub path: Bytes,
    /// The revision of the record it replaces; zero: there is none.
    pub expected: Revision,
    /// What it leaves in the record; `None`: it removes it.
    pub token: Option<Token>,
    /// A revision before the transaction was first sent.
    pub before: Revision,
    /// The comparisons and changes that are sent to the backend.
    pub txn: Txn,
    /// Of a transaction that expects no record.
    pub fence: Option<Fence>,
}

/// A key that a transaction compares to be absent. Once it is put, whatever was sent under it and has not happened cannot
/// for as long as the key is there. It looks like an intent, and goes as one that was forgotten does: after
/// [`StoreOptions::intent_patience`](super::StoreOptions::intent_patience), when nothing is on its way any more.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fence(u64);

impl Fence {
    /// One that nobody else has.
    pub(crate) fn new() -> Result<Self, seal::Refused> {
        Ok(Self(u64::from_be_bytes(seal::random()?)))
    }

    /// Holds until the fence is put.
    pub(crate) fn compare(self) -> Compare {
        Compare::ModifiedAt(path::intent(self.0), Revision(0))
    }
}

/// What is proved to have become of it. What is not proved is an error, and then nothing of the write may be removed.
pub(crate) enum Verdict {
    /// Durable, at this revision.
    Committed(Revision),
    /// Nothing was done, because the record is not the expected one.
    Overtaken,
    /// Nothing was done although the record is the expected one: something else that was compared does not hold.
    Refused,
    /// Nothing was done and nothing will happen later, for this reason.
    Failed(Error),
}

impl Verdict {
    /// Whether the transaction is proved not to be in effect, now and later.
    pub(crate) fn is_undone(&self) -> bool {
        !matches!(self, Self::Committed(_))
    }
}

enum Trace {
    /// Happened.
    Found(Revision),
    /// Has not happened, but still might.
    Pending,
    /// Has not happened and cannot any more: the record changed.
    Lost,
}

impl Core {
    /// Commits, or tells why not.
    ///
    /// # Errors
    /// Where the outcome is not proved: [`Error::UnknownOutcome`], or [`Error::Unavailable`] where the backend says that it did not begin;
    /// [`Error::Damaged`] of a store that stopped before.
    pub(crate) async fn commit(&self, mut commit: Commit) -> Result<Verdict> {
        self.sound()?;
        let (mut doubt, mut last, mut declined) = (None, String::new(), true);
        for _ in 0..TRIES {
            let answer = self.backend.txn(commit.txn.clone()).await;
            declined &= matches!(answer, Err(backend::Error::Declined(_)));
            match answer {
                Ok(Outcome::Committed(revision)) => return self.committed(&commit, revision),
                Ok(Outcome::Failed) => return self.failed(&commit, doubt).await,
                // A backend that says that it did not begin may be wrong: behind another fence the write cannot happen twice.
                Err(backend::Error::Unknown(what) | backend::Error::Declined(what)) => {
                    match self.settle(&mut commit).await {
                        Ok(Trace::Found(revision)) => return Ok(Verdict::Committed(self.met(revision))),
                        Ok(Trace::Lost) => return Ok(Verdict::Overtaken),
                        // Behind a fence there is nothing left to doubt.
                        Ok(Trace::Pending) if commit.fence.is_some() => last = what,
                        Ok(Trace::Pending) => doubt = Some(what),
                        // An error and no verdict, so nothing of the write is removed.
                        Err(_) if declined => return Err(Error::Unavailable(what)),
                        Err(error) => return Err(unproved(&what, &error)),
                    }
                }
                Err(error) => return self.answered(&commit, error, doubt).await,
            }
        }
        match doubt {
            // The backend denies each attempt, and the record is as before: the client may try again. Nothing is proved, so
            // this is no verdict and the chunks stay until the collector finds that no intent holds them.
            Some(what) if declined => Err(Error::Unavailable(what)),
            Some(what) => Err(Error::UnknownOutcome(what)),
            None => Ok(Verdict::Failed(Error::Unavailable(last))),
        }
    }

    /// The backend says that it happened. Where it says so at a revision of before, it was put back to an older copy: who
    /// knows whether all that the transaction relies on is there, and which store the record is in.
    fn committed(&self, commit: &Commit, revision: Revision) -> Result<Verdict> {
        match self.later(commit.before, revision) {
            Ok(revision) => Ok(Verdict::Committed(revision)),
            Err(error) => Err(Error::UnknownOutcome(error.to_string())),
        }
    }

    /// After an error that is an answer: this try does not happen later. `doubt`: of an earlier one, which still may.
    async fn answered(
        &self,
        commit: &Commit,
        error: backend::Error,
        doubt: Option<String>,
    ) -> Result<Verdict> {
        let effect = error.effect();
        let error = self.error(error);
        if effect != Effect::None {
            match self.trace(commit).await {
                Ok(Trace::Found(revision)) => return Ok(Verdict::Committed(self.met(revision))),
                Ok(Trace::Lost) => return Ok(Verdict::Overtaken),
                Ok(Trace::Pending) => {}
                Err(reading) => return Err(unproved(&error.to_string(), &reading)),
            }
        }
        match doubt {
            Some(_) => Err(in_doubt(error, doubt)),
            None => Ok(Verdict::Failed(error)),
        }
    }

    /// After a try of unknown outcome: puts the fence, if there is one, so that what is found stays true, and looks.
    async fn settle(&self, commit: &mut Commit) -> Result<Trace> {
        if let Some(fence) = commit.fence {
            self.put_fence(fence).await?;
        }
        let trace = self.trace(commit).await?;
        if let (Trace::Pending, Some(old)) = (&trace, commit.fence) {
            // The next try needs another one.
            let new = Fence::new().map_err(|_| Error::cipher_refused())?;
            commit.txn.compares.retain(|compare| *compare != old.compare());
            commit.txn.compares.push(new.compare());
            commit.fence = Some(new);
        }
        Ok(trace)
    }

    async fn put_fence(&self, fence: Fence) -> Result<()> {
        // Not ephemeral: it has to outlive this process, as what was sent may.
        let put = Op::Put(path::intent(fence.0), intent::stamp(SystemTime::now()));
        let mut tries = 0;
        loop {
            tries += 1;
            match self.backend.txn(Txn { compares: Vec::new(), ops: vec![put.clone()] }).await {
                Ok(_) => return Ok(()),
                Err(
                    backend::Error::Unknown(_) | backend::Error::Unavailable(_) | backend::Error::Declined(_),
                ) if tries < TRIES => {}
                // A full etcd may have put it all the same.
                Err(error) if error.effect() == Effect::ReadTells && self.is_there(fence).await? => {
                    return Ok(());
                }
                Err(error) => return Err(self.error(error)),
            }
        }
    }

    async fn is_there(&self, fence: Fence) -> Result<bool> {
        Ok(self.read(&path::intent(fence.0)).await?.0.is_some())
    }

    /// The backend says that a comparison does not hold. It may be the answer to a second delivery of a transaction that happened at
    /// the first one: a proxy in front of etcd may send it twice. So the record and its history prove it.
    ///
    /// A removal leaves nothing that tells who made it. Without doubt about an earlier try it counts as made by somebody else: whoever
    /// asked for it reads again, and finds the object gone.
    async fn failed(&self, commit: &Commit, doubt: Option<String>) -> Result<Verdict> {
        let trace = if commit.token.is_none() && doubt.is_none() {
            self.look(commit).await
        } else {
            self.trace(commit).await
        };
        match trace {
            Ok(Trace::Found(revision)) => Ok(Verdict::Committed(self.met(revision))),
            Ok(Trace::Lost) => Ok(Verdict::Overtaken),
            Ok(Trace::Pending) => Ok(Verdict::Refused),
            // No verdict, so nothing of the write is removed.
            Err(error) => Err(unproved(doubt.as_deref().unwrap_or("a comparison does not hold"), &error)),
        }
    }

    /// Looks at the record only.
    async fn look(&self, commit: &Commit) -> Result<Trace> {
        let (now, _) = self.read(&commit.path).await?;
        let modified = now.as_ref().map_or(Revision(0), |kv| kv.modified);
        Ok(if modified == commit.expected { Trace::Pending } else { Trace::Lost })
    }

    /// Looks for traces of the transaction, in the record and, where others wrote meanwhile, in its history.
    async fn trace(&self, commit: &Commit) -> Result<Trace> {
        let (now, at) = self.read(&commit.path).await?;
        let modified = now.as_ref().map_or(Revision(0), |kv| kv.modified);
        if let Some(kv) = now {
            if modified == commit.expected {
                return Ok(Trace::Pending);
            }
            // Nobody has written it since the transaction was first sent.
            if modified <= commit.before {
                return Ok(Trace::Lost);
            }
            if self.is_ours(commit, kv, at).await? {
                return Ok(Trace::Found(modified));
            }
            if self.is_next(commit, modified).await? {
                return Ok(Trace::Lost);
            }
        }
        // Gone, or somebody else's. What was expected to be absent may have come and gone in between.
        let search = tokio::time::timeout(SEARCH, self.search(commit, at));
        match search.await.map_err(|_| Error::Unavailable("searching the history took too long".into()))?? {
            Some(revision) => Ok(Trace::Found(revision)),
            None if modified == commit.expected => Ok(Trace::Pending),
            None => Ok(Trace::Lost),
        }
    }

    /// Whether the write of the record at `modified` is the only one since the state that the transaction expects: one read, where
    /// a search of the history takes a watch. Most conflicts are of this kind.
    async fn is_next(&self, commit: &Commit, modified: Revision) -> Result<bool> {
        if commit.expected == Revision(0) {
            return Ok(false); // Absent before says nothing: it may have been made and removed.
        }
        let before = Some(Revision(modified.0 - 1));
        match self.backend.get(commit.path.clone(), before).await {
            Ok(found) => Ok(found.is_some_and(|kv| kv.modified == commit.expected)),
            Err(backend::Error::Compacted { .. }) => Ok(false),
            Err(error) => Err(self.error(error)),
        }
    }

    /// Searches the history of the record up to revision `until`.
    async fn search(&self, commit: &Commit, until: Revision) -> Result<Option<Revision>> {
        let after = commit.before.max(commit.expected);
        if until <= after {
            return Ok(None); // Nothing has happened at all since it was sent.
        }
        let watch = self.backend.watch(commit.path.clone(), after, Duration::from_millis(100));
        let mut items = watch.await.map_err(|error| self.error(error))?;
        self.backend.request_progress().await;
        while let Some(item) = items.next().await {
            match item.map_err(|error| self.error(error))? {
                WatchItem::Events(events) => {
                    for event in events.into_iter().filter(|event| event.key == commit.path) {
                        if event.revision > until {
                            return Ok(None);
                        }
                        if let Some(revision) = self.is_trace(commit, event).await? {
                            return Ok(Some(revision));
                        }
                    }
                }
                WatchItem::Progress(revision) if revision >= until => return Ok(None),
                WatchItem::Progress(_) => {}
            }
        }
        Err(Error::Unavailable("the history ended early".into()))
    }

    async fn is_trace(&self, commit: &Commit, event: KeyEvent) -> Result<Option<Revision>> {
        let revision = event.revision;
        Ok(match (event.now, commit.token) {
            (Some(kv), Some(_)) => self.is_ours(commit, kv, revision).await?.then_some(revision),
            // The version that was to be removed is gone, by whomever: that is what was asked for.
            (None, None) => event.before.is_some_and(|kv| kv.modified == commit.expected).then_some(revision),
            (Some(_), None) | (None, Some(_)) => None,
        })
    }

    /// Whether a record is what the transaction put.
    ///
    /// # Errors
    /// Where it does not open, for a while or for good: that proves nothing, and it may be ours.
    async fn is_ours(&self, commit: &Commit, kv: KeyValue, at: Revision) -> Result<bool> {
        let Some(token) = commit.token else { return Ok(false) };
        Ok(self.open(kv, at).await?.record.token == token)
    }

    /// Removes, some time soon, chunks that nobody can name any more: to be called only where that is proved. `still` is what
    /// has to hold then, so that a store which is put back to an older copy meanwhile keeps what it names. What stays, the
    /// collector removes.
    pub(crate) fn sweep_later(self: &Arc<Self>, keys: Vec<Bytes>, still: Option<Compare>) {
        if !keys.is_empty() {
            let core = Arc::clone(self);
            self.tasks.spawn(async move { core.sweep(keys, still).await });
        }
    }

    pub(super) async fn sweep(&self, mut keys: Vec<Bytes>, still: Option<Compare>) {
        let most = self.backend.limits().txn_ops;
        while !keys.is_empty() && self.sound().is_ok() {
            let rest = keys.split_off(keys.len().min(most));
            let ops = std::mem::replace(&mut keys, rest).into_iter().map(Op::Delete).collect();
            match self.backend.txn(Txn { compares: still.iter().cloned().collect(), ops }).await {
                Ok(Outcome::Committed(_)) => {}
                Ok(Outcome::Failed) => return,
                Err(error) => {
                    tracing::debug!(%error, "unused chunks are left to the collector");
                    return;
                }
            }
        }
    }
}

/// Nothing is known of a write but why, and why reading back did not help.
fn unproved(what: &str, reading: &Error) -> Error {
    Error::UnknownOutcome(format!("{what}; reading back: {reading}"))
}

/// A failure that came after a try whose outcome is unknown does not say that nothing was done.
fn in_doubt(error: Error, doubt: Option<String>) -> Error {
    match doubt {
        Some(what) => Error::UnknownOutcome(format!("{what}; then: {error}")),
        None => error,
    }
}

/// The chunks of a list as keys.
pub(crate) fn chunk_keys(uid: uuid::Uuid, chunks: &[crate::chunk::ChunkRef]) -> Vec<Bytes> {
    // A payload that repeats itself names a chunk more than once; a transaction must not.
    let ids: std::collections::BTreeSet<_> = chunks.iter().map(|chunk| path::chunk(uid, &chunk.id)).collect();
    ids.into_iter().collect()
}
