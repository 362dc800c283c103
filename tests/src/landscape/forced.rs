//! What a forced migration needs from a person, and a source seed that does not answer.

use anyhow::{Context as _, Result, ensure};
use repot_etcd::snapshot::store::{Environment, Store};
use serde_json::{Value, json};

use super::story::{self, DEADLINE};
use super::world::World;
use crate::process::Process;
use crate::wait::until;

/// The annotation by which a person says that nobody at the source acts on Machines.
pub const SOURCE_STOPPED: &str = "confirmation.gardener.cloud/source-controllers-stopped";

/// A process that stands still until this is dropped: what tests share has to go on, however a test ends.
pub struct Frozen<'a>(&'a Process);

impl<'a> Frozen<'a> {
    /// Stops it at once.
    pub fn new(process: &'a Process) -> Self {
        process.pause();
        Self(process)
    }
}

impl Drop for Frozen<'_> {
    fn drop(&mut self) {
        self.0.resume();
    }
}

/// Waits until the ShootState holds what a destination needs without its source.
pub async fn until_state_is_stored(world: &World) -> Result<()> {
    until("the ShootState to hold the DNSRecords", DEADLINE, async || {
        let state = story::state(world).await?;
        let mut entries = state["spec"]["resources"].as_array().into_iter().flatten();
        ensure!(entries.any(|one| one["kind"] == "DNSRecord"), "it holds no DNSRecord");
        Ok(())
    })
    .await
}

/// Waits until what a person sees first of the migration asks for something, whatever its sides do meanwhile.
pub async fn until_asked(world: &World, name: &str, what: &str) -> Result<()> {
    until(&format!("the migration to ask for {what}"), DEADLINE, async || {
        let message = story::read(world, name).await?["status"]["message"].to_string();
        ensure!(message.contains(what), "{message}");
        Ok(())
    })
    .await
}

/// Creates the migration, and confirms what it says.
pub async fn force(world: &World, name: &str, seeds: (&str, &str)) -> Result<()> {
    story::create_forced(world, name, seeds).await?;
    until_asked(world, name, &format!("confirmation.gardener.cloud/forced-migration={}", seeds.0)).await?;
    story::annotate(world, name, &json!({"confirmation.gardener.cloud/forced-migration": seeds.0})).await
}

/// Waits until a snapshot in the bucket of the source holds what has to be the same afterwards.
pub async fn until_workload_is_stored(world: &World, seed: &str) -> Result<()> {
    let marker = world.api()?.get("/api/v1/namespaces/default/configmaps/marker").await?.ok()?;
    until_object_is_stored(world, seed, &marker).await
}

/// Waits until a snapshot in the bucket of a seed holds an object of the Shoot.
pub async fn until_object_is_stored(world: &World, seed: &str, object: &Value) -> Result<()> {
    let revision: i64 = object["metadata"]["resourceVersion"].as_str().context("no version")?.parse()?;
    let store = backups(world, seed)?;
    until("the object to be stored", DEADLINE, async || {
        let stored = store.list().await?.iter().map(|one| one.name.last.0).max();
        ensure!(stored >= Some(revision), "up to {stored:?} of {revision} is stored");
        Ok(())
    })
    .await
}

/// Where the etcd of the Shoot stores its snapshots at a seed.
pub fn backups(world: &World, seed: &str) -> Result<Store> {
    let seed = world.landscape.seed(seed)?;
    let environment: Environment = seed.store.environment().into_iter().collect();
    let prefix = format!("{}/etcd-main", world.name().backup_entry());
    Ok(Store::open(&seed.store.url(&prefix), &environment)?)
}
