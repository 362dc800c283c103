//! The gateway beside etcd, and the orders that it takes.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use etcd_client::Client;
use repot_etcd::link;
use repot_tests::wait::until;
use repot_tests::{port, run};
use serde_json::{Value, json};

use super::world::{Agent, Cluster, DEADLINE, address};

fn options(cluster: &Cluster, at: usize, port: u16) -> link::Options {
    let tls = cluster.tls.as_ref();
    link::Options {
        endpoints: vec![format!("{}://{}:{port}", if tls.is_some() { "https" } else { "http" }, address(at))],
        ca: tls.map(|tls| tls.ca.pem().into_bytes()),
        identity: tls.map(|tls| (tls.client.cert_pem.clone().into(), tls.client.key_pem.clone().into())),
        ..Default::default()
    }
}

async fn put(client: &Client, key: &str) -> Result<()> {
    client.kv_client().put(key, "1", None).await.map(drop).with_context(|| format!("{key} is not written"))
}

fn names(standing: &Value) -> Vec<&str> {
    let members = standing["members"].as_array().into_iter().flatten();
    members.filter_map(|member| member["name"].as_str()).collect()
}

async fn fails(agent: &Agent, path: &str, status: u16, says: &str) -> Result<()> {
    let answer = agent.post(path).await?;
    ensure!(
        answer.status == status && answer.json()?["error"].to_string().contains(says),
        "{path}: {answer}"
    );
    Ok(())
}

#[test]
fn writes_wait_while_they_are_held_and_clients_leave_members() {
    run(async |env| {
        let mut cluster = Cluster::with_tls(env, 3)?;
        let port = port::reserve()?;
        cluster.config["gateway"] = json!({ "port": port });
        let agents = cluster.start_all(env).await?;
        let agent = &agents[0];
        let client = link::connect(&options(&cluster, 0, port)).await?;
        put(&client, "a").await?;
        let standing = agent.get("/gateway").await?.ok()?;
        ensure!(names(&standing) == ["m0", "m1", "m2"] && standing["held"].is_null(), "{standing}");
        ensure!(agent.get_as_nobody("/gateway").await?.status == 401, "orders are taken from anybody");
        let nobody = link::Options { identity: None, ..options(&cluster, 0, port) };
        ensure!(put(&link::connect(&nobody).await?, "b").await.is_err(), "clients need no certificate");

        let held = agent.post("/gateway/hold?for=20s").await?.ok()?;
        ensure!(held["left"].as_str().is_some_and(|left| left.ends_with("ms")), "{held}");
        let writer = tokio::spawn(async move { put(&client, "c").await });
        until("a write that waits", DEADLINE, async || {
            let standing = agent.get("/gateway").await?.ok()?;
            ensure!(standing["waiting"] == 1 && standing["held"].is_string(), "{standing}");
            Ok(())
        })
        .await?;
        ensure!(!writer.is_finished(), "a write went on");
        agent.post("/gateway/release").await?.ok()?;
        writer.await??;

        agent.post("/gateway/leave?member=m1").await?.ok()?;
        ensure!(names(&agent.get("/gateway").await?.ok()?) == ["m0", "m2"], "m1 is still there");
        agent.post("/gateway/leave?member=m1").await?.ok()?;
        agent.post("/gateway/leave?member=m0&for=5s").await?.ok()?;
        fails(agent, "/gateway/leave?member=m2", 409, "the only member").await?;
        let url = standing["members"][1]["url"].clone();
        let one = json!([{ "name": "m1", "url": url, "near": true }]);
        agent.put("/gateway/members", &one).await?.ok()?;
        ensure!(names(&agent.get("/gateway").await?.ok()?) == ["m1"], "m1 has not come back");
        put(&link::connect(&options(&cluster, 0, port)).await?, "d").await?;

        fails(agent, "/gateway/hold", 400, "for is missing").await?;
        fails(agent, "/gateway/hold?for=61s", 400, "at most 60s").await?;
        fails(agent, "/gateway/leave", 400, "member is missing").await?;
        for (body, says) in [
            (json!([]), "the URL of a member"),
            (json!([{ "name": "m1", "url": "http://m1:1" }]), "must begin with https://"),
            (json!([{ "name": "m1" }]), "url"),
        ] {
            let answer = agent.put("/gateway/members", &body).await?;
            let error = answer.json()?["error"].to_string();
            ensure!(answer.status == 400 && error.contains(says), "{answer}");
        }
        ensure!(names(&agent.get("/gateway").await?.ok()?) == ["m1"], "something was changed");
        Ok(())
    });
}

#[test]
fn member_that_waits_to_join_has_a_gateway_that_serves_and_opens_by_itself() {
    run(async |env| {
        let mut cluster = Cluster::with_tls(env, 1)?;
        let agents = cluster.start_all(env).await?;
        let port = port::reserve()?;
        let member = cluster.config["members"][0].clone();
        let url = member["clientUrls"][0].clone();
        cluster.add_member(1)?;
        cluster.config["clusterState"] = json!("existing");
        cluster.config["clientEndpoints"] = json!([url]);
        cluster.config["gateway"] = json!({ "port": port, "members": [{ "name": "m0", "url": url }] });
        let mut joins = cluster.start(env, 1)?;
        joins.says("that it waits", |status| status["phase"] == "Waiting").await?;
        let client = link::connect(&options(&cluster, 1, port)).await?;
        put(&client, "a").await?;
        // Whoever held them is gone, and nobody releases them.
        joins.post("/gateway/hold?for=2s").await?.ok()?;
        tokio::time::timeout(Duration::from_secs(30), put(&client, "b")).await.context("no answer")??;
        let refused = agents[0].get("/gateway").await?;
        ensure!(refused.status == 404 && refused.to_string().contains("no gateway"), "{refused}");
        Ok(())
    });
}
