//! What others built on client-go, as itself and through a real kube-apiserver: each does its work, and Repot's side is looked at.

mod argo;
mod flux;
mod helm;
mod manager;
mod runtime;
mod velero;

use std::time::Duration;

use anyhow::Result;
use repot_tests::http::Answer;
use repot_tests::wait::until;
use serde_json::Value;

use crate::etcd_kinds::world::{World, path};
use crate::shootstate::world::path as state_path;

const DEADLINE: Duration = Duration::from_secs(60);

/// A ShootState as the server has it.
async fn state(world: &World, name: &str) -> Result<Value> {
    world.api.get(&state_path(name)).await?.ok()
}

/// An EtcdBackup as the server has it.
async fn backup(world: &World, name: &str) -> Result<Value> {
    world.api.get(&path("etcdbackups", name)).await?.ok()
}

/// The one number in the opaque state of a ShootState.
fn count(state: &Value) -> &Value {
    &state["spec"]["extensions"][0]["state"]["count"]
}

/// The answer to a reading once it satisfies.
async fn once(world: &World, path: &str, what: &str, is: impl Fn(&Answer) -> bool) -> Result<Answer> {
    until(what, DEADLINE, async || {
        let answer = world.api.get(path).await?;
        anyhow::ensure!(is(&answer), "{answer}");
        Ok(answer)
    })
    .await
}

/// The managers of an object that did so.
fn managers<'a>(object: &'a Value, operation: &str) -> Vec<&'a str> {
    let entries = object["metadata"]["managedFields"].as_array();
    let ours = entries.into_iter().flatten().filter(|entry| entry["operation"] == operation);
    ours.filter_map(|entry| entry["manager"].as_str()).collect()
}

/// Waits until kube-apiserver tells of our kinds in the document of version 2, which it renews once a minute.
async fn published(world: &World) -> Result<()> {
    until("kube-apiserver to publish our document", Duration::from_secs(150), async || {
        let document = world.api.get("/openapi/v2").await?.ok()?;
        for name in
            ["cloud.gardener.core.v1alpha1.ShootState", "cloud.gardener.migration.v1alpha1.EtcdBackup"]
        {
            anyhow::ensure!(document["definitions"].get(name).is_some(), "{name} is not in it");
        }
        Ok(())
    })
    .await
}
