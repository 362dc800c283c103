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

fn all(garden: &Client, shoot: &Shoot) -> Api<DynamicObject> {
    let kind = ApiResource::from_gvk_with_plural(
        &GroupVersionKind::gvk(CORE_GROUP, "v1beta1", "BackupEntry"),
        "backupentries",
    );
    Api::namespaced_with(garden.clone(), &shoot.namespace().unwrap_or_default(), &kind)
}

async fn find(garden: &Client, shoot: &Shoot) -> Result<Option<DynamicObject>> {
    let Some(name) = shoot.backup_entry() else { return Ok(None) };
    let found = all(garden, shoot).get_opt(&name).await;
    found.map_err(Error::read(format!("BackupEntry {name}")))
}

/// Which seeds the BackupEntry of a Shoot names; `None` where the garden has none.
///
/// # Errors
/// [`Error::Read`].
pub async fn seeds(garden: &Client, shoot: &Shoot) -> Result<Option<BackupEntrySeeds>> {
    let text = |entry: &DynamicObject, path| text_at(&entry.data, path).unwrap_or_default().to_owned();
    Ok(find(garden, shoot).await?.map(|entry| BackupEntrySeeds {
        spec: text(&entry, "/spec/seedName"),
        status: text(&entry, "/status/seedName"),
    }))
}

/// Writes a seed and its bucket to the BackupEntry of a Shoot: to its spec first, and to its status in the next pass.
///
/// # Errors
/// [`Error`], also where the seed has no BackupBucket.
pub async fn bind(garden: &Client, shoot: &Shoot, seed: &str) -> Result<()> {
    let Some(entry) = find(garden, shoot).await? else { return Ok(()) };
    let (name, version) = (entry.name_any(), entry.resource_version());
    let patch = |fields: Value| under(version.clone(), fields);
    let outcome = if text_at(&entry.data, "/spec/seedName") == Some(seed) {
        let status = json!({"status": {"seedName": seed}});
        all(garden, shoot).patch_status(&name, &params(), &patch(status)).await
    } else {
        let bucket = bucket::of_seed(garden, seed).await?.name_any();
        let spec = json!({"spec": {"seedName": seed, "bucketName": bucket}});
        all(garden, shoot).patch(&name, &params(), &patch(spec)).await
    };
    outcome.map(drop).map_err(Error::write(format!("write BackupEntry {name}")))
}
