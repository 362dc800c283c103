//! Opening again what could not be opened for want of a key.

use std::time::Duration;

use bytes::Bytes;

use super::{Hub, State, follow};
use crate::{Error, backend::Revision};

/// How often a key is looked for that was missing: a service may be back, and does not say so.
const AGAIN: Duration = Duration::from_secs(5);

impl Hub {
    /// Runs beside following: heads that do not open now may do so with another configuration.
    pub(super) async fn heal(&self) {
        let mut replaced = self.core.keys.replaced();
        loop {
            // Nobody replaces keys of a store whose keyring is gone: the pause remains.
            let changed = async {
                if replaced.changed().await.is_err() {
                    std::future::pending::<()>().await;
                }
            };
            let _ = tokio::time::timeout(AGAIN, changed).await;
            for path in self.locked() {
                self.reopen(path).await;
            }
        }
    }

    /// What is closed for want of a key. What is damaged stays so.
    fn locked(&self) -> Vec<Bytes> {
        let state = self.state.read();
        let locked = state
            .heads
            .iter()
            .filter(|(_, head)| matches!(head, Err(Error::Sealing { .. } | Error::Unavailable(_))));
        locked.map(|(path, _)| path.clone()).collect()
    }

    async fn reopen(&self, path: Bytes) {
        let Ok((Some(kv), at)) = self.core.read(&path).await else { return };
        let modified = kv.modified;
        let Ok(object) = follow::head(&self.core, kv, at).await else { return };
        let mut state = self.state.write();
        // Only as the state that the cache shows: neither one that it has not come to, nor one from before.
        let shown: std::ops::RangeInclusive<Revision> = modified..=at;
        let State { mark, heads, usage, .. } = &mut *state;
        if shown.contains(&mark.at)
            && let Some(head @ Err(_)) = heads.get_mut(&path)
        {
            let before = std::mem::replace(head, Ok(object));
            usage.replace(&path, Some(&before), Some(head));
        }
    }
}
