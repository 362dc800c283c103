//! The backend on etcd, against a real one.

use std::sync::Arc;

use async_trait::async_trait;
use repot_storage::backend::{Backend, Etcd, conformance::Lab};

use super::etcd_process::EtcdProcess;

mod conformance {
    repot_storage::backend_conformance!(super::mk_lab);
}

#[async_trait]
impl Lab for EtcdProcess {
    async fn open(&self) -> Arc<dyn Backend> {
        Arc::new(Etcd::connect(self.options()).await.unwrap())
    }
}

async fn mk_lab() -> EtcdProcess {
    EtcdProcess::start(None).await
}
