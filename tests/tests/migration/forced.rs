//! Forced migrations: the source seed does not answer.

use anyhow::{Result, ensure};
use repot_tests::wait::until;
use serde_json::json;

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
        let source = world.landscape.seed(SEEDS.0)?.cluster.apiserver_process();
        source.pause();
        story::create_forced(&world, "move", SEEDS).await?;
        until("the migration to ask for a confirmation", DEADLINE, async || {
            let message =
                story::step(&world, "move", ("destination", "LossConfirmed")).await?["message"].to_string();
            ensure!(message.contains("confirmation.gardener.cloud/forced-migration=seed-a"), "{message}");
            Ok(())
        })
        .await?;
        story::annotate(&world, "move", &json!({"confirmation.gardener.cloud/forced-migration": SEEDS.0}))
            .await?;
        let migration = story::until_success(&world, "move", SEEDS.1).await?;
        println!(
            "outage {} by the migration, {:?} by a client",
            migration["status"]["apiOutage"],
            prober.outage()
        );
        ensure_nothing_is_lost(&world, writer).await?;
        ensure!(world.workload().await? == before, "the workload has changed");

        source.resume();
        until("the source to be removed", DEADLINE, async || world.ensure_gone(SEEDS.0).await).await?;
        ensure!(world.workload().await? == before, "the workload has changed when the source was removed");
        world.stop(SEEDS.1).await
    });
}

/// The source stored its final snapshot, so all that it acknowledged is at the destination.
async fn ensure_nothing_is_lost(world: &World, writer: Writer) -> Result<()> {
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
