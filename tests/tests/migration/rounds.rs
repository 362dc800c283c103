//! Many forced migrations there and back, of several Shoots at a time, each round from a seed with a fault that is drawn.

use std::time::Duration;

use anyhow::{Context as _, Result};
use futures::future::try_join_all;
use repot_tests::{TestEnv, pki};

use super::departure::{self, Departure};
use super::faulty_seed::{ALL, Fault};
use super::world::{SEEDS, World, run, small};

/// Shoots, all of which leave a seed at the same time.
const SHOOTS: usize = 4;
/// Rounds of the long form, with a migration of each Shoot. `REPOT_ROUNDS` asks for another number.
const ROUNDS: usize = 25;

/// In no round do both sides acknowledge writes at a time, and everything that is acknowledged is there or is reported.
#[test]
#[ignore = "an hour, in make soak"]
fn forced_migrations_there_and_back_with_faults_that_are_drawn() {
    run(async |env| {
        let asked = std::env::var("REPOT_ROUNDS").ok().and_then(|count| count.parse().ok());
        let worlds = try_join_all((1..=SHOOTS).map(|number| create(env, number))).await?;
        let mut seeds = SEEDS;
        for round in 1..=asked.unwrap_or(ROUNDS) {
            let fault = ALL[draw()? % ALL.len()];
            println!("round {round}: {fault:?} at {}", seeds.0);
            leave(&worlds, round, seeds, fault).await.with_context(|| format!("round {round}, {fault:?}"))?;
            seeds = (seeds.1, seeds.0);
        }
        for world in worlds {
            world.stop(seeds.0).await?;
        }
        Ok(())
    });
}

async fn create(env: &TestEnv, number: usize) -> Result<World> {
    World::create(env, &format!("rounds-{number}"), small()).await
}

async fn leave(worlds: &[World], round: usize, seeds: (&str, &str), fault: Fault) -> Result<()> {
    let name = format!("round-{round}");
    let all: Vec<_> = worlds
        .iter()
        .map(|world| Departure { world, name: &name, seeds, fault, lasts: Duration::ZERO })
        .collect();
    departure::leave(&all).await
}

fn draw() -> Result<usize> {
    Ok(usize::from(pki::random_bytes::<1>()?[0]))
}
