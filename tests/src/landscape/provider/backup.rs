//! BackupBucket and BackupEntry. The bucket of a seed exists before its objects do, and entries are prefixes in it. What an entry makes
//! is the Secret with which members of the Shoot's etcd reach the bucket.

use k8s_openapi::api::core::v1::Secret;
use kube::api::{ObjectMeta, Patch, PatchParams};
use kube::{Api, Client, ResourceExt};
use repot_extension::kinds::{BackupBucket, BackupEntry};
use repot_extension::{Context, Failure, Outcome, Provider};

use super::journal::Log;
use crate::landscape::seed::BACKUP_SECRET;

/// Writes neither a state nor a bucket.
pub(super) struct BucketProvider(pub(super) Log);

impl Provider for BucketProvider {
    type Object = BackupBucket;

    async fn reconcile(&self, object: &BackupBucket, _: &Context<BackupBucket>) -> Result<Outcome, Failure> {
        self.0.record("reconcile", object);
        Ok(Outcome::new())
    }

    async fn restore(&self, object: &BackupBucket, _: &Context<BackupBucket>) -> Result<Outcome, Failure> {
        self.0.record("restore", object);
        Ok(Outcome::new())
    }

    async fn migrate(&self, object: &BackupBucket, _: &Context<BackupBucket>) -> Result<Outcome, Failure> {
        self.0.record("migrate", object);
        Ok(Outcome::new())
    }

    async fn delete(&self, object: &BackupBucket, _: &Context<BackupBucket>) -> Result<Outcome, Failure> {
        self.0.record("delete", object);
        Ok(Outcome::new())
    }
}

/// Writes the Secret of each entry into the namespace that its name tells, as the library of Gardener's providers does.
pub(super) struct EntryProvider(pub(super) Log);

impl Provider for EntryProvider {
    type Object = BackupEntry;

    async fn reconcile(
        &self,
        object: &BackupEntry,
        context: &Context<BackupEntry>,
    ) -> Result<Outcome, Failure> {
        self.0.record("reconcile", object);
        write_secret(object, context.client()).await
    }

    async fn restore(
        &self,
        object: &BackupEntry,
        context: &Context<BackupEntry>,
    ) -> Result<Outcome, Failure> {
        self.0.record("restore", object);
        write_secret(object, context.client()).await
    }

    async fn migrate(&self, object: &BackupEntry, _: &Context<BackupEntry>) -> Result<Outcome, Failure> {
        self.0.record("migrate", object);
        Ok(Outcome::new())
    }

    /// A provider would delete the snapshots here.
    async fn delete(&self, object: &BackupEntry, _: &Context<BackupEntry>) -> Result<Outcome, Failure> {
        self.0.record("delete", object);
        Ok(Outcome::new())
    }
}

async fn write_secret(entry: &BackupEntry, client: &Client) -> Result<Outcome, Failure> {
    let failure = |error: kube::Error| Failure::new(error.to_string());
    let (own, reference) = (entry.name_any(), &entry.spec.secret_ref);
    let (shoot, name) = match own.strip_prefix("source-") {
        Some(shoot) => (shoot, format!("source-{BACKUP_SECRET}")),
        None => (own.as_str(), BACKUP_SECRET.to_owned()),
    };
    // The UID of the Shoot is behind the last two hyphens.
    let (namespace, _) =
        shoot.rsplit_once("--").ok_or_else(|| Failure::new(format!("{own} names no namespace")))?;
    let part = |text: &Option<String>| text.clone().unwrap_or_default();
    let source = Api::<Secret>::namespaced(client.clone(), &part(&reference.namespace));
    let source = source.get(&part(&reference.name)).await;
    let metadata = ObjectMeta { name: Some(name.clone()), ..ObjectMeta::default() };
    let secret = Secret { metadata, data: source.map_err(failure)?.data, ..Secret::default() };
    let all = Api::<Secret>::namespaced(client.clone(), namespace);
    let params = PatchParams::apply("local-provider").force();
    all.patch(&name, &params, &Patch::Apply(&secret)).await.map_err(failure)?;
    Ok(Outcome::new())
}
