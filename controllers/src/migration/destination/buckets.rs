//! Access of a control plane to the buckets of seeds: a Secret beside the Etcd. The controller of a BackupEntry writes it; in a seed
//! without that kind, and for a Shoot without a BackupEntry, it is a copy of the credentials in the garden.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::{ByteString, api::core::v1::Secret};
use kube::{
    Api, Client, ResourceExt,
    api::DeleteParams,
    core::{DynamicObject, ObjectMeta},
};
use repot_apimachinery::value::text_at;
use repot_extension::{annotations::Requested, kinds::BackupEntry, request::Request};
use repot_plan::migration::observed::MigrationRequest;
use serde_json::json;

use super::{objects::Objects, prepare::create_params};
use crate::{
    errors::{is_conflict, is_not_found},
    migration::{
        error::{Error, Result},
        names::{BACKUP_SECRET, MADE_BY, SOURCE_BACKUP_SECRET},
        seed::{backup_entry, bucket, params, under},
    },
};

type Credentials = BTreeMap<String, ByteString>;

/// Access to the bucket of one seed.
pub struct Access<'a> {
    /// Namespace of the control plane.
    namespace: &'a str,
    /// Name of the Secret in it.
    secret: &'a str,
    /// Name of the BackupEntry; `None` where the Shoot has none.
    entry: Option<String>,
    /// How the BackupEntry begins.
    operation: Requested,
    /// Seed whose bucket it is.
    seed: &'a str,
    /// UID of the migration that makes the BackupEntry.
    migration: &'a str,
}

impl<'a> Access<'a> {
    /// Access to the bucket of the source, until its last snapshot is copied.
    pub fn to_source(objects: &'a Objects, request: &'a MigrationRequest) -> Self {
        Self {
            namespace: &objects.namespace,
            secret: SOURCE_BACKUP_SECRET,
            entry: objects.backup_entry.as_deref().map(backup_entry::source_name),
            operation: Requested::Reconcile,
            seed: &request.source_seed,
            migration: &request.uid,
        }
    }

    /// Access to the bucket of the destination, for good.
    pub fn to_destination(objects: &'a Objects, request: &'a MigrationRequest) -> Self {
        Self {
            namespace: &objects.namespace,
            secret: BACKUP_SECRET,
            entry: objects.backup_entry.clone(),
            operation: Requested::Restore,
            seed: &request.destination_seed,
            migration: &request.uid,
        }
    }
}

/// Makes the BackupEntry or the Secret.
///
/// # Errors
/// Where the garden has no credentials of that seed's bucket, or an object cannot be written.
pub async fn ensure(garden: &Client, seed: &Client, access: &Access<'_>) -> Result<()> {
    let bucket = bucket::of_seed(garden, access.seed).await?;
    let credentials = bucket::credentials(garden, &bucket, access.seed).await?;
    match &access.entry {
        Some(name) if backup_entry::is_served(seed).await? => {
            let secret = (backup_entry::GARDEN, backup_entry::secret_name(name));
            ensure_secret(seed, (secret.0, &secret.1), Some(access.migration), credentials).await?;
            ensure_entry(seed, name, &bucket, access).await
        }
        Some(_) | None => ensure_secret(seed, (access.namespace, access.secret), None, credentials).await,
    }
}

/// One that exists was made by an earlier pass, or by the gardenlet of the seed.
async fn ensure_entry(seed: &Client, name: &str, bucket: &DynamicObject, access: &Access<'_>) -> Result<()> {
    match backup_entry::find(seed, name).await? {
        Some(found) if found.metadata.deletion_timestamp.is_some() => {
            return Err(Error::Foreign(format!("BackupEntry {name}, which is being deleted,")));
        }
        // Its Secret leads to another bucket, which may have older snapshots of the same Shoot.
        Some(found) if found.spec.bucket_name != bucket.name_any() => {
            let other = found.spec.bucket_name;
            return Err(Error::Foreign(format!("BackupEntry {name}, which names the bucket {other},")));
        }
        Some(_) => return Ok(()),
        None => {}
    }
    let entry = entry(name, bucket, access)?;
    match Api::<BackupEntry>::all(seed.clone()).create(&create_params(), &entry).await {
        Err(error) if is_conflict(&error) => Ok(()),
        outcome => outcome.map(drop).map_err(Error::write(format!("create BackupEntry {name}"))),
    }
}

