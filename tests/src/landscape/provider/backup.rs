//! BackupBucket and BackupEntry: the bucket of a seed exists before its objects do, and entries are prefixes in it, so there is
//! nothing to make or remove.

use std::marker::PhantomData;

use repot_extension::kinds::ExtensionObject;
use repot_extension::{Context, Failure, Outcome, Provider};

use super::journal::Log;

/// Reports success, and writes neither a state nor a bucket.
pub(super) struct BackupProvider<K> {
    log: Log,
    kind: PhantomData<fn() -> K>,
}

impl<K> BackupProvider<K> {
    pub(super) fn new(log: Log) -> Self {
        Self { log, kind: PhantomData }
    }
}

impl<K: ExtensionObject> Provider for BackupProvider<K> {
    type Object = K;

    async fn reconcile(&self, object: &K, _: &Context<K>) -> Result<Outcome, Failure> {
        self.log.record("reconcile", object);
        Ok(Outcome::new())
    }

    async fn restore(&self, object: &K, _: &Context<K>) -> Result<Outcome, Failure> {
        self.log.record("restore", object);
        Ok(Outcome::new())
    }

    async fn migrate(&self, object: &K, _: &Context<K>) -> Result<Outcome, Failure> {
        self.log.record("migrate", object);
        Ok(Outcome::new())
    }

    async fn delete(&self, object: &K, _: &Context<K>) -> Result<Outcome, Failure> {
        self.log.record("delete", object);
        Ok(Outcome::new())
    }
}
