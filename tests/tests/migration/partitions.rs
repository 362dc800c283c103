//! Forced migrations from a seed that is cut off from what the destination sees of it, and goes on as far as it can.

use std::time::Duration;

use anyhow::Result;
use repot_tests::TestEnv;

use super::departure::{self, Departure};
use super::faulty_seed::Fault;
use super::world::{SEEDS, World, run, small};

/// Seconds for which a seed is off until it is started again. `REPOT_OFF_SECONDS` asks for another number.
const HOUR: u64 = 3600;

async fn leave(env: &TestEnv, name: &str, fault: Fault) -> Result<()> {
    leave_for(env, name, fault, Duration::ZERO).await
}

/// The same where the fault lasts for some time at least.
async fn leave_for(env: &TestEnv, name: &str, fault: Fault, lasts: Duration) -> Result<()> {
    let world = World::create(env, name, small()).await?;
    departure::leave(&[Departure { world: &world, name: "move", seeds: SEEDS, fault, lasts }]).await?;
    world.stop(SEEDS.1).await
}

/// Its etcd stops when it cannot resolve its owner for too long, and takes the final snapshot when it sees who the owner is.
#[test]
#[ignore = "minutes, in make soak"]
fn seed_that_is_cut_off_from_dns_stops_by_itself() {
    run(async |env| leave(env, "pi", Fault::Dns).await);
}

/// Its etcd sees that it is not the owner any more, and cannot store what it has acknowledged since its last snapshot.
#[test]
#[ignore = "minutes, in make soak"]
fn seed_that_is_cut_off_from_its_bucket_reports_what_is_lost_when_it_is_back() {
    run(async |env| leave(env, "rho", Fault::Bucket).await);
}

#[test]
#[ignore = "minutes, in make soak"]
fn seed_that_is_cut_off_from_dns_and_its_bucket_stops_by_itself_and_reports_later() {
    run(async |env| leave(env, "sigma", Fault::DnsAndBucket).await);
}

/// Clients still reach it, and the nodes of the Shoot do.
#[test]
#[ignore = "minutes, in make soak"]
fn seed_that_is_cut_off_from_everything_but_its_clients_stops_by_itself() {
    run(async |env| leave(env, "tau", Fault::Everything).await);
}

/// An answer of the zone that is late says who is the owner all the same.
#[test]
#[ignore = "minutes, in make soak"]
fn seed_whose_dns_is_slow_stops_when_it_hears_of_the_new_owner() {
    run(async |env| leave(env, "phi", Fault::SlowDns).await);
}

/// The cache of the seed answers for an hour that the source is the owner. The agent asks the zone itself.
#[test]
#[ignore = "minutes, in make soak"]
fn seed_whose_cache_goes_on_to_name_it_as_owner_stops_by_itself() {
    run(async |env| leave(env, "chi", Fault::StaleDns).await);
}

#[test]
#[ignore = "minutes, in make soak"]
fn seed_whose_dns_comes_and_goes_never_serves_beside_the_destination() {
    run(async |env| leave(env, "upsilon", Fault::FlappingDns).await);
}

/// By then, Leases have ended, and what its API server has kept is old.
#[test]
#[ignore = "an hour, in make soak"]
fn seed_that_is_started_again_an_hour_later_serves_nothing_and_is_removed() {
    run(async |env| {
        let asked = std::env::var("REPOT_OFF_SECONDS").ok().and_then(|seconds| seconds.parse().ok());
        leave_for(env, "psi", Fault::Off, Duration::from_secs(asked.unwrap_or(HOUR))).await
    });
}
