//! The final snapshot, where it is not easily had.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use repot_etcd_core::snapshot::SnapshotName;
use repot_tests::dns::DnsServer;
use repot_tests::run;
use repot_tests::s3::S3Server;
use repot_tests::wait::until;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};

use super::world::{
    LEASE, NEW, OLD, OwnershipFixture, RECORD, WAIT, Writer, client_url, never_both, signal_alone, stays_down,
};
use crate::etcd_agent::world::DEADLINE;

/// Ends when the other side has closed the connection.
async fn read_to_end(stream: &mut TcpStream) {
    let mut left = Vec::new();
    // A reset is an end, too.
    let _ = stream.write_all(b"x").await;
    let _ = stream.read_to_end(&mut left).await;
}

fn waits_for_the_store(status: &Value) -> bool {
    status["owner"]["message"].to_string().contains("the store is waited for")
}

#[test]
fn a_store_out_of_reach_keeps_no_etcd_alive_and_gets_the_snapshot_later() {
    run(async |env| {
        let mut s3 = S3Server::start(env).await?;
        let secret = env.make_dir("secret")?;
        s3.mount_secret(&secret)?;
        let mut world = OwnershipFixture::new(env, 1).await?;
        let store = json!({ "url": s3.url("main"), "credentials": secret, "endpoint": s3.endpoint() });
        world.store = s3.files("main");
        world.old.config["store"] = store.clone();
        world.new.config["restore"] = json!({ "store": store });
        let mut old = world.old.start_all(env).await?.remove(0);
        let old_writer = Writer::start(client_url(&world.old, 0), OLD);
        old_writer.goes_on().await?;
        old.get("/snapshot/full").await?.ok()?;
        s3.process().kill();
        let (etcds, url) = (old.etcds()?, client_url(&world.old, 0));
        let mut connected = TcpStream::connect(url.trim_start_matches("http://")).await?;
        world.hand_over(&[NEW]).await?;
        let status = old.says("that it waits for the store", waits_for_the_store).await?;
        assert_eq!(status["phase"], json!("Private"), "{status}");
        // A large etcd would need many seconds to start again. No client is connected to it any more, and none can connect.
        assert_eq!(old.etcds()?, etcds, "etcd was started again");
        timeout(DEADLINE, read_to_end(&mut connected)).await?;
        assert!(TcpStream::connect(url.trim_start_matches("http://")).await.is_err(), "{url} is served");
        let taken = old_writer.writes().len();
        // Started again while the store is away, with a record that names it again: another etcd may have gone on.
        old.kill_alone()?;
        old.no_etcd().await?;
        world.hand_over(&[OLD]).await?;
        old.process.restart()?;
        stays_down(&mut old, "CutOff").await?;
        assert_eq!(old_writer.writes().len(), taken, "it took a write after it was cut off");
        // Somebody else again, and the store is back: the snapshot is taken although it is late.
        world.hand_over(&[NEW]).await?;
        old.says("that it waits for the store", waits_for_the_store).await?;
        s3.process().restart()?;
        s3.wait_until_ready().await?;
        stays_down(&mut old, "NotOwner").await?;
        assert_eq!(world.finals().await?.len(), 1);
        let (new, new_writer) = world.take_over(env).await?;
        new_writer.goes_on().await?;
        old_writer.is_all_in(&world.new.client(&[new]).await?).await?;
        never_both(&old_writer, &new_writer)
    });
}

#[test]
fn members_that_all_lost_ownership_still_have_a_quorum_for_one_final_snapshot() {
    run(async |env| {
        let world = OwnershipFixture::new(env, 3).await?;
        let mut old = world.old.start_all(env).await?;
        let old_writer = Writer::start(client_url(&world.old, 1), OLD);
        old_writer.goes_on().await?;
        world.hand_over(&[NEW]).await?;
        let mut said = Vec::new();
        for agent in &mut old {
            said.push(stays_down(agent, "NotOwner").await?["finalSnapshot"].clone());
        }
        let finals = world.finals().await?;
        assert_eq!(finals.len(), 1, "{finals:?}");
        let name = json!(finals.first().context("a snapshot")?.to_string());
        assert!(said.iter().all(|one| *one == name), "{said:?}");
        let (new, new_writer) = world.take_over(env).await?;
        new_writer.goes_on().await?;
        old_writer.is_all_in(&world.new.client(&[new]).await?).await?;
        never_both(&old_writer, &new_writer)
    });
}

