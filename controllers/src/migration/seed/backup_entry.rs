//! The BackupEntry of a Shoot in a seed: its part of a bucket. Its controller writes the Secret with which members reach the bucket.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Client, ResourceExt, api::DeleteParams};
use repot_api::names::{EXTENSIONS_GROUP, V1ALPHA1};
use repot_extension::kinds::BackupEntry;
use repot_plan::migration::observed::ExtensionOperation;

use super::extensions;
use crate::{
    errors::is_not_found,
    migration::{
        error::{Error, Result},
        names::MADE_BY,
    },
};

/// Namespace of a seed with Secrets of the seed itself (Gardener).
pub const GARDEN: &str = "garden";

/// Name of the BackupEntry for the bucket that a Shoot leaves (Gardener).
#[must_use]
pub fn source_name(entry: &str) -> String {
    format!("source-{entry}")
}

/// Name of the Secret that a BackupEntry refers to, in the namespace [`GARDEN`] (Gardener).
#[must_use]
pub fn secret_name(entry: &str) -> String {
    format!("entry-{entry}")
}

/// Whether a seed has this kind. Platforms without Gardener have not.
///
/// # Errors
/// [`Error::Read`].
pub async fn is_served(seed: &Client) -> Result<bool> {
    match seed.list_api_group_resources(&format!("{EXTENSIONS_GROUP}/{V1ALPHA1}")).await {
        Ok(found) => Ok(found.resources.iter().any(|resource| resource.name == "backupentries")),
        Err(error) if is_not_found(&error) => Ok(false),
        Err(error) => Err(Error::read("the kinds of extension resources")(error)),
    }
}

/// A BackupEntry; `None` where there is none of that name, or no such kind.
///
/// # Errors
/// [`Error::Read`].
pub async fn find(seed: &Client, name: &str) -> Result<Option<BackupEntry>> {
    let found = Api::<BackupEntry>::all(seed.clone()).get_opt(name).await;
    found.map_err(Error::read(format!("BackupEntry {name}")))
}

/// Gives a BackupEntry up, so that its snapshots stay, then deletes it and the Secret that it refers to. Returns whether nothing is left.
///
/// # Errors
/// [`Error`]. The next pass goes on.
pub async fn remove(seed: &Client, name: &str, migration: &str) -> Result<bool> {
    let Some(entry) = find(seed, name).await? else {
        delete_secret(seed, &secret_name(name)).await?;
        return Ok(true);
    };
    let seen = [extensions::of_entry(&entry, migration)];
    // Without a finalizer, no controller has taken it up yet, or one has given it up.
    if entry.finalizers().is_empty() || has_migrated(&seen[0]) {
        extensions::delete(seed, "", seen.iter()).await?;
    } else {
        extensions::request(seed, "", seen.iter(), ExtensionOperation::Migrate, migration).await?;
    }
    Ok(false)
}

fn has_migrated(seen: &extensions::Seen) -> bool {
    seen.requested == Some(ExtensionOperation::Migrate) && seen.pending.is_none()
}

/// Whether a migration has made a BackupEntry or the Secret that it refers to, and it is still there.
///
/// # Errors
/// [`Error::Read`].
pub async fn is_left_by(seed: &Client, name: &str, migration: &str) -> Result<bool> {
    let is_by =
        |labels: &BTreeMap<String, String>| labels.get(MADE_BY).map(String::as_str) == Some(migration);
    if let Some(entry) = find(seed, name).await? {
        return Ok(is_by(entry.labels()));
    }
    let secret = secret_name(name);
    let found = Api::<Secret>::namespaced(seed.clone(), GARDEN).get_metadata_opt(&secret).await;
    let found = found.map_err(Error::read(format!("Secret {GARDEN}/{secret}")))?;
    Ok(found.is_some_and(|secret| is_by(secret.labels())))
}

async fn delete_secret(seed: &Client, name: &str) -> Result<()> {
    let all = Api::<Secret>::namespaced(seed.clone(), GARDEN);
    match all.delete(name, &DeleteParams::default()).await {
        Err(error) if is_not_found(&error) => Ok(()),
        outcome => outcome.map(drop).map_err(Error::write(format!("delete Secret {GARDEN}/{name}"))),
    }
}
