//! A new owner that followed the snapshots of the one before: what is left at the end is the last delta.

use std::fs;
use std::os::unix::fs::MetadataExt;

use anyhow::{Context, Result, ensure};
use repot_etcd_core::snapshot::{Kind, SnapshotName};
use repot_tests::run;
use repot_tests::s3::S3Server;
use repot_tests::test_env::TestEnv;
use repot_tests::wait::until;
use rustix::process::Signal;
use serde_json::{Value, json};
use tokio::time::timeout;

use super::world::{OwnershipFixture, WAIT, Writer, client_url, never_both, signal_alone, stays_down};
use crate::etcd::world::open;
use crate::etcd_agent::world::{Agent, DEADLINE};

const FIRST: &str = "seed-a/1";
const SECOND: &str = "seed-b/2";
/// What is added to revisions when a standby takes over.
const RAISED: i64 = 1_000_000_000;

/// Two sides with a bucket between them, and a writer on the first one.
pub struct StandbyFixture {
    pub world: OwnershipFixture,
    pub s3: S3Server,
    pub old: Agent,
    pub writer: Writer,
}

impl StandbyFixture {
    pub async fn new(env: &TestEnv, members: usize) -> Result<Self> {
        Self::with_owner(env, members, json!({})).await
    }

    /// The same with other settings of the first side's owner.
    pub async fn with_owner(env: &TestEnv, members: usize, settings: Value) -> Result<Self> {
        let s3 = S3Server::start(env).await?;
        let secret = env.make_dir("secret")?;
        s3.mount_secret(&secret)?;
        let mut world = OwnershipFixture::with_ids(env, members, FIRST, SECOND).await?;
        let store = json!({ "url": s3.url("main"), "credentials": secret, "endpoint": s3.endpoint() });
        world.store = s3.files("main");
        world.old.config["store"] = store.clone();
        for (name, value) in settings.as_object().into_iter().flatten() {
            world.old.config["owner"][name] = value.clone();
        }
        world.old.config["snapshots"] = json!({ "deltaPeriod": "2s" });
        world.new.config["restore"] = json!({ "store": store, "standby": true });
        let old = world.old.start_all(env).await?.remove(0);
        let writer = Writer::start(client_url(&world.old, 0), FIRST);
        writer.goes_on().await?;
        Ok(Self { world, s3, old, writer })
    }

    /// The new side, once it holds a revision and more has come since.
    pub async fn standby(&self, env: &TestEnv) -> Result<Agent> {
        let mut new = self.world.new.start(env, 0)?;
        self.follows(&mut new).await?;
        Ok(new)
    }

    /// Waits until the standby has taken one more delta.
    pub async fn follows(&self, new: &mut Agent) -> Result<()> {
        let holds = |status: &Value| status["standby"]["revision"].as_i64();
        let first = new.says("that it holds something", |status| holds(status).is_some()).await?;
        let first = holds(&first).context("a revision")?;
        new.says("that it follows", |status| holds(status) > Some(first)).await?;
        Ok(())
    }
}

#[test]
fn standby_takes_over_with_every_write_and_a_risen_revision() {
    run(async |env| {
        let fixture = StandbyFixture::new(env, 1).await?;
        let StandbyFixture { world, writer, .. } = &fixture;
        let mut new = fixture.standby(env).await?;
        ensure!(new.etcds()?.is_empty(), "it serves already");
        stays_down(&mut new, "OwnerOlder").await?;
        let cluster = fixture.old.status().await?["cluster"].clone();

        let changed = world.hand_over(&[SECOND]).await?;
        let new_writer = Writer::start(client_url(&world.new, 0), SECOND);
        timeout(WAIT, new.ready()).await.context("it waits although the owner before has ended")??;
        new_writer.goes_on().await?;
        eprintln!("taken over after {:?}", changed.elapsed());
        never_both(writer, &new_writer)?;

        let status = new.status().await?;
        let taken = &status["restored"];
        ensure!(
            taken["bumpedRevision"].as_i64() == taken["revision"].as_i64().map(|held| held + RAISED),
            "{taken}"
        );
        ensure!(taken["deltas"].as_u64() > Some(0), "{taken}");
        ensure!(status["standby"].is_null(), "{status}");
        ensure!(status["cluster"] != cluster && status["member"]["name"] == "m0", "{status}");
        let client = world.new.client(std::slice::from_ref(&new)).await?;
        writer.is_all_in(&client).await?;
        let members = client.cluster_client().member_list().await?;
        ensure!(members.members().len() == 1, "{members:?}");

        // Whoever watched the old etcd has to list anew.
        let options = etcd_client::WatchOptions::new().with_all_keys().with_start_revision(2);
        let mut stream = client.watch_client().watch("", Some(options)).await?;
        let compacted = until_compacted(&mut stream).await?;
        ensure!(compacted > RAISED, "it is compacted up to {compacted}");
        Ok(())
    });
}

