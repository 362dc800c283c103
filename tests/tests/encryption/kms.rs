//! Key management services, by a plugin on Kubernetes' own library.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use repot_tests::encryption::{Plugin, Upstream, provider};
use repot_tests::run;
use repot_tests::wait::until;

use super::world::{DEADLINE, Replica, World};
use crate::shootstate::world::{collection, path};

/// What the servers take for a second.
const SECOND: Duration = Duration::from_millis(50);
const USES: &str = "apiserver_envelope_encryption_key_id_hash_total";
const CALLS: &str = "apiserver_envelope_encryption_kms_operations_latency_seconds_count";

async fn create_many(replica: &Replica, names: &mut Vec<String>) -> Result<()> {
    for _ in 0..20 {
        let name = format!("state-{:03}", names.len());
        replica.create(&name).await?;
        names.push(name);
    }
    Ok(())
}

async fn ready(replica: &Replica) -> Result<()> {
    until("readiness", DEADLINE, async || {
        let answer = replica.api.get("/readyz").await?;
        ensure!(answer.status == 200, "{answer}");
        Ok(())
    })
    .await
}

/// Writes objects back until none is written under an old key any more.
async fn rewrite(world: &World, names: &[String]) -> Result<()> {
    until("all objects to be under the new key", DEADLINE, async || {
        let mut changed = 0;
        for (turn, name) in names.iter().enumerate() {
            changed += u64::from(world.replicas[turn % world.replicas.len()].write_back(name).await?);
        }
        let ids = key_ids(world).await?;
        ensure!(changed == 0 && ids == ["2"], "{changed} were written, under {ids:?}");
        Ok(())
    })
    .await
}

/// Which keys of the service are named at rest. The id stands in clear.
async fn key_ids(world: &World) -> Result<Vec<&'static str>> {
    let wraps = world.wraps().await?;
    let found = |id: &str| {
        // Field 2 of one byte, before field 3.
        let field = [0x12, 1, id.as_bytes()[0], 0x1a];
        wraps.iter().any(|(_, wrapped)| wrapped.windows(4).any(|window| window == field))
    };
    Ok(["1", "2"].into_iter().filter(|id| found(id)).collect())
}

#[test]
fn a_service_is_asked_rarely_and_its_key_changes_without_a_failed_request() {
    run(async |env| {
        let mut plugin = Plugin::start(env).await?;
        let world = World::start(env, 2, &[&plugin.provider("main")], "50ms").await?;
        let mut names = Vec::new();
        create_many(&world.replicas[0], &mut names).await?;
        create_many(&world.replicas[1], &mut names).await?;
        world.read_all(&names).await?;
        let calls = plugin.ask("calls").await?;
        ensure!(calls["encrypt"] == 2, "one for each replica: {calls}");
        // Each decrypts its own seed to be sure of it, and that of the other.
        ensure!(calls["decrypt"] == 4, "{calls}");
        let counted =
            world.replicas[0].metric(CALLS, &[("method_name", "/v2.KeyManagementService/Encrypt")]).await?;
        ensure!(counted == Some(1.0), "{counted:?}");

        plugin.ask("key 2").await?;
        rewrite(&world, &names).await?;
        for replica in &world.replicas {
            let uses = replica
                .metric(USES, &[("transformation_type", "to_storage"), ("provider_name", "main")])
                .await?;
            ensure!(uses > Some(0.0), "{uses:?}");
        }
        // Nothing depends on the old key: it may be destroyed, and every server start anew.
        plugin.ask("forget 1").await?;
        let mut world = world;
        for replica in &mut world.replicas {
            replica.repot.kill();
            replica.repot.restart().await?;
        }
        world.read_all(&names).await
    });
}

#[test]
fn reads_go_on_without_the_service_and_writes_for_three_minutes() {
    run(async |env| {
        let mut plugin = Plugin::start(env).await?;
        let mut world = World::start(env, 2, &[&plugin.provider("main")], "50ms").await?;
        let mut names = Vec::new();
        create_many(&world.replicas[0], &mut names).await?;
        world.read_all(&names).await?;
        let replica = &world.replicas[0];
        let asked =
            async || replica.metric(CALLS, &[("method_name", "/v2.KeyManagementService/Status")]).await;
        let before = asked().await?;
        until("a good status", DEADLINE, async || {
            let now = asked().await?;
            ensure!(now > before, "{now:?} so far");
            Ok(())
        })
        .await?;
        plugin.ask("close").await?;
        let (closed, known) = (Instant::now(), names.len());
        until("writes to be refused", DEADLINE, async || {
            let name = format!("state-{:03}", names.len());
            match replica.create(&name).await {
                Ok(()) => names.push(name),
                Err(error) => {
                    ensure!(error.to_string().contains("answered 503"), "{error}");
                    return Ok(());
                }
            }
            anyhow::bail!("there are {} objects", names.len())
        })
        .await?;
        // Three minutes after the last good status, which was a moment before; a minute of them for a machine that is slow then.
        let lasted = closed.elapsed();
        ensure!(lasted >= SECOND * 120, "writes ended after {lasted:?}");
        ensure!(names.len() > known, "nothing was written without the service");
        let found = replica.api.get(&path(&names[0])).await?.ok()?;
        let written = replica.api.put(&path(&names[0]), &with_label(found)).await?;
        ensure!(written.status == 503, "a known object keeps no old key either: {written}");
        world.read_all(&names).await?;
        until("readiness to fail", DEADLINE, async || {
            let health = replica.api.get("/readyz").await?;
            let text = String::from_utf8_lossy(&health.body).into_owned();
            ensure!(health.status == 500 && text.contains("[-]kms-providers failed"), "{health}");
            Ok(())
        })
        .await?;
        ensure!(replica.api.get("/livez").await?.status == 200, "liveness depends on the service");
        // A server that starts without the service knows no seed; it says so, and heals by itself.
        let other = &mut world.replicas[1];
        other.repot.kill();
        other.repot.process().restart()?;
        until("an answer", DEADLINE, async || {
            let answer = other.api.get(&path(&names[0])).await?;
            let text = String::from_utf8_lossy(&answer.body).into_owned();
            ensure!(answer.status == 503 && text.contains("the store is unavailable"), "{answer}");
            Ok(())
        })
        .await?;
        plugin.ask("listen").await?;
        for replica in &world.replicas {
            ready(replica).await?;
        }
        world.read_all(&names).await?;
        create_many(&world.replicas[1], &mut names).await?;
        world.read_all(&names).await
    });
}

