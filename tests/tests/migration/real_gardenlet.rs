//! A forced migration beside the gardenlet of Gardener itself: it computes and begins the restore that Repot has asked it for.

use anyhow::{Result, bail, ensure};
use repot_tests::gardener::RELEASE;
use repot_tests::landscape::garden::CORE;
use repot_tests::landscape::{Landscape, LandscapeOptions, RealGardenlet};
use repot_tests::operator::apply_file;
use repot_tests::wait::until;
use repot_tests::{Shared, start_shared};
use serde_json::{Value, json};

use super::forced::Frozen;
use super::gardenlet::{self, LOSS, SOURCE_OFF, create, until_says, while_dead, workerless};
use super::story::{self, DEADLINE, garden_of};
use super::world::{SEEDS, World, run_in};

/// Of its own: gardenlet changes its seed.
static LANDSCAPE: Shared<Landscape> =
    Shared::new(|env| start_shared(Landscape::start(env, LandscapeOptions::default())));

/// As long as the Shoot names its former seed in its status, gardenlet lets it be; then it restores.
#[test]
#[ignore = "minutes, in make soak"]
fn gardenlet_of_gardener_begins_the_restore_of_a_shoot_whose_seed_is_dead() {
    run_in(&LANDSCAPE, async |env| {
        let world = World::create_in(&LANDSCAPE, env, "real", workerless()).await?;
        gardenlet::until_state_is_stored(&world).await?;
        let (garden, destination) = (garden_of(&world)?, world.landscape.seed(SEEDS.1)?);
        apply_file(&garden.cluster, "rbac/garden-gardenlet.yaml").await?;
        apply_file(&destination.cluster, "rbac/seed-gardenlet.yaml").await?;
        let gardenlet = RealGardenlet::start(env, garden, destination).await?;
        let containers = world.containers(SEEDS.0).await?;
        while_dead(&world, async || {
            world.freeze(SEEDS.0, &containers, true)?;
            let _frozen = Frozen::new(world.landscape.seed(SEEDS.0)?.cluster.apiserver_process());
            create(&world, "move", "Forced").await?;
            until_says(&world, "move", ("garden", "SourceOff"), &["nobody fences the source"]).await?;
            story::annotate(&world, "move", &json!({SOURCE_OFF: SEEDS.0})).await?;
            until_says(&world, "move", ("destination", "LossConfirmed"), &[LOSS]).await?;
            let before = story::shoot(&world).await?;
            ensure!(before["status"]["lastOperation"]["type"] != "Restore", "{before}");
            story::annotate(&world, "move", &json!({LOSS: SEEDS.0})).await?;
            let shoot = until_restored_in_part(&world).await?;
            println!("gardenlet: {}", shoot["status"]["lastOperation"]);
            ensure!(shoot["status"]["gardener"]["version"] == RELEASE, "{}", shoot["status"]["gardener"]);
            ensure!(
                shoot["spec"]["seedName"] == SEEDS.1 && shoot["status"]["seedName"] == SEEDS.1,
                "{shoot}"
            );
            until_says(&world, "move", ("garden", "RestoreSucceeded"), &["Restore", "Processing"]).await?;
            until_backups_succeed(&world).await
        })
        .await?;
        ensure!(gardenlet.log().contains("Restore"), "its log does not tell of a restore");
        world.landscape.stop_shoot(world.name(), SEEDS.0).await
    });
}

/// Waits until gardenlet has begun the tasks of a restore: it has read the ShootState that Repot has brought to Gardener.
async fn until_restored_in_part(world: &World) -> Result<Value> {
    until("gardenlet to work on the restore", DEADLINE, async || {
        let shoot = story::shoot(world).await?;
        let last = &shoot["status"]["lastOperation"];
        let has_begun = last["type"] == "Restore" && last["state"] == "Processing";
        match last["progress"].as_u64() {
            Some(progress) if has_begun && progress > 0 => Ok(shoot),
            _ => bail!("{last}"),
        }
    })
    .await
}

/// Waits until gardenlet says that the bucket and the two BackupEntries of the restore are reconciled: it has seen what the controllers
/// of the seed have reported.
async fn until_backups_succeed(world: &World) -> Result<()> {
    let garden = garden_of(world)?;
    let bucket = format!("backupbuckets/{}", garden.bucket_of(SEEDS.1).await?);
    let (namespace, own) = (world.name().project_namespace(), world.name().backup_entry());
    let entry = |prefix: &str| format!("namespaces/{namespace}/backupentries/{prefix}{own}");
    let expected = [(bucket, "Reconcile"), (entry("source-"), "Create"), (entry(""), "Restore")];
    for (path, operation) in &expected {
        until(&format!("gardenlet to finish {operation} of {path}"), DEADLINE, async || {
            let found = garden.cluster.api().get(&format!("{CORE}/{path}")).await?.ok()?;
            let last = &found["status"]["lastOperation"];
            ensure!(last["type"] == *operation && last["state"] == "Succeeded", "{last}");
            Ok(())
        })
        .await?;
    }
    Ok(())
}
