//! `repot storage fsck`, `quarantine`, `export`, `import` and `raise` beside a server that goes on.

use std::path::Path;

use anyhow::{Result, ensure};
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
    run(async |bed| {
        let world = World::start(bed, 1, &[&provider("aesgcm", "key")?], "1s").await?;
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
    run(async |bed| {
        let world = World::start(bed, 1, &[&provider("aesgcm", "key")?], "1s").await?;
        let (replica, place) = (&world.replicas[0], &world.storage_flags);
        for name in ["a", "b"] {
            replica.create(name).await?;
        }
        let dir = bed.make_dir("archive")?;
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
