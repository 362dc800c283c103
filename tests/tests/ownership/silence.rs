//! Nobody says whose the record is: the server is gone, or slow, or its answers get lost.

use std::time::Duration;

use anyhow::{Result, ensure};
use repot_tests::dns::Fate;
use repot_tests::run;
use serde_json::json;
use tokio::time::{Instant, sleep};

use super::world::{
    INTERVAL, LEASE, NEW, OLD, OwnershipFixture, TIMEOUT, Writer, client_url, never_both, stays_down,
};

#[test]
fn without_a_server_etcd_stops_and_resumes_when_the_own_id_is_read_again() {
    run(async |env| {
        let mut world = OwnershipFixture::new(env, 1).await?;
        let mut old = world.old.start_all(env).await?.remove(0);
        let writer = Writer::start(client_url(&world.old, 0), OLD);
        writer.goes_on().await?;
        world.dns.process().kill();
        let gone = Instant::now();
        stays_down_unknown(&mut old).await?;
        let last = writer.writes().last().map(|write| write.acked);
        ensure!(last.is_some_and(|last| last < gone + LEASE), "it served for too long");
        assert!(world.finals().await?.is_empty(), "that nobody answers is no loss");
        world.dns.process().restart()?;
        writer.goes_on().await?;
        old.ready().await?;
        let own = world.old.client(std::slice::from_ref(&old)).await?;
        writer.is_all_in(&own).await?;
        // When it turns out at last that somebody else is the owner, the final snapshot is taken then.
        world.dns.process().kill();
        stays_down_unknown(&mut old).await?;
        world.hand_over(&[NEW]).await?;
        world.dns.process().restart()?;
        stays_down(&mut old, "NotOwner").await?;
        assert_eq!(world.finals().await?.len(), 1);
        let (new, new_writer) = world.take_over(env).await?;
        new_writer.goes_on().await?;
        writer.is_all_in(&world.new.client(&[new]).await?).await?;
        never_both(&writer, &new_writer)
    });
}

/// An answer that is missing and one that is late are two reasons.
async fn stays_down_unknown(agent: &mut crate::etcd_agent::world::Agent) -> Result<()> {
    let down = |status: &serde_json::Value| {
        let reason = status["owner"]["reason"].as_str().unwrap_or_default();
        status["owner"]["verdict"] == "StayDown" && ["OwnerUnresolvable", "OwnerSlow"].contains(&reason)
    };
    agent.says("that nobody answers", down).await?;
    ensure!(agent.etcds()?.is_empty(), "there is an etcd");
    Ok(())
}

#[test]
fn answers_may_be_late_but_not_too_late() {
    run(async |env| {
        let world = OwnershipFixture::new(env, 1).await?;
        let mut old = world.old.start_all(env).await?.remove(0);
        let writer = Writer::start(client_url(&world.old, 0), OLD);
        writer.goes_on().await?;
        let pids = old.etcds()?;
        world.dns.wire.set(Fate::Late(Duration::from_millis(1500)));
        // Longer than any lease. The question is repeated before the answer comes.
        sleep(Duration::from_secs(2 * (INTERVAL + TIMEOUT))).await;
        assert_eq!(old.etcds()?, pids, "a late answer is an answer");
        writer.goes_on().await?;
        world.dns.wire.set(Fate::Late(Duration::from_secs(TIMEOUT + 2)));
        stays_down(&mut old, "OwnerSlow").await?;
        assert!(world.finals().await?.is_empty());
        world.dns.wire.set(Fate::Pass);
        writer.goes_on().await?;
        // The same where they do not come at all.
        world.dns.wire.set(Fate::Lost);
        stays_down(&mut old, "OwnerSlow").await?;
        world.dns.wire.set(Fate::Pass);
        writer.goes_on().await?;
        Ok(())
    });
}

#[test]
fn what_does_not_fit_into_a_datagram_comes_by_tcp() {
    run(async |env| {
        let mut world = OwnershipFixture::new(env, 1).await?;
        let id = format!("{}/1", "seed-".repeat(150));
        world.old.config["owner"]["id"] = json!(id);
        // The wire is for datagrams only.
        world.old.config["owner"]["servers"] = json!([world.dns.direct()]);
        world.dns.set("owner", &[&id]).await?;
        world.old.start_all(env).await?;
        Ok(())
    });
}

#[test]
fn the_second_server_is_asked_when_the_first_is_silent() {
    run(async |env| {
        let mut world = OwnershipFixture::new(env, 1).await?;
        let servers = json!([world.dns.address(), world.dns.direct()]);
        world.old.config["owner"]["servers"] = servers;
        world.dns.wire.set(Fate::Lost);
        world.old.start_all(env).await?;
        Ok(())
    });
}
