//! The BackupEntry of a Shoot in the garden: which seed and which bucket hold its snapshots.

use kube::{
    Api, Client, ResourceExt,
    core::{DynamicObject, GroupVersionKind},
    discovery::ApiResource,
};
use repot_api::names::CORE_GROUP;
use repot_apimachinery::value::text_at;
use repot_plan::migration::observed::BackupEntrySeeds;
use serde_json::{Value, json};

use crate::migration::{
    api::Shoot,
    error::{Error, Result},
    seed::{bucket, params, under},
};

fn all(garden: &Client, namespace: &str) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk(CORE_GROUP, "v1beta1", "BackupEntry");
    let resource = ApiResource::from_gvk_with_plural(&kind, "backupentries");
    Api::namespaced_with(garden.clone(), namespace, &resource)
}

/// The BackupEntry of a Shoot; `None` where the garden has none.
///
/// # Errors
/// [`Error::Read`].
pub async fn find(garden: &Client, shoot: &Shoot) -> Result<Option<DynamicObject>> {
    let Some(name) = shoot.backup_entry() else { return Ok(None) };
    let found = all(garden, &shoot.namespace().unwrap_or_default()).get_opt(&name).await;
    found.map_err(Error::read(format!("BackupEntry {name}")))
}

/// Which seeds a BackupEntry names.
pub fn seeds(entry: &DynamicObject) -> BackupEntrySeeds {
    let text = |path| text_at(&entry.data, path).unwrap_or_default().to_owned();
    BackupEntrySeeds { spec: text("/spec/seedName"), status: text("/status/seedName") }
}

/// Writes a seed and its bucket to a BackupEntry: to its spec first, and to its status in the next pass.
///
/// # Errors
/// [`Error`], also where the seed has no BackupBucket.
pub async fn bind(garden: &Client, entry: &DynamicObject, seed: &str) -> Result<()> {
    if seeds(entry).spec == seed {
        return patch(garden, entry, json!({"status": {"seedName": seed}}), true).await;
    }
    let bucket = bucket::of_seed(garden, seed).await?.name_any();
    patch(garden, entry, json!({"spec": {"seedName": seed, "bucketName": bucket}}), false).await
}

/// Writes fields of a BackupEntry, or of its status, unless it is another one than was observed.
///
/// # Errors
/// [`Error::Write`].
pub async fn patch(garden: &Client, entry: &DynamicObject, fields: Value, is_status: bool) -> Result<()> {
    let all = all(garden, &entry.namespace().unwrap_or_default());
    let (name, patch) = (entry.name_any(), under(entry.resource_version(), fields));
    let outcome = match is_status {
        true => all.patch_status(&name, &params(), &patch).await,
        false => all.patch(&name, &params(), &patch).await,
    };
    outcome.map(drop).map_err(Error::write(format!("write BackupEntry {name}")))
}
