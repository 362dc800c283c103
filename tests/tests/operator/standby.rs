//! An Etcd that follows the snapshots of another one until it is told to found its own.

use anyhow::{Context, Result, ensure};
use repot_tests::{operator, run};
use serde_json::{Value, json};

use super::world::{TestNamespace, etcd, spec};

/// An Etcd that keeps its snapshots in a directory.
fn with_store(replicas: u32, dir: &str, prefix: &str) -> Value {
    let mut spec = spec(replicas);
    spec["backup"] = json!({"store": store(dir, prefix), "deltaSnapshotPeriod": "1s"});
    spec
}

fn store(dir: &str, prefix: &str) -> Value {
    json!({"provider": "Local", "container": dir, "prefix": prefix})
}

/// The revision of the Etcd `main`, by its agent.
async fn newest_revision(place: &TestNamespace) -> Result<i64> {
    let name = format!("main-0.main-peer.{}.svc", place.pods.namespace);
    let port = place.pods.world.runner.publish(&name, 8080).await?;
    let client = reqwest::Client::builder().no_proxy().build()?;
    let status: Value = client.get(format!("http://127.0.0.1:{port}/status")).send().await?.json().await?;
    status["revision"].as_i64().context("no revision")
}

fn revision(status: &Value) -> Option<i64> {
    status["standby"]["revision"].as_i64()
}

#[test]
fn standby_is_one_member_until_it_founds_and_then_the_etcd_grows() {
    run(async |env| {
        let place = TestNamespace::make("operator-standby").await?;
        let dir = operator::make_store(env)?.display().to_string();
        place.apply(with_store(1, &dir, "a")).await?;
        place.until_members(1, "main").await?;
        place.member(0).await?.put("a", "1").await?;

        let mut next = with_store(3, &dir, "b");
        next["backup"]["sourceStore"] = store(&dir, "a");
        next["backup"]["standby"] = json!(true);
        next["backup"]["waitForFinalSnapshot"] = json!({"enabled": false});
        place.pods.apply(&[etcd("next", next)]).await?;
        let following = place.until_of("next", "a standby", |status| revision(status).is_some()).await?;
        let held = revision(&following["status"]).context("a revision")?;
        place.member(0).await?.put("a", "2").await?;
        let newest = newest_revision(&place).await?;
        ensure!(newest > held, "nothing was written since: {held}, {newest}");
        place.until_of("next", "the next delta", |status| revision(status) >= Some(newest)).await?;
        let pods = place.names("pod").await?;
        ensure!(pods.iter().filter(|pod| pod.starts_with("next-")).count() == 1, "{pods:?}");
        ensure!(!pods.iter().any(|pod| pod.contains("copy")), "{pods:?}");

        // The source is stopped for good; nobody checks that but us.
        place.patch(json!({"spec": {"replicas": 0}})).await?;
        place.until_stopped().await?;
        let off = json!({"spec": {"backup": {"standby": null}}}).to_string();
        place.pods.kubectl(&["patch", "etcd", "next", "--type=merge", "-p", &off]).await?;
        let grown = place.until_of("next", "three members", |status| status["readyReplicas"] == 3).await?;
        let status = &grown["status"];
        ensure!(status["founding"]["members"] == 1 && status["founding"]["standby"] == true, "{status}");
        ensure!(status["standby"].is_null(), "{status}");
        for ordinal in 0..3 {
            let value = place.member_of("next", ordinal).await?.read("a").await?;
            ensure!(value == "2", "member {ordinal} holds {value:?}");
        }
        Ok(())
    });
}
