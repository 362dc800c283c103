use anyhow::{Context, Result, ensure};
use repot_tests::run;
use serde_json::{Value, json};

use super::world::{Place, etcd, holds, reason, spec};

/// An Etcd that keeps its snapshots in a directory.
fn with_store(replicas: u32, dir: &str, prefix: &str) -> Value {
    let mut spec = spec(replicas);
    spec["backup"]["store"] = store(dir, prefix);
    spec
}

fn store(dir: &str, prefix: &str) -> Value {
    json!({"provider": "Local", "container": dir, "prefix": prefix})
}

#[test]
fn etcd_goes_on_from_the_final_snapshot_of_another_and_waits_for_it() {
    run(async |bed| {
        let place = Place::make("operator-source").await?;
        let dir = bed.make_dir("store")?.display().to_string();
        place.apply(with_store(1, &dir, "a")).await?;
        place.until_members(1, "main").await?;
        place.member(0).await?.put("a", "1").await?;

        let mut next = with_store(3, &dir, "b");
        next["backup"]["sourceStore"] = store(&dir, "a");
        next["backup"]["waitForFinalSnapshot"] = json!({"timeout": "100s", "onTimeout": "Fail"});
        place.pods.apply(&[etcd("next", next)]).await?;
        let waiting = |status: &Value| reason(status, "SourceSnapshotsCopied") == "CopyingSnapshots";
        place.until_of("next", "waiting for the copy", waiting).await?;
        ensure!(place.names("statefulset").await? == ["main"], "{:?}", place.names("statefulset").await?);

        take_final(&place).await?;
        let etcd = place
            .until_of("next", "three members", |status| {
                status["readyReplicas"] == 3 && status["bootstrapped"]["volumes"] == "next"
            })
            .await?;
        ensure!(holds(&etcd["status"], "SourceSnapshotsCopied") == Some(true), "{}", etcd["status"]);
        ensure!(etcd["status"]["sourceCopied"]["job"].is_string(), "{}", etcd["status"]);
        let value = place.member_of("next", 2).await?.read("a").await?;
        ensure!(value == "1", "the new etcd holds {value:?}");
        Ok(())
    });
}

/// The last snapshot of the Etcd `main`.
async fn take_final(place: &Place) -> Result<()> {
    let name = format!("main-0.main-peer.{}.svc", place.pods.namespace);
    let port = place.pods.world.runner.publish(&name, 8080).await?;
    let client = reqwest::Client::builder().no_proxy().build()?;
    let answer = client.get(format!("http://127.0.0.1:{port}/snapshot/full?final=true")).send().await?;
    let taken: Value = answer.error_for_status()?.json().await.context("no snapshot")?;
    ensure!(taken["isFinal"] == true, "{taken}");
    Ok(())
}
