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
    run(async |bed| {
        let mut scene = OwnershipFixture::new(bed, 1).await?;
        let mut old = scene.old.start_all(bed).await?.remove(0);
        let writer = Writer::start(client_url(&scene.old, 0), OLD);
        writer.goes_on().await?;
        scene.dns.process().kill();
        let gone = Instant::now();
        stays_down_unknown(&mut old).await?;
        let last = writer.writes().last().map(|write| write.acked);
        ensure!(last.is_some_and(|last| last < gone + LEASE), "it served for too long");
        assert!(scene.finals().await?.is_empty(), "that nobody answers is no loss");
        scene.dns.process().restart()?;
        writer.goes_on().await?;
        old.ready().await?;
        let own = scene.old.client(std::slice::from_ref(&old)).await?;
        writer.is_all_in(&own).await?;
        // When it turns out at last that somebody else is the owner, the final snapshot is taken then.
        scene.dns.process().kill();
        stays_down_unknown(&mut old).await?;
        scene.hand_over(&[NEW]).await?;
        scene.dns.process().restart()?;
        stays_down(&mut old, "NotOwner").await?;
        assert_eq!(scene.finals().await?.len(), 1);
        let (new, new_writer) = scene.take_over(bed).await?;
        new_writer.goes_on().await?;
        writer.is_all_in(&scene.new.client(&[new]).await?).await?;
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
    run(async |bed| {
        let scene = OwnershipFixture::new(bed, 1).await?;
        let mut old = scene.old.start_all(bed).await?.remove(0);
        let writer = Writer::start(client_url(&scene.old, 0), OLD);
        writer.goes_on().await?;
        let pids = old.etcds()?;
        scene.dns.wire.set(Fate::Late(Duration::from_millis(1500)));
        // Longer than any lease. The question is repeated before the answer comes.
        sleep(Duration::from_secs(2 * (INTERVAL + TIMEOUT))).await;
        assert_eq!(old.etcds()?, pids, "a late answer is an answer");
        writer.goes_on().await?;
        scene.dns.wire.set(Fate::Late(Duration::from_secs(TIMEOUT + 2)));
        stays_down(&mut old, "OwnerSlow").await?;
        assert!(scene.finals().await?.is_empty());
        scene.dns.wire.set(Fate::Pass);
        writer.goes_on().await?;
        // The same where they do not come at all.
        scene.dns.wire.set(Fate::Lost);
        stays_down(&mut old, "OwnerSlow").await?;
        scene.dns.wire.set(Fate::Pass);
        writer.goes_on().await?;
        Ok(())
    });
}

#[test]
fn what_does_not_fit_into_a_datagram_comes_by_tcp() {
    run(async |bed| {
        let mut scene = OwnershipFixture::new(bed, 1).await?;
        let id = format!("{}/1", "seed-".repeat(150));
        scene.old.config["owner"]["id"] = json!(id);
        // The wire is for datagrams only.
        scene.old.config["owner"]["servers"] = json!([scene.dns.direct()]);
        scene.dns.set("owner", &[&id]).await?;
        scene.old.start_all(bed).await?;
        Ok(())
    });
}

#[test]
fn the_second_server_is_asked_when_the_first_is_silent() {
    run(async |bed| {
        let mut scene = OwnershipFixture::new(bed, 1).await?;
        let servers = json!([scene.dns.address(), scene.dns.direct()]);
        scene.old.config["owner"]["servers"] = servers;
        scene.dns.wire.set(Fate::Lost);
        scene.old.start_all(bed).await?;
        Ok(())
    });
}