#[test]
fn etcd_of_a_standby_is_not_started_again_when_it_takes_over() {
    run(async |env| {
        let mut fixture = StandbyFixture::new(env, 1).await?;
        // New files appear soon, in a directory that was renamed meanwhile.
        fixture.world.new.config["etcdFlags"] = json!({ "snapshot-count": "20" });
        let StandbyFixture { world, writer, .. } = &fixture;
        let mut new = fixture.standby(env).await?;
        let etcds = new.standby_etcds()?;
        ensure!(etcds.len() == 1 && new.etcds()?.is_empty(), "{etcds:?}");
        world.hand_over(&[SECOND]).await?;
        let new_writer = Writer::start(client_url(&world.new, 0), SECOND);
        timeout(WAIT, new.ready()).await??;
        ensure!(new.etcds()? == etcds, "{:?} serves, and {etcds:?} followed", new.etcds()?);
        let taken = snapshots(&new)?;
        until("etcd to write a snapshot of its log", DEADLINE, async || {
            new_writer.goes_on().await?;
            ensure!(snapshots(&new)?.iter().any(|name| !taken.contains(name)), "it has {taken:?}");
            Ok(())
        })
        .await?;
        never_both(writer, &new_writer)?;

        // What it wrote is in its data directory.
        new.kill_alone()?;
        new.no_etcd().await?;
        new.process.restart()?;
        new.ready().await?;
        new_writer.goes_on().await?;
        let client = world.new.client(std::slice::from_ref(&new)).await?;
        writer.is_all_in(&client).await?;
        new_writer.is_all_in(&client).await
    });
}

/// Files that etcd writes each time when it has taken so many entries into its log.
fn snapshots(agent: &Agent) -> Result<Vec<String>> {
    let files = fs::read_dir(agent.data.join("new.etcd/member/snap"))?;
    let names = files.map(|file| Ok(file?.file_name().to_string_lossy().into_owned()));
    names
        .filter(|name| name.as_ref().is_ok_and(|name: &String| name.ends_with(".snap")) || name.is_err())
        .collect()
}

#[test]
fn standby_takes_what_the_limits_of_its_member_refuse() {
    run(async |env| {
        let mut fixture = StandbyFixture::new(env, 1).await?;
        fixture.world.new.config["etcdFlags"] = json!({ "max-request-bytes": "1000" });
        let mut new = fixture.standby(env).await?;
        ensure!(new.standby_etcds()?.len() == 1, "it is a private one from the start");
        let old = fixture.world.old.client(std::slice::from_ref(&fixture.old)).await?;
        let put = old.kv_client().put("/large", vec![7; 5_000], None).await?;
        let large = put.header().context("a header")?.revision();
        let holds = |status: &Value| status["standby"]["revision"].as_i64() >= Some(large);
        new.says("that it holds the large value", holds).await?;
        ensure!(new.standby_etcds()?.is_empty(), "it has the limits of the member");
        fixture.world.hand_over(&[SECOND]).await?;
        timeout(WAIT, new.ready()).await??;
        let client = fixture.world.new.client(std::slice::from_ref(&new)).await?;
        ensure!(client.kv_client().get("/large", None).await?.kvs().len() == 1, "it is lost");
        fixture.writer.is_all_in(&client).await
    });
}

