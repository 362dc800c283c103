//! Objects of a cluster that are followed, cut down to what rules look at.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use futures::StreamExt;
use kube::{
    Api, Resource,
    runtime::{WatchStreamExt, watcher},
};
use parking_lot::RwLock;
use serde::de::DeserializeOwned;
use tokio_util::sync::CancellationToken;

/// Objects of a list that are held at a time.
const PAGE: u32 = 100;

type Key = (String, String);

/// Objects by namespace and name, as they were a moment ago.
pub(super) struct Followed<T> {
    objects: RwLock<HashMap<Key, T>>,
    synced: AtomicBool,
}

impl<T: Clone + Send + Sync + 'static> Followed<T> {
    /// Follows until `stop`. `read` keeps what is of interest.
    pub(super) fn start<K>(
        api: Api<K>,
        config: watcher::Config,
        read: fn(K) -> Option<T>,
        stop: CancellationToken,
    ) -> Arc<Self>
    where
        K: Resource + Clone + DeserializeOwned + std::fmt::Debug + Send + 'static,
    {
        let followed = Arc::new(Self { objects: RwLock::default(), synced: AtomicBool::new(false) });
        let own = followed.clone();
        tokio::spawn(async move {
            let mut events = Box::pin(watcher(api, config.page_size(PAGE)).default_backoff());
            let mut listed = HashMap::new();
            while let Some(Some(event)) = stop.run_until_cancelled(events.next()).await {
                match event {
                    Ok(event) => own.learn(event, &mut listed, read),
                    Err(error) => tracing::warn!(%error, "watch for facts failed, trying again"),
                }
            }
        });
        followed
    }

    fn learn<K: Resource>(
        &self,
        event: watcher::Event<K>,
        listed: &mut HashMap<Key, T>,
        read: fn(K) -> Option<T>,
    ) {
        match event {
            watcher::Event::Init => listed.clear(),
            watcher::Event::InitApply(object) => {
                let key = key(&object);
                listed.extend(read(object).map(|kept| (key, kept)));
            }
            watcher::Event::InitDone => {
                *self.objects.write() = std::mem::take(listed);
                self.synced.store(true, Ordering::Release);
            }
            watcher::Event::Apply(object) => {
                let key = key(&object);
                match read(object) {
                    Some(kept) => self.objects.write().insert(key, kept),
                    None => self.objects.write().remove(&key),
                };
            }
            watcher::Event::Delete(object) => {
                self.objects.write().remove(&key(&object));
            }
        }
    }

    pub(super) fn is_synced(&self) -> bool {
        self.synced.load(Ordering::Acquire)
    }

    /// The first object that fits.
    pub(super) fn find(&self, fits: impl Fn(&Key, &T) -> bool) -> Option<T> {
        self.objects.read().iter().find(|(key, object)| fits(key, object)).map(|(_, object)| object.clone())
    }

    /// An object.
    pub(super) fn get(&self, namespace: &str, name: &str) -> Option<T> {
        self.objects.read().get(&(namespace.to_owned(), name.to_owned())).cloned()
    }

    /// Looks at all.
    pub(super) fn all<R>(&self, look: impl FnOnce(&mut dyn Iterator<Item = (&Key, &T)>) -> R) -> R {
        look(&mut self.objects.read().iter())
    }
}

fn key(object: &impl Resource) -> Key {
    let meta = object.meta();
    (meta.namespace.clone().unwrap_or_default(), meta.name.clone().unwrap_or_default())
}
