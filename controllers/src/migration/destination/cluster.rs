//! The Cluster of a control plane: what extension controllers know of the Shoot.

use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, Preconditions},
    core::{DynamicObject, GroupVersionKind},
    discovery::ApiResource,
};
use repot_api::names::CORE_GROUP;
use serde_json::{Value, json};

use super::prepare::{create_params, is_made_by};
use crate::{
    errors::{is_conflict, is_not_found},
    migration::{
        error::{Error, Result},
        names::MADE_BY,
    },
    shootstate::kinds::CLUSTER,
};

fn clusters(seed: &Client) -> Api<DynamicObject> {
    Api::all_with(seed.clone(), &CLUSTER.resource())
}

/// The Cluster of a control plane; `None` where there is none.
///
/// # Errors
/// [`Error::Read`].
pub async fn find(seed: &Client, name: &str) -> Result<Option<DynamicObject>> {
    clusters(seed).get_opt(name).await.map_err(Error::read(format!("Cluster {name}")))
}

/// Creates the Cluster from the Shoot, its CloudProfile and the Seed in the garden.
///
/// # Errors
/// [`Error::Foreign`] where one exists that this migration did not make.
pub async fn ensure(
    garden: &Client,
    seed: &Client,
    (shoot_namespace, shoot): (&str, &str),
    seed_name: &str,
    name: &str,
    migration: &str,
) -> Result<()> {
    if let Some(found) = find(seed, name).await? {
        let is_ours = is_made_by(&found, migration);
        return if is_ours { Ok(()) } else { Err(Error::Foreign(format!("Cluster {name}"))) };
    }
    let shoot = core(garden, "Shoot", Some(shoot_namespace), shoot).await?;
    let profile =
        shoot.pointer("/spec/cloudProfile/name").or_else(|| shoot.pointer("/spec/cloudProfileName"));
    let profile = profile.and_then(Value::as_str).unwrap_or_default().to_owned();
    let cluster = json!({
        "apiVersion": CLUSTER.api_version(), "kind": CLUSTER.kind,
        "metadata": {"name": name, "labels": {MADE_BY: migration}},
        "spec": {
            "shoot": shoot,
            "cloudProfile": core(garden, "CloudProfile", None, &profile).await?,
            "seed": core(garden, "Seed", None, seed_name).await?,
        },
    });
    let form = |source| Error::Form { what: format!("Cluster {name}"), source };
    let cluster: DynamicObject = serde_json::from_value(cluster).map_err(form)?;
    match clusters(seed).create(&create_params(), &cluster).await {
        Err(error) if is_conflict(&error) => Ok(()),
        outcome => outcome.map(drop).map_err(Error::write(format!("create Cluster {name}"))),
    }
}

/// Deletes the Cluster, where this migration made it.
///
/// # Errors
/// [`Error`].
pub async fn remove(seed: &Client, name: &str, migration: &str) -> Result<()> {
    let Some(found) = find(seed, name).await?.filter(|found| is_made_by(found, migration)) else {
        return Ok(());
    };
    let preconditions = Some(Preconditions { uid: found.uid(), resource_version: None });
    let params = DeleteParams { preconditions, ..DeleteParams::default() };
    match clusters(seed).delete(name, &params).await {
        Err(error) if is_not_found(&error) => Ok(()),
        outcome => outcome.map(drop).map_err(Error::write(format!("delete Cluster {name}"))),
    }
}

/// An object of Gardener's core group, as JSON.
async fn core(garden: &Client, kind: &str, namespace: Option<&str>, name: &str) -> Result<Value> {
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(CORE_GROUP, "v1beta1", kind));
    let all = match namespace {
        Some(namespace) => Api::<DynamicObject>::namespaced_with(garden.clone(), namespace, &resource),
        None => Api::<DynamicObject>::all_with(garden.clone(), &resource),
    };
    let mut found = all.get(name).await.map_err(Error::read(format!("{kind} {name}")))?;
    found.metadata.managed_fields = None;
    serde_json::to_value(found).map_err(|source| Error::Form { what: format!("{kind} {name}"), source })
}
