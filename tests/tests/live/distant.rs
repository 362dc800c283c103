//! A control plane moves live between seeds that are far from each other.

use std::time::Duration;

use anyhow::{Result, ensure};

use super::requests::Requests;
use super::whole::highly_available;
use crate::migration::story;
use crate::migration::world::{SEEDS, World, run};

/// How much longer than two round trips nobody may get an answer.
const GAP_BEYOND_ROUND_TRIPS: Duration = Duration::from_millis(250);

#[test]
#[ignore = "minutes, in make soak"]
fn no_request_fails_when_seeds_are_30_ms_apart() {
    move_apart("near", Duration::from_millis(30));
}

#[test]
#[ignore = "minutes, in make soak"]
fn no_request_fails_when_seeds_are_180_ms_apart() {
    move_apart("far", Duration::from_millis(180));
}

fn move_apart(name: &str, round_trip: Duration) {
    run(async |env| {
        let world = World::create(env, name, highly_available()).await?;
        let before = world.workload().await?;
        let apart = world.landscape.wide.set_apart(round_trip);
        let apis = (0..4).map(|_| world.api()).collect::<Result<Vec<_>>>()?;
        let requests = Requests::start(apis);
        story::create_live(&world, "move", SEEDS).await?;
        let migration = story::until_success(&world, "move", SEEDS.1).await?;
        println!("{}", story::timeline(&migration).join("\n"));
        let count = requests.ensure_none_failed(1_000)?;
        println!("{round_trip:?} apart: {}", count.summary());
        let longest = 2 * round_trip + GAP_BEYOND_ROUND_TRIPS;
        ensure!(count.longest_gap <= longest, "nobody got an answer for {:?}", count.longest_gap);
        drop(apart);
        world.ensure_moved(&before, SEEDS).await?;
        world.stop(SEEDS.1).await
    });
}
