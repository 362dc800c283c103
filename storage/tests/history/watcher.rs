//! Watchers that follow a store over any number of broken streams, and take down what they are told.

use futures::StreamExt;
use repot_storage::{Error, Event, ResourceVersion, WatchItem};

use super::{
    clients::{END, Recorder, name, prove, scope, tags},
    record::{Told, Watched},
    *,
};

/// Follows a store after a version, until the object is made that ends all.
pub async fn follow(store: Store, recorder: Arc<Recorder>, after: u64, mut dice: Dice) -> Watched {
    let mut watched = Watched { after, until: after, told: Vec::new() };
    loop {
        let mut items = match store.watch(&scope(), ResourceVersion(watched.until)).await {
            Ok(items) => items,
            Err(error) if excused(&error) => {
                tokio::task::yield_now().await;
                continue;
            }
            Err(error) => {
                recorder.breach(format!("a watch after {} was told: {error}", watched.until));
                return watched;
            }
        };
        while let Some(item) = items.next().await {
            match item {
                Ok(WatchItem::Event(event)) => {
                    if watched.take(&event, &recorder) {
                        return watched;
                    }
                    if let Some(now) = event.now.as_ref().filter(|_| dice.below(10) == 0) {
                        prove(&store, &recorder, now).await;
                    }
                }
                Ok(WatchItem::Bookmark(version)) => watched.until = watched.until.max(version.0),
                Err(error) if excused(&error) => break,
                Err(error) => {
                    recorder.breach(format!("a watch at {} ended with: {error}", watched.until));
                    return watched;
                }
            }
        }
    }
}

fn excused(error: &Error) -> bool {
    matches!(error, Error::Unavailable(_) | Error::Slow)
}

impl Watched {
    /// Takes in an event; whether it is the last.
    fn take(&mut self, event: &Event, recorder: &Recorder) -> bool {
        let (now, before, version) = (event.now.as_ref(), event.before.as_ref(), event.version.0);
        let Some(name) = now.or(before).map(|object| name(&object.key)) else {
            recorder.breach(format!("a watch tells at {version} that nothing became nothing"));
            return false;
        };
        if version <= self.until {
            recorder.breach(format!("a watch tells version {version} of {name} after {}", self.until));
        }
        self.until = self.until.max(version);
        let tag = |object: &repot_storage::Object| tags(object).0;
        self.told.push(Told { version, name, now: now.map(tag), before: before.map(tag) });
        name == END
    }
}
