//! Twice as many control planes are to move live as the machine has cores, ten at most: half of them move at once, and the others wait for
//! their turn.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Result, bail, ensure};
use futures::future::{try_join, try_join_all};
use repot_tests::landscape::{ControlPlaneOptions, Landscape, LandscapeOptions};
use repot_tests::wait::until;
use repot_tests::{Shared, start_shared};
use serde_json::Value;

use super::requests::Requests;
use super::whole::{ensure_hidden, highly_available};
use crate::migration::story::{self, DEADLINE};
use crate::migration::world::{SEEDS, Workload, World, run};

/// How many control planes there are on a machine with many cores.
const MOST: usize = 10;
/// From one request of a Shoot's client to the next.
const PERIOD: Duration = Duration::from_millis(500);

/// Where more of them move than there are cores, etcds lose their quorum for want of time, and migrations roll back.
fn most_at_once() -> usize {
    std::thread::available_parallelism().map_or(2, std::num::NonZero::get).clamp(2, MOST / 2)
}

static LANDSCAPE: Shared<Landscape> = Shared::new(|env| {
    let max_migrations_per_seed = Some(most_at_once());
    start_shared(Landscape::start(
        env,
        LandscapeOptions { max_migrations_per_seed, ..LandscapeOptions::default() },
    ))
});

#[test]
#[ignore = "minutes, in make soak"]
fn control_planes_move_at_once_others_wait_for_their_turn_and_no_request_fails() {
    run(async |env| {
        let mut worlds = Vec::new();
        for at in 0..2 * most_at_once() {
            worlds.push(World::create_in(&LANDSCAPE, env, &format!("live-{at}"), small()).await?);
        }
        let before = try_join_all(worlds.iter().map(World::workload)).await?;
        let apis = worlds.iter().map(World::api).collect::<Result<Vec<_>>>()?;
        let requests = apis.into_iter().map(|api| Requests::start_every(PERIOD, vec![api]));
        let requests: Vec<_> = requests.collect();
        for world in &worlds {
            story::create_live(world, "move", SEEDS).await?;
        }
        let all = worlds.iter().zip(&before).zip(&requests);
        let all = try_join_all(all.map(|((world, before), requests)| follow(world, before, requests)));
        try_join(all, ensure_turns(&worlds)).await?;
        for world in worlds {
            world.stop(SEEDS.1).await?;
        }
        Ok(())
    });
}

/// One kube-apiserver each, and one more while it moves; no nodes, which would take more of the machine than the control planes do. On a few
/// cores a question for the owner record may take longer than the six seconds after which members of other tests end.
fn small() -> ControlPlaneOptions {
    ControlPlaneOptions { api_servers: 1, pools: Vec::new(), owner_check: (20, 40), ..highly_available() }
}

/// Waits until the migration has succeeded, and everything is at the destination. A client asks all the time.
async fn follow(world: &World, before: &Workload, requests: &Requests) -> Result<()> {
    let migration = until("the migration to end", 10 * DEADLINE, async || {
        let migration = story::read(world, "move").await?;
        if story::has_ended(&migration) { Ok(migration) } else { bail!("{}", migration["status"]["message"]) }
    })
    .await?;
    story::ensure_phase(&migration, "Succeeded")?;
    println!("{}: {}", world.name().name, requests.ensure_none_failed(100)?.summary());
    world.ensure_moved(before, SEEDS).await?;
    ensure_hidden(world, SEEDS.1).await
}

/// Follows all migrations to their end: never more are under way at once than is allowed, and the others say that they wait.
async fn ensure_turns(worlds: &[World]) -> Result<()> {
    let (mut highest, mut waited) = (0, BTreeSet::new());
    until("all migrations to end", 10 * DEADLINE, async || {
        let all = try_join_all(worlds.iter().map(|world| story::read(world, "move"))).await?;
        // Each was read at another time: one that has ended since made room for the next.
        let again = try_join_all(worlds.iter().map(|world| story::read(world, "move"))).await?;
        let is_under_way = |at: &usize| has_turn(&all[*at]) && !story::has_ended(&again[*at]);
        highest = highest.max((0..worlds.len()).filter(is_under_way).count());
        waited.extend((0..worlds.len()).filter(|at| all[*at]["status"]["garden"]["reason"] == "Queued"));
        let ended = all.iter().filter(|migration| story::has_ended(migration)).count();
        if ended == worlds.len() { Ok(()) } else { bail!("{ended} of {} have ended", worlds.len()) }
    })
    .await?;
    ensure!(highest == most_at_once(), "{highest} were under way at once");
    ensure!(waited.len() == worlds.len() - most_at_once(), "{waited:?} have waited");
    println!("{highest} at once at most, {} have waited", waited.len());
    Ok(())
}

fn has_turn(migration: &Value) -> bool {
    let steps = migration["status"]["garden"]["steps"].as_array();
    let is_taken = |step: &Value| step["name"] == "TurnTaken" && step["state"] == "Succeeded";
    steps.is_some_and(|steps| steps.iter().any(is_taken))
}
