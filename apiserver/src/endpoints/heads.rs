//! Heads of objects that are shown one after the other, for as long as a client takes.
//!
//! The watch cache has the heads of the present state, so they cost nothing beside it. A head that was replaced since stays in memory for
//! as long as somebody holds it: a client that reads nothing of a list of 200 objects with metadata of 250 KiB each would keep
//! 50 MiB. So a response keeps [`memory::HEADS`] bytes of heads, or one head, and reads the others when it comes to them, as of
//! the version of the list: from the watch cache, or from the backend where the cache does not go back so far.

use std::collections::VecDeque;

use futures::{Stream, stream};
use repot_storage::{Error, Key, ListRequest, Object, ResourceVersion, Scope, Store};

use super::options::Selectors;
use crate::memory;

/// Heads that a request keeps while it waits for the memory of its response, in bytes; at least one head.
const WAITING: u64 = 64 << 10;
/// How many heads are asked of the store at once.
const AT_ONCE: usize = 500;

/// What a head takes in memory, in bytes.
pub(super) fn weight(object: &Object) -> u64 {
    const BESIDE: usize = 512;
    (object.meta.len() + object.summary.len() + BESIDE) as u64
}

/// The objects that a response shows, as of one version, in the order of their keys.
pub(super) struct Heads {
    store: Store,
    listed: Listed,
    /// Where the last object is; `None`: all that are left are held.
    until: Option<String>,
    at_once: usize,
    held: VecDeque<Object>,
}

/// Which objects a list has found.
#[derive(Clone)]
pub(super) struct Listed {
    pub(super) scope: Scope,
    pub(super) at: ResourceVersion,
    /// The key before the first one; `None`: from the beginning.
    pub(super) after: Option<Key>,
    pub(super) selectors: Selectors,
    /// Whether payloads are shown: then nothing is left out, and what cannot be opened is an error.
    pub(super) with_payload: bool,
}

/// Where an object comes in the order of keys.
fn place(key: &Key) -> String {
    format!("{}/{}", key.namespace, key.name)
}

impl Heads {
    /// The objects that a list has found. Those of a short list are kept, and of others the first [`WAITING`] bytes.
    pub(super) fn new(store: &Store, listed: Listed, objects: Vec<Object>) -> Self {
        let longest = objects.iter().map(weight).max().unwrap_or(0);
        // Where they are long, few are read for the sake of those that are kept.
        let at_once = usize::try_from(memory::HEADS / longest.max(1)).unwrap_or(AT_ONCE).clamp(1, AT_ONCE);
        let until = objects.last().map(|last| place(&last.key));
        let mut heads = Self { store: store.clone(), listed, until, at_once, held: VecDeque::new() };
        heads.keep(objects, WAITING);
        heads
    }

    /// Keeps the next objects, up to so many bytes of heads, or one. Whether that is all of them.
    fn keep(&mut self, objects: Vec<Object>, most: u64) -> bool {
        let mut bytes = 0;
        for object in objects {
            let here = place(&object.key);
            if self.until.as_ref().is_none_or(|until| here > *until) {
                self.until = None;
                return true;
            }
            if self.listed.selectors.matches(&object) {
                bytes += weight(&object);
                if bytes > most && !self.held.is_empty() {
                    return false;
                }
                self.held.push_back(object.clone());
            }
            if self.until == Some(here) {
                self.until = None;
            }
            self.listed.after = Some(object.key);
        }
        true
    }

    /// Reads on until there is an object, or no more.
    async fn read(&mut self) -> Result<(), Error> {
        while self.held.is_empty() && self.until.is_some() {
            let Listed { scope, at, after, .. } = self.listed.clone();
            // A selector passes over others, which are not kept.
            let limit = if self.listed.selectors.is_empty() { self.at_once } else { AT_ONCE };
            // What comes from the backend is of this response alone.
            let max_bytes = usize::try_from(memory::HEADS).unwrap_or(usize::MAX);
            let request = ListRequest { scope, at: Some(at), after, limit, max_bytes, count: false };
            let page = self.store.list_page(request, None).await?;
            let mut objects = Vec::with_capacity(page.objects.len());
            for object in page.objects {
                match object {
                    Ok(object) => objects.push(object),
                    // The list has said so.
                    Err(error) if error.is_proven_damage() && !self.listed.with_payload => {}
                    Err(error) => return Err(error),
                }
            }
            match (self.keep(objects, memory::HEADS), page.next) {
                (true, Some(next)) => self.listed.after = Some(next),
                (true, None) => self.until = None,
                (false, _) => {}
            }
        }
        Ok(())
    }

    /// The next object; `None` behind the last one.
    ///
    /// # Errors
    /// Why it cannot be read any more. There are no more then.
    pub(super) async fn next(&mut self) -> Option<Result<Object, Error>> {
        if let Err(error) = self.read().await {
            self.until = None;
            return Some(Err(error));
        }
        self.held.pop_front().map(Ok)
    }

    /// All of them.
    pub(super) fn stream(self) -> impl Stream<Item = Result<Object, Error>> + Send {
        stream::unfold(self, async |mut heads| Some((heads.next().await?, heads)))
    }
}
