//! Replicas of Deployments and Etcds, written under the versions that were observed.

use k8s_openapi::api::apps::v1::Deployment;
use kube::{Api, Client, ResourceExt};
use repot_plan::migration::observed::Replicas;
use serde_json::{Value, json};

use super::{delete_all, params, under};
use crate::{
    etcd::api::{Etcd, FENCE},
    migration::error::{Error, Result},
};

/// Replicas of an Etcd or a Deployment before it was stopped, as an annotation.
pub const FORMER_REPLICAS: &str = "migration.gardener.cloud/former-replicas";

/// Gives Deployments their replicas; those that are not named stay as they are. One that is stopped remembers how many it had.
///
/// # Errors
/// [`Error::Write`].
pub async fn deployments<'a>(
    client: &Client,
    namespace: &str,
    found: impl Iterator<Item = &'a Deployment>,
    replicas: &Replicas,
    fence: &str,
) -> Result<()> {
    let all = Api::<Deployment>::namespaced(client.clone(), namespace);
    for deployment in found {
        let name = deployment.name_any();
        let Some(wanted) = replicas.get(&name) else { continue };
        let current = deployment.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1);
        let is_done = u32::try_from(current) == Ok(*wanted)
            && deployment.annotations().get(FENCE).map(String::as_str) == Some(fence);
        if is_done {
            continue;
        }
        let mut annotations = json!({FENCE: fence});
        if u32::try_from(current).is_ok_and(|current| *wanted < current)
            && !is_being_stopped(deployment, fence)
        {
            annotations[FORMER_REPLICAS] = current.to_string().into();
        }
        let patch = json!({"metadata": {"annotations": annotations}, "spec": {"replicas": wanted}});
        let patch = under(deployment.resource_version(), patch);
        let outcome = all.patch(&name, &params(), &patch).await;
        outcome.map_err(Error::write(format!("scale Deployment {name}")))?;
    }
    Ok(())
}

/// Whether a part of its replicas was stopped by this table of this migration, so what it had before is written down.
fn is_being_stopped(deployment: &Deployment, fence: &str) -> bool {
    let annotations = deployment.annotations();
    annotations.get(FENCE).map(String::as_str) == Some(fence) && annotations.contains_key(FORMER_REPLICAS)
}

/// Deletes these Deployments, and none that were made under their names since.
///
/// # Errors
/// [`Error::Write`].
pub async fn delete<'a>(
    client: &Client,
    namespace: &str,
    found: impl Iterator<Item = &'a Deployment>,
) -> Result<()> {
    delete_all(&Api::<Deployment>::namespaced(client.clone(), namespace), "Deployment", found).await
}

/// Gives one Etcd its replicas. One that is stopped remembers how many it had.
///
/// # Errors
/// [`Error::Write`].
pub async fn etcd(client: &Client, etcd: &Etcd, replicas: u32, fence: &str) -> Result<()> {
    let mut annotations = json!({FENCE: fence});
    if replicas == 0 && etcd.spec.replicas > 0 {
        annotations[FORMER_REPLICAS] = etcd.spec.replicas.to_string().into();
    }
    let is_done =
        etcd.spec.replicas == replicas && etcd.annotations().get(FENCE).map(String::as_str) == Some(fence);
    if is_done {
        return Ok(());
    }
    let patch = json!({"metadata": {"annotations": annotations}, "spec": {"replicas": replicas}});
    write(client, etcd, patch, "scale").await
}

/// Writes an Etcd under the version that was observed; `task` says for people what that does.
///
/// # Errors
/// [`Error::Write`].
pub async fn write(client: &Client, etcd: &Etcd, patch: Value, task: &str) -> Result<()> {
    let all = Api::<Etcd>::namespaced(client.clone(), &etcd.namespace().unwrap_or_default());
    let name = etcd.name_any();
    let outcome = all.patch(&name, &params(), &under(etcd.resource_version(), patch)).await;
    outcome.map(drop).map_err(Error::write(format!("{task} Etcd {name}")))
}

/// Replicas that an Etcd has, or had before it was stopped; at least one.
#[must_use]
pub fn members(etcd: &Etcd) -> u32 {
    let former = etcd.annotations().get(FORMER_REPLICAS).and_then(|text| text.parse().ok());
    match etcd.spec.replicas {
        0 => former.unwrap_or(1).max(1),
        replicas => replicas,
    }
}
