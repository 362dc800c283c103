//! All the way.

use std::time::Duration;

use anyhow::{Result, ensure};
use repot_controllers::members::{Change, Outcome};
use repot_etcd_core::members::Desired;
use repot_tests::run;
use repot_tests::sites::SiteName;
use repot_tests::test_env::TestEnv;
use repot_tests::wait::until;

use super::load::{Load, Phase, Report};
use super::world::{AWAY, DEADLINE, Moving, client_of};

/// What is wanted of a move.
struct Trial {
    round_trip: Duration,
    writers: usize,
    /// At least so many, before and after included.
    requests: usize,
}

async fn move_under_load(env: &TestEnv, trial: &Trial) -> Result<Report> {
    let mut moving = Moving::start(env, trial.round_trip).await?;
    let load = Load::start(moving.fleet.accesses(), trial.writers).await?;
    load.begin("three at the source");
    reach(&load, trial.requests / 10).await?;
    moving.world.wanted.desired = Desired { release_source: false, ..AWAY };
    loop {
        let pass = moving.pass().await?;
        match &pass.outcome {
            Outcome::Changed(change) => load.begin(&describe(change)),
            Outcome::Waiting(why) if why.reason == "SourceNotReleased" => {
                moving.world.wanted.desired = AWAY;
            }
            Outcome::Waiting(_) => tokio::time::sleep(Duration::from_millis(100)).await,
            Outcome::Done => break,
            Outcome::Refused(why) => anyhow::bail!("{why:?}"),
        }
    }
    load.begin("three at the destination");
    reach(&load, trial.requests).await?;
    moving.until_done(SiteName::Destination).await?;
    let client = client_of(&moving.world.sites, "destination-0", SiteName::Destination).await?;
    let report = load.finish(&client).await?;
    let changes = moving.world.changes.iter().map(describe).collect::<Vec<_>>();
    let leads = changes.iter().position(|change| change.starts_with("leads")).unwrap_or_default();
    ensure!(
        leads == 7 && changes.len() == 10,
        "the leader did not move after the first removal: {changes:?}"
    );
    Ok(report)
}

pub async fn reach(load: &Load, requests: usize) -> Result<()> {
    until("requests", DEADLINE * 10, async || {
        ensure!(load.requests() >= requests, "{} of {requests}", load.requests());
        Ok(())
    })
    .await
}

pub fn describe(change: &Change) -> String {
    match change {
        Change::Added { slot } => format!("added {slot}"),
        Change::Promoted { slot } => format!("promoted {slot}"),
        Change::Leads { slot } => format!("leads {slot}"),
        Change::Updated { slot } => format!("updated {slot}"),
        Change::Removed { slot } => format!("removed {slot}"),
    }
}

fn print(trial: &Trial, report: &Report) {
    println!(
        "\n| round trip {:?}: after | longest gap at the source | at the destination |",
        trial.round_trip
    );
    println!("|---|---|---|");
    for Phase { name, longest: [source, destination] } in &report.phases {
        println!("| {name} | {} ms | {} ms |", source.as_millis(), destination.as_millis());
    }
    println!(
        "{} requests, {} writes acknowledged, {} failed, {} watches resumed",
        report.requests,
        report.acknowledged,
        report.failures.len(),
        report.resumed
    );
}

#[test]
fn etcd_moves_under_load_and_no_request_fails() {
    run(async |env| {
        let trial = Trial { round_trip: Duration::ZERO, writers: 2, requests: 2_000 };
        let report = move_under_load(env, &trial).await?;
        print(&trial, &report);
        ensure!(report.failures.is_empty(), "{:?}", report.failures);
        ensure!(report.resumed == 0, "{} watches had to begin anew", report.resumed);
        Ok(())
    });
}

/// 10^5 requests, and a bound for how long nobody is acknowledged.
fn soak(millis: u64, writers: usize) {
    run(async |env| {
        let round_trip = Duration::from_millis(millis);
        let trial = Trial { round_trip, writers, requests: 100_000 };
        let report = move_under_load(env, &trial).await?;
        print(&trial, &report);
        ensure!(report.failures.is_empty(), "{:?}", report.failures);
        ensure!(report.resumed == 0, "{} watches had to begin anew", report.resumed);
        let bound = 2 * round_trip + Duration::from_millis(250);
        let gap = report.phases.iter().flat_map(|phase| phase.longest).max().unwrap_or_default();
        ensure!(gap <= bound, "no acknowledgement for {gap:?}, more than {bound:?}");
        Ok(())
    });
}

#[test]
#[ignore = "make soak"]
fn etcd_moves_under_much_load_next_door() {
    soak(0, 8);
}

#[test]
#[ignore = "make soak"]
fn etcd_moves_under_much_load_over_30_ms() {
    soak(30, 16);
}

#[test]
#[ignore = "make soak"]
fn etcd_moves_under_much_load_over_180_ms() {
    soak(180, 32);
}
