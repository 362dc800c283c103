//! What clients do while Prometheus scrapes: changes of a control plane, reads, watches, refused writes and backups.

use std::time::Duration;

use anyhow::Result;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use repot_api::names::{MIGRATION_GROUP, V1ALPHA1};
use repot_tests::pki::random_bytes;
use serde_json::json;
use tokio::time::sleep;

use super::world::{CONTROL_PLANE, PROJECT, World, ours};

/// Between two rounds of the same work.
const PAUSE: Duration = Duration::from_millis(500);
/// Random bytes of a Secret, so that its ShootState has chunks.
const SECRET_BYTES: usize = 200_000;

fn states() -> String {
    format!("/apis/{MIGRATION_GROUP}/{V1ALPHA1}/namespaces/{PROJECT}/shootstates")
}

/// Works until it is dropped, or until a part of it fails.
pub async fn run(world: &World) -> Result<()> {
    tokio::try_join!(change(world), read(world), watch(world), call_directly(world), back_up(world))?;
    Ok(())
}

/// Changes what has to survive the seed, so that the controllers write the ShootState.
async fn change(world: &World) -> Result<()> {
    loop {
        let random = STANDARD.encode(random_bytes::<SECRET_BYTES>()?);
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret", "type": "Opaque", "data": {"key": random},
            "metadata": {
                "namespace": CONTROL_PLANE, "name": "ca",
                "labels": {"persist": "true", "name": "ca", "managed-by": "secrets-manager"},
            },
        });
        world.garden.apply(&[secret]).await?;
        sleep(PAUSE * 4).await;
    }
}

/// Reads the ShootState and lists all, and tries what only controllers may do. Each answer will do.
async fn read(world: &World) -> Result<()> {
    let (api, states) = (world.garden.api(), states());
    let state = json!({
        "apiVersion": format!("{MIGRATION_GROUP}/{V1ALPHA1}"), "kind": "ShootState",
        "metadata": {"namespace": PROJECT, "name": "alpha"}, "spec": {"extensions": []},
    });
    let label = json!({"metadata": {"labels": {"seen": "true"}}});
    loop {
        api.get(&format!("{states}/alpha")).await?;
        api.get(&states).await?;
        api.put(&format!("{states}/alpha"), &state).await?;
        api.patch(&format!("{states}/alpha"), "application/merge-patch+json", &label).await?;
        // A rule refuses it: it is not confirmed.
        api.delete(&format!("{states}/alpha")).await?;
        sleep(PAUSE).await;
    }
}

async fn watch(world: &World) -> Result<()> {
    let path = format!("{}?watch=1", states());
    loop {
        let mut response = world.garden.api().request(reqwest::Method::GET, &path).send().await?;
        while let Ok(Some(_)) = response.chunk().await {}
        sleep(PAUSE).await;
    }
}

/// Calls the API server itself with new tokens, at paths that nobody may read, so that it has to ask kube-apiserver.
async fn call_directly(world: &World) -> Result<()> {
    for round in 0.. {
        let api = world.direct(world.prometheus_token().await?)?;
        api.get("/metrics").await?;
        api.get(&format!("/forbidden/{round}")).await?;
        sleep(PAUSE * 4).await;
    }
    Ok(())
}

/// Takes one backup after the other, for steps of workflows.
async fn back_up(world: &World) -> Result<()> {
    let kind = format!("/apis/{MIGRATION_GROUP}/{V1ALPHA1}/namespaces/{CONTROL_PLANE}/etcdbackups");
    for round in 0.. {
        let name = format!("b-{round}");
        let spec = json!({"clusterRef": {"name": "main"}, "deletionPolicy": "Delete"});
        world.garden.apply(&[ours("EtcdBackup", &name, spec)]).await?;
        loop {
            sleep(PAUSE).await;
            let backup = world.garden.api().get(&format!("{kind}/{name}")).await?.ok()?;
            if ["Succeeded", "RolledBack", "Failed"].iter().any(|phase| backup["status"]["phase"] == *phase) {
                break;
            }
        }
    }
    Ok(())
}
