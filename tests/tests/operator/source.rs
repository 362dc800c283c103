use anyhow::{Context, Result, ensure};
use jiff::Timestamp;
use repot_tests::dns::{DnsServer, ZONE};
use repot_tests::pods::Image;
use repot_tests::{binaries, operator, run};
use serde_json::{Value, json};

use super::world::{TestNamespace, etcd, holds, is_ready, reason, spec};

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
    run(async |env| {
        let place = TestNamespace::make("operator-source").await?;
        let dir = operator::make_store(env)?.display().to_string();
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
        let told = |status: &Value| status["copyProgress"]["phase"] == "WaitingForFinalSnapshot";
        place.until_of("next", "what the copy tells", told).await?;
        let described = place.pods.kubectl(&["describe", "etcd", "next"]).await?;
        for part in ["it waits for the final snapshot, since", "Copy Progress:", "Last Progress Time:"] {
            ensure!(described.contains(part), "{part} is not in {described}");
        }

        take(&place, true).await?;
        let etcd = place
            .until_of("next", "three members", |status| {
                status["readyReplicas"] == 3 && status["bootstrapped"]["volumes"] == "next"
            })
            .await?;
        ensure!(holds(&etcd["status"], "SourceSnapshotsCopied") == Some(true), "{}", etcd["status"]);
        ensure!(etcd["status"]["sourceCopied"]["job"].is_string(), "{}", etcd["status"]);
        ensure!(etcd["status"]["copyProgress"].is_null(), "it still shows a copy: {}", etcd["status"]);
        let value = place.member_of("next", 2).await?.read("a").await?;
        ensure!(value == "1", "the new etcd holds {value:?}");
        Ok(())
    });
}

/// CoreDNS in a Pod, which asks this server; its address.
async fn name_server(place: &TestNamespace, dns: &DnsServer) -> Result<String> {
    let runner = &place.pods.world.runner;
    runner.images().add("coredns", Image::of(binaries::find("coredns")?).and("/bin/sh"));
    let behind = runner.expose(dns.direct().port())?;
    // The way out of the Pods is for TCP only.
    let corefile = format!(".:5353 {{\n errors\n cache\n forward . {behind} {{\n force_tcp\n }}\n}}\n");
    let container = json!({
        "name": "dns", "image": "coredns",
        "command": ["/bin/sh", "-c", "printf '%s' \"$COREFILE\" | exec coredns -conf stdin"],
        "env": [{"name": "COREFILE", "value": corefile}],
        "readinessProbe": {"tcpSocket": {"port": 5353}, "periodSeconds": 1},
    });
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "dns", "namespace": place.pods.namespace},
        "spec": {"containers": [container]},
    });
    place.pods.apply(&[pod]).await?;
    let pod = place.pods.until("pod", "dns", "ready", is_ready).await?;
    Ok(format!("{}:5353", pod["status"]["podIP"].as_str().context("no address")?))
}

#[test]
fn etcd_goes_on_when_the_owner_before_does_not_serve_any_more() {
    run(async |env| {
        let place = TestNamespace::make("operator-handover").await?;
        let dns = DnsServer::start(env).await?;
        dns.set("owner", &["seed-b/2"]).await?;
        let server = name_server(&place, &dns).await?;
        let dir = operator::make_store(env)?.display().to_string();
        place.apply(with_store(1, &dir, "a")).await?;
        place.until_members(1, "main").await?;
        place.member(0).await?.put("a", "1").await?;
        take(&place, false).await?;

        let mut next = with_store(1, &dir, "b");
        next["backup"]["sourceStore"] = store(&dir, "a");
        next["backup"]["waitForFinalSnapshot"] = json!({"enabled": false});
        next["backup"]["ownerCheck"] = json!({
            "name": format!("owner.{ZONE}"), "id": "seed-b/1", "servers": [server],
            "dnsCacheTTL": "6s", "interval": "2s", "timeout": "4s", "grace": "15s",
        });
        place.pods.apply(&[etcd("next", next)]).await?;
        let waiting = |status: &Value| reason(status, "SourceSnapshotsCopied") == "CopyingSnapshots";
        place.until_of("next", "waiting for the copy", waiting).await?;
        place
            .pods
            .until("job", &jobs(&place).await?.remove(0), "a Pod", |job| job["status"]["active"] == 1)
            .await?;
        let first = jobs(&place).await?;
        // Nobody will ever name that one any more: it was a mistake.
        let id = json!({"spec": {"backup": {"ownerCheck": {"id": "seed-b/2"}}}}).to_string();
        place.pods.kubectl(&["patch", "etcd", "next", "--type=merge", "-p", &id]).await?;
        let etcd = place.until_of("next", "a member", |status| status["readyReplicas"] == 1).await?;
        let second = jobs(&place).await?;
        ensure!(first.len() == 1 && second.len() == 1 && first != second, "Jobs {first:?}, then {second:?}");
        ensure!(etcd["status"]["sourceCopied"]["ownerId"] == "seed-b/2", "{}", etcd["status"]);
        let handover = &etcd["status"]["handover"];
        ensure!(handover["reason"] == "Waited" && handover["ownerId"] == "seed-b/2", "{}", etcd["status"]);
        let time =
            |field: &str| -> Result<Timestamp> { Ok(handover[field].as_str().context("no time")?.parse()?) };
        let waited = time("clearedAt")?.duration_since(time("namedSince")?);
        ensure!(waited.as_secs() >= 23, "it waited {waited:?} only: {handover}");
        let value = place.member_of("next", 0).await?.read("a").await?;
        ensure!(value == "1", "the new etcd holds {value:?}");
        Ok(())
    });
}

/// Jobs that copy snapshots and are not being deleted.
async fn jobs(place: &TestNamespace) -> Result<Vec<String>> {
    let list: Value = serde_json::from_str(&place.pods.kubectl(&["get", "jobs", "-o", "json"]).await?)?;
    let kept = list["items"].as_array().into_iter().flatten();
    let kept = kept.filter(|job| job["metadata"]["deletionTimestamp"].is_null());
    Ok(kept.filter_map(|job| job["metadata"]["name"].as_str().map(str::to_owned)).collect())
}

/// A snapshot of the Etcd `main`.
async fn take(place: &TestNamespace, is_final: bool) -> Result<()> {
    let name = format!("main-0.main-peer.{}.svc", place.pods.namespace);
    let port = place.pods.world.runner.publish(&name, 8080).await?;
    let client = reqwest::Client::builder().no_proxy().build()?;
    let answer = client.get(format!("http://127.0.0.1:{port}/snapshot/full?final={is_final}")).send().await?;
    let taken: Value = answer.error_for_status()?.json().await.context("no snapshot")?;
    ensure!(taken["isFinal"] == is_final, "{taken}");
    Ok(())
}
