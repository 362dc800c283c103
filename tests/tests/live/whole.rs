//! A whole control plane moves while both seeds serve.

use anyhow::Result;
use repot_tests::landscape::ControlPlaneOptions;

use super::requests::Requests;
use crate::migration::story;
use crate::migration::world::{SEEDS, World, run};

/// A control plane that is highly available, with one node.
fn highly_available() -> ControlPlaneOptions {
    ControlPlaneOptions {
        etcd_members: 3,
        api_servers: 2,
        pools: vec![("worker-a".to_owned(), 1)],
        ..ControlPlaneOptions::default()
    }
}

#[test]
#[ignore = "minutes, in make soak"]
fn control_plane_moves_and_no_request_fails() {
    run(async |env| {
        let world = World::create(env, "live", highly_available()).await?;
        let before = world.workload().await?;
        let apis = (0..4).map(|_| world.api()).collect::<Result<Vec<_>>>()?;
        let requests = Requests::start(apis);
        story::create_live(&world, "move", SEEDS).await?;
        let migration = story::until_success(&world, "move", SEEDS.1).await?;
        println!("{}", story::timeline(&migration).join("\n"));
        let count = requests.ensure_none_failed(1_000)?;
        println!(
            "{} requests, slowest {:?}, longest gap {:?}",
            count.answered, count.slowest, count.longest_gap
        );
        world.ensure_moved(&before, SEEDS).await?;
        world.stop(SEEDS.1).await
    });
}
