//! The embedded backend.

use std::sync::Arc;

use async_trait::async_trait;
use repot_storage::backend::{Backend, Embedded, conformance::Lab, embedded::Options};
use tempfile::TempDir;

mod conformance {
    repot_storage::backend_conformance!(super::mk_lab);
}

struct Directory(TempDir);

#[async_trait]
impl Lab for Directory {
    async fn open(&self) -> Arc<dyn Backend> {
        Arc::new(Embedded::open(self.0.path(), Options::default()).await.unwrap())
    }
}

async fn mk_lab() -> Directory {
    Directory(tempfile::tempdir().unwrap())
}
