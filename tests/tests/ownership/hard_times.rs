//! The agent is frozen or killed when ownership is lost.

use anyhow::{Result, ensure};
use repot_tests::run;
use rustix::process::Signal;
use tokio::time::Instant;

use super::world::{
    LEASE, NEW, OLD, OwnershipFixture, WAIT, Writer, client_url, never_both, signal_alone, stays_down,
};

#[test]
fn a_frozen_agent_loses_its_etcd_in_time() {
    run(async |bed| {
        let scene = OwnershipFixture::new(bed, 1).await?;
        let mut old = scene.old.start_all(bed).await?.remove(0);
        let old_writer = Writer::start(client_url(&scene.old, 0), OLD);
        old_writer.goes_on().await?;
        old.get("/snapshot/full").await?.ok()?;
        signal_alone(&old, Signal::STOP)?;
        let frozen = Instant::now();
        let changed = scene.hand_over(&[NEW]).await?;
        // Started while the old etcd still serves: it waits by itself.
        let (_new, new_writer) = scene.take_over(bed).await?;
        ensure!(changed.elapsed() >= WAIT, "it began after {:?}", changed.elapsed());
        new_writer.goes_on().await?;
        ensure!(old.etcds()?.is_empty(), "the old etcd runs");
        let last = old_writer.writes().last().map(|write| write.acked);
        ensure!(last.is_some_and(|last| last > frozen), "it took no write without its agent");
        ensure!(last.is_some_and(|last| last < frozen + LEASE), "it served for too long");
        // Nobody could take a final snapshot, and the new side knows nothing newer than what is in the store.
        assert!(scene.finals().await?.is_empty());
        // When it wakes up, it takes what the other side may want later, and lets no client in.
        signal_alone(&old, Signal::CONT)?;
        stays_down(&mut old, "NotOwner").await?;
        assert_eq!(scene.finals().await?.len(), 1);
        never_both(&old_writer, &new_writer)
    });
}

#[test]
fn an_agent_that_was_killed_goes_straight_to_the_final_snapshot() {
    run(async |bed| -> Result<()> {
        let scene = OwnershipFixture::new(bed, 1).await?;
        let mut old = scene.old.start_all(bed).await?.remove(0);
        let old_writer = Writer::start(client_url(&scene.old, 0), OLD);
        old_writer.goes_on().await?;
        old.kill_alone()?;
        old.no_etcd().await?;
        scene.hand_over(&[NEW]).await?;
        old.process.restart()?;
        stays_down(&mut old, "NotOwner").await?;
        assert_eq!(scene.finals().await?.len(), 1);
        let (new, new_writer) = scene.take_over(bed).await?;
        new_writer.goes_on().await?;
        old_writer.is_all_in(&scene.new.client(&[new]).await?).await?;
        never_both(&old_writer, &new_writer)
    });
}
