//! Places for audit events that wait, common to all users or shared among them.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::shares::{FairPool, Flow, Permit};

/// A place for one event, until it is dropped.
#[expect(dead_code, reason = "held until it is dropped")]
pub(super) enum Slot {
    /// One that everybody may have.
    Common(OwnedSemaphorePermit),
    /// One of a user's share.
    OfUser(Permit),
}

/// Places for events of one share.
pub(super) enum Slots {
    /// For whoever comes first.
    Common(Arc<Semaphore>),
    /// No user has all of them.
    ByUser(FairPool),
}

impl Slots {
    /// So many places; `by_user`: as in [`FairPool`].
    pub(super) fn new(events: usize, by_user: bool) -> Self {
        match by_user {
            true => Self::ByUser(FairPool::new(events as u64)),
            false => Self::Common(Arc::new(Semaphore::new(events))),
        }
    }

    /// A place, where one is free now.
    pub(super) fn try_take(&self, flow: &Flow) -> Option<Slot> {
        match self {
            Self::Common(slots) => slots.clone().try_acquire_owned().ok().map(Slot::Common),
            Self::ByUser(slots) => slots.try_take(flow, 1).ok().map(Slot::OfUser),
        }
    }

    /// A place as soon as one is free.
    pub(super) async fn take(&self, flow: &Flow) -> Option<Slot> {
        match self {
            Self::Common(slots) => slots.clone().acquire_owned().await.ok().map(Slot::Common),
            Self::ByUser(slots) => Some(Slot::OfUser(slots.take(flow, 1).await)),
        }
    }
}
