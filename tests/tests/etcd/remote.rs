//! An object store that is reached over a network, with all that a network and such a store do to snapshots.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use jiff::Timestamp;
use repot_etcd::snapshot::store::{Environment, Mode, Store};
use repot_etcd_core::snapshot::{Compression, Kind, Revision, SnapshotName};
use repot_tests::run;
use repot_tests::s3::S3Server;
use repot_tests::tool::{self, Output};
use tokio::process::Command;

use super::copying::fill;
use super::world::{self, DEADLINE, Revived, World, command, dump, restore, url};

/// A store in it, by environment variables.
pub fn open(s3: &S3Server, prefix: &str) -> Result<Store> {
    open_patiently(s3, prefix, 30)
}

pub fn open_patiently(s3: &S3Server, prefix: &str, seconds: u32) -> Result<Store> {
    let mut environment: Environment = s3.environment();
    environment.insert("STORE_PATIENCE_SECONDS".to_owned(), seconds.to_string());
    Ok(Store::open(&s3.url(prefix), &environment)?)
}

/// `repot snapshots` with the environment of a store.
pub fn at(s3: &S3Server, args: &[&str]) -> Result<Command> {
    let mut command = command(args)?;
    command.envs(s3.environment()).env("STORE_PATIENCE_SECONDS", "30");
    Ok(command)
}

pub async fn snapshots(s3: &S3Server, args: &[&str]) -> Result<Output> {
    tool::run(at(s3, args)?, b"").await
}

/// Name and bytes of all that a store keeps.
pub fn content(dir: &Path) -> Result<BTreeMap<String, Vec<u8>>> {
    super::copying::content(dir)
}

pub fn mk_name(last: i64) -> SnapshotName {
    SnapshotName {
        kind: Kind::Full,
        start: Revision(0),
        last: Revision(last),
        created: 1_700_000_000,
        compression: Compression::None,
        is_final: false,
    }
}

pub async fn put(store: &Store, name: &SnapshotName, bytes: usize, mode: Mode) -> Result<()> {
    world::put(store, name, vec![7; bytes].into(), mode).await.map(drop)
}

#[test]
fn snapshots_go_through_an_object_store_and_back() {
    run(async |env| {
        let s3 = S3Server::start_with_tls(env).await?;
        let secret = env.path().join("secret");
        s3.mount_secret(&secret)?;
        let mut world = World::start(env).await?;
        // As an agent opens it: by what is mounted, and nothing of the environment.
        world.store = Store::open_with(&s3.url("a"), &Environment::new(), Some(&secret), None)?;
        world.write("early", 30).await?;
        let full = world.full(false).await?.name;
        world.write("late", 30).await?;
        world.delta(full.last, Compression::Gzip).await?;
        let (revision, before) = dump(&world.client).await?;

        let (a, b, dir) = (s3.url("a"), s3.url("b"), env.path().join("dir"));
        let by_files = async |args: &[&str]| {
            let mut command = command(args)?;
            command.env("AWS_APPLICATION_CREDENTIALS", &secret);
            tool::run(command, b"").await?.json()
        };
        let listed = by_files(&["list", "--store", &a, "--output", "json"]).await?;
        assert_eq!(listed["snapshots"].as_array().map(Vec::len), Some(2), "{listed}");
        let verified = by_files(&["verify", "--store", &a, "--output", "json"]).await?;
        assert_eq!(verified["good"], true, "{verified}");
        for (from, to) in [(&a, &b), (&b, &url(&dir)), (&url(&dir), &s3.url("c"))] {
            let said = by_files(&["copy", "--source", from, "--target", to, "--output", "json"]).await?;
            assert_eq!(said["failed"], serde_json::json!([]), "{said}");
        }
        let all = content(&s3.files("a"))?;
        assert_eq!(all.len(), 4, "{:?}", all.keys());
        assert_eq!(content(&s3.files("c"))?, all);
        assert_eq!(content(&dir)?, all);

        let data = env.path().join("restored");
        let restored = restore(&open(&s3, "c")?, data.clone()).await?;
        assert_eq!(restored.revision, revision);
        let revived = Revived::start(env, &data).await?;
        assert_eq!(dump(&revived.client).await?.1, before);
        Ok(())
    });
}

