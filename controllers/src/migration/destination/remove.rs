//! What this migration has made at the destination, and its removal in a rollback: nothing outside of the seed is touched.

use kube::Client;
use repot_plan::migration::observed::ExtensionOperation;

use super::{cluster, guard, objects::Objects, prepare::is_made_by};
use crate::migration::{
    error::Result,
    seed::{backup_entry, extensions, namespace},
};

/// Names of BackupEntries that this migration may have made.
fn entries(objects: &Objects) -> impl Iterator<Item = String> {
    let own = objects.backup_entry.iter();
    own.flat_map(|entry| [entry.clone(), backup_entry::source_name(entry)])
}

/// Kinds of objects that exist with the UID of this migration.
///
/// # Errors
/// [`Error::Read`].
pub async fn left(seed: &Client, objects: &Objects, migration: &str) -> Result<Vec<String>> {
    let mut left = Vec::new();
    if objects.own_namespace.as_ref().is_some_and(|found| is_made_by(found, migration)) {
        left.push("Namespace".to_owned());
    }
    let found = cluster::find(seed, &objects.namespace).await?;
    if found.is_some_and(|found| is_made_by(&found, migration)) {
        left.push("Cluster".to_owned());
    }
    for entry in entries(objects) {
        let is_left = backup_entry::is_left_by(seed, &entry, migration).await?;
        left.extend(is_left.then(|| format!("BackupEntry {entry}")));
    }
    if guard::exists(seed, migration).await? {
        left.push("ValidatingAdmissionPolicy".to_owned());
    }
    Ok(left)
}

/// Removes them. Extension resources that wait for their state were never touched by their controllers; those that were restored have
/// to migrate first, so that their controllers leave the infrastructure alone.
///
/// # Errors
/// [`Error`]. The next pass goes on.
pub async fn remove(seed: &Client, objects: &Objects, migration: &str) -> Result<()> {
    if let Some(own_namespace) = objects.own_namespace.as_ref().filter(|found| is_made_by(*found, migration))
    {
        if !objects.exposed.is_gone() {
            return objects.exposed.remove(seed, &objects.namespace, migration).await;
        }
        let all = || objects.extensions.iter().chain(&objects.records).chain(&objects.owner_seen);
        let restored = all().filter(|one| one.requested == Some(ExtensionOperation::Restore));
        let own = &objects.namespace;
        extensions::request(seed, own, restored, ExtensionOperation::Migrate, migration).await?;
        let is_busy = |one: &&extensions::Seen| one.requested.is_some() && one.pending.is_some();
        if all().any(|one| is_busy(&one) || one.requested == Some(ExtensionOperation::Restore)) {
            return Ok(());
        }
        if all().next().is_some() {
            return extensions::delete(seed, own, all()).await;
        }
        namespace::delete(seed, own_namespace).await?;
    }
    for entry in entries(objects) {
        if backup_entry::is_left_by(seed, &entry, migration).await? {
            backup_entry::remove(seed, &entry, migration).await?;
        }
    }
    cluster::remove(seed, &objects.namespace, migration).await?;
    guard::remove(seed, migration).await
}
