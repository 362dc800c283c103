//! What is left of a Shoot at the source, and its removal: nothing that another seed has taken over is touched.

use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, Preconditions},
};
use repot_extension::kinds::{BackupEntry, Cluster, DNSRecord};

use super::{dns_owner, objects::Objects};
use crate::{
    errors::{is_conflict, is_not_found},
    migration::{
        error::{Error, Result},
        seed::{backup_entry, extensions, namespace, read},
    },
};

/// Kinds of objects of the Shoot that are left in the seed.
///
/// # Errors
/// [`Error::Read`].
pub async fn left(seed: &Client, objects: &Objects) -> Result<Vec<String>> {
    let namespace = objects.namespace.as_str();
    let (records, found, entry, cluster, own, owners) = futures::try_join!(
        read::list::<DNSRecord>(seed, namespace, ""),
        extensions::read(seed, namespace, ""),
        entry(seed, objects),
        cluster(seed, namespace),
        namespace::find(seed, namespace),
        dns_owner::left(seed, namespace),
    )?;
    let mut left: Vec<String> = found.iter().map(|one| one.kind.to_owned()).collect();
    left.extend(records.iter().map(|_| "DNSRecord".to_owned()));
    left.extend(entry.map(|_| "BackupEntry".to_owned()));
    left.extend(owners.iter().map(|_| "DNSOwner".to_owned()));
    left.extend(cluster.map(|_| "Cluster".to_owned()));
    left.extend(own.map(|_| "Namespace".to_owned()));
    left.dedup();
    Ok(left)
}

async fn entry(seed: &Client, objects: &Objects) -> Result<Option<BackupEntry>> {
    match &objects.backup_entry {
        Some(name) => backup_entry::find(seed, name).await,
        None => Ok(None),
    }
}

async fn cluster(seed: &Client, name: &str) -> Result<Option<Cluster>> {
    let found = Api::<Cluster>::all(seed.clone()).get_opt(name).await;
    found.map_err(Error::read(format!("Cluster {name}")))
}

/// Deletes extension resources that have migrated, then the BackupEntry, DNSOwners and the Cluster, and the namespace last.
///
/// # Errors
/// [`Error`]; also where an extension resource has not migrated, since its infrastructure would be deleted with it.
pub async fn remove(seed: &Client, objects: &Objects, migration: &str) -> Result<()> {
    let all = || objects.extensions.iter().chain(&objects.records);
    let is_held = |one: &&extensions::Seen| one.requested.is_none() || one.pending.is_some();
    if let Some(held) = all().find(is_held) {
        return Err(Error::Missing(format!("a migrate of {} {} that succeeded", held.kind, held.name)));
    }
    if all().next().is_some() {
        return extensions::delete(seed, &objects.namespace, all()).await;
    }
    if !objects.exposed.is_gone() {
        return objects.exposed.remove(seed, &objects.namespace, migration).await;
    }
    dns_owner::remove(seed, &objects.namespace).await?;
    // A control plane that moved back meanwhile has another namespace of that name.
    let own = objects.own_namespace.as_ref();
    if namespace::find(seed, &objects.namespace).await?.and_then(|found| found.uid())
        != own.and_then(ResourceExt::uid)
    {
        return Ok(());
    }
    if let Some(name) = &objects.backup_entry
        && !backup_entry::remove(seed, name, migration).await?
    {
        return Ok(());
    }
    let Some(own) = own else { return Ok(()) };
    if let Some(found) = cluster(seed, &objects.namespace).await? {
        delete_cluster(seed, &found).await?;
    }
    namespace::delete(seed, own).await
}

async fn delete_cluster(seed: &Client, found: &Cluster) -> Result<()> {
    let preconditions = Some(Preconditions { uid: found.uid(), resource_version: None });
    let params = DeleteParams { preconditions, ..DeleteParams::default() };
    match Api::<Cluster>::all(seed.clone()).delete(&found.name_any(), &params).await {
        Err(error) if is_not_found(&error) || is_conflict(&error) => Ok(()),
        outcome => outcome.map(drop).map_err(Error::write("delete the Cluster")),
    }
}
