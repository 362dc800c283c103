//! Watches: a stream of etcd each, its fragments put together again, and progress asked for when it is due.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use etcd_client::{
    EventType, WatchOptions, WatchStream as PbStream,
    proto::{PbEvent, PbWatchResponse},
};
use futures::{StreamExt, stream};
use tokio::{
    sync::watch,
    time::{Instant, sleep_until, timeout_at},
};

use super::{
    super::{Error, KeyEvent, Result, Revision, WatchItem, WatchStream, prefix_range},
    Etcd,
    error::{Failure, Kind},
    keys::Prefix,
    link::{Link, closed, number},
};

/// The largest message of a watch: a fragment is about 2 MiB unless a single event is larger.
const MESSAGE_BYTES: usize = 64 << 20;
/// When to ask for progress again, where none came: etcd does not answer while a watch still catches up.
const ASK_AGAIN: Duration = Duration::from_millis(50);

struct Watch {
    link: Arc<Link>,
    prefix: Prefix,
    stream: PbStream,
    nudges: watch::Receiver<Revision>,
    after: Revision,
    /// Events of a message of which fragments are still to come.
    fragments: Vec<KeyEvent>,
    interval: Duration,
    /// When to ask for progress.
    ask: Instant,
    /// What a nudge promised.
    owed: Revision,
}

impl Etcd {
    /// Everything under a prefix after a revision.
    pub(super) async fn follow(
        &self,
        prefix: Bytes,
        after: Revision,
        interval: Duration,
    ) -> Result<WatchStream> {
        let stream = self.stream(&prefix, after).await.map_err(|failure| failure.into_error(Kind::Read))?;
        let watch = Watch {
            link: Arc::clone(&self.link),
            prefix: self.prefix.clone(),
            stream,
            nudges: self.nudges.subscribe(),
            after,
            fragments: Vec::new(),
            interval,
            ask: Instant::now() + interval,
            owed: Revision(0),
        };
        let items = stream::unfold(Some(watch), |state| async {
            let mut watch = state?;
            match watch.next().await {
                Ok(item) => Some((Ok(item), Some(watch))),
                Err(error) => Some((Err(error), None)),
            }
        });
        Ok(items.boxed())
    }

    async fn stream(&self, prefix: &[u8], after: Revision) -> Result<PbStream, Failure> {
        let (start, end) = self.prefix.range(&prefix_range(prefix));
        let options = WatchOptions::new()
            .with_range(end)
            .with_start_revision(number(after).saturating_add(1))
            .with_prev_key()
            .with_fragment()
            .with_progress_notify();
        let mut client = self.link.watch().max_decoding_message_size(MESSAGE_BYTES);
        let end = Instant::now() + self.link.deadline;
        self.link.within(end, client.watch(start, Some(options))).await
    }

    /// The oldest revision that can be read. etcd tells it nowhere but in the end of a watch that began before it.
    pub(super) async fn oldest_kept(&self) -> Result<Revision> {
        let (key, at) = (Bytes::from_static(b"oldest"), Revision(1));
        let options = etcd_client::GetOptions::new().with_revision(1).with_count_only();
        match self.fetch(self.prefix.add(&key), options).await {
            Ok(_) => return Ok(Revision(0)),
            Err(Failure::Compacted) => {}
            Err(failure) => return Err(failure.into_error(Kind::Read)),
        }
        let mut stream =
            self.stream(&key, Revision(0)).await.map_err(|failure| failure.into_error(Kind::Read))?;
        let end = Instant::now() + self.link.deadline;
        loop {
            let answer = self.link.within(end, stream.message()).await;
            let answer = answer.map_err(|failure| failure.into_error(Kind::Read))?;
            let Some(answer) = answer else {
                return Err(Error::Unavailable("a watch ended before it told what is compacted".into()));
            };
            if answer.canceled() && answer.compact_revision() > 0 {
                return Ok(unsigned(answer.compact_revision()).max(at));
            }
        }
    }
}

impl Watch {
    async fn next(&mut self) -> Result<WatchItem> {
        loop {
            tokio::select! {
                () = self.link.closed.cancelled() => return Err(closed()),
                answer = self.stream.message() => {
                    let answer = answer.map_err(|error| Failure::of(error).into_error(Kind::Read))?;
                    let answer = answer.ok_or_else(|| Error::Unavailable("etcd ended the watch".into()))?;
                    if let Some(item) = self.take(answer.0)? {
                        return Ok(item);
                    }
                }
                Ok(()) = self.nudges.changed() => {
                    self.owed = *self.nudges.borrow_and_update();
                    self.ask = Instant::now();
                }
                () = sleep_until(self.ask) => self.ask_for_progress().await?,
            }
        }
    }

    async fn ask_for_progress(&mut self) -> Result<()> {
        self.ask = Instant::now() + ASK_AGAIN;
        let end = Instant::now() + self.link.deadline;
        match timeout_at(end, self.stream.request_progress()).await {
            Ok(sent) => sent.map_err(|error| Failure::of(error).into_error(Kind::Read)),
            Err(_) => Err(Error::Unavailable("etcd takes no requests for progress".into())),
        }
    }

    /// What a message is to a caller; none where it is only a part or a formality.
    fn take(&mut self, answer: PbWatchResponse) -> Result<Option<WatchItem>> {
        if answer.canceled {
            return Err(match answer.compact_revision {
                0 => Error::Unavailable(format!("etcd cancelled the watch: {}", answer.cancel_reason)),
                oldest => Error::Compacted { requested: self.after, oldest: unsigned(oldest) },
            });
        }
        if answer.created {
            return Ok(None);
        }
        if answer.events.is_empty() {
            let shown = unsigned(answer.header.map_or(0, |header| header.revision));
            return Ok(self.fragments.is_empty().then(|| self.progress(shown)));
        }
        for event in answer.events {
            self.fragments.push(self.event(event)?);
        }
        // Held back until it is whole: a fragment may end within a transaction.
        let whole = !answer.fragment;
        Ok(whole.then(|| WatchItem::Events(std::mem::take(&mut self.fragments))))
    }

    fn progress(&mut self, shown: Revision) -> WatchItem {
        // A member may lag behind the one that answered the nudge; then it is asked again.
        if shown >= self.owed {
            self.owed = Revision(0);
            self.ask = Instant::now() + self.interval;
        }
        WatchItem::Progress(shown)
    }

    fn event(&self, event: PbEvent) -> Result<KeyEvent> {
        let removed = event.r#type == EventType::Delete as i32;
        let found = event.kv.ok_or_else(|| Error::Corrupt("an event without its key".into()))?;
        let found = self.prefix.strip(found);
        let before = event.prev_kv.map(|before| self.prefix.strip(before));
        let (key, revision) = (found.key.clone(), found.modified);
        Ok(KeyEvent { key, revision, now: (!removed).then_some(found), before })
    }
}

fn unsigned(revision: i64) -> Revision {
    Revision(u64::try_from(revision).unwrap_or(0))
}
