//! Forced migrations: the source seed does not answer.

use std::collections::BTreeSet;

use anyhow::{Result, bail, ensure};
use repot_tests::landscape::forced::until_asked;
pub use repot_tests::landscape::forced::{Frozen, SOURCE_STOPPED, force, until_state_is_stored};
use repot_tests::wait::until;
use serde_json::{Value, json};

use super::owner;
use super::prober::Prober;
use super::story::{self, DEADLINE};
use super::world::{SEEDS, World, run, small};
use super::writer::{self, Writer};

/// The kube-apiserver of the source seed is frozen, so no controller reaches anything there, while the control plane of the Shoot runs
/// on and is written to. It stops by DNS alone. When the seed is back, everything there is removed, and no VM with it.
#[test]
fn control_plane_leaves_a_seed_whose_api_server_is_frozen() {
    run(async |env| {
        let world = World::create(env, "kappa", small()).await?;
        let before = world.workload().await?;
        let (prober, writer) = (Prober::start(world.api()?), Writer::start(world.api()?));
        until_state_is_stored(&world).await?;
        let owners = dns_owners(&world).await?;
        let frozen = Frozen::new(world.landscape.seed(SEEDS.0)?.cluster.apiserver_process());
        force(&world, "move", SEEDS).await?;
        // Machines wait until somebody says that nobody at the source acts on them; the API does not.
        story::until_started(&world, "move", ("destination", "SourceControllersFenced")).await?;
        story::until_started(&world, "move", ("destination", "NodeLeasesRenewed")).await?;
        until_asked(&world, "move", &format!("{SOURCE_STOPPED}={}", SEEDS.0)).await?;
        let restored = story::step(&world, "move", ("destination", "InfrastructureRestored")).await?;
        ensure!(restored.is_null(), "it did not wait: {restored}");
        story::annotate(&world, "move", &json!({SOURCE_STOPPED: SEEDS.0})).await?;
        let migration = story::until_success(&world, "move", SEEDS.1).await?;
        println!(
            "outage {} by the migration, {:?} by a client",
            migration["status"]["apiOutage"],
            prober.outage()
        );
        ensure_nothing_is_lost(&world, writer).await?;
        ensure!(world.workload().await? == before, "the workload has changed");
        owner::ensure_says(&world, SEEDS.1, ("show", &[]), (0, &["\"seed-b/2\"", "this Etcd"])).await?;
        owner::ensure_earlier_one_does_not_come_back(&world, SEEDS.1, ("seed-a/1", "seed-b/2")).await?;

        drop(frozen);
        until("the source to be removed", DEADLINE, async || world.ensure_gone(SEEDS.0).await).await?;
        ensure!(world.workload().await? == before, "the workload has changed when the source was removed");
        let api = world.landscape.seed(SEEDS.0)?.cluster.api();
        let [own, other] = [api.get(&owners.0).await?.status, api.get(&owners.1).await?.status];
        ensure!((own, other) == (404, 200), "DNSOwners of this Shoot and of another: {own}, {other}");
        world.stop(SEEDS.1).await
    });
}

/// Creates DNSOwners at the source, of this Shoot and of another one, and gives their paths.
async fn dns_owners(world: &World) -> Result<(String, String)> {
    let (api, namespace) = (world.landscape.seed(SEEDS.0)?.cluster.api(), world.name().technical_id());
    let path = "/apis/dns.gardener.cloud/v1alpha1/dnsowners";
    let names = [format!("{namespace}-internal"), format!("{namespace}-b-internal")];
    for name in &names {
        let owner = json!({
            "apiVersion": "dns.gardener.cloud/v1alpha1", "kind": "DNSOwner", "metadata": {"name": name},
            "spec": {"ownerId": format!("{name}-seed-a"), "active": true},
        });
        api.post(path, &owner).await?.ok()?;
    }
    let [own, other] = names.map(|name| format!("{path}/{name}"));
    Ok((own, other))
}

