//! The histories of one store.
//!
//! Revisions order snapshots of one etcd. An etcd that was restored has raised its revision, and the etcd before it may go on when
//! the restore is rolled back: then the highest revision belongs to the one that was given up. So an etcd on new volumes writes a
//! history of its own, and the one before it stays as it was.
//!
//! ```text
//! <prefix>/v2, sealed, integrity             snapshots of the first history
//! <prefix>/histories/<name>/v2, …            those of another
//! <prefix>/current/<number>.<name>           an empty object: an etcd began to write this history; the highest number counts
//! <prefix>/closed/<name>                     an empty object: the etcd of this history is gone for good, and nobody writes it again
//! ```
//!
//! A history is closed when the volumes of its etcd are released. A member may come back later all the same, from a node that was cut
//! off: its agent finds the history closed, and does not lead readers of the store to it.

use std::collections::BTreeSet;

use bytes::Bytes;
use futures::TryStreamExt;
use jiff::Timestamp;
use object_store::{ObjectMeta, ObjectStore as _, ObjectStoreExt as _};

use super::{Error, Mode, Result, Store, put};

/// The name of the history whose snapshots are directly below the prefix.
pub const FIRST_HISTORY: &str = "first";
const HISTORIES: &str = "histories";
const CURRENT: &str = "current";
const CLOSED: &str = "closed";
/// Digits of a number: names are in the order of numbers.
const DIGITS: usize = 12;

/// Whether a text can be the name of a history. It becomes a part of paths; volumes have no other names.
#[must_use]
pub fn is_history_name(text: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    !text.is_empty() && text.bytes().all(fits)
}

impl Store {
    /// One history of this store, as a store of its own.
    #[must_use]
    pub fn history(&self, name: &str) -> Self {
        if name == FIRST_HISTORY { self.clone() } else { self.below_prefix(&[HISTORIES, name]) }
    }

    /// Names of all histories, the first one included.
    ///
    /// # Errors
    /// [`Error::List`].
    pub async fn histories(&self) -> Result<Vec<String>> {
        let others = self.below_prefix(&[HISTORIES]).children().await?;
        Ok(std::iter::once(FIRST_HISTORY.to_owned()).chain(others).collect())
    }

    /// The name of the history that an etcd writes, or wrote last. One that is closed does not count; where no other one was ever
    /// begun, it is the first one.
    ///
    /// # Errors
    /// [`Error::List`].
    pub async fn current_history(&self) -> Result<String> {
        Ok(newest_open(&self.entries().await?, &self.closed_names().await?))
    }

    /// That history, as a store of its own.
    ///
    /// # Errors
    /// [`Error::List`].
    pub async fn current(&self) -> Result<Self> {
        Ok(self.history(&self.current_history().await?))
    }

    /// Records that an etcd writes this history from now on. Nothing is written where it is the current one already. Of two writers
    /// at the same moment either may come out on top; who calls this again before each full snapshot puts that right.
    ///
    /// # Errors
    /// [`Error::Closed`], [`Error::List`], [`Error::Write`], [`Error::File`], [`Error::Busy`].
    pub async fn make_current(&self, name: &str) -> Result<()> {
        let closed = self.closed_names().await?;
        if closed.contains(name) {
            return Err(self.closed_error(name));
        }
        let entries = self.entries().await?;
        if newest_open(&entries, &closed) == name {
            return Ok(());
        }
        let number = entries.iter().map(|(number, _)| *number).max().unwrap_or_default();
        let entry = format!("{:0DIGITS$}.{name}", number.saturating_add(1));
        put::small(self, self.prefix.clone().join(CURRENT).join(entry), Bytes::new(), Mode::Replace).await
    }

