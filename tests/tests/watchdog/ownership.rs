//! Ownership that is lost, unknown and regained, while a controller goes on.

use std::time::Duration;

use anyhow::{Context, ensure};
use bytes::Bytes;
use futures::{SinkExt, channel::mpsc};
use repot_tests::dns::Fate;
use repot_tests::http::Api;
use repot_tests::run;
use repot_tests::wait::until;
use reqwest::Method;
use serde_json::{Value, json};
use tokio::time::{Instant, timeout};

use super::world::{AGAIN, BOUND, DEADLINE, MAX_AGE, OTHER, World, apply_extension, shared_seed, start_seed};

#[test]
fn writes_are_refused_within_the_bound_while_reads_and_watches_go_on() {
    run(async |env| {
        let seed = shared_seed()?;
        let world = World::make(env, &seed, "shoot--dev--lost", &[]).await?;
        world.write("before").await?.ok()?;
        let path = format!("{}?watch=true", world.config_maps());
        let mut watch = world.api.request(Method::GET, &path).send().await?;
        let lost = world.lose().await?;
        let refused = world.until_refused(OTHER).await?;
        let took = lost.elapsed();
        ensure!(took < BOUND, "it took {took:?}");
        let status = refused.json()?;
        ensure!(status["kind"] == "Status" && status["reason"] == "ServiceUnavailable", "{status}");
        ensure!(status["details"]["retryAfterSeconds"] == 10, "{status}");
        // client-go would try again by itself, and its controller would stand still.
        ensure!(!refused.headers.contains_key("retry-after"), "{:?}", refused.headers);
        for (method, path) in [
            (Method::DELETE, format!("{}/before", world.config_maps())),
            (Method::DELETE, world.config_maps()),
            (Method::DELETE, format!("/api/v1/namespaces/{}", world.namespace)),
            (Method::DELETE, format!("/api/v1/%6eamespaces/{}/configmaps/before", world.namespace)),
            (Method::PUT, format!("/api/v1/namespaces/{}/finalize", world.namespace)),
        ] {
            let answer = world.api.request(method.clone(), &path).body("{}").send().await?;
            ensure!(answer.status() == 503, "{method} {path}: {}", answer.status());
        }
        ensure!(world.exists("before").await?, "it was deleted");

        // The watch that was there before shows what somebody else writes, and so do new reads.
        let by_others = json!({"metadata": {"name": "by-others"}});
        world.direct.post(&world.config_maps(), &by_others).await?.ok()?;
        let seen = async {
            let mut text = String::new();
            while !text.contains("by-others") {
                text += &String::from_utf8_lossy(&watch.chunk().await?.context("the watch ended")?);
            }
            anyhow::Ok(())
        };
        timeout(DEADLINE, seen).await??;
        world.api.get(&format!("{}/by-others", world.config_maps())).await?.ok()?;

        world.regain(&seed).await?;
        world.until_written().await?;
        ensure!(world.metric("repot_watchdog_requests_total{result=\"refused\"}").await? >= 6.0);
        Ok(())
    });
}

#[test]
fn silent_dns_refuses_writes_after_the_allowed_age_and_its_return_lets_them_pass() {
    run(async |env| {
        let seed = shared_seed()?;
        let world = World::make(env, &seed, "shoot--dev--silent", &[]).await?;
        world.until_written().await?;
        world.dns.wire.set(Fate::Lost);
        let begun = Instant::now();
        // The last confirmation is an interval old at most, so writes pass for a while.
        world.write("soon-after").await?.ok()?;
        let refused = world.until_refused("was last confirmed").await?;
        let took = begun.elapsed();
        ensure!(took < Duration::from_secs(MAX_AGE) + BOUND, "it took {took:?}");
        ensure!(took > Duration::from_secs(MAX_AGE) - BOUND, "only {took:?}: {refused}");
        world.api.get(&world.config_maps()).await?.ok()?;
        world.dns.wire.set(Fate::Pass);
        world.until_written().await
    });
}

