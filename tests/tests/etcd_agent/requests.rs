//! The agent's HTTP.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use repot_tests::port::is_open;
use repot_tests::run;
use repot_tests::wait::until;
use serde_json::{Value, json};
use tokio::net::TcpStream;

use super::world::{Cluster, snapshots};
use crate::etcd::world::url;

async fn names(store: &str) -> Result<Vec<String>> {
    let list = snapshots(&["list", "--store", store, "--output", "json"]).await?.json()?;
    let all = list["snapshots"].as_array().or(list.as_array()).with_context(|| list.to_string())?;
    let name = |one: &Value| one["snapName"].as_str().map(str::to_owned).with_context(|| one.to_string());
    all.iter().map(name).collect()
}

#[test]
fn a_full_snapshot_is_taken_on_request_and_listed() {
    run(async |env| {
        let mut cluster = Cluster::new(env, 1)?;
        let agent = {
            let mut agent = cluster.start(env, 0)?;
            agent.ready().await?;
            let refused = agent.get("/snapshot/full").await?;
            assert_eq!(refused.status, 503, "{refused}");
            assert!(refused.json()?["error"].to_string().contains("no store"), "{refused}");
            agent.process.stop(super::world::DEADLINE).await?;
            let store = url(&env.make_dir("store")?);
            cluster.config["store"] = json!({ "url": store });
            agent = cluster.start(env, 0)?;
            agent.ready().await?;
            agent
        };
        let store = cluster.config["store"]["url"].as_str().context("a URL")?.to_owned();
        let client = cluster.client(std::slice::from_ref(&agent)).await?;
        let put = client.kv_client().put("/a", "b", None).await?;
        let revision = put.header().context("a header")?.revision();
        let taken = agent.get("/snapshot/full").await?.ok()?;
        assert_eq!((&taken["kind"], &taken["lastRevision"]), (&json!("Full"), &json!(revision)), "{taken}");
        let last = agent.get("/snapshot/full?final=true").await?.ok()?;
        assert_eq!(last["isFinal"], json!(true), "{last}");
        let latest = agent.get("/snapshot/latest").await?.ok()?;
        let listed = names(&store).await?;
        for one in [&taken["snapName"], &last["snapName"], &latest["fullSnapshot"]["snapName"]] {
            let name = one.as_str().context("a name")?;
            ensure!(listed.iter().any(|other| other == name), "{name} is not among {listed:?}");
        }
        let verified = snapshots(&["verify", "--store", &store]).await?;
        ensure!(verified.succeeded(), "{verified:?}");
        assert_eq!(agent.get("/snapshot/full?final=perhaps").await?.status, 400);
        assert_eq!(agent.get("/nothing").await?.status, 404);
        let refused = agent.post("/owner/check").await?;
        assert!(refused.status == 404 && refused.to_string().contains("no owner check"), "{refused}");
        Ok(())
    });
}

#[test]
fn with_certificates_only_probes_are_answered_to_everybody() {
    run(async |env| {
        let mut cluster = Cluster::with_tls(env, 3)?;
        cluster.config["store"] = json!({ "url": url(&env.make_dir("store")?) });
        let agents = cluster.start_all(env).await?;
        let agent = &agents[0];
        for path in ["/healthz", "/readyz"] {
            assert_eq!(agent.get_as_nobody(path).await?.status, 200, "{path}");
        }
        for path in [
            "/status",
            "/metrics",
            "/snapshot/full",
            "/snapshot/delta",
            "/snapshot/latest",
            "/owner/check",
            "/nothing",
        ] {
            let answer = agent.get_as_nobody(path).await?;
            assert_eq!(answer.status, 401, "{answer}");
        }
        let client = cluster.client(&agents).await?;
        client.kv_client().put("/a", "b", None).await?;
        // Two of them have to ask the third, which lets nobody in without a certificate either.
        for agent in &agents {
            let taken = agent.get("/snapshot/full").await?.ok()?;
            assert_eq!(taken["kind"], json!("Full"), "{taken}");
        }
        assert_eq!(agent.status().await?["member"]["name"], json!("m0"));
        Ok(())
    });
}

#[test]
fn a_thousand_silent_connections_keep_nobody_out() {
    /// Connections of one address; see `docs/reference/limits.md`.
    const MOST: usize = 64;
    /// A silent connection ends by itself after 32 s.
    const SOON: Duration = Duration::from_secs(25);
    run(async |env| {
        // Without certificates, so that no time limit of a handshake ends a connection.
        let cluster = Cluster::new(env, 1)?;
        let agent = cluster.start_all(env).await?.remove(0);
        let place = agent.url.trim_start_matches("http://").to_owned();
        let (begin, mut silent) = (Instant::now(), Vec::new());
        for _ in 0..1000 {
            silent.push(TcpStream::connect(&place).await?);
        }
        until("connections to be ended", SOON.saturating_sub(begin.elapsed()), async || {
            let open = silent.iter().filter(|one| is_open(one)).count();
            ensure!(open <= MOST, "{open} of 1000 are open");
            Ok(())
        })
        .await?;
        for _ in 0..100 {
            agent.status().await?;
            agent.get("/readyz").await?.ok()?;
        }
        Ok(())
    });
}
