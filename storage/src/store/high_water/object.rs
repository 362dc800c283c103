//! A mark in an object store, beside the chunks.

use std::sync::Arc;

use async_trait::async_trait;
use object_store::{ObjectStore, ObjectStoreExt, path::Path};

use super::{HighWaterMark, MarkError, MarkStore};

/// The object. Its name is none that a chunk can have.
const NAME: &str = "high-water-mark";

/// A mark in an object store. Servers that write at the same time may leave the lower one of their marks; the other server
/// corrects it with its next look, a few seconds later.
#[derive(Clone, Debug)]
pub struct ObjectMark {
    objects: Arc<dyn ObjectStore>,
    path: Path,
    url: String,
}

impl ObjectMark {
    /// Under `root`. `url`: what the store is called in messages, without anything secret.
    #[must_use]
    pub fn new(objects: Arc<dyn ObjectStore>, root: &Path, url: String) -> Self {
        Self { objects, path: root.clone().join(NAME), url }
    }
}

#[async_trait]
impl MarkStore for ObjectMark {
    async fn load(&self) -> Result<Option<HighWaterMark>, MarkError> {
        let read = async { self.objects.get(&self.path).await?.bytes().await };
        match read.await {
            Ok(content) => String::from_utf8_lossy(&content).parse().map(Some),
            Err(object_store::Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(MarkError(error.to_string())),
        }
    }

    async fn save(&self, mark: &HighWaterMark) -> Result<(), MarkError> {
        let put = self.objects.put(&self.path, mark.to_string().into_bytes().into()).await;
        put.map(drop).map_err(|error| MarkError(error.to_string()))
    }

    fn location(&self) -> String {
        format!("object {} of {}", self.path, self.url)
    }
}