const METADATA: &str = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
const TABLE: &str = "application/json;as=Table;g=meta.k8s.io;v=v1";

/// Asks for a list in one of its forms.
async fn list(replica: &Replica, accept: &str, query: &str) -> Result<repot_tests::http::Answer> {
    let request = replica.api.request(reqwest::Method::GET, &format!("{}?{query}", collection("default")));
    repot_tests::http::send(request.header("Accept", accept)).await
}

#[test]
fn nothing_is_taken_for_deleted_while_the_service_is_away() {
    const FORMS: [&str; 3] = ["application/json", METADATA, TABLE];
    const QUERIES: [&str; 4] = ["", "resourceVersion=0", "limit=5", "labelSelector=a%21%3Db&limit=5"];
    run(async |env| {
        let mut plugin = Plugin::start(env).await?;
        let mut world = World::start(env, 2, &[&plugin.provider("main")], "50ms").await?;
        let mut names = Vec::new();
        create_many(&world.replicas[0], &mut names).await?;
        plugin.ask("close").await?;
        // A server that starts without the service knows no seed: it can open nothing, and all of it is whole.
        let other = &mut world.replicas[1];
        other.repot.kill();
        other.repot.process().restart()?;
        // Before it knows whom it may believe, it says 503 for another reason.
        let is_about_the_store = |text: &str| text.contains("the store is unavailable");
        until("an answer", DEADLINE, async || {
            let answer = other.api.get(&path(&names[0])).await?;
            ensure!(answer.status == 503 && is_about_the_store(&answer.to_string()), "{answer}");
            Ok(())
        })
        .await?;
        for (accept, query) in FORMS.iter().flat_map(|form| QUERIES.iter().map(move |query| (form, query))) {
            let answer = list(other, accept, query).await?;
            ensure!(answer.status == 503, "{accept} {query}: {answer}");
            ensure!(is_about_the_store(&answer.to_string()), "{accept} {query}: {answer}");
            ensure!(answer.headers.contains_key("retry-after"), "{accept} {query}: {answer}");
        }
        for accept in [FORMS[0], TABLE, "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"] {
            let answer = list(other, accept, "watch=1&timeoutSeconds=60").await?;
            let text = String::from_utf8(answer.body.to_vec())?;
            let event: serde_json::Value = serde_json::from_str(text.lines().next().context("an event")?)?;
            ensure!(event["type"] == "ERROR" && event["object"]["code"] == 503, "{accept}: {text}");
            ensure!(text.lines().count() == 1, "{accept}: {text}");
        }
        let removal = other.api.delete(&collection("default")).await?;
        ensure!(removal.status == 503, "{removal}");
        plugin.ask("listen").await?;
        until("the list to be whole again", DEADLINE, async || {
            let answer = list(&world.replicas[1], METADATA, "resourceVersion=0").await?.ok()?;
            let items = answer["items"].as_array().context("items")?;
            ensure!(items.len() == names.len(), "{} of {} objects", items.len(), names.len());
            Ok(())
        })
        .await?;
        world.read_all(&names).await
    });
}

fn with_label(mut object: serde_json::Value) -> serde_json::Value {
    object["metadata"]["labels"] = serde_json::json!({"new": "label"});
    object
}

#[test]
fn kube_apiserver_opens_what_repot_wrapped_and_only_at_its_place() {
    run(async |env| {
        let plugin = Plugin::start(env).await?;
        let mut upstream = Upstream::start(env).await?;
        let world = World::start(env, 1, &[&plugin.provider("main")], "50ms").await?;
        let gcm = provider("aesgcm", "static")?;
        let replica = &world.replicas[0];
        replica.create("by-service").await?;
        replica.reconfigure(&[&gcm, &plugin.provider("main")]).await?;
        replica.create("by-key").await?;
        let resource =
            collection("x").split('/').next_back().context("a resource")?.to_owned() + ".core.gardener.cloud";
        let wraps = world.wraps().await?;
        ensure!(wraps.len() == 2 && world.wrapped_by().await?.len() == 2, "two objects, two keys");
        for (place, wrapped) in wraps {
            let key = upstream.open(&replica.file, &resource, &place, &wrapped).await?;
            ensure!(key.len() == 32, "a data key has 32 bytes, not {}", key.len());
            let elsewhere = upstream.open(&replica.file, &resource, "/registry/else/where", &wrapped).await;
            ensure!(elsewhere.is_err(), "it opens at another place");
        }
        Ok(())
    });
}
