//! How many connections there may be without credentials. Whoever opens more ends the oldest ones, and not those of clients
//! that have shown who they are: so a probe, or a client that is about to show a token, finds its way in while somebody
//! opens connections and keeps them.

use std::{collections::BTreeMap, sync::Arc};

use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use crate::metrics;

/// The connections without credentials, from when they are accepted.
#[derive(Clone, Debug)]
pub(crate) struct Unauthenticated {
    most: usize,
    connections: Arc<Mutex<Connections>>,
}

#[derive(Debug, Default)]
struct Connections {
    next: u64,
    /// By age.
    open: BTreeMap<u64, CancellationToken>,
}

/// A connection counts for as long as this lives.
#[derive(Debug)]
pub(crate) struct Counted {
    connections: Arc<Mutex<Connections>>,
    number: u64,
}

impl Unauthenticated {
    /// So many at once, at least one.
    pub(crate) fn new(most: usize) -> Self {
        Self { most: most.max(1), connections: Arc::default() }
    }

    /// Counts a connection, which `end` ends. Where there are too many now, the oldest is ended.
    pub(crate) fn count(&self, end: CancellationToken) -> Counted {
        let mut connections = self.connections.lock();
        let number = connections.next;
        connections.next += 1;
        connections.open.insert(number, end);
        if connections.open.len() > self.most
            && let Some((_, oldest)) = connections.open.pop_first()
        {
            oldest.cancel();
            metrics::EVICTED_CONNECTIONS.inc();
        }
        Counted { connections: self.connections.clone(), number }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.connections.lock().open.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_ends_the_oldest_and_those_that_have_shown_who_they_are_stay() {
        let connections = Unauthenticated::new(2);
        let ends: Vec<CancellationToken> = (0..4).map(|_| CancellationToken::new()).collect();
        let count = |at: usize| connections.count(ends[at].clone());
        let ended = || ends.iter().map(CancellationToken::is_cancelled).collect::<Vec<_>>();
        let (first, _second) = (count(0), count(1));
        assert_eq!(ended(), [false; 4]);
        // The first shows who it is.
        drop(first);
        let _third = count(2);
        assert_eq!(ended(), [false; 4]);
        let _fourth = count(3);
        assert_eq!(ended(), [false, true, false, false]);
        assert_eq!(connections.connections.lock().open.len(), 2);
    }
}