fn entry(name: &str, bucket: &DynamicObject, access: &Access<'_>) -> Result<BackupEntry> {
    let text = |path| text_at(&bucket.data, path).unwrap_or_default();
    let request = Request::new(access.operation, Timestamp::now());
    let secret = json!({"namespace": backup_entry::GARDEN, "name": backup_entry::secret_name(name)});
    let mut entry = json!({
        "apiVersion": "extensions.gardener.cloud/v1alpha1", "kind": "BackupEntry",
        "metadata": {
            "name": name, "labels": {MADE_BY: access.migration}, "annotations": request.annotations(),
        },
        "spec": {
            "type": text("/spec/provider/type"), "region": text("/spec/provider/region"),
            "bucketName": bucket.name_any(), "secretRef": secret,
        },
    });
    if let Some(status) = bucket.data.pointer("/status/providerStatus") {
        entry["spec"]["backupBucketProviderStatus"] = status.clone();
    }
    let what = || format!("BackupEntry {name}");
    serde_json::from_value(entry).map_err(|source| Error::Form { what: what(), source })
}

/// Writes credentials of a bucket in the garden to a Secret.
///
/// # Errors
/// Where the garden has no credentials of that seed's bucket, or the Secret cannot be written.
pub async fn copy_secret(
    garden: &Client,
    seed: &Client,
    namespace: &str,
    name: &str,
    bucket_of: &str,
) -> Result<()> {
    let bucket = bucket::of_seed(garden, bucket_of).await?;
    let credentials = bucket::credentials(garden, &bucket, bucket_of).await?;
    ensure_secret(seed, (namespace, name), None, credentials).await
}

/// The label says which migration removes the Secret; one beside the Etcd goes with its namespace.
async fn ensure_secret(
    seed: &Client,
    (namespace, name): (&str, &str),
    migration: Option<&str>,
    data: Credentials,
) -> Result<()> {
    let all = Api::<Secret>::namespaced(seed.clone(), namespace);
    let what = || format!("Secret {namespace}/{name}");
    let Some(found) = all.get_opt(name).await.map_err(Error::read(what()))? else {
        let labels = migration.map(|uid| BTreeMap::from([(MADE_BY.to_owned(), uid.to_owned())]));
        let metadata = ObjectMeta { name: Some(name.to_owned()), labels, ..ObjectMeta::default() };
        let secret =
            Secret { metadata, data: Some(data), type_: Some("Opaque".to_owned()), ..Secret::default() };
        return match all.create(&create_params(), &secret).await {
            Err(error) if is_conflict(&error) => Ok(()),
            outcome => outcome.map(drop).map_err(Error::write(format!("create {}", what()))),
        };
    };
    if found.data.as_ref() == Some(&data) {
        return Ok(());
    }
    let patch = under(found.resource_version(), json!({"data": data}));
    let outcome = all.patch(name, &params(), &patch).await;
    outcome.map(drop).map_err(Error::write(format!("write {}", what())))
}

/// What is still to come before members reach the bucket of the destination.
///
/// # Errors
/// [`Error::Read`].
pub async fn missing_secret(seed: &Client, objects: &Objects) -> Result<Option<String>> {
    if has_secret(seed, &objects.namespace, BACKUP_SECRET).await? {
        return Ok(None);
    }
    let writer = objects.backup_entry.as_ref();
    let writer = writer.map(|entry| format!(", which the controller of BackupEntry {entry} writes"));
    Ok(Some(format!("Secret {BACKUP_SECRET}{}", writer.unwrap_or_default())))
}

async fn has_secret(seed: &Client, namespace: &str, name: &str) -> Result<bool> {
    let found = Api::<Secret>::namespaced(seed.clone(), namespace).get_metadata_opt(name).await;
    Ok(found.map_err(Error::read(format!("Secret {name}")))?.is_some())
}

/// Whether there is still access to the bucket of the source.
///
/// # Errors
/// [`Error::Read`].
pub async fn has_source(seed: &Client, objects: &Objects) -> Result<bool> {
    let is_there = match objects.backup_entry.as_deref().map(backup_entry::source_name) {
        Some(name) => backup_entry::find(seed, &name).await?.is_some(),
        None => false,
    };
    Ok(is_there || has_secret(seed, &objects.namespace, SOURCE_BACKUP_SECRET).await?)
}

/// Ends access to the bucket of the source. Its snapshots stay.
///
/// # Errors
/// [`Error`]. The next pass goes on.
pub async fn remove_source(seed: &Client, objects: &Objects, migration: &str) -> Result<()> {
    if let Some(name) = objects.backup_entry.as_deref().map(backup_entry::source_name)
        && !backup_entry::remove(seed, &name, migration).await?
    {
        return Ok(());
    }
    let all = Api::<Secret>::namespaced(seed.clone(), &objects.namespace);
    match all.delete(SOURCE_BACKUP_SECRET, &DeleteParams::default()).await {
        Err(error) if is_not_found(&error) => Ok(()),
        outcome => outcome.map(drop).map_err(Error::write(format!("delete Secret {SOURCE_BACKUP_SECRET}"))),
    }
}
