//! Volumes for claims: a directory of the env for each PersistentVolumeClaim whose StorageClass names [`PROVISIONER`].
//!
//! kube-controller-manager says which claims are ours to serve and binds them; it also says when a volume was released.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use futures::{StreamExt, pin_mut};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::api::storage::v1::StorageClass;
use kube::api::{DeleteParams, PostParams};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};

use super::{Ground, PROVISIONER};

/// kube-controller-manager puts it on claims that it wants somebody else to serve.
const WANTED_FROM: &str = "volume.kubernetes.io/storage-provisioner";
/// kube-scheduler puts it on claims whose class waits for the first consumer.
const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";
/// Tells kube-controller-manager that somebody else deletes the volume.
const PROVISIONED_BY: &str = "pv.kubernetes.io/provisioned-by";
/// Whether a volume has an end, of those whose class has the parameter `quota: enforced`.
const QUOTA: &str = "testbed.repot.dev/quota";

/// How often, and after how long, what failed is tried again.
const ATTEMPTS: u32 = 5;
const RETRY: Duration = Duration::from_millis(500);

/// A zone, where the volumes of a node can be used as well.
const ZONE: &str = "topology.kubernetes.io/zone";
const HOST: &str = "kubernetes.io/hostname";

/// Makes volumes for ever.
pub(super) async fn provision(ground: Arc<Ground>) {
    let claims = Api::<PersistentVolumeClaim>::all(ground.client.clone());
    let events = watcher(claims, watcher::Config::default()).default_backoff().applied_objects();
    pin_mut!(events);
    while let Some(event) = events.next().await {
        // The watcher takes its failures up by itself.
        let Ok(claim) = event else { continue };
        if is_wanted(&claim)
            && let Err(error) = patiently(|| serve(&ground, &claim)).await
        {
            eprintln!("pod runner: no volume for claim {}: {error:#}", claim.name_any());
        }
    }
}

/// Removes volumes for ever.
pub(super) async fn reclaim(ground: Arc<Ground>) {
    let volumes = Api::<PersistentVolume>::all(ground.client.clone());
    let events = watcher(volumes, watcher::Config::default()).default_backoff().applied_objects();
    pin_mut!(events);
    while let Some(event) = events.next().await {
        let Ok(volume) = event else { continue };
        if is_done_with(&volume)
            && let Err(error) = patiently(|| remove(&ground, &volume)).await
        {
            eprintln!("pod runner: volume {} stays: {error:#}", volume.name_any());
        }
    }
}

/// Tries a few times: no further event may come of a claim that kube-apiserver had no time for.
async fn patiently<F: Future<Output = Result<()>>>(attempt: impl Fn() -> F) -> Result<()> {
    for _ in 1..ATTEMPTS {
        if attempt().await.is_ok() {
            return Ok(());
        }
        tokio::time::sleep(RETRY).await;
    }
    attempt().await
}

fn is_wanted(claim: &PersistentVolumeClaim) -> bool {
    let ours = claim.annotations().get(WANTED_FROM).is_some_and(|name| name == PROVISIONER);
    let bound = claim.spec.as_ref().is_some_and(|spec| spec.volume_name.is_some());
    ours && !bound && claim.metadata.deletion_timestamp.is_none()
}

fn is_done_with(volume: &PersistentVolume) -> bool {
    let ours = volume.annotations().get(PROVISIONED_BY).is_some_and(|name| name == PROVISIONER);
    let spec = volume.spec.as_ref();
    let deletes = spec.and_then(|s| s.persistent_volume_reclaim_policy.as_deref()) == Some("Delete");
    let phase = volume.status.as_ref().and_then(|status| status.phase.as_deref());
    ours && deletes && phase == Some("Released") && volume.metadata.deletion_timestamp.is_none()
}

async fn serve(ground: &Ground, claim: &PersistentVolumeClaim) -> Result<()> {
    let spec = claim.spec.as_ref().context("it has no spec")?;
    ensure!(spec.volume_mode.as_deref() != Some("Block"), "block devices are not supported");
    let class = spec.storage_class_name.clone().unwrap_or_default();
    let class = Api::<StorageClass>::all(ground.client.clone()).get(&class).await?;
    let volume = render(ground, claim, &class)?;
    let dir = ground.dir.join("volumes").join(volume.name_any());
    fs::create_dir_all(&dir)?;
    // As a new disk: who is not root needs `fsGroup`.
    fs::set_permissions(&dir, fs::Permissions::from_mode(0o755))?;
    if let Some(bytes) = volume.annotations().get(QUOTA) {
        let options = format!("size={bytes},mode=755");
        let dir = dir.to_string_lossy();
        let script = "mountpoint -q \"$2\" || mount -t tmpfs -o \"$1\" testbed \"$2\"";
        ground.wire.in_hub("/bin/sh", &["-c", script, "-", &options, &dir]).await?;
    }
    let volumes = Api::<PersistentVolume>::all(ground.client.clone());
    match volumes.create(&PostParams::default(), &volume).await {
        // An earlier event of the same claim has led to it.
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
        made => made.map(drop).context("failed to make the volume"),
    }
}

