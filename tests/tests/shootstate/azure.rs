//! Chunks in an object store of Azure, records in etcd.

use anyhow::{Result, ensure};
use repot_tests::access::Access;
use repot_tests::azure::AzureServer;
use repot_tests::bed::Bed;
use repot_tests::encryption::{config, provider, write_config};
use repot_tests::etcd::EtcdCluster;
use repot_tests::garden::Garden;
use repot_tests::http::Api;
use repot_tests::repot::{Repot, program};
use repot_tests::{run, tool};
use tokio::process::Command;

use super::world::{collection, large, path};

const SIZE: usize = 5 << 20;

/// States are written, replaced and read; one is not readable while the store is away, and all is well in the end.
async fn states_rest_in(bed: &Bed, azure: &AzureServer) -> Result<()> {
    let etcd = EtcdCluster::start(bed, 1).await?;
    let garden = Garden::start(bed).await?;
    let keys = bed.make_dir("keys")?.join("encryption.yaml");
    write_config(&keys, &config(&[&provider("aesgcm", "key")?]).to_string())?;
    let flags = [
        format!("--etcd-servers={}", etcd.endpoints().join(",")),
        format!("--encryption-provider-config={}", keys.display()),
        format!("--chunk-store={}", azure.url("chunks")),
    ];
    let repot = Repot::replica_with(bed, &garden, &flags, &azure.environment()).await?;
    let server = format!("https://127.0.0.1:{}", repot.port()?);
    let api = Api::new(&Access { server, ..garden.admin().clone() })?;
    for name in ["a", "b"] {
        api.post(&collection("default"), &large(name, SIZE)).await?.ok()?;
    }
    let mut found = api.get(&path("a")).await?.ok()?;
    ensure!(found["spec"] == large("a", SIZE)["spec"], "another spec came back");
    found["metadata"]["labels"] = serde_json::json!({"moved": "no"});
    api.put(&path("a"), &found).await?.ok()?;
    ensure!(api.get(&path("a")).await?.ok()?["spec"] == found["spec"], "another spec came back");
    api.delete(&path("b")).await?.ok()?;
    azure.relay.cut();
    let answer = api.get(&path("a")).await?;
    ensure!(answer.status == 503 && answer.headers.contains_key("retry-after"), "{answer}");
    azure.relay.heal();
    drop(repot);
    let mut fsck = Command::new(program()?);
    fsck.args(["storage", "fsck"]).args(&flags).envs(azure.environment());
    let checked = tool::run(fsck, b"").await?;
    ensure!(checked.code == 0, "{checked:?}");
    Ok(())
}

#[test]
#[ignore = "takes long to install: make soak"]
fn chunks_rest_in_azure() {
    run(async |bed| states_rest_in(bed, &AzureServer::start(bed).await?).await);
}
