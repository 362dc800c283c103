//! What source and destination have in common: the namespace of a control plane in a seed, read and written.

pub mod api_record;
pub mod backup_entry;
pub mod bucket;
pub mod etcd;
pub mod exposure;
pub mod extensions;
pub mod namespace;
pub mod owner;
pub mod read;
pub mod scale;
pub mod shoot_api;
pub mod snapshots;
pub mod tunnel;
pub mod tunnel_client;
pub mod tunnel_facts;
pub mod watch_caches;
pub mod workloads;

use std::{collections::BTreeMap, fmt::Debug};

use k8s_openapi::api::core::v1::Secret;
use kube::{
    Api, Client, Resource, ResourceExt,
    api::{DeleteParams, Patch, PatchParams, Preconditions},
};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::{
    error::{Error, Result},
    names::MANAGER,
};
use crate::errors::{is_conflict, is_not_found};

/// The data of a Secret by key.
///
/// # Errors
/// [`Error::Read`]; [`Error::Missing`] where there is no such Secret.
pub async fn secret(client: &Client, namespace: &str, name: &str) -> Result<BTreeMap<String, Vec<u8>>> {
    let what = || format!("Secret {namespace}/{name}");
    let found = Api::<Secret>::namespaced(client.clone(), namespace).get_opt(name).await;
    let found = found.map_err(Error::read(what()))?.ok_or_else(|| Error::Missing(what()))?;
    Ok(found.data.unwrap_or_default().into_iter().map(|(key, value)| (key, value.0)).collect())
}

/// Deletes these objects with what they own, and none that were made under their names since.
///
/// # Errors
/// [`Error::Write`]; the next pass goes on.
pub(super) async fn delete_all<'a, K>(
    all: &Api<K>,
    kind: &str,
    found: impl Iterator<Item = &'a K>,
) -> Result<()>
where
    K: Resource + Clone + DeserializeOwned + Debug + 'a,
{
    for object in found.filter(|object| object.meta().deletion_timestamp.is_none()) {
        let name = object.name_any();
        let preconditions = Some(Preconditions { uid: object.uid(), resource_version: None });
        let params = DeleteParams { preconditions, ..DeleteParams::background() };
        match all.delete(&name, &params).await {
            Err(error) if is_not_found(&error) || is_conflict(&error) => {}
            outcome => drop(outcome.map_err(Error::write(format!("delete {kind} {name}")))?),
        }
    }
    Ok(())
}

/// Parameters of what a migration writes.
pub(super) fn params() -> PatchParams {
    PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() }
}

/// A merge patch that is refused unless the object is what was observed.
pub(super) fn under(version: Option<String>, mut patch: Value) -> Patch<Value> {
    patch["metadata"]["resourceVersion"] = version.into();
    Patch::Merge(patch)
}
