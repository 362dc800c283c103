//! The record names somebody else, nobody, or now this and now that.

use std::time::Duration;

use anyhow::{Result, ensure};
use repot_tests::run;
use serde_json::json;

use super::world::{NEW, OLD, OwnershipFixture, WAIT, Writer, client_url, never_both, stays_down};
use crate::etcd::world::{open, restore};
use crate::etcd_agent::world::DEADLINE;

#[test]
fn the_new_owner_goes_on_from_the_final_snapshot_and_the_old_one_never_again() {
    run(async |env| {
        let world = OwnershipFixture::new(env, 1).await?;
        let mut old = world.old.start_all(env).await?.remove(0);
        let old_writer = Writer::start(client_url(&world.old, 0), OLD);
        old_writer.goes_on().await?;
        world.hand_over(&[NEW]).await?;
        let owner = stays_down(&mut old, "NotOwner").await?;
        let finals = world.finals().await?;
        assert_eq!(finals.len(), 1, "{finals:?}");
        assert_eq!(owner["finalSnapshot"], json!(finals[0].to_string()));
        let (new, new_writer) = world.take_over(env).await?;
        new_writer.goes_on().await?;
        old_writer.is_all_in(&world.new.client(&[new]).await?).await?;
        // An agent that is started again knows, and takes no second one.
        old.process.restart()?;
        stays_down(&mut old, "NotOwner").await?;
        assert_eq!(world.finals().await?, finals);
        // Nor does it serve when the record comes back: the other side was ahead.
        world.hand_over(&[OLD]).await?;
        let owner = stays_down(&mut old, "FinalSnapshotTaken").await?;
        assert!(owner["message"].to_string().contains("newest backup of the last owner"), "{owner}");
        never_both(&old_writer, &new_writer)
    });
}

/// Whoever changes the record need not wait for the end of the interval.
#[test]
fn an_agent_that_is_asked_to_checks_the_record_at_once() {
    run(async |env| {
        let mut world = OwnershipFixture::new(env, 1).await?;
        world.old.config["owner"]["interval"] = json!("120s");
        let mut old = world.old.start_all(env).await?.remove(0);
        Writer::start(client_url(&world.old, 0), OLD).goes_on().await?;
        let begun = world.hand_over(&[NEW]).await?;
        old.post("/owner/check").await?.ok()?;
        stays_down(&mut old, "NotOwner").await?;
        ensure!(begun.elapsed() < Duration::from_secs(60), "it took {:?}", begun.elapsed());
        assert_eq!(world.finals().await?.len(), 1);
        Ok(())
    });
}

#[test]
fn an_etcd_that_lost_ownership_stays_down_without_a_record_in_its_configuration() {
    run(async |env| {
        let mut world = OwnershipFixture::new(env, 1).await?;
        let mut old = world.old.start_all(env).await?.remove(0);
        let writer = Writer::start(client_url(&world.old, 0), OLD);
        writer.goes_on().await?;
        world.hand_over(&[NEW]).await?;
        stays_down(&mut old, "NotOwner").await?;
        let finals = world.finals().await?;
        let acked = writer.writes().len();
        old.process.stop(DEADLINE).await?;
        world.old.config["owner"] = json!(null);
        let mut old = world.old.start(env, 0)?;
        let owner = stays_down(&mut old, "OwnershipLost").await?;
        assert_eq!(owner["finalSnapshot"], json!(finals[0].to_string()));
        assert!(owner["message"].to_string().contains("repot-owner.json"), "{owner}");
        assert_eq!(writer.writes().len(), acked, "it took a write");
        // A mark that cannot be read is no permission either.
        old.process.stop(DEADLINE).await?;
        std::fs::write(world.old.volume(0)?.join("repot-owner.json"), "{")?;
        let mut old = world.old.start(env, 0)?;
        stays_down(&mut old, "VolumeUnreadable").await?;
        // Whoever is sure removes it.
        old.process.stop(DEADLINE).await?;
        std::fs::remove_file(world.old.volume(0)?.join("repot-owner.json"))?;
        let mut old = world.old.start(env, 0)?;
        old.ready().await?;
        writer.goes_on().await
    });
}

#[test]
fn a_record_that_is_deleted_ends_the_ownership() {
    run(async |env| {
        let world = OwnershipFixture::new(env, 1).await?;
        let mut old = world.old.start_all(env).await?.remove(0);
        let writer = Writer::start(client_url(&world.old, 0), OLD);
        writer.goes_on().await?;
        world.hand_over(&[]).await?;
        stays_down(&mut old, "NotOwner").await?;
        let finals = world.finals().await?;
        assert_eq!(finals.len(), 1, "{finals:?}");
        let store = open(&world.store)?;
        let restored = restore(&store, env.path().join("restored")).await?;
        assert_eq!(restored.revision, finals[0].last);
        assert!(finals[0].last.0 > i64::try_from(writer.writes().len())?, "{finals:?}");
        Ok(())
    });
}

#[test]
fn a_record_that_goes_to_and_fro_ends_the_ownership_too() {
    run(async |env| {
        let world = OwnershipFixture::new(env, 1).await?;
        let mut old = world.old.start_all(env).await?.remove(0);
        let writer = Writer::start(client_url(&world.old, 0), OLD);
        writer.goes_on().await?;
        // Two values at a time say nothing: somebody is at it. It is too short for the lease to end.
        let pids = old.etcds()?;
        world.hand_over(&[OLD, NEW]).await?;
        old.says("that it is ambiguous", |status| status["owner"]["message"].to_string().contains("others"))
            .await?;
        world.hand_over(&[OLD]).await?;
        old.says("that all is well", |status| status["owner"]["message"] == json!("")).await?;
        assert_eq!(old.etcds()?, pids);
        // One look at another value is enough, however soon the own one is back.
        world.hand_over(&[NEW]).await?;
        let lost = |status: &serde_json::Value| status["owner"]["reason"] == "NotOwner";
        old.says("that it has lost", lost).await?;
        world.hand_over(&[OLD]).await?;
        stays_down(&mut old, "FinalSnapshotTaken").await?;
        assert_eq!(world.finals().await?.len(), 1);
        Ok(())
    });
}

#[test]
fn the_next_owner_waits_for_the_record_with_an_empty_volume() {
    run(async |env| -> Result<()> {
        let mut world = OwnershipFixture::new(env, 1).await?;
        world.new.config["restore"] = json!(null);
        let mut early = world.new.start(env, 0)?;
        let owner = stays_down(&mut early, "NotOwner").await?;
        assert!(owner["message"].to_string().contains("no data to save"), "{owner}");
        let changed = world.hand_over(&[NEW]).await?;
        early.ready().await?;
        ensure!(changed.elapsed() >= WAIT, "it began after {:?}", changed.elapsed());
        let status = early.status().await?;
        assert_eq!(status["owner"]["verdict"], json!("Serve"), "{status}");
        early.process.stop(DEADLINE).await?;
        Ok(())
    });
}
