//! `repot storage fsck`, `quarantine`, `export` and `import` beside a server that goes on, and `bump-revision` after a restore.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use repot_tests::encryption::provider;
use repot_tests::repot::program;
use repot_tests::tool::Output;
use repot_tests::{run, tool};
use serde_json::json;
use tokio::process::Command;

use super::world::World;
use crate::shootstate::world::{collection, path, small};

async fn storage(keys: &Path, task: &[&str], place: &[String]) -> Result<Output> {
    let mut command = Command::new(program()?);
    command.arg("storage").args(task).args(place);
    command.arg(format!("--encryption-provider-config={}", keys.display()));
    tool::run(command, b"").await
}

async fn names(world: &World) -> Result<Vec<String>> {
    let list = world.replicas[0].api.get(&collection("default")).await?.ok()?;
    let items = list["items"].as_array().map(Vec::as_slice).unwrap_or_default();
    Ok(items.iter().filter_map(|item| item["metadata"]["name"].as_str().map(str::to_owned)).collect())
}

#[test]
fn an_object_that_cannot_be_read_is_put_away_beside_a_server() {
    run(async |env| {
        let world = World::start(env, 1, &[&provider("aesgcm", "key")?], "1s").await?;
        let (replica, place) = (&world.replicas[0], &world.storage_flags);
        for name in ["a", "b", "c"] {
            replica.create(name).await?;
        }
        let whole = storage(&replica.file, &["fsck"], place).await?.text()?;
        ensure!(whole.starts_with("3 objects with "), "{whole}");
        let records = world.values.range("/repot/registry/").await?;
        let (key, mut record) =
            records.into_iter().find(|(key, _)| key.ends_with("/b")).expect("the record of b");
        let last = record.len() - 1;
        record[last] ^= 1;
        world.values.put(&key, &record).await?;
        ensure!(replica.api.get(&path("b")).await?.status == 500);
        ensure!(replica.api.delete(&path("b")).await?.status == 500, "deleted unseen");

        let found = storage(&replica.file, &["fsck"], place).await?;
        let told = String::from_utf8_lossy(&found.stdout).into_owned();
        ensure!(found.code == 1 && told.contains("default/b: all of it is lost"), "{found:?}");
        ensure!(found.stderr.contains("--repair"), "{found:?}");
        let done = storage(&replica.file, &["fsck", "--repair"], place).await?.text()?;
        ensure!(done.contains("in quarantine as "), "{done}");
        // The server that ran all the time serves the others, and takes a new one of this name.
        ensure!(replica.api.get(&path("b")).await?.status == 404);
        ensure!(names(&world).await? == ["a", "c"]);
        let created = replica.api.post(&collection("default"), &small("b", &json!({}))).await?;
        ensure!(created.status == 201, "{created}");
        let kept = storage(&replica.file, &["quarantine"], place).await?.text()?;
        let name = kept.split_whitespace().next().unwrap_or_default().to_owned();
        let refused = storage(&replica.file, &["quarantine", "restore", &name], place).await?;
        ensure!(refused.code == 1 && refused.stderr.contains("exists already"), "{refused:?}");
        storage(&replica.file, &["quarantine", "purge", &name], place).await?.text()?;
        ensure!(storage(&replica.file, &["quarantine"], place).await?.text()?.is_empty());
        Ok(())
    });
}

