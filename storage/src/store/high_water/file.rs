//! A mark in a file.

use std::{io, path::PathBuf};

use async_trait::async_trait;

use super::{HighWaterMark, MarkError, MarkStore};

/// A mark in a file of this machine, which is replaced as a whole. Its directory has to exist, and should be on another volume
/// than the store.
#[derive(Clone, Debug)]
pub struct FileMark {
    path: PathBuf,
}

impl FileMark {
    /// A mark in the file at this path.
    #[must_use]
    pub fn new(path: PathBuf) -> Self {
        Self { path }
    }

    fn error(&self, error: &impl std::fmt::Display) -> MarkError {
        MarkError(format!("{}: {error}", self.path.display()))
    }

    fn replace(&self, content: &[u8]) -> io::Result<()> {
        let dir = match self.path.parent() {
            Some(dir) if !dir.as_os_str().is_empty() => dir,
            Some(_) | None => std::path::Path::new("."),
        };
        let mut file = tempfile::NamedTempFile::new_in(dir)?;
        io::Write::write_all(&mut file, content)?;
        file.as_file().sync_all()?;
        file.persist(&self.path)?;
        std::fs::File::open(dir)?.sync_all()
    }
}

#[async_trait]
impl MarkStore for FileMark {
    async fn load(&self) -> Result<Option<HighWaterMark>, MarkError> {
        match tokio::fs::read_to_string(&self.path).await {
            Ok(content) => content.parse().map(Some),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(self.error(&error)),
        }
    }

    async fn save(&self, mark: &HighWaterMark) -> Result<(), MarkError> {
        let (own, content) = (self.clone(), mark.to_string());
        let replaced = tokio::task::spawn_blocking(move || own.replace(content.as_bytes())).await;
        replaced.map_err(|error| self.error(&error))?.map_err(|error| self.error(&error))
    }

    fn location(&self) -> String {
        format!("file {}", self.path.display())
    }
}