    /// Closes a history: its etcd is gone for good, as after a rollback. It is not the current one from then on and never becomes it
    /// again. Its snapshots stay. One that is closed stays closed since when it was.
    ///
    /// # Errors
    /// [`Error::Write`], [`Error::File`], [`Error::Busy`].
    pub async fn close_history(&self, name: &str) -> Result<()> {
        let path = self.prefix.clone().join(CLOSED).join(name);
        match put::small(self, path, Bytes::new(), Mode::Create).await {
            Ok(()) | Err(Error::Exists { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Leads whoever reads the store to its first history, as after snapshots of another etcd were copied there. Where it was closed, it
    /// is opened again: its etcd is a new one.
    ///
    /// # Errors
    /// [`Error::List`], [`Error::Write`], [`Error::File`], [`Error::Busy`].
    pub async fn begin_first_history_again(&self) -> Result<()> {
        let path = self.prefix.clone().join(CLOSED).join(FIRST_HISTORY);
        match self.objects.delete(&path).await {
            Ok(()) | Err(object_store::Error::NotFound { .. }) => {}
            Err(source) => return Err(Error::Write { place: self.place(&path), source: source.into() }),
        }
        self.make_current(FIRST_HISTORY).await
    }

    /// Checks that a history is not closed.
    ///
    /// # Errors
    /// [`Error::Closed`] where it is, [`Error::Read`].
    pub async fn check_history_is_open(&self, name: &str) -> Result<()> {
        let path = self.prefix.clone().join(CLOSED).join(name);
        match self.objects.head(&path).await {
            Ok(_) => Err(self.closed_error(name)),
            Err(object_store::Error::NotFound { .. }) => Ok(()),
            Err(source) => Err(Error::Read { place: self.place(&path), source: source.into() }),
        }
    }

    /// The histories that were closed, and since when, by the clock of the store.
    ///
    /// # Errors
    /// [`Error::List`].
    pub async fn closed_histories(&self) -> Result<Vec<(String, Timestamp)>> {
        let closed = |meta: &ObjectMeta| {
            let name = meta.location.filename().filter(|name| is_history_name(name))?;
            let since = Timestamp::from_second(meta.last_modified.timestamp()).ok()?;
            Some((name.to_owned(), since))
        };
        Ok(self.directly_below(CLOSED).await?.iter().filter_map(closed).collect())
    }

    fn closed_error(&self, name: &str) -> Error {
        let place = self.place(&self.prefix.clone().join(CLOSED).join(name));
        Error::Closed { place, name: name.to_owned() }
    }

    async fn closed_names(&self) -> Result<BTreeSet<String>> {
        Ok(self.closed_histories().await?.into_iter().map(|(name, _)| name).collect())
    }

    /// Which histories etcds began to write, with their numbers.
    async fn entries(&self) -> Result<Vec<(u64, String)>> {
        let entry = |meta: &ObjectMeta| {
            let (number, name) = meta.location.filename()?.split_once('.')?;
            is_history_name(name).then_some(())?;
            Some((number.parse().ok()?, name.to_owned()))
        };
        Ok(self.directly_below(CURRENT).await?.iter().filter_map(entry).collect())
    }

    async fn directly_below(&self, part: &str) -> Result<Vec<ObjectMeta>> {
        let prefix = self.prefix.clone().join(part);
        let listed = self.objects.list(Some(&prefix)).try_collect().await;
        listed.map_err(|source: object_store::Error| Error::List {
            place: self.place(&prefix),
            source: source.into(),
        })
    }
}

fn newest_open(entries: &[(u64, String)], closed: &BTreeSet<String>) -> String {
    let open = entries.iter().filter(|(_, name)| !closed.contains(name));
    open.max().map_or_else(|| FIRST_HISTORY.to_owned(), |(_, name)| name.clone())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::store::Environment;

    #[tokio::test]
    async fn the_history_that_was_begun_last_is_the_current_one() {
        let dir = tempfile::tempdir().expect("a directory");
        let store =
            Store::open(&format!("file://{}", dir.path().display()), &Environment::new()).expect("a store");
        assert_eq!(store.current_history().await.expect("a history"), FIRST_HISTORY);
        assert_eq!(store.current().await.expect("a store").url(), store.url());
        // Whatever their names: each switch counts.
        for name in [FIRST_HISTORY, "b", "b", "a", "c", FIRST_HISTORY, "a"] {
            store.make_current(name).await.expect("a switch");
            assert_eq!(store.current_history().await.expect("a history"), name);
        }
        let entries = std::fs::read_dir(dir.path().join(CURRENT)).expect("entries").count();
        assert_eq!(entries, 5, "a history that is the current one already is not recorded again");
        // What is no name of volumes leads to no other directory.
        for odd in ["999999999999...", "999999999999.", "999999999999.A", "x.b", "readme"] {
            std::fs::write(dir.path().join(CURRENT).join(odd), b"").expect("a file");
        }
        let current = store.current().await.expect("a store");
        assert_eq!(current.url(), format!("{}/histories/a", store.url()));
        assert_eq!(current.list().await.expect("a list").len(), 0);
        std::fs::create_dir_all(dir.path().join("histories/a/v2")).expect("a directory");
        std::fs::write(dir.path().join("histories/a/v2/Full-00000000-00000008-1.gz"), b"x").expect("a file");
        assert_eq!(store.histories().await.expect("names"), [FIRST_HISTORY, "a"]);
        assert_eq!(
            store.list().await.expect("a list").len(),
            0,
            "the first history has nothing of the other"
        );
        assert_eq!(current.list().await.expect("a list").len(), 1);
    }

    #[tokio::test]
    async fn a_closed_history_is_never_the_current_one_again() {
        let dir = tempfile::tempdir().expect("a directory");
        let store =
            Store::open(&format!("file://{}", dir.path().display()), &Environment::new()).expect("a store");
        let current = async || store.current_history().await.expect("a history");
        for name in ["a", "b"] {
            store.make_current(name).await.expect("a switch");
        }
        store.check_history_is_open("b").await.expect("an open history");
        // A rollback: the one before counts again at once, although its etcd has written nothing yet.
        store.close_history("b").await.expect("closed");
        assert_eq!(current().await, "a");
        let refused = store.make_current("b").await.expect_err("closed");
        assert!(matches!(&refused, Error::Closed { name, .. } if name == "b"), "{refused}");
        assert!(store.check_history_is_open("b").await.is_err());
        // One that did not see it in time wrote its entry at the same moment as the other, and with the higher name.
        let entry = |name: &str| std::fs::write(dir.path().join(CURRENT).join(name), b"").expect("a file");
        entry("000000000003.a");
        entry("000000000003.b");
        assert_eq!(current().await, "a");
        entry("000000000004.b");
        assert_eq!(current().await, "a");
        store.make_current("c").await.expect("a switch");
        assert_eq!(current().await, "c");
        let since = store.closed_histories().await.expect("a list");
        store.close_history("b").await.expect("closed before");
        assert_eq!(store.closed_histories().await.expect("a list"), since);
        assert_eq!(since.len(), 1);
        // Where all are closed, no name is left but the first.
        for name in ["a", "c"] {
            store.close_history(name).await.expect("closed");
        }
        assert_eq!(current().await, FIRST_HISTORY);
        store.close_history(FIRST_HISTORY).await.expect("closed");
        assert!(store.make_current(FIRST_HISTORY).await.is_err());
        for _ in 0..2 {
            store.begin_first_history_again().await.expect("opened");
        }
        assert_eq!(current().await, FIRST_HISTORY);
        store.make_current("d").await.expect("a switch");
        store.begin_first_history_again().await.expect("opened");
        assert_eq!(current().await, FIRST_HISTORY);
    }
}
