//! A Shoot is deleted while a zone is isolated: its networks come back, and nobody deletes them before.

use anyhow::{Result, ensure};
use repot_tests::http::Answer;
use repot_tests::landscape::{DEADLINE, extensions};
use repot_tests::wait::until;
use serde_json::json;

use super::{MERGE, ZONE, annotate, in_three_zones, until_shown};
use crate::migration::story::{garden_of, shoot_path};
use crate::migration::world::{SEEDS, World, run};

#[test]
#[ignore = "minutes, in make soak"]
fn networks_come_back_before_those_of_a_deleted_shoot_are_deleted() {
    run(async |env| {
        let world = World::create(env, "deleted", in_three_zones()).await?;
        annotate(&world, &json!(ZONE.0)).await?;
        until_shown(&world, ("Failover", "Done")).await?;
        let networks = &world.landscape.providers.networks;
        let cluster = world.name().technical_id();
        ensure!(networks.isolated_of(&cluster).is_some(), "the networks are not cut off");
        let refused = delete_infrastructure(&world).await?;
        ensure!(refused.status == 403, "{refused}");
        ensure!(refused.to_string().contains("the networks of zone local-eu-1b are cut off"), "{refused}");

        let garden = &garden_of(&world)?.cluster;
        let confirmed =
            json!({"metadata": {"annotations": {"confirmation.gardener.cloud/deletion": "true"}}});
        garden.api().patch(&shoot_path(&world), MERGE, &confirmed).await?.ok()?;
        garden.api().delete(&shoot_path(&world)).await?.ok()?;
        // As gardenlet does, again and again.
        until("the Infrastructure to be deleted", DEADLINE, async || {
            let answer = delete_infrastructure(&world).await?;
            ensure!(answer.status == 200, "{answer}");
            Ok(())
        })
        .await?;
        ensure!(networks.isolated_of(&cluster).is_none(), "the Infrastructure was deleted before");
        until_shown(&world, ("Failback", "Done")).await?;
        until("the networks to be deleted", DEADLINE, async || {
            let left = networks.of(&cluster);
            ensure!(left.is_empty(), "{left:?}");
            Ok(())
        })
        .await?;
        world.stop(SEEDS.0).await
    });
}

async fn delete_infrastructure(world: &World) -> Result<Answer> {
    let plane = &world.shoot.control_plane;
    let path = extensions::path(plane, "Infrastructure", &plane.shoot.name);
    let api = world.landscape.seed(SEEDS.0)?.cluster.api();
    let confirmed = json!({"metadata": {"annotations": {"confirmation.gardener.cloud/deletion": "true"}}});
    api.patch(&path, MERGE, &confirmed).await?.ok()?;
    api.delete(&path).await
}
