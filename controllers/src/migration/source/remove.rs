//! What is left of a Shoot at the source, and its removal: nothing that another seed has taken over is touched.

use k8s_openapi::api::core::v1::Namespace;
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, Preconditions},
};
use repot_extension::kinds::{Cluster, DNSRecord};

use super::observe::Objects;
use crate::{
    errors::is_not_found,
    migration::{
        error::{Error, Result},
        seed::{extensions, read},
    },
};

/// Kinds of objects of the Shoot that are left in the seed.
///
/// # Errors
/// [`Error::Read`].
pub async fn left(seed: &Client, namespace: &str) -> Result<Vec<String>> {
    let (records, found, cluster, own) = futures::try_join!(
        read::list::<DNSRecord>(seed, namespace, ""),
        extensions::read(seed, namespace, ""),
        cluster(seed, namespace),
        namespace_of(seed, namespace),
    )?;
    let mut left: Vec<String> = found.iter().map(|one| one.kind.to_owned()).collect();
    left.extend(records.iter().map(|_| "DNSRecord".to_owned()));
    left.extend(cluster.map(|_| "Cluster".to_owned()));
    left.extend(own.map(|_| "Namespace".to_owned()));
    left.dedup();
    Ok(left)
}

async fn cluster(seed: &Client, name: &str) -> Result<Option<Cluster>> {
    let found = Api::<Cluster>::all(seed.clone()).get_opt(name).await;
    found.map_err(Error::read(format!("Cluster {name}")))
}

async fn namespace_of(seed: &Client, name: &str) -> Result<Option<Namespace>> {
    let found = Api::<Namespace>::all(seed.clone()).get_opt(name).await;
    found.map_err(Error::read(format!("Namespace {name}")))
}

/// Deletes extension resources that have migrated, then the Cluster, and the namespace last.
///
/// # Errors
/// [`Error`]; also where an extension resource has not migrated, since its infrastructure would be deleted with it.
pub async fn remove(seed: &Client, objects: &Objects) -> Result<()> {
    let all = || objects.extensions.iter().chain(&objects.records);
    let is_held = |one: &&extensions::Seen| one.requested.is_none() || one.pending.is_some();
    if let Some(held) = all().find(is_held) {
        return Err(Error::Missing(format!("a migrate of {} {} that succeeded", held.kind, held.name)));
    }
    if all().next().is_some() {
        return extensions::delete(seed, &objects.namespace, all()).await;
    }
    let clusters = Api::<Cluster>::all(seed.clone());
    match clusters.delete(&objects.namespace, &DeleteParams::default()).await {
        Err(error) if is_not_found(&error) => {}
        outcome => drop(outcome.map_err(Error::write("delete the Cluster"))?),
    }
    delete_namespace(seed, &objects.namespace).await
}

/// Deletes a namespace that is not being deleted yet.
///
/// # Errors
/// [`Error`].
pub async fn delete_namespace(seed: &Client, name: &str) -> Result<()> {
    let Some(found) = namespace_of(seed, name).await? else { return Ok(()) };
    if found.metadata.deletion_timestamp.is_some() {
        return Ok(());
    }
    let preconditions = Some(Preconditions { uid: found.uid(), resource_version: None });
    let params = DeleteParams { preconditions, ..DeleteParams::default() };
    match Api::<Namespace>::all(seed.clone()).delete(name, &params).await {
        Err(error) if is_not_found(&error) => Ok(()),
        outcome => outcome.map(drop).map_err(Error::write(format!("delete Namespace {name}"))),
    }
}