async fn until_compacted(stream: &mut etcd_client::WatchStream) -> Result<i64> {
    loop {
        let message = timeout(DEADLINE, stream.message()).await??.context("the watch ended")?;
        if message.compact_revision() > 0 {
            return Ok(message.compact_revision());
        }
    }
}

#[test]
fn final_delta_names_the_owner_it_ends_before_the_final_snapshot() {
    run(async |env| {
        let mut fixture = StandbyFixture::new(env, 1).await?;
        // Something that no delta has yet.
        fixture.writer.goes_on().await?;
        fixture.world.hand_over(&[SECOND]).await?;
        let owner = stays_down(&mut fixture.old, "NotOwner").await?;
        let store = open(&fixture.world.store)?;
        let mut ended = Vec::new();
        for one in store.list_quickly().await?.into_iter().filter(|one| one.ends_owner) {
            ensure!(store.ended_owner(&one.name).await?.as_deref() == Some(FIRST));
            ended.push(one.name);
        }
        let of_kind = |kind| ended.iter().filter(|name| name.kind == kind).collect::<Vec<_>>();
        let (deltas, fulls) = (of_kind(Kind::Delta), of_kind(Kind::Full));
        ensure!(deltas.len() == 1 && fulls.len() == 1, "{ended:?}");
        ensure!(deltas[0].last == fulls[0].last && deltas[0].created <= fulls[0].created, "{ended:?}");
        ensure!(owner["finalDelta"] == json!(deltas[0].to_string()), "{owner}");
        ensure!(owner["finalSnapshot"] == json!(fulls[0].to_string()), "{owner}");
        // The agent remembers it.
        fixture.old.kill_alone()?;
        fixture.old.no_etcd().await?;
        fixture.old.process.restart()?;
        let again = stays_down(&mut fixture.old, "NotOwner").await?;
        ensure!(again["finalDelta"] == owner["finalDelta"], "{again}");
        Ok(())
    });
}

#[test]
fn standby_continues_after_its_agent_was_killed() {
    run(async |env| {
        let fixture = StandbyFixture::new(env, 1).await?;
        let mut new = fixture.standby(env).await?;
        let replay = new.data.join("new.etcd.part/replay");
        let before = fs::metadata(&replay)?.ino();
        new.kill_alone()?;
        new.process.restart()?;
        fixture.follows(&mut new).await?;
        ensure!(fs::metadata(&replay)?.ino() == before, "it began anew");

        // While it takes over.
        fixture.world.hand_over(&[SECOND]).await?;
        new.says("that it takes over", |status| status["phase"] != "Stopped").await?;
        new.kill_alone()?;
        new.no_etcd().await?;
        new.process.restart()?;
        let new_writer = Writer::start(client_url(&fixture.world.new, 0), SECOND);
        new.ready().await?;
        new_writer.goes_on().await?;
        fixture.writer.is_all_in(&fixture.world.new.client(&[new]).await?).await?;
        never_both(&fixture.writer, &new_writer)
    });
}

#[test]
fn damaged_delta_is_said_and_a_full_snapshot_makes_up_for_it() {
    run(async |env| {
        let fixture = StandbyFixture::new(env, 1).await?;
        let mut new = fixture.standby(env).await?;
        let store = open(&fixture.world.store)?;
        let newest = async || -> Result<SnapshotName> {
            let deltas = store.list_quickly().await?.into_iter().map(|one| one.name);
            deltas.filter(|name| name.kind == Kind::Delta).max().context("no delta")
        };
        signal_alone(&new, Signal::STOP)?;
        let before = newest().await?;
        let damaged = until("two more deltas", DEADLINE, async || {
            let found = newest().await?;
            ensure!(found.start > before.last.next(), "{found} is the newest");
            Ok(found)
        })
        .await?;
        let path = fixture.world.store.join("v2").join(damaged.to_string());
        let mut bytes = fs::read(&path)?;
        let middle = bytes.len() / 2;
        bytes[middle] ^= 0x55;
        fs::write(&path, bytes)?;
        signal_alone(&new, Signal::CONT)?;
        let says = |status: &Value| status["standby"]["message"].to_string().contains("damaged");
        let status = new.says("that a delta is damaged", says).await?;
        ensure!(status["standby"]["revision"].as_i64() < Some(damaged.last.0), "{status}");

        let full: Value = fixture.old.get("/snapshot/full").await?.json()?;
        let last = full["lastRevision"].as_i64().context("a revision")?;
        new.says("that it holds more", |status| status["standby"]["revision"].as_i64() >= Some(last)).await?;
        take_over(&fixture, new).await
    });
}

