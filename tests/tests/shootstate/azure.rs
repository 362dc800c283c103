//! Chunks in an object store of Azure, records in etcd.

use anyhow::{Result, ensure};
use repot_tests::azure::AzureServer;
use repot_tests::repot::program;
use repot_tests::test_env::TestEnv;
use repot_tests::{run, tool};
use tokio::process::Command;

use super::chunk_store::Server;
use super::world::{collection, large, path};

const SIZE: usize = 5 << 20;

/// States are written, replaced and read; one is not readable while the store is away, and all is well in the end.
async fn states_rest_in(env: &TestEnv, azure: &AzureServer) -> Result<()> {
    let (url, environment) = (azure.url("chunks"), azure.environment());
    let server = Server::start(env, (&url, &environment)).await?;
    let api = &server.api;
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
    let mut fsck = Command::new(program()?);
    fsck.args(["storage", "fsck", &format!("--chunk-store={url}")]).args(&server.flags).envs(environment);
    let checked = tool::run(fsck, b"").await?;
    ensure!(checked.code == 0, "{checked:?}");
    Ok(())
}

#[test]
#[ignore = "takes long to install: make soak"]
fn chunks_rest_in_azure() {
    run(async |env| states_rest_in(env, &AzureServer::start(env).await?).await);
}
