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
//! ```

use bytes::Bytes;
use futures::TryStreamExt;
use object_store::ObjectStore as _;

use super::{Error, Mode, Result, Store, put};

/// The name of the history whose snapshots are directly below the prefix.
pub const FIRST_HISTORY: &str = "first";
const HISTORIES: &str = "histories";
const CURRENT: &str = "current";
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

    /// The name of the history that an etcd writes, or wrote last.
    ///
    /// # Errors
    /// [`Error::List`].
    pub async fn current_history(&self) -> Result<String> {
        Ok(self.newest_entry().await?.map_or_else(|| FIRST_HISTORY.to_owned(), |(_, name)| name))
    }

    /// That history, as a store of its own.
    ///
    /// # Errors
    /// [`Error::List`].
    pub async fn current(&self) -> Result<Self> {
        Ok(self.history(&self.current_history().await?))
    }

    /// Records that an etcd writes this history from now on. Nothing is written where it is the current one already.
    ///
    /// # Errors
    /// [`Error::List`], [`Error::Write`], [`Error::File`], [`Error::Busy`].
    pub async fn make_current(&self, name: &str) -> Result<()> {
        let newest = self.newest_entry().await?;
        let (number, current) =
            newest.as_ref().map_or((0, FIRST_HISTORY), |(number, name)| (*number, name.as_str()));
        if current == name {
            return Ok(());
        }
        let entry = format!("{:0DIGITS$}.{name}", number.saturating_add(1));
        put::small(self, self.prefix.clone().join(CURRENT).join(entry), Bytes::new(), Mode::Replace).await
    }

    async fn newest_entry(&self) -> Result<Option<(u64, String)>> {
        let prefix = self.prefix.clone().join(CURRENT);
        let listed: Vec<_> =
            self.objects.list(Some(&prefix)).try_collect().await.map_err(|source: object_store::Error| {
                Error::List { place: self.place(&prefix), source: source.into() }
            })?;
        let entry = |name: &str| {
            let (number, name) = name.split_once('.')?;
            is_history_name(name).then_some(())?;
            Some((number.parse().ok()?, name.to_owned()))
        };
        Ok(listed.iter().filter_map(|meta| entry(meta.location.filename()?)).max())
    }
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
}
