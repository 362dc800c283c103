//! A watch from its beginning to its end: the present state where that was asked for, then what happens.

use std::{pin::Pin, sync::Arc, sync::atomic::Ordering, time::Duration};

use futures::{Stream, StreamExt};
use repot_storage::{Error, Event, Object, ResourceVersion, WatchItem};

use super::{End, Start, Watcher, resource_version};
use crate::{
    protobuf,
    status::{Status, from_storage},
};

/// How often a watch on which nothing happens says how far it has come.
const BOOKMARK_INTERVAL: Duration = Duration::from_secs(60);

type Items = Pin<Box<dyn Stream<Item = Result<WatchItem, Error>> + Send>>;

impl Watcher {
    pub(super) async fn run(mut self) {
        let end = match self.follow().await {
            End::Told(status) => {
                let frame = protobuf::event(self.plan.encoding, "ERROR", &status.to_json());
                self.send(frame, false).await.err().unwrap_or(End::Quiet)
            }
            end => end,
        };
        if matches!(end, End::Cut) {
            self.cut.store(true, Ordering::Release);
        }
        self.close(matches!(end, End::Stalled)).await;
    }

    /// Waits until the client has taken what it was given, or the connection gives it up.
    async fn close(self, stalled: bool) {
        let Self { frames, flow, stall, permit, .. } = self;
        drop(frames);
        let left = async {
            tokio::select! {
                () = flow.drained() => false,
                () = flow.stalled(stall) => true,
            }
        };
        if stalled || left.await {
            tracing::info!("a watch was ended: its client takes nothing");
        }
        drop(permit);
    }

    async fn follow(&mut self) -> End {
        let (mut items, mut reached) = match self.open().await {
            Ok(opened) => opened,
            Err(end) => return end,
        };
        let mut bookmark = tokio::time::interval(BOOKMARK_INTERVAL);
        bookmark.reset();
        let last_word = self.plan.until.checked_sub(Duration::from_secs(2));
        let mut said_last_word = false;
        let (flow, stall) = (Arc::clone(&self.flow), self.stall);
        let mut stalled = Box::pin(async move { flow.stalled(stall).await });
        loop {
            let near_end = async {
                match last_word {
                    Some(at) if !said_last_word => tokio::time::sleep_until(at).await,
                    _ => std::future::pending().await,
                }
            };
            let end = tokio::select! {
                () = self.frames.closed() => Err(End::Quiet),
                () = self.over.cancelled() => Err(End::Quiet),
                () = &mut stalled => Err(End::Stalled),
                item = items.next() => self.item(item, &mut reached).await,
                _ = bookmark.tick() => self.bookmark(reached, false).await,
                () = near_end => {
                    said_last_word = true;
                    self.bookmark(reached, false).await
                }
            };
            if let Err(end) = end {
                return end;
            }
        }
    }

    /// The stream of what happens, and the version up to which the client knows everything.
    async fn open(&mut self) -> Result<(Items, ResourceVersion), End> {
        let after = match self.plan.start {
            Start::After(version) => version,
            Start::Now => self.store.current().await.map_err(|error| self.told(&error))?,
            Start::Present { marked, at_least } => {
                if let Some(version) = at_least {
                    resource_version::reach(&self.store, version).await.map_err(End::Told)?;
                }
                let version = self.present().await?;
                if marked && self.plan.bookmarks {
                    self.bookmark(version, true).await?;
                }
                version
            }
        };
        match self.store.watch(&self.scope, after).await {
            Ok(items) => Ok((items, after)),
            Err(Error::Expired { oldest }) => {
                Err(End::Told(Status::expired(format!("too old resource version: {after} ({oldest})"), None)))
            }
            Err(error) => Err(self.told(&error)),
        }
    }

    pub(super) fn told(&self, error: &Error) -> End {
        match error {
            // The client goes on from the last version it saw.
            Error::Slow => End::Quiet,
            // Passing over an object would be taken for its absence.
            error @ (Error::Corrupt { .. } | Error::Sealing { .. }) => {
                tracing::error!(%error, "an object of a watch cannot be read");
                End::Told(Status::internal("an object cannot be read; the watch cannot go on"))
            }
            other => End::Told(from_storage(other, &self.resource.name, "")),
        }
    }

    async fn item(
        &mut self,
        item: Option<Result<WatchItem, Error>>,
        reached: &mut ResourceVersion,
    ) -> Result<(), End> {
        match item {
            None => Err(End::Quiet),
            Some(Err(error)) => Err(self.told(&error)),
            Some(Ok(WatchItem::Bookmark(version))) => {
                *reached = version.max(*reached);
                Ok(())
            }
            Some(Ok(WatchItem::Event(event))) => {
                self.happened(&event).await?;
                *reached = event.version;
                Ok(())
            }
        }
    }

    /// An event as it looks through the selectors: what enters them is added, what leaves them is deleted.
    async fn happened(&mut self, event: &Arc<Event>) -> Result<(), End> {
        let selected =
            |object: &Option<Object>| object.clone().filter(|object| self.plan.selectors.matches(object));
        match (selected(&event.before), selected(&event.now)) {
            (None, None) => Ok(()),
            (None, Some(now)) => self.event("ADDED", &now, false).await,
            (Some(_), Some(now)) => self.event("MODIFIED", &now, false).await,
            (Some(mut before), None) => {
                before.version = event.version;
                self.event("DELETED", &before, true).await
            }
        }
    }
}
