//! The present state at the beginning of a watch. A client decides how long it takes that, and heads that were replaced since stay in
//! memory as long as the watch holds them: see [`crate::endpoints::heads`]. So a watch holds few of them, and what all watches hold
//! is bounded.

use repot_storage::{Key, List, ListRequest, Object, ResourceVersion};

use super::{End, Watcher, lines::ROOM_WITHIN, shared::kib};
use crate::{endpoints::heads::weight, negotiate::Form, shares::Permit, status::Status};

/// How many heads are asked of the store at once.
const AT_ONCE: usize = 200;
/// Heads that a watch holds at once, in bytes; at least one.
const HELD: u64 = 256 << 10;
/// How many times [`HELD`] a watch takes while it reads: for the records, for what they open to, and for one head beyond the bound.
const READING: u64 = 3;

/// Objects that are sent next, and the room that their heads take.
struct Page {
    objects: Vec<Object>,
    version: ResourceVersion,
    next: Option<Key>,
    _room: Permit,
}

impl Watcher {
    /// Sends the present state page by page, all of it as of one version, which is returned.
    pub(super) async fn present(&mut self) -> Result<ResourceVersion, End> {
        let (mut at, mut after) = (None, None);
        loop {
            let page = self.page(at, after).await?;
            for object in &page.objects {
                self.event("ADDED", object, false).await?;
            }
            (at, after) = (Some(page.version), page.next);
            if after.is_none() {
                return Ok(page.version);
            }
        }
    }

    async fn page(&self, at: Option<ResourceVersion>, after: Option<Key>) -> Result<Page, End> {
        let mut most = HELD;
        loop {
            let mut room = self.room(READING * most).await?;
            // Heads of the watch cache are shared with it; those from the backend are not.
            let max_bytes = usize::try_from(most).unwrap_or(usize::MAX);
            let (scope, after) = (self.scope.clone(), after.clone());
            let request = ListRequest { scope, at, after, limit: AT_ONCE, max_bytes, count: false };
            let list = self.store.list_page(request, None).await.map_err(|error| self.told(&error))?;
            let version = list.version;
            let (objects, next) = self.first_of(list, most)?;
            let needed = objects.iter().map(weight).sum();
            room.shrink_to(u64::from(kib(needed)));
            if room.grow_to(u64::from(kib(needed))).is_ok() {
                return Ok(Page { objects, version, next, _room: room });
            }
            // One long head. It is not held while this waits for more room.
            most = needed;
        }
    }

    /// The first of the selected objects, up to so many bytes of heads or one object, and where to go on.
    fn first_of(&self, list: List, most: u64) -> Result<(Vec<Object>, Option<Key>), End> {
        let (mut kept, mut bytes, mut last) = (Vec::new(), 0, None);
        for object in list.objects {
            let object = match object {
                Ok(object) => object,
                // Who only asks for metadata is better served without what is damaged for good than not at all. What may open later
                // is never left out: it would be taken for deleted.
                Err(error) if self.plan.form != Form::Object && error.is_proven_damage() => {
                    tracing::error!(%error, "object left out of a watch of metadata");
                    continue;
                }
                Err(error) => return Err(self.told(&error)),
            };
            let key = object.key.clone();
            if self.plan.selectors.matches(&object) {
                bytes += weight(&object);
                if bytes > most && !kept.is_empty() {
                    return Ok((kept, last));
                }
                kept.push(object);
            }
            last = Some(key);
        }
        Ok((kept, list.next))
    }

    /// Room for so many bytes of heads.
    async fn room(&self, bytes: u64) -> Result<Permit, End> {
        let units = u64::from(kib(bytes)).min(self.heads.total());
        tokio::select! {
            biased;
            () = self.frames.closed() => Err(End::Quiet),
            () = self.over.cancelled() => Err(End::Quiet),
            room = tokio::time::timeout(ROOM_WITHIN, self.heads.take(&self.reader, units)) => {
                room.map_err(|_| End::Told(Status::watch_events_wait()))
            }
        }
    }
}
