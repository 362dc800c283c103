//! Counts what is sent to a store, so that others see whether a long copy moves.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use jiff::Timestamp;

/// Bytes that were written to objects of a store, whole or not yet.
#[derive(Debug, Default)]
pub struct SentBytes {
    bytes: AtomicU64,
    /// In milliseconds since 1970.
    last: AtomicI64,
}

impl SentBytes {
    pub(super) fn add(&self, bytes: u64) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.last.store(Timestamp::now().as_millisecond(), Ordering::Relaxed);
    }

    /// How many, and when the last ones were taken; `None` before the first.
    #[must_use]
    pub fn get(&self) -> (u64, Option<Timestamp>) {
        let last = Some(self.last.load(Ordering::Relaxed)).filter(|last| *last > 0);
        (self.bytes.load(Ordering::Relaxed), last.and_then(|last| Timestamp::from_millisecond(last).ok()))
    }
}
