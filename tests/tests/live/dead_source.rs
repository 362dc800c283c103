//! The source dies while both seeds are one etcd.

use std::time::Duration;

use anyhow::{Result, ensure};
use repot_tests::wait::until;
use serde_json::json;

use super::whole::highly_available;
use crate::migration::departure::{self, Departure};
use crate::migration::faulty_seed::Fault;
use crate::migration::story::{self, DEADLINE};
use crate::migration::world::{SEEDS, World, run};

/// Most voters are at the source, so the members that have joined have no quorum, and cannot leave. A forced migration to the same seed
/// gives them up, and begins from the snapshots of the source.
#[test]
#[ignore = "minutes, in make soak"]
fn forced_migration_goes_to_the_seed_whose_members_have_joined_a_source_that_dies() {
    run(async |env| {
        let world = World::create(env, "widowed", highly_available()).await?;
        story::create_live(&world, "move", SEEDS).await?;
        story::until_reached(&world, "move", ("destination", "SixMemberETCDReady")).await?;
        let fault = Fault::StandsStill;
        let departure =
            Departure { world: &world, name: "forced", seeds: SEEDS, fault, lasts: Duration::ZERO };
        departure::leave(&[departure]).await?;
        let first = story::read(&world, "move").await?;
        story::ensure_phase(&first, "RolledBack")?;
        ensure!(first["status"]["supersededBy"] == json!("widowed-forced"), "{first}");
        ensure_alone(&world).await?;
        for name in ["move", "forced"] {
            story::delete(&world, name).await?;
        }
        world.stop(SEEDS.1).await
    });
}

/// The Etcd of the destination tells of no other etcd.
async fn ensure_alone(world: &World) -> Result<()> {
    let (cluster, namespace) = (&world.landscape.seed(SEEDS.1)?.cluster, world.name().technical_id());
    let path = format!("/apis/druid.gardener.cloud/v1alpha1/namespaces/{namespace}/etcds/etcd-main");
    until("the Etcd to have its own members alone", DEADLINE, async || {
        let etcd = cluster.api().get(&path).await?.ok()?;
        ensure!(etcd["spec"]["etcd"]["bootstrapWithExistingCluster"].is_null(), "{etcd}");
        ensure!(etcd["status"]["bootstrapWithExistingCluster"].is_null(), "{etcd}");
        ensure!(etcd["status"]["ready"] == json!(true), "{etcd}");
        Ok(())
    })
    .await
}
