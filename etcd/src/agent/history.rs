//! The history of its store that this etcd writes.

use std::time::Duration;

use jiff::Timestamp;
use repot_etcd_core::agent::config::Store as StoreConfig;

use super::settings;
use crate::snapshot::store::{self, Store};

/// The own history, in the store that holds all of them.
pub(super) struct OwnHistory {
    root: Store,
    name: String,
    snapshots: Store,
}

impl OwnHistory {
    /// Opens it. Nothing is written: who reads the store is led to where it was before.
    ///
    /// # Errors
    /// As of [`Store::open_with`].
    pub(super) fn open(config: &StoreConfig) -> Result<Self, store::Error> {
        let root = settings::open_all(config)?;
        let name = settings::history(config).to_owned();
        let snapshots = root.history(&name);
        Ok(Self { root, name, snapshots })
    }

    /// Its snapshots.
    pub(super) fn snapshots(&self) -> &Store {
        &self.snapshots
    }

    /// Leads whoever reads the store to this history from now on. Only for an etcd that may write it.
    ///
    /// # Errors
    /// [`store::Error::Closed`], and as of [`Store::make_current`].
    pub(super) async fn make_current(&self) -> Result<(), store::Error> {
        self.root.make_current(&self.name).await
    }

    /// Checks that nobody has closed it.
    ///
    /// # Errors
    /// [`store::Error::Closed`], [`store::Error::Read`].
    pub(super) async fn check_is_open(&self) -> Result<(), store::Error> {
        self.root.check_history_is_open(&self.name).await
    }

    /// Deletes the snapshots of histories that were closed before `limit`, and tells how many those were. The marks of such histories
    /// stay: nobody writes them again. The own history and the current one are left alone whatever their marks say.
    ///
    /// # Errors
    /// [`store::Error::List`], [`store::Error::Write`].
    pub(super) async fn delete_closed(&self, limit: Timestamp) -> Result<u64, store::Error> {
        let current = self.root.current_history().await?;
        let mut deleted = 0;
        for (name, since) in self.root.closed_histories().await? {
            if since >= limit || name == self.name || name == current {
                continue;
            }
            let history = self.root.history(&name);
            for one in history.list_quickly().await? {
                history.delete(&one).await?;
                deleted += 1;
            }
        }
        Ok(deleted)
    }
}

/// The time before which histories must have been closed to lose their snapshots.
pub(super) fn limit(now: Timestamp, retention: Duration) -> Timestamp {
    let retention = jiff::SignedDuration::try_from(retention).unwrap_or(jiff::SignedDuration::MAX);
    now.checked_sub(retention).unwrap_or(Timestamp::MIN)
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    use super::*;
    use crate::snapshot::store::FIRST_HISTORY;

    const FULL: &str = "Full-00000000-00000010-1700000000.gz";

    fn put(dir: &Path, history: &str) {
        let dir = if history == FIRST_HISTORY { dir.to_owned() } else { dir.join("histories").join(history) };
        fs::create_dir_all(dir.join("v2")).expect("a directory");
        fs::write(dir.join("v2").join(FULL), b"x").expect("a file");
    }

    #[tokio::test]
    async fn only_closed_histories_lose_their_snapshots_and_only_in_time() {
        let dir = tempfile::tempdir().expect("a directory");
        let url = format!("file://{}", dir.path().display());
        let config = StoreConfig { url, history: Some("own".to_owned()), ..StoreConfig::default() };
        let own = OwnHistory::open(&config).expect("a store");
        let histories = [FIRST_HISTORY, "own", "open", "closed"];
        for history in histories {
            put(dir.path(), history);
        }
        let has =
            async |history: &str| !own.root.history(history).list_quickly().await.expect("a list").is_empty();
        own.make_current().await.expect("a switch");
        // Named backups lie below the first history, and are none of its snapshots.
        fs::create_dir_all(dir.path().join("backups/b-1/v2")).expect("a directory");
        fs::write(dir.path().join("backups/b-1/v2").join(FULL), b"x").expect("a file");
        for history in [FIRST_HISTORY, "closed"] {
            own.root.close_history(history).await.expect("closed");
        }
        let now = Timestamp::now();
        let week = Duration::from_secs(7 * 24 * 3600);
        assert_eq!(own.delete_closed(limit(now, week)).await.expect("nothing"), 0);
        let later = limit(now.saturating_add(week).expect("a time"), week - Duration::from_secs(60));
        assert_eq!(own.delete_closed(later).await.expect("two"), 2);
        assert_eq!(
            [has(FIRST_HISTORY).await, has("own").await, has("open").await, has("closed").await],
            [false, true, true, false]
        );
        assert!(dir.path().join("backups/b-1/v2").join(FULL).exists());
        assert!(own.root.check_history_is_open(FIRST_HISTORY).await.is_err(), "it may be written again");
        // Marks on the own history, or on the one that readers are led to, delete nothing.
        for history in ["own", "open"] {
            own.root.close_history(history).await.expect("closed");
        }
        put(dir.path(), FIRST_HISTORY);
        assert_eq!(own.delete_closed(later).await.expect("one"), 1, "of the history `open`");
        assert!(has("own").await && has(FIRST_HISTORY).await);
    }

    #[test]
    fn no_time_is_before_all_times() {
        assert_eq!(limit(Timestamp::now(), Duration::MAX), Timestamp::MIN);
    }
}