#[test]
fn body_that_is_still_sent_when_ownership_is_lost_does_not_arrive() {
    run(async |env| {
        let seed = shared_seed()?;
        let world = World::make(env, &seed, "shoot--dev--upload", &[]).await?;
        let access = world.access()?;
        for (name, api) in [
            ("one", Api::build(&access, reqwest::Client::builder().http1_only())?),
            ("two", Api::build(&access, reqwest::Client::builder())?),
        ] {
            let (mut sender, receiver) = mpsc::channel::<std::io::Result<Bytes>>(1);
            let body = reqwest::Body::wrap_stream(receiver);
            let request = api.request(Method::POST, &world.config_maps());
            let request = request.header("content-type", "application/json").body(body);
            let sent = tokio::spawn(request.send());
            sender.send(Ok(Bytes::from(format!(r#"{{"metadata":{{"name":"{name}""#)))).await?;
            world.lose().await?;
            world.until_refused(OTHER).await?;
            sender.send(Ok(Bytes::from_static(b"}}"))).await?;
            drop(sender);
            let answer = timeout(DEADLINE, sent).await???;
            let (status, text) = (answer.status(), answer.text().await?);
            ensure!(status == 503 && text.contains(OTHER), "{status}: {text}");
            ensure!(!world.exists(name).await?, "{name} was written");
            // For the other version of HTTP; the ID stays, since the record names it again.
            world.dns.set("owner", &[super::world::OLD]).await?;
            world.until_written().await?;
        }
        Ok(())
    });
}

/// The third case of the paper: nobody reaches the seed's API; when it comes back, a stale reconcile and the migrate are in a race.
#[test]
fn stale_reconcile_loses_against_the_migration_when_the_api_comes_back() {
    run(async |env| {
        let seed = start_seed(env).await?;
        let namespace = "shoot--dev--race";
        let world = World::make(env, &seed, namespace, &["--extension-kinds=infrastructures"]).await?;
        let spec = json!({"type": "local", "region": "r", "secretRef": {}});
        apply_extension(&seed, ("Infrastructure", namespace, "infra"), "reconcile", spec).await?;
        let path =
            format!("/apis/extensions.gardener.cloud/v1alpha1/namespaces/{namespace}/infrastructures/infra");
        let report = async |operation: &str| {
            let status = json!({"status": {"lastOperation": {
                "type": operation, "state": "Processing", "progress": 1, "description": "works",
                "lastUpdateTime": "2026-01-01T00:00:00Z",
            }}});
            world.api.patch(&format!("{path}/status"), "application/merge-patch+json", &status).await
        };
        report("Reconcile").await?.ok()?;

        // The API stands still while a write of the controller is under way, and meanwhile the Shoot moves.
        seed.apiserver_process().pause();
        let under_way = async { report("Reconcile").await };
        let moves = async {
            until("a write under way", DEADLINE, async || {
                let active = world.metric("repot_watchdog_active_requests{kind=\"write\"}").await?;
                ensure!(active > 0.0, "there is none");
                Ok(())
            })
            .await?;
            world.lose().await
        };
        let (answer, begun) = tokio::join!(timeout(DEADLINE, under_way), moves);
        let (answer, took) = (answer??, begun?.elapsed());
        ensure!(answer.status == 503 && answer.to_string().contains("may have happened"), "{answer}");
        ensure!(took < BOUND, "it took {took:?}");
        seed.apiserver_process().resume();
        let ready =
            async || seed.api().get("/readyz").await?.status.eq(&200).then_some(()).context("not ready");
        until("kube-apiserver", DEADLINE, ready).await?;

        // The controller reads `reconcile` first, and its writes are refused.
        let read = world.api.get(&path).await?.ok()?;
        ensure!(read["metadata"]["annotations"]["gardener.cloud/operation"] == "reconcile", "{read}");
        let answer = report("Reconcile").await?;
        ensure!(answer.status == 503 && answer.to_string().contains(OTHER), "{answer}");
        ensure!(world.write("stale").await?.status == 503, "a Secret of a stale reconcile was written");

        // gardenlet asks for the migration. It is done without ownership.
        let migrate = json!({"metadata": {"annotations": {"gardener.cloud/operation": "migrate"}}});
        world.direct.patch(&path, "application/merge-patch+json", &migrate).await?.ok()?;
        report("Migrate").await?.ok()?;
        world.write("cleanup").await?.ok()?;
        let done = json!({"metadata": {"annotations": {"gardener.cloud/operation": Value::Null}, "finalizers": null}});
        world.api.patch(&path, "application/merge-patch+json", &done).await?.ok()?;

        // The Shoot comes back, and with it writes of a restore.
        let restore = json!({"metadata": {"annotations": {"gardener.cloud/operation": "restore"}}});
        world.direct.patch(&path, "application/merge-patch+json", &restore).await?.ok()?;
        ensure!(report("Restore").await?.status == 503, "restored without ownership of {AGAIN}");
        world.regain(&seed).await?;
        until("a restore", DEADLINE, async || report("Restore").await?.ok().map(drop)).await
    });
}