#[test]
fn what_is_there_is_not_written_over() {
    run(async |env| {
        let s3 = S3Server::start(env).await?;
        let store = open(&s3, "a")?;
        // In one request, and in several parts.
        for (last, bytes) in [(5, 1000), (6, 20 << 20)] {
            let name = mk_name(last);
            put(&store, &name, bytes, Mode::Create).await?;
            let refused = put(&store, &name, bytes + 1, Mode::Create).await.expect_err("it is there");
            assert!(refused.to_string().contains("exists already"), "{refused:#}");
            put(&store, &name, bytes + 1, Mode::Replace).await?;
            let length = fs::metadata(s3.files(&format!("a/v2/{name}")))?.len();
            assert_eq!(length, bytes as u64 + 1);
        }
        assert_eq!(s3.uploads()?, Vec::<String>::new(), "parts are left behind");
        Ok(())
    });
}

#[test]
fn wrong_credentials_are_told_without_them() {
    run(async |env| {
        let s3 = S3Server::start(env).await?;
        fill(&open(&s3, "a")?, 2, 1000).await?;
        let a = s3.url("a");
        let wrong_key = "wrong-and-not-to-be-shown";
        for (name, value) in [("AWS_SECRET_ACCESS_KEY", wrong_key), ("AWS_ACCESS_KEY_ID", "nobody")] {
            let mut command = at(&s3, &["list", "--store", &a])?;
            command.env(name, value);
            let output = tool::run(command, b"").await?;
            assert_eq!(output.code, 1, "{output:?}");
            let said = output.stderr.to_lowercase();
            // An unknown id is 403 with S3 itself, and 404 here.
            assert!(said.contains("credentials") || said.contains("access key id"), "{name}: {said}");
            assert!(said.contains(&a), "{name}: {said}");
            assert!(output.stderr.lines().count() == 1 && output.stderr.len() < 300, "{said}");
            assert!(!said.contains(wrong_key) && !said.contains(s3.secret()), "{name}: {said}");
        }
        // A directory that is not there is named, before anything is asked of the store.
        let mut command = command(&["list", "--store", &a])?;
        command.env("AWS_APPLICATION_CREDENTIALS", "/nowhere/at/all");
        let output = tool::run(command, b"").await?;
        assert!(output.code == 2 && output.stderr.contains("/nowhere/at/all"), "{output:?}");
        Ok(())
    });
}

#[test]
fn credentials_may_change_while_a_store_is_open() {
    run(async |env| {
        let s3 = S3Server::start(env).await?;
        fill(&open(&s3, "a")?, 1, 1000).await?;
        let secret = env.path().join("secret");
        s3.mount_secret(&secret)?;
        fs::write(secret.join("secretAccessKey"), "not yet")?;
        let store = Store::open_with(&s3.url("a"), &Environment::new(), Some(&secret), None)?;
        store.list().await.expect_err("it has the wrong key");
        fs::write(secret.join("secretAccessKey"), s3.secret())?;
        assert_eq!(store.list().await?.len(), 1);
        Ok(())
    });
}

#[test]
fn a_restore_outlives_a_store_that_goes_and_comes() {
    run(async |env| {
        let s3 = S3Server::start(env).await?;
        let mut world = World::start(env).await?;
        world.store = open(&s3, "a")?;
        world.write("early", 200).await?;
        let full = world.full(false).await?.name;
        world.write("late", 100).await?;
        world.delta(full.last, Compression::None).await?;
        let (revision, before) = dump(&world.client).await?;
        // Gone for good: nothing is made, and the place is free for the next try.
        let data = env.path().join("restored");
        s3.relay.cut();
        restore(&open_patiently(&s3, "a", 1)?, data.clone()).await.expect_err("the store is gone");
        assert!(!data.exists());
        // Gone in the middle of an object.
        s3.relay.heal();
        s3.relay.change(|link| link.throttle_to_client = Some(100_000));
        let store = open(&s3, "a")?;
        let disturb = async {
            for _ in 0..3 {
                tokio::time::sleep(Duration::from_millis(400)).await;
                s3.relay.cut();
                s3.relay.heal();
            }
        };
        let (restored, ()) = tokio::join!(restore(&store, data.clone()), disturb);
        assert_eq!(restored?.revision, revision);
        let revived = Revived::start(env, &data).await?;
        assert_eq!(dump(&revived.client).await?.1, before);
        Ok(())
    });
}

