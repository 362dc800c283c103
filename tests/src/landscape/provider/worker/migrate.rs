//! Machine objects leave a seed, and their VMs stay.

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Pod, Secret};
use kube::api::{Api, ListParams, Patch, PatchParams};
use kube::{Client, ResourceExt};
use repot_extension::Failure;
use serde_json::json;

use super::MACHINES_RETRY;
use super::api::{GROUP, MachineApi, failed, gone_or};
use crate::landscape::machines::MANAGER;

/// Fails while machine-controller-manager has Pods, or should have some: it would delete the VMs of Machines that are deleted.
pub(super) async fn ensure_manager_is_stopped(client: &Client, namespace: &str) -> Result<(), Failure> {
    let deployments = Api::<Deployment>::namespaced(client.clone(), namespace);
    let manager = deployments.get_opt(MANAGER).await.map_err(failed)?;
    let wanted = manager.map(|manager| manager.spec.and_then(|spec| spec.replicas).unwrap_or(1));
    let pods = Api::<Pod>::namespaced(client.clone(), namespace);
    let pods = pods.list(&ListParams::default().labels(&format!("app={MANAGER}"))).await.map_err(failed)?;
    if wanted.is_some_and(|wanted| wanted > 0) || !pods.items.is_empty() {
        let message = format!("{MANAGER} has {} Pods: scale it to 0 first", pods.items.len());
        return Err(Failure::new(message).retry_after(MACHINES_RETRY));
    }
    Ok(())
}

/// Deletes all machine objects without their finalizers. Owners go first, so that nobody replaces what is deleted.
pub(super) async fn forget(api: &MachineApi) -> Result<(), Failure> {
    for kind in [api.deployments(), api.sets(), api.machines(), api.classes()] {
        for name in api.names(kind).await? {
            api.forget(kind, &name).await?;
        }
    }
    Ok(())
}

/// Removes the finalizers that machine-controller-manager put on the Secrets of classes.
pub(super) async fn release_secrets(client: &Client, namespace: &str) -> Result<(), Failure> {
    let secrets = Api::<Secret>::namespaced(client.clone(), namespace);
    for secret in secrets.list(&ListParams::default()).await.map_err(failed)? {
        let (ours, others): (Vec<_>, Vec<_>) =
            secret.finalizers().iter().partition(|finalizer| finalizer.starts_with(GROUP));
        if !ours.is_empty() {
            let patch = json!({"metadata": {
                "finalizers": others, "resourceVersion": secret.resource_version(),
            }});
            gone_or(secrets.patch(&secret.name_any(), &PatchParams::default(), &Patch::Merge(patch)).await)?;
        }
    }
    Ok(())
}