#[test]
fn final_delta_that_is_late_is_waited_for() {
    run(async |env| {
        let mut fixture = StandbyFixture::new(env, 1).await?;
        fixture.world.new.config["restore"]["finalWait"] = json!("5m");
        let mut new = fixture.standby(env).await?;
        fixture.s3.process().kill();
        let changed = fixture.world.hand_over(&[SECOND]).await?;
        // Only the time tells that the owner before has ended.
        new.says("that it waits for the final delta", |status| {
            status["message"].to_string().contains("waits for the final delta")
        })
        .await?;
        ensure!(changed.elapsed() >= WAIT, "after {:?}", changed.elapsed());
        fixture.s3.process().restart()?;
        fixture.s3.wait_until_ready().await?;
        take_over(&fixture, new).await
    });
}

#[test]
fn foreign_full_snapshot_is_said_and_does_not_end_the_standby_at_once() {
    run(async |env| {
        let fixture = StandbyFixture::new(env, 1).await?;
        let mut new = fixture.standby(env).await?;
        let v2 = fixture.world.store.join("v2");
        let foreign = v2.join("Full-00000000-90000000-1700000000.gz");
        let all = open(&fixture.world.store)?.list_quickly().await?;
        let full = all.iter().find(|one| one.name.kind == Kind::Full).context("a full snapshot")?;
        fs::copy(v2.join(full.name.to_string()), &foreign)?;
        let says = |status: &Value| status["standby"]["message"].to_string().contains("no delta leads");
        let status = new.says("that a snapshot does not fit", says).await?;
        let held = status["standby"]["revision"].as_i64();
        new.says("that it follows", |status| status["standby"]["revision"].as_i64() > held).await?;
        fs::remove_file(&foreign)?;
        new.says("that all is well", |status| status["standby"]["message"] == "").await?;
        take_over(&fixture, new).await
    });
}

/// An empty etcd in its place would be writable, and lack everything.
#[test]
fn standby_that_the_configuration_forgets_leaves_no_empty_etcd() {
    run(async |env| {
        let mut fixture = StandbyFixture::new(env, 1).await?;
        drop(fixture.standby(env).await?);
        let restore = fixture.world.new.config["restore"].take();
        let mut new = fixture.world.new.start(env, 0)?;
        fixture.world.hand_over(&[SECOND]).await?;
        let says = |status: &Value| status["message"].to_string().contains("StandbyLeft");
        new.says("that a standby is left", says).await?;
        ensure!(new.etcds()?.is_empty(), "it serves");
        drop(new);
        fixture.world.new.config["restore"] = restore;
        let mut new = fixture.world.new.start(env, 0)?;
        new.ready().await?;
        fixture.writer.is_all_in(&fixture.world.new.client(&[new]).await?).await
    });
}

/// Hands over and checks that nothing is lost.
async fn take_over(fixture: &StandbyFixture, mut new: Agent) -> Result<()> {
    let new_writer = Writer::start(client_url(&fixture.world.new, 0), SECOND);
    fixture.world.hand_over(&[SECOND]).await?;
    new.ready().await?;
    new_writer.goes_on().await?;
    fixture.writer.is_all_in(&fixture.world.new.client(&[new]).await?).await?;
    never_both(&fixture.writer, &new_writer)
}
