//! A key is replaced in the documented order, while every replica reads and writes.

use anyhow::{Context, Result, ensure};
use repot_tests::encryption::{Plugin, provider};
use repot_tests::http::Api;
use repot_tests::run;
use serde_json::Value;
use tokio::sync::watch::{Receiver, Sender};
use tokio::task::JoinHandle;

use super::world::World;
use crate::shootstate::world::{collection, path};

/// Reads without a pause; every read has to succeed.
struct Reader {
    stop: Sender<bool>,
    tasks: Vec<JoinHandle<Result<u64>>>,
}

impl Reader {
    fn start(world: &World, name: &str) -> Self {
        let stop = Sender::new(false);
        let task = |api: Api| tokio::spawn(read_on(api, path(name), stop.subscribe()));
        let tasks = world.replicas.iter().map(|replica| task(replica.api.clone())).collect();
        Self { stop, tasks }
    }

    async fn end(self) -> Result<()> {
        self.stop.send_replace(true);
        for task in self.tasks {
            let reads = task.await??;
            ensure!(reads > 10, "there were {reads} reads");
        }
        Ok(())
    }
}

async fn read_on(api: Api, path: String, stop: Receiver<bool>) -> Result<u64> {
    let mut reads = 0;
    while !*stop.borrow() {
        api.get(&path).await?.ok()?;
        api.get(&collection("default")).await?.ok()?;
        reads += 1;
    }
    Ok(reads)
}

/// Each replica writes something new, and writes something back that the other one wrote.
async fn use_all(world: &World, names: &mut Vec<String>) -> Result<()> {
    for replica in &world.replicas {
        let name = format!("state-{:03}", names.len());
        replica.create(&name).await?;
        names.push(name.clone());
        for other in &world.replicas {
            other.write_back(&name).await?;
        }
    }
    world.read_all(names).await
}

/// What `kubectl get | kubectl replace` does.
async fn rewrite(world: &World, names: &[String]) -> Result<()> {
    for (turn, name) in names.iter().enumerate() {
        world.replicas[turn % world.replicas.len()].write_back(name).await?;
    }
    for (turn, name) in names.iter().enumerate() {
        let changed = world.replicas[turn % world.replicas.len()].write_back(name).await?;
        ensure!(!changed, "{name} was written again although the key that wraps is the newest");
    }
    Ok(())
}

/// From one provider to the other, in the order that Kubernetes documents.
async fn rotate(world: &World, names: &mut Vec<String>, old: &Value, new: &Value) -> Result<()> {
    for providers in [&[old, new][..], &[new, old]] {
        for replica in &world.replicas {
            replica.reconfigure(providers).await?;
            use_all(world, names).await?;
        }
    }
    let before = world.wrapped_by().await?;
    ensure!(before.len() == 2, "both keys should be in use: {before:?}");
    rewrite(world, names).await?;
    let after = world.wrapped_by().await?;
    ensure!(after.len() == 1 && after.is_subset(&before), "{before:?} became {after:?}");
    for replica in &world.replicas {
        replica.reconfigure(&[new]).await?;
        use_all(world, names).await?;
    }
    Ok(())
}

#[test]
fn every_read_succeeds_while_keys_are_rotated_in_the_documented_order() {
    run(async |env| {
        let plugin = Plugin::start(env).await?;
        let chain = [
            provider("aescbc", "first")?,
            provider("aesgcm", "second")?,
            provider("secretbox", "third")?,
            plugin.provider("fourth"),
        ];
        let world = World::start(env, 2, &[&chain[0]], "30ms").await?;
        let mut names = vec!["state-000".to_owned()];
        world.replicas[0].create(&names[0]).await?;
        let reader = Reader::start(&world, &names[0]);
        for step in chain.windows(2) {
            rotate(&world, &mut names, &step[0], &step[1]).await?;
        }
        reader.end().await?;
        let wrapped = world.wrapped_by().await?;
        let last = wrapped.first().context("a key")?;
        ensure!(wrapped.len() == 1 && last == "k8s:enc:kms:v2:fourth", "{wrapped:?}");
        Ok(())
    });
}
