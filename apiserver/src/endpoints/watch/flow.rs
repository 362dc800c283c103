//! What a watch has given to its connection and the client has not taken yet.
//!
//! Every piece of a watch is counted until nobody holds it any more: not the queue before the connection, not hyper, not h2 and its
//! buffers. So a client that does not read is noticed whatever its flow-control windows are, and what it keeps in memory is
//! charged to its user for as long as it really is there.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use tokio::sync::Notify;

use super::{limits::Charge, shared::Encoded};

/// The pieces of one watch.
#[derive(Debug, Default)]
pub(super) struct Flow {
    given: AtomicU64,
    taken: AtomicU64,
    changed: Notify,
}

/// What a piece keeps in memory besides itself.
#[derive(Clone, Debug, Default)]
#[expect(dead_code, reason = "held until the piece is dropped")]
pub(super) struct Holds {
    pub(super) body: Option<Arc<Encoded>>,
    pub(super) charge: Option<Arc<Charge>>,
}

struct Piece {
    data: Bytes,
    flow: Arc<Flow>,
    _holds: Holds,
}

impl AsRef<[u8]> for Piece {
    fn as_ref(&self) -> &[u8] {
        &self.data
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        self.flow.taken.fetch_add(1, Ordering::Relaxed);
        self.flow.changed.notify_one();
    }
}

impl Flow {
    /// A piece that is counted until its last part is dropped.
    pub(super) fn piece(self: &Arc<Self>, data: Bytes, holds: Holds) -> Bytes {
        self.given.fetch_add(1, Ordering::Relaxed);
        Bytes::from_owner(Piece { data, flow: Arc::clone(self), _holds: holds })
    }

    /// Ends when the client has taken nothing for so long although there was something to take.
    pub(super) async fn stalled(&self, limit: Duration) {
        loop {
            let taken = self.taken.load(Ordering::Relaxed);
            let pending = self.given.load(Ordering::Relaxed) > taken;
            tokio::time::sleep(limit).await;
            if pending && self.taken.load(Ordering::Relaxed) == taken {
                return;
            }
        }
    }

    /// Ends when the client has taken everything.
    pub(super) async fn drained(&self) {
        while self.given.load(Ordering::Relaxed) > self.taken.load(Ordering::Relaxed) {
            self.changed.notified().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_millis(40);

    #[tokio::test]
    async fn stalls_only_while_something_waits() {
        let flow = Arc::new(Flow::default());
        assert!(tokio::time::timeout(4 * LIMIT, flow.stalled(LIMIT)).await.is_err(), "nothing waits");
        drop(flow.piece(Bytes::from_static(b"a"), Holds::default()));
        assert!(tokio::time::timeout(4 * LIMIT, flow.stalled(LIMIT)).await.is_err(), "it was taken");
        let waiting = flow.piece(Bytes::from_static(b"b"), Holds::default());
        tokio::time::timeout(Duration::from_secs(60), flow.stalled(LIMIT)).await.expect("it is stalled");
        drop(waiting);
        flow.drained().await;
    }

    #[tokio::test]
    async fn a_piece_waits_until_its_last_part_is_gone() {
        let flow = Arc::new(Flow::default());
        let mut piece = flow.piece(Bytes::from_static(b"abc"), Holds::default());
        let first = piece.split_to(1);
        drop(piece);
        let mut drained = std::pin::pin!(flow.drained());
        assert!(futures::poll!(drained.as_mut()).is_pending());
        drop(first);
        assert!(futures::poll!(drained.as_mut()).is_ready());
    }
}