fn render(ground: &Ground, claim: &PersistentVolumeClaim, class: &StorageClass) -> Result<PersistentVolume> {
    let spec = claim.spec.as_ref().context("it has no spec")?;
    let requests = spec.resources.as_ref().and_then(|resources| resources.requests.as_ref());
    let size = requests.and_then(|requests| requests.get("storage")).context("it asks for no storage")?;
    let name = format!("pvc-{}", claim.uid().context("it has no uid")?);
    let mut annotations = json!({PROVISIONED_BY: PROVISIONER});
    let quota = class.parameters.as_ref().and_then(|all| all.get("quota"));
    if quota.is_some_and(|quota| quota == "enforced") {
        annotations[QUOTA] = bytes(&size.0)?.to_string().into();
    }
    let volume = json!({
        "metadata": {"name": name, "annotations": annotations},
        "spec": {
            "capacity": {"storage": size.0}, "accessModes": spec.access_modes, "storageClassName": class.name_any(),
            "persistentVolumeReclaimPolicy": class.reclaim_policy.as_deref().unwrap_or("Delete"),
            "hostPath": {"path": ground.dir.join("volumes").join(&name)},
            "claimRef": {
                "apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": claim.namespace(), "name": claim.name_any(),
                "uid": claim.uid(),
            },
            "nodeAffinity": claim.annotations().get(SELECTED_NODE).map(|node| affinity(ground, node)),
        },
    });
    serde_json::from_value(volume).context("failed to render the volume")
}

/// The nodes from which a volume can be used: like a disk of a cloud those of its zone, else the one it was made for.
fn affinity(ground: &Ground, node: &str) -> Value {
    let labels = ground.nodes.iter().find(|slot| slot.name == node).map(|slot| &slot.labels);
    let (key, value) = match labels.and_then(|labels| labels.get(ZONE)) {
        Some(zone) => (ZONE, zone.as_str()),
        None => (HOST, node),
    };
    let expression = json!({"key": key, "operator": "In", "values": [value]});
    json!({"required": {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}})
}

async fn remove(ground: &Ground, volume: &PersistentVolume) -> Result<()> {
    let dir = ground.dir.join("volumes").join(volume.name_any());
    if volume.annotations().contains_key(QUOTA) {
        // Containers that are about to end may still have it.
        ground.wire.in_hub("umount", &["-l", &dir.to_string_lossy()]).await?;
    }
    if let Err(error) = fs::remove_dir_all(&dir)
        && error.kind() != std::io::ErrorKind::NotFound
    {
        bail!("failed to remove {}: {error}", dir.display());
    }
    let volumes = Api::<PersistentVolume>::all(ground.client.clone());
    volumes.delete(&volume.name_any(), &DeleteParams::default()).await.map(drop).map_err(Into::into)
}

/// A quantity in bytes: whole numbers with the usual suffixes.
fn bytes(quantity: &str) -> Result<u64> {
    let digits = quantity.find(|c: char| !c.is_ascii_digit()).unwrap_or(quantity.len());
    let (number, suffix) = quantity.split_at(digits);
    let unit: u64 = match suffix {
        "" => 1,
        "k" => 1000,
        "Ki" => 1 << 10,
        "M" => 1_000_000,
        "Mi" => 1 << 20,
        "G" => 1_000_000_000,
        "Gi" => 1 << 30,
        _ => bail!("{quantity} is no size that the testbed can read"),
    };
    let number: u64 = number.parse().with_context(|| format!("{quantity} is no size"))?;
    number.checked_mul(unit).with_context(|| format!("{quantity} is too much"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_sizes() {
        let read = |text: &str| bytes(text).ok();
        assert_eq!(
            ["7", "2Ki", "3M", "1Gi", "1.5Gi", "Mi", "9999999999999Gi"].map(read),
            [Some(7), Some(2048), Some(3_000_000), Some(1 << 30), None, None, None]
        );
    }
}
