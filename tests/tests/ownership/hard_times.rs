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
    run(async |env| {
        let world = OwnershipFixture::new(env, 1).await?;
        let mut old = world.old.start_all(env).await?.remove(0);
        let old_writer = Writer::start(client_url(&world.old, 0), OLD);
        old_writer.goes_on().await?;
        old.get("/snapshot/full").await?.ok()?;
        signal_alone(&old, Signal::STOP)?;
        let frozen = Instant::now();
        let changed = world.hand_over(&[NEW]).await?;
        // Started while the old etcd still serves: it waits by itself.
        let (_new, new_writer) = world.take_over(env).await?;
        ensure!(changed.elapsed() >= WAIT, "it began after {:?}", changed.elapsed());
        new_writer.goes_on().await?;
        ensure!(old.etcds()?.is_empty(), "the old etcd runs");
        let last = old_writer.writes().last().map(|write| write.acked);
        ensure!(last.is_some_and(|last| last > frozen), "it took no write without its agent");
        ensure!(last.is_some_and(|last| last < frozen + LEASE), "it served for too long");
        // Nobody could take a final snapshot, and the new side knows nothing newer than what is in the store.
        assert!(world.finals().await?.is_empty());
        // When it wakes up, it takes what the other side may want later, and lets no client in.
        signal_alone(&old, Signal::CONT)?;
        stays_down(&mut old, "NotOwner").await?;
        assert_eq!(world.finals().await?.len(), 1);
        never_both(&old_writer, &new_writer)
    });
}

#[test]
fn an_agent_that_was_killed_goes_straight_to_the_final_snapshot() {
    run(async |env| -> Result<()> {
        let world = OwnershipFixture::new(env, 1).await?;
        let mut old = world.old.start_all(env).await?.remove(0);
        let old_writer = Writer::start(client_url(&world.old, 0), OLD);
        old_writer.goes_on().await?;
        old.kill_alone()?;
        old.no_etcd().await?;
        world.hand_over(&[NEW]).await?;
        old.process.restart()?;
        stays_down(&mut old, "NotOwner").await?;
        assert_eq!(world.finals().await?.len(), 1);
        let (new, new_writer) = world.take_over(env).await?;
        new_writer.goes_on().await?;
        old_writer.is_all_in(&world.new.client(&[new]).await?).await?;
        never_both(&old_writer, &new_writer)
    });
}
