//! The driver of memberships on real members.

pub mod world;

use std::time::Duration;

use anyhow::{bail, ensure};
use repot_controllers::members::{Change, Outcome};
use repot_etcd_core::members::{Desired, SETTLED};
use repot_tests::run;
use repot_tests::sites::{SiteName, SiteOptions};
use repot_tests::wait::until;
use tokio::time::Instant;

use world::{DEADLINE, World, alone};

const NEAR: Duration = Duration::ZERO;

fn two_sites(compares_names: bool) -> SiteOptions {
    SiteOptions { source: 3, destination: 3, round_trip: NEAR, compares_names }
}

fn one_site(places: usize) -> SiteOptions {
    SiteOptions { source: places, destination: 0, round_trip: NEAR, compares_names: false }
}

fn words(changes: &[Change]) -> Vec<String> {
    changes
        .iter()
        .map(|change| format!("{change:?}").replace(" { slot: \"source-", " ").replace("\" }", ""))
        .collect()
}

#[test]
fn grows_from_three_to_five_by_learners_and_shrinks_again() {
    run(async |env| {
        let mut world = World::start(env, one_site(5), 3).await?;
        let start = Instant::now();
        world.wanted.desired = alone(5, 3);
        let grown = world.until_done().await?;
        ensure!(World::names(&grown).len() == 5, "{grown:?}");
        ensure!(
            words(&world.changes) == ["Added 3", "Promoted 3", "Added 4", "Promoted 4"],
            "{:?}",
            world.changes
        );
        // The voters of the beginning, and each new one, have to be seen for so long before the next joins.
        ensure!(start.elapsed() >= 2 * SETTLED, "grown within {:?}", start.elapsed());

        world.changes.clear();
        world.wanted.desired = alone(3, 5);
        let shrunk = world.until_done().await?;
        ensure!(World::names(&shrunk) == ["source-0", "source-1", "source-2"], "{shrunk:?}");
        let removed: Vec<_> =
            words(&world.changes).into_iter().filter(|word| word.starts_with("Removed")).collect();
        ensure!(removed.len() == 2, "{:?}", world.changes);
        Ok(())
    });
}

#[test]
fn nothing_is_changed_while_a_voter_is_down() {
    run(async |env| {
        let mut world = World::start(env, one_site(5), 3).await?;
        world.sites.process("source-1")?.kill();
        world.wanted.desired = alone(5, 3);
        world.until_waiting("VoterUnsteady").await?;
        world.sites.process("source-2")?.kill();
        world.until("no quorum", |outcome| {
            matches!(outcome, Outcome::Waiting(why) if ["NoQuorum", "NoLeader"].contains(&why.reason))
        })
        .await?;
        ensure!(world.changes.is_empty(), "{:?}", world.changes);
        for name in ["source-1", "source-2"] {
            world.sites.process(name)?.restart()?;
        }
        world.until_done().await?;
        ensure!(world.changes.len() == 4, "{:?}", world.changes);
        Ok(())
    });
}

/// The longest that a pass may take: an answer of each member, the list of members with an entry before it, and one change.
const PASS: Duration = Duration::from_secs(30);

#[test]
fn every_pass_ends_in_time_while_members_take_connections_and_never_answer() {
    run(async |env| {
        let mut world = World::start(env, one_site(3), 3).await?;
        world.until_done().await?;
        world.wanted.desired = alone(1, 3);
        // One of them, then the quorum, then all; with a driver that has connections, and with one that has to make them.
        for silent in [1, 2, 3] {
            let names: Vec<String> = (0..silent).map(|at| format!("source-{at}")).collect();
            for name in &names {
                world.sites.process(name)?.pause();
            }
            for fresh in [false, true] {
                if fresh {
                    world.restart_driver();
                }
                let begun = Instant::now();
                let pass = world.pass().await?;
                let (took, outcome) = (begun.elapsed(), pass.outcome);
                println!("{silent} silent, fresh {fresh}: {outcome:?} after {took:?}");
                ensure!(took < PASS, "{silent} silent, fresh {fresh}: {outcome:?} after {took:?}");
                let Outcome::Waiting(why) = outcome else { bail!("{silent} silent: {outcome:?}") };
                ensure!(!why.message.is_empty(), "{why:?}");
            }
            for name in &names {
                world.sites.process(name)?.resume();
            }
        }
        ensure!(world.changes.is_empty(), "{:?}", world.changes);
        world.until_done().await.map(drop)
    });
}

