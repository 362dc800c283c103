//! A backup of everything while the server goes on, and a disk that is lost after it.

use std::fs;
use std::path::Path;

use anyhow::{Result, ensure};
use repot_tests::http::Api;
use repot_tests::repot::{Dev, program};
use repot_tests::tool::Output;
use repot_tests::{run, tool};
use serde_json::{Value, json};
use tokio::process::Command;
use tokio::sync::watch;

use super::world::{collection, large, path, small};

const SIZE: usize = 5 << 20;

async fn import(dev: &Dev, archive: &Path) -> Result<Output> {
    let mut command = Command::new(program()?);
    command.args(["storage", "import"]).arg(archive);
    command.arg(format!("--storage=embedded:{}", dev.data_dir().join("store").display()));
    let keys = dev.data_dir().join("encryption.yaml");
    command.arg(format!("--encryption-provider-config={}", keys.display()));
    tool::run(command, b"").await
}

/// Creates one state after the other until it is told to stop; how many there are.
async fn write_on(api: &Api, stop: watch::Receiver<bool>) -> Result<usize> {
    let mut count = 0;
    while !*stop.borrow() {
        api.post(&collection("default"), &small(&format!("busy-{count}"), &json!({"a": count})))
            .await?
            .ok()?;
        count += 1;
    }
    Ok(count)
}

fn version(object: &Value) -> u64 {
    object["metadata"]["resourceVersion"].as_str().and_then(|text| text.parse().ok()).unwrap_or_default()
}

#[test]
fn a_backup_is_taken_while_others_write_and_replaces_a_lost_disk() {
    run(async |env| {
        let mut dev = Dev::start(env, [""; 0]).await?;
        let api = dev.api()?;
        let big = api.post(&collection("default"), &large("big", SIZE)).await?.ok()?;
        for at in 0..10 {
            api.post(&collection("default"), &small(&format!("s-{at}"), &json!({"a": at}))).await?.ok()?;
        }
        let (stop, stopped) = watch::channel(false);
        let kubectl = dev.kubectl(env)?;
        let backup = async {
            let taken = kubectl.run(["get", "--raw", "/backup"]).await;
            stop.send_replace(true);
            taken
        };
        let (taken, written) = tokio::join!(backup, write_on(&api, stopped));
        let (taken, written) = (taken?, written?);
        ensure!(taken.succeeded() && written > 0, "{} states were written: {taken:?}", written);
        let newest = version(&api.get(&collection("default")).await?.ok()?);
        let archive = env.path().join("all.repot");
        fs::write(&archive, &taken.stdout)?;

        dev.repot().stop().await?;
        let store = dev.data_dir().join("store");
        fs::rename(&store, dev.data_dir().join("lost"))?;
        // What is cut is no backup, and nothing of it is imported.
        let cut = env.path().join("cut.repot");
        fs::write(&cut, &taken.stdout[..taken.stdout.len() - 7])?;
        let refused = import(&dev, &cut).await?;
        ensure!(refused.code == 1 && refused.stderr.contains("damaged"), "{refused:?}");
        import(&dev, &archive).await?.text()?;
        dev.repot().restart().await?;

        let found = api.get(&path("big")).await?.ok()?;
        ensure!(found["spec"] == big["spec"], "another spec came back");
        ensure!(found["metadata"]["uid"] == big["metadata"]["uid"], "another object came back");
        let list = api.get(&collection("default")).await?.ok()?;
        let items = list["items"].as_array().map(Vec::as_slice).unwrap_or_default();
        let named = |name: &str| items.iter().any(|item| item["metadata"]["name"] == name);
        ensure!((0..10).all(|at| named(&format!("s-{at}"))), "{} objects came back", items.len());
        // Beyond what is in the backup clients have seen versions that nothing here knows of.
        let created = api.post(&collection("default"), &small("later", &json!({}))).await?.ok()?;
        ensure!(version(&created) > newest, "versions went back from {newest} to {}", version(&created));
        println!(
            "{written} states written meanwhile, {} came back; versions {newest} and {}",
            items.len(),
            version(&created)
        );
        Ok(())
    });
}
