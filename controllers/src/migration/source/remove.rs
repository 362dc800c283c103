//! What is left of a Shoot at the source, and its removal: nothing that another seed has taken over is touched.

use kube::{Api, Client, api::DeleteParams};
use repot_extension::kinds::{Cluster, DNSRecord};

use super::objects::Objects;
use crate::{
    errors::is_not_found,
    migration::{
        error::{Error, Result},
        seed::{extensions, namespace, read},
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
        namespace::find(seed, namespace),
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
    namespace::delete(seed, &objects.namespace).await
}