#[test]
fn final_delta_holds_every_write_that_any_member_has_acknowledged() {
    run(async |env| {
        let world = OwnershipFixture::new(env, 3).await?;
        let mut old = world.old.start_all(env).await?;
        let writers: Vec<Writer> = ["0", "1", "2"]
            .into_iter()
            .zip(0..)
            .map(|(side, at)| Writer::start(client_url(&world.old, at), side))
            .collect();
        for writer in &writers {
            writer.goes_on().await?;
        }
        world.hand_over(&[NEW]).await?;
        let is_named = |status: &Value| status["owner"]["finalDelta"].is_string();
        let mut delta = None;
        for agent in &mut old {
            let owner = stays_down(agent, "NotOwner").await?;
            let status = agent.get("/status").await?.ok()?;
            assert_eq!(status["owner"]["finalSnapshot"], owner["finalSnapshot"]);
            delta = delta.or_else(|| is_named(&status).then(|| status["owner"]["finalDelta"].clone()));
        }
        let delta: SnapshotName = delta.as_ref().and_then(Value::as_str).context("a final delta")?.parse()?;
        let writes = writers.iter().flat_map(Writer::writes);
        let last = writes.map(|write| write.revision).max().context("a write")?;
        ensure!(delta.last.0 >= last, "{delta} ends before revision {last}, which was acknowledged");
        Ok(())
    });
}

#[test]
fn a_member_that_does_not_answer_is_waited_for_until_its_lease_is_over() {
    run(async |env| -> Result<()> {
        let world = OwnershipFixture::new(env, 3).await?;
        let mut old = world.old.start_all(env).await?;
        // Nothing listens at its client URL, but its agent may start etcd again within the lease.
        let asleep = Instant::now();
        signal_alone(&old[2], Signal::STOP)?;
        for pid in old[2].etcds()? {
            kill_process(Pid::from_raw(pid.try_into()?).context("a process")?, Signal::KILL)?;
        }
        world.hand_over(&[NEW]).await?;
        until("the final snapshot", DEADLINE, async || {
            ensure!(!world.finals().await?.is_empty(), "there is none");
            Ok(())
        })
        .await?;
        let after = asleep.elapsed();
        ensure!(
            after > LEASE,
            "it was taken {after:?} after the last word of a member, which has a lease of {LEASE:?}"
        );
        signal_alone(&old[2], Signal::CONT)?;
        for agent in &mut old {
            stays_down(agent, "NotOwner").await?;
        }
        assert_eq!(world.finals().await?.len(), 1);
        Ok(())
    });
}

#[test]
fn a_member_that_hears_nothing_of_the_record_is_not_cut_off() {
    run(async |env| -> Result<()> {
        let mut world = OwnershipFixture::new(env, 3).await?;
        let mut other = DnsServer::start(env).await?;
        other.set(RECORD, &[OLD]).await?;
        let mut old = vec![world.old.start(env, 0)?, world.old.start(env, 1)?];
        world.old.config["owner"]["servers"] = json!([other.address()]);
        old.push(world.old.start(env, 2)?);
        for agent in &mut old {
            agent.ready().await?;
        }
        // It would serve again as soon as it hears its id from a cache.
        other.process().kill();
        stays_down(&mut old[2], "OwnerSlow").await?;
        let changed = world.hand_over(&[NEW]).await?;
        until("the final snapshot", DEADLINE, async || {
            ensure!(!world.finals().await?.is_empty(), "there is none");
            Ok(())
        })
        .await?;
        // Whole seconds are rounded down.
        let after = changed.elapsed() + Duration::from_secs(1);
        ensure!(
            after >= WAIT,
            "it was taken after {after:?}, although a member may serve again for {WAIT:?}"
        );
        Ok(())
    });
}

#[test]
fn members_that_the_configuration_does_not_know_are_asked_too() {
    run(async |env| -> Result<()> {
        let mut world = OwnershipFixture::new(env, 3).await?;
        let mut old = world.old.start_all(env).await?;
        // As after a change of members, which starts nobody again.
        let members = world.old.config["members"].clone();
        for at in 0..2 {
            old[at].process.stop(DEADLINE).await?;
            world.old.config["members"] = json!([members[at]]);
            old[at] = world.old.start(env, at)?;
            old[at].ready().await?;
        }
        let writer = Writer::start(client_url(&world.old, 2), OLD);
        writer.goes_on().await?;
        let asleep = Instant::now();
        signal_alone(&old[2], Signal::STOP)?;
        world.hand_over(&[NEW]).await?;
        until("the final snapshot", DEADLINE, async || {
            ensure!(!world.finals().await?.is_empty(), "there is none");
            Ok(())
        })
        .await?;
        let after = asleep.elapsed();
        ensure!(after > LEASE, "it was taken after {after:?}, while a member had a lease of {LEASE:?}");
        Ok(())
    });
}

#[test]
fn a_member_without_a_quorum_says_so_and_stays_down() {
    run(async |env| -> Result<()> {
        let world = OwnershipFixture::new(env, 3).await?;
        let mut old = world.old.start_all(env).await?;
        drop(old.drain(..2));
        world.hand_over(&[NEW]).await?;
        let owner = stays_down(&mut old[0], "NotOwner").await?;
        assert!(owner["message"].to_string().contains("there is no final snapshot"), "{owner}");
        assert!(owner["message"].to_string().contains("the members have no quorum"), "{owner}");
        assert_eq!(owner["finalSnapshot"], Value::Null);
        assert!(world.finals().await?.is_empty());
        Ok(())
    });
}