#[test]
fn voter_that_lost_its_data_is_replaced() {
    run(async |env| {
        let mut world = World::start(env, one_site(3), 3).await?;
        world.sites.discard("source-2")?;
        world.wanted.lost.insert("source-2".to_owned());
        world
            .until("the removal", |outcome| matches!(outcome, Outcome::Changed(Change::Removed { .. })))
            .await?;
        world.wanted.lost.clear();
        let whole = world.until_done().await?;
        ensure!(World::names(&whole).len() == 3, "{whole:?}");
        ensure!(words(&world.changes) == ["Removed 2", "Added 2", "Promoted 2"], "{:?}", world.changes);
        Ok(())
    });
}

#[test]
fn driver_that_begins_anew_in_the_middle_goes_on() {
    run(async |env| {
        let mut world = World::start(env, one_site(5), 3).await?;
        world.wanted.desired = alone(5, 3);
        world.starts = false;
        let added = world.until("a learner", |outcome| matches!(outcome, Outcome::Changed(_))).await?;
        // The member was added, and whoever should have started it died.
        world.restart_driver();
        world.until_waiting("LearnerNotStarted").await?;
        // Called off: a learner that never started leaves as it came.
        world.wanted.desired = alone(3, 3);
        let back = world.until_done().await?;
        ensure!(World::names(&back) == World::names(&added), "{back:?}");
        ensure!(words(&world.changes) == ["Added 3", "Removed 3"], "{:?}", world.changes);
        Ok(())
    });
}

#[test]
fn members_move_to_the_other_site_and_back_until_the_first_is_removed() {
    run(async |env| {
        let options = two_sites(false);
        let mut world = World::start(env, options, 3).await?;
        let home = world.wanted.desired;
        let away = Desired { source: 0, destination: 3, source_before: 3, release_source: false };
        world.wanted.desired = away;
        let five = world.until_waiting("SourceNotReleased").await?;
        ensure!(World::names(&five).len() == 6, "five voters and a learner: {five:?}");

        world.wanted.desired = home;
        let back = world.until_done().await?;
        ensure!(World::names(&back) == ["source-0", "source-1", "source-2"], "{back:?}");

        world.wanted.desired = Desired { release_source: true, ..away };
        world.until("the first removal", |outcome| {
            matches!(outcome, Outcome::Changed(Change::Removed { slot }) if slot.starts_with("source"))
        })
        .await?;
        world.wanted.desired = home;
        let pass = world.pass().await?;
        ensure!(
            matches!(&pass.outcome, Outcome::Refused(why) if why.reason == "SourceMembersRemoved"),
            "{pass:?}"
        );
        world.wanted.desired = Desired { release_source: true, ..away };
        let moved = world.until_done().await?;
        ensure!(World::names(&moved) == ["destination-0", "destination-1", "destination-2"], "{moved:?}");
        Ok(())
    });
}

#[test]
fn member_of_the_other_site_is_kept_out_where_addresses_are_compared_with_names() {
    run(async |env| {
        let mut world = World::start(env, two_sites(true), 3).await?;
        let home = world.wanted.desired;
        world.wanted.desired = Desired { source: 0, destination: 3, source_before: 3, release_source: false };
        world.until_waiting("LearnerNotStarted").await?;
        // It comes from the address of the link, and its name is at another one.
        until("a member to refuse it", DEADLINE, async || {
            world.pass().await?;
            let mut logs = String::new();
            for name in world.sites.names(SiteName::Source) {
                logs += &world.sites.process(&name)?.log();
            }
            ensure!(logs.contains("does not match any of DNSNames"), "nobody does");
            Ok(())
        })
        .await?;
        let is_promoted = |change: &Change| matches!(change, Change::Promoted { .. });
        ensure!(!world.changes.iter().any(is_promoted), "{:?}", world.changes);
        world.wanted.desired = home;
        world.until_done().await?;
        Ok(())
    });
}
