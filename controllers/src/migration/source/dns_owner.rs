//! DNSOwners of dns-external: with one, that controller writes the DNSEntries of a Shoot, whatever the owner record says. It has no
//! watchdog of ownership.

use kube::{
    Api, Client, ResourceExt,
    api::DeleteParams,
    core::{DynamicObject, GroupVersionKind},
    discovery::ApiResource,
};

use crate::{
    errors::is_not_found,
    migration::error::{Error, Result},
};

/// What Gardener puts behind the namespace of a control plane in the names of its DNSOwners.
const PURPOSES: [&str; 2] = ["internal", "external"];

fn all(seed: &Client) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk("dns.gardener.cloud", "v1alpha1", "DNSOwner");
    Api::all_with(seed.clone(), &ApiResource::from_gvk(&kind))
}

fn names(namespace: &str) -> impl Iterator<Item = String> {
    PURPOSES.into_iter().map(move |purpose| format!("{namespace}-{purpose}"))
}

/// Those of a control plane that exist; none where the seed does not serve the kind.
///
/// # Errors
/// [`Error::Read`].
pub async fn left(seed: &Client, namespace: &str) -> Result<Vec<String>> {
    let mut left = Vec::new();
    for name in names(namespace) {
        let found = all(seed).get_metadata_opt(&name).await;
        left.extend(found.map_err(Error::read(format!("DNSOwner {name}")))?.map(|found| found.name_any()));
    }
    Ok(left)
}

/// Deletes those of a control plane.
///
/// # Errors
/// [`Error::Read`], [`Error::Write`].
pub async fn remove(seed: &Client, namespace: &str) -> Result<()> {
    for name in left(seed, namespace).await? {
        match all(seed).delete(&name, &DeleteParams::default()).await {
            Err(error) if is_not_found(&error) => {}
            outcome => drop(outcome.map_err(Error::write(format!("delete DNSOwner {name}")))?),
        }
    }
    Ok(())
}