/// Everything of the source stands still: its API server and all Pods of the Shoot. Only what was written after the newest snapshot is
/// lost. When all goes on, the source acknowledges nothing any more.
#[test]
#[ignore = "minutes, in make soak"]
fn seed_that_stood_still_acknowledges_nothing_when_it_goes_on() {
    run(async |env| {
        let world = World::create(env, "lambda", small()).await?;
        let before = world.workload().await?;
        let source = world.landscape.seed(SEEDS.0)?;
        let writer = Writer::start(world.shoot.control_plane.api_at(source).await?);
        until("some writes", DEADLINE, async || {
            let count = writer.acknowledged().len();
            ensure!(count > 100, "{count} were acknowledged");
            Ok(())
        })
        .await?;
        let containers = world.containers(SEEDS.0).await?;
        until_state_is_stored(&world).await?;
        world.freeze(SEEDS.0, &containers, true)?;
        let frozen = Frozen::new(source.cluster.apiserver_process());
        let acknowledged = writer.acknowledged();
        force(&world, "move", SEEDS).await?;
        story::annotate(&world, "move", &json!({SOURCE_STOPPED: SEEDS.0})).await?;
        let migration = story::until_success(&world, "move", SEEDS.1).await?;
        println!("{} of {}", migration["status"]["apiOutage"], migration["status"]["destination"]["loss"]);
        let lost = lost(&world, &acknowledged).await?;

        world.freeze(SEEDS.0, &containers, false)?;
        drop(frozen);
        until("the source to be removed", DEADLINE, async || world.ensure_gone(SEEDS.0).await).await?;
        let after = writer.acknowledged();
        ensure!(
            after == acknowledged,
            "the source went on to acknowledge: {:?}",
            after.difference(&acknowledged)
        );
        ensure_late_snapshot_is_reported(&world, "move", &lost).await?;
        ensure!(world.workload().await? == before, "the workload has changed");
        world.stop(SEEDS.1).await
    });
}

/// The source has stored its final snapshot when it went on. The migration names what that holds and the destination does not.
async fn ensure_late_snapshot_is_reported(world: &World, name: &str, lost: &[u32]) -> Result<()> {
    let late = until("the late snapshot to be reported", DEADLINE, async || {
        let late = story::read(world, name).await?["status"]["lateSnapshot"].take();
        let is_known = late["state"] == "Reported" || late["state"] == "Contained";
        if is_known { Ok(late) } else { bail!("{late}") }
    })
    .await?;
    println!("{late}");
    let keys = late["keys"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let named: Vec<&str> = keys.filter_map(|key| key.strip_prefix("/registry/configmaps/default/")).collect();
    let is_named = |number: &&u32| named.contains(&writer::name(**number).as_str());
    let missing: Vec<_> = lost.iter().filter(|number| !is_named(number)).collect();
    ensure!(missing.is_empty(), "{missing:?} of {lost:?} are not named: {late}");
    Ok(())
}

/// What was acknowledged and is not there. Writes are numbered in their order: what is lost has higher numbers than all that is there.
pub async fn lost(world: &World, acknowledged: &BTreeSet<u32>) -> Result<Vec<u32>> {
    let stored = writer::stored(&world.api()?).await?;
    let lost: Vec<u32> = acknowledged.difference(&stored).copied().collect();
    println!("{} writes were acknowledged, {} are lost", acknowledged.len(), lost.len());
    let newest = acknowledged.intersection(&stored).max();
    ensure!(lost.first() > newest || lost.is_empty(), "{lost:?} are lost, and {newest:?} is there");
    Ok(lost)
}

/// The source stored its final snapshot, so all that it acknowledged is at the destination.
pub async fn ensure_nothing_is_lost(world: &World, writer: Writer) -> Result<()> {
    let acknowledged = writer.acknowledged();
    drop(writer);
    let stored = writer::stored(&world.api()?).await?;
    let lost: Vec<_> = acknowledged.difference(&stored).collect();
    println!("{} writes were acknowledged", acknowledged.len());
    ensure!(
        acknowledged.len() > 20 && lost.is_empty(),
        "{} were acknowledged, lost: {lost:?}",
        acknowledged.len()
    );
    Ok(())
}

/// Its etcd is restored when it wakes, from what was copied before the bucket of the source was let go.
#[test]
#[ignore = "minutes, in make soak"]
fn hibernated_control_plane_leaves_a_seed_whose_api_server_is_frozen() {
    run(async |env| {
        let world = World::create(env, "mu", small()).await?;
        let before = world.marker().await?;
        world.hibernate(SEEDS.0).await?;
        until_state_is_stored(&world).await?;
        let frozen = Frozen::new(world.landscape.seed(SEEDS.0)?.cluster.apiserver_process());
        force(&world, "move", SEEDS).await?;
        story::annotate(&world, "move", &json!({SOURCE_STOPPED: SEEDS.0})).await?;
        story::until_success(&world, "move", SEEDS.1).await?;
        world.ensure_asleep(SEEDS.1).await?;
        world.wake(SEEDS.1).await?;
        let after = world.marker().await?;
        ensure!(before == after, "before {before}, after {after}");
        drop(frozen);
        until("the source to be removed", DEADLINE, async || world.ensure_gone(SEEDS.0).await).await?;
        world.stop(SEEDS.1).await
    });
}
