//! Many forced migrations there and back, each from a seed with a fault that is drawn.

use anyhow::{Context as _, Result};
use repot_tests::pki;

use super::departure::{self, Departure};
use super::faulty_seed::ALL;
use super::world::{SEEDS, World, run, small};

/// Migrations of the long form. `REPOT_ROUNDS` asks for another number.
const ROUNDS: usize = 100;

/// In no round do both sides acknowledge writes at a time, and everything that is acknowledged is there or is reported.
#[test]
#[ignore = "hours, in make soak"]
fn forced_migrations_there_and_back_with_faults_that_are_drawn() {
    run(async |env| {
        let asked = std::env::var("REPOT_ROUNDS").ok().and_then(|count| count.parse().ok());
        let world = World::create(env, "rounds", small()).await?;
        let mut seeds = SEEDS;
        for round in 1..=asked.unwrap_or(ROUNDS) {
            let fault = ALL[draw()? % ALL.len()];
            println!("round {round}: {fault:?} at {}", seeds.0);
            let name = format!("round-{round}");
            let departure = Departure { world: &world, name: &name, seeds, fault };
            departure::leave(&departure).await.with_context(|| format!("round {round}, {fault:?}"))?;
            seeds = (seeds.1, seeds.0);
        }
        world.stop(seeds.0).await
    });
}

fn draw() -> Result<usize> {
    Ok(usize::from(pki::random_bytes::<1>()?[0]))
}
