//! The sites lose each other.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use repot_controllers::members::Change;
use repot_etcd::link;
use repot_tests::run;
use repot_tests::sites::SiteName;
use repot_tests::test_env::TestEnv;
use repot_tests::wait::until;
use tokio::time::{Instant, timeout};

use super::load::Load;
use super::world::{AWAY, DEADLINE, Moving, client_of};

/// All changes of a move.
const ALL: usize = 10;
/// More than a leader needs to know that it is none, and others to elect one.
const SETTLE: Duration = Duration::from_secs(6);

/// Who could write while the sites had lost each other: the source, the destination.
async fn writers_without_link(moving: &Moving<'_>, step: usize) -> Result<[bool; 2]> {
    let (end, latest) = (Instant::now() + SETTLE, Instant::now() + DEADLINE);
    let mut wrote = [false; 2];
    // All the time: two sides that write one after the other are two sides that write, once the first has lost the link.
    let mut attempt = 0;
    // As long as that takes, and until who should write does: a busy machine elects slowly.
    while Instant::now() < end || (Instant::now() < latest && lacks(wrote, expected(step))) {
        attempt += 1;
        let source = write_near(moving, SiteName::Source, step, attempt);
        let destination = write_near(moving, SiteName::Destination, step, attempt);
        let (source, destination) = tokio::join!(source, destination);
        wrote = [wrote[0] | source?, wrote[1] | destination?];
    }
    Ok(wrote)
}

fn lacks(wrote: [bool; 2], expected: [bool; 2]) -> bool {
    (expected[0] && !wrote[0]) || (expected[1] && !wrote[1])
}

/// Whether a member on this site writes for a client on this site.
async fn write_near(moving: &Moving<'_>, site: SiteName, step: usize, attempt: usize) -> Result<bool> {
    let sites = &moving.world.sites;
    let mut started = false;
    for name in sites.names(site).into_iter().filter(|name| sites.is_started(name)) {
        started = true;
        let mut client = client_of(sites, &name, site).await?;
        let key = format!("cut/{step}/{name}/{attempt}");
        if let Ok(Ok(_)) = timeout(Duration::from_millis(700), client.put(key, "1", None)).await {
            return Ok(true);
        }
    }
    if !started {
        tokio::time::sleep(Duration::from_millis(700)).await;
    }
    Ok(false)
}

async fn lose_link_after(env: &TestEnv, steps: &[usize]) -> Result<()> {
    let mut moving = Moving::start(env, Duration::ZERO).await?;
    let load = Load::start(moving.fleet.accesses(), 1).await?;
    moving.world.wanted.desired = AWAY;
    println!("| after | source writes | destination writes |\n|---|---|---|");
    for &step in steps {
        moving.advance(step).await?;
        // Where an election has moved the leader already, there is one change less in all.
        let changes = &moving.world.changes;
        if changes.len() < step {
            let was_moved = changes.iter().any(|change| matches!(change, Change::Leads { .. }));
            ensure!(step == ALL && !was_moved, "no more than {changes:?}");
            break;
        }
        let last = moving.world.changes.last().map(|change| format!("{change:?}")).unwrap_or_default();
        moving.world.sites.link(|relay| relay.stall());
        let wrote = writers_without_link(&moving, step).await?;
        moving.world.sites.link(|relay| relay.cut());
        moving.world.sites.link(|relay| relay.heal());
        println!("| {step}: {last} | {} | {} |", wrote[0], wrote[1]);
        ensure!(wrote == expected(step), "after {step} changes: {wrote:?}");
        for site in [SiteName::Source, SiteName::Destination] {
            let client = link::connect(&moving.fleet.access(site)).await?;
            until("writes on both sides", DEADLINE, async || {
                let write = client.kv_client().put("healed", "1", None).await;
                write.map(drop).context("no write")
            })
            .await?;
        }
    }
    moving.until_done(SiteName::Destination).await?;
    let client = client_of(&moving.world.sites, "destination-0", SiteName::Destination).await?;
    let report = load.finish(&client).await?;
    println!(
        "{} requests, {} failed, {} watches resumed",
        report.requests,
        report.failures.len(),
        report.resumed
    );
    Ok(())
}

/// The source until the third promotion, nobody with six, and the destination from the first removal on.
fn expected(step: usize) -> [bool; 2] {
    match step {
        ..6 => [true, false],
        6 => [false, false],
        7.. => [false, true],
    }
}

#[test]
#[ignore = "minutes, in make soak"]
fn only_with_six_voters_a_lost_link_stops_both_sites() {
    run(async |env| lose_link_after(env, &[5, 6, 7]).await);
}

#[test]
#[ignore = "make soak: every step"]
fn no_lost_link_leaves_two_sites_that_write() {
    run(async |env| lose_link_after(env, &(0..=ALL).collect::<Vec<_>>()).await);
}
