//! Small objects beside the snapshots, and places below a store that are stores of their own.

use bytes::Bytes;
use futures::{StreamExt, TryStreamExt};
use object_store::{ObjectStore as _, path::Path};

use super::{Error, Mode, Result, Store, mark::LONGEST_LIST, put};

impl Store {
    /// The store at a place below this one.
    #[must_use]
    pub fn below_prefix(&self, parts: &[&str]) -> Self {
        let prefix = parts.iter().fold(self.prefix.clone(), |path, part| path.join(*part));
        let directory = self.directory.clone();
        let directory = directory.map(|dir| parts.iter().fold(dir, |dir, part| dir.join(part)));
        let url = parts.iter().fold(self.url.trim_end_matches('/').to_owned(), |url, part| url + "/" + part);
        Self { prefix, directory, url, ..self.clone() }
    }

    /// A small object; `None` where there is none.
    ///
    /// # Errors
    /// [`Error::Read`]; also where it is too long for what is kept beside snapshots.
    pub async fn read_small(&self, name: &str) -> Result<Option<Bytes>> {
        self.small(&self.prefix.clone().join(name), LONGEST_LIST).await
    }

    /// Writes a small object in place of whatever is there.
    ///
    /// # Errors
    /// [`Error::Write`], [`Error::File`], [`Error::Busy`].
    pub async fn write_small(&self, name: &str, bytes: Bytes) -> Result<()> {
        put::small(self, self.prefix.clone().join(name), bytes, Mode::Replace).await
    }

    /// Names of the places directly below this one.
    ///
    /// # Errors
    /// [`Error::List`].
    pub async fn children(&self) -> Result<Vec<String>> {
        let failed = |source: object_store::Error| Error::List {
            place: self.place(&self.prefix),
            source: source.into(),
        };
        let listed = self.objects.list_with_delimiter(Some(&self.prefix)).await.map_err(failed)?;
        Ok(listed.common_prefixes.iter().filter_map(Path::filename).map(str::to_owned).collect())
    }

    /// Removes everything below this store. What is gone already is no error.
    ///
    /// # Errors
    /// [`Error::List`], [`Error::Write`], [`Error::File`].
    pub async fn remove_all(&self) -> Result<()> {
        if let Some(directory) = &self.directory {
            return match tokio::fs::remove_dir_all(directory).await {
                Err(source) if source.kind() != std::io::ErrorKind::NotFound => {
                    Err(Error::File { path: directory.clone(), source })
                }
                _ => Ok(()),
            };
        }
        let listed = self.objects.list(Some(&self.prefix)).map_ok(|meta| meta.location).try_collect().await;
        let paths: Vec<Path> = listed.map_err(|source: object_store::Error| Error::List {
            place: self.place(&self.prefix),
            source: source.into(),
        })?;
        let all = futures::stream::iter(paths.into_iter().map(Ok)).boxed();
        let mut gone = self.objects.delete_stream(all);
        while let Some(outcome) = gone.next().await {
            match outcome {
                Ok(_) | Err(object_store::Error::NotFound { .. }) => {}
                Err(source) => {
                    return Err(Error::Write { place: self.place(&self.prefix), source: source.into() });
                }
            }
        }
        Ok(())
    }
}