#[test]
fn what_a_store_harms_is_named_and_goes_nowhere() {
    run(async |env| {
        let s3 = S3Server::start(env).await?;
        let store = open(&s3, "a")?;
        fill(&store, 6, 3000).await?;
        let names: Vec<String> = store.list().await?.iter().map(|one| one.name.to_string()).collect();
        s3.corrupt(&format!("a/v2/{}", names[1]), 700)?;
        s3.truncate(&format!("a/v2/{}", names[3]), 500)?;
        let (a, b) = (s3.url("a"), s3.url("b"));
        let verified = snapshots(&s3, &["verify", "--store", &a, "--output", "json"]).await?;
        assert_eq!(verified.code, 3, "{verified:?}");
        let output = snapshots(&s3, &["copy", "--source", &a, "--target", &b, "--output", "json"]).await?;
        assert_eq!(output.code, 3, "{output:?}");
        let said: serde_json::Value = serde_json::from_slice(&output.stdout)?;
        let failed: Vec<&str> = said["failed"]
            .as_array()
            .context("a list")?
            .iter()
            .filter_map(|one| one["snapName"].as_str())
            .collect();
        assert_eq!(failed, [&names[3], &names[1]], "{said}");
        let there = content(&s3.files("b"))?;
        assert!(
            !there.contains_key(&format!("v2/{}", names[1]))
                && !there.contains_key(&format!("v2/{}", names[3]))
        );
        // At the target, harm is repaired by the next copy.
        s3.corrupt(&format!("b/v2/{}", names[0]), 40)?;
        s3.truncate(&format!("b/v2/{}", names[2]), 40)?;
        let output = snapshots(&s3, &["copy", "--source", &a, "--target", &b, "--output", "json"]).await?;
        let said: serde_json::Value = serde_json::from_slice(&output.stdout)?;
        let repaired =
            said["snapshots"].as_array().context("a list")?.iter().filter(|one| one["outcome"] == "repaired");
        assert_eq!(repaired.count(), 2, "{said}");
        assert_eq!(content(&s3.files("b"))?, there);
        Ok(())
    });
}

#[test]
fn the_final_snapshot_is_noticed_at_a_distance() {
    run(async |env| {
        let s3 = S3Server::start(env).await?;
        let mut world = World::start(env).await?;
        world.store = open(&s3, "a")?;
        world.write("early", 10).await?;
        world.full(false).await?;
        s3.relay.set_round_trip(Duration::from_millis(100));
        let (a, b) = (s3.url("a"), s3.url("b"));
        let mut copy = at(&s3, &["copy", "--source", &a, "--target", &b, "--wait-for-final", "10m"])?;
        let mut copy = copy.stdout(Stdio::null()).stderr(Stdio::null()).kill_on_drop(true).spawn()?;
        world.write("late", 10).await?;
        // The store is away for a while in between; waiting goes on.
        s3.relay.cut();
        tokio::time::sleep(Duration::from_millis(1500)).await;
        ensure!(copy.try_wait()?.is_none(), "it did not wait");
        s3.relay.heal();
        world.full(true).await?;
        let taken = Timestamp::now();
        let status = tokio::time::timeout(DEADLINE, copy.wait()).await.context("it goes on waiting")??;
        assert!(status.success(), "{status}");
        println!("copied {} after the final snapshot", Timestamp::now() - taken);
        assert_eq!(content(&s3.files("b"))?, content(&s3.files("a"))?);
        Ok(())
    });
}