#[test]
fn objects_move_from_etcd_to_the_embedded_store() {
    run(async |env| {
        let world = World::start(env, 1, &[&provider("aesgcm", "key")?], "1s").await?;
        let (replica, place) = (&world.replicas[0], &world.storage_flags);
        for name in ["a", "b"] {
            replica.create(name).await?;
        }
        let dir = env.make_dir("archive")?;
        let file = dir.join("all.repot").display().to_string();
        let told = storage(&replica.file, &["export", &file], place).await?.text()?;
        ensure!(told.starts_with("2 objects with "), "{told}");
        let again = storage(&replica.file, &["export", &file], place).await?;
        ensure!(again.code == 1 && again.stderr.contains("exists already"), "{again:?}");
        let there = [format!("--storage=embedded:{}", dir.join("store").display())];
        let told = storage(&replica.file, &["import", &file], &there).await?.text()?;
        ensure!(told == "2 objects imported, 0 left as they were\n", "{told}");
        let checked = storage(&replica.file, &["fsck", "--output=json"], &there).await?.json()?;
        ensure!(checked["objects"] == 2 && checked["open"] == 0, "{checked}");
        // As after a restore from an older copy: versions go on above those that clients have seen.
        let raised = storage(&replica.file, &["bump-revision", "--above=5000000"], &there).await?.text()?;
        let newest = raised.trim().rsplit(' ').next().and_then(|version| version.parse::<u64>().ok());
        ensure!(newest > Some(5_000_000), "{raised}");
        let absurd = storage(&replica.file, &["raise", "--past=18446744073709551615"], &there).await?;
        ensure!(absurd.code == 1 && absurd.stderr.contains("2^62"), "{absurd:?}");
        Ok(())
    });
}

/// The version that a server which does not start names for `bump-revision`.
fn named_version(log: &str) -> Result<u64> {
    let command = "repot storage bump-revision --above ";
    let (_, rest) = log.rsplit_once(command).with_context(|| format!("no command in {log}"))?;
    let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
    Ok(digits.parse()?)
}

#[test]
fn a_server_does_not_start_on_an_etcd_that_was_restored_until_versions_are_raised() {
    run(async |env| {
        let mark = env.make_dir("mark")?.join("high-water");
        let flags = [
            format!("--high-water-mark=file:{}", mark.display()),
            "--high-water-mark-interval=1s".to_owned(),
        ];
        let mut world = World::start_with(env, 1, &[&provider("aesgcm", "key")?], "1s", &flags).await?;
        let snapshot = env.make_dir("snapshot")?.join("etcd.db");
        world.replicas[0].create("before").await?;
        world.etcd.save_snapshot(0, &snapshot).await?;
        world.replicas[0].create("after").await?;
        let seen = world.replicas[0].api.get(&collection("default")).await?.ok()?;
        let seen: u64 = seen["metadata"]["resourceVersion"].as_str().unwrap_or_default().parse()?;
        world.replicas[0].repot.stop().await?;
        world.etcd.restore_snapshot(&snapshot).await?;

        // Twice: whoever forgets to raise is refused again.
        let mut logged = 0;
        for start in ["first", "second"] {
            let repot = &mut world.replicas[0].repot;
            ensure!(repot.restart().await.is_err(), "the {start} start served a store that went back");
            let status = repot.process().exited().context("it still runs")?;
            ensure!(!status.success(), "the {start} start ended with {status}");
            let log = repot.process().log();
            let told = &log[logged..];
            ensure!(told.contains("put back to an older copy"), "{told}");
            ensure!(named_version(told)? > seen, "{told}");
            logged = log.len();
        }

        let above = named_version(&world.replicas[0].repot.process().log())?;
        let raise = ["bump-revision", &format!("--above={above}")];
        let told = storage(&world.replicas[0].file, &raise, &world.storage_flags).await?.text()?;
        ensure!(told.contains("the newest resource version is"), "{told}");
        world.replicas[0].repot.restart().await?;
        ensure!(names(&world).await? == ["before"]);
        let list = world.replicas[0].api.get(&collection("default")).await?.ok()?;
        let now: u64 = list["metadata"]["resourceVersion"].as_str().unwrap_or_default().parse()?;
        ensure!(now > above, "{now} is not above {above}");
        let expired = format!("{}?watch=true&resourceVersion={seen}&timeoutSeconds=5", collection("default"));
        let expired = world.replicas[0].api.get(&expired).await?;
        ensure!(expired.status == 410 || String::from_utf8_lossy(&expired.body).contains("410"), "{expired}");
        world.replicas[0].create("after").await
    });
}
