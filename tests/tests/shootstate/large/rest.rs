//! Where the largest states rest: the embedded store, etcd with its default limits, and either behind a kube-apiserver.

use std::time::Instant;

use anyhow::{Context, Result, ensure};
use repot_tests::TestEnv;
use repot_tests::access::Access;
use repot_tests::etcd::{EtcdCluster, EtcdOptions};
use repot_tests::garden::Garden;
use repot_tests::http::Api;
use repot_tests::repot::{Dev, Repot, write_encryption_config};
use repot_tests::run;
use reqwest::Method;
use serde_json::json;

use super::blob::{Blob, noise};
use super::is_soak;
use crate::shootstate::world::{World, collection, path, small};

/// Many other tests may run at the same time.
const PATIENT: &str = "--request-timeout=20m";
const LARGEST: usize = 256 << 20;
/// The largest object has metadata, too.
const BESIDE: usize = 8 << 10;

/// In `make soak` all that may be, else a little less than a fifth of it.
fn size() -> usize {
    if is_soak() { LARGEST - BESIDE } else { 48 << 20 }
}

async fn round_trip(api: &Api, place: &str) -> Result<Blob> {
    let blob = Blob::new(1, &noise(size()));
    let began = Instant::now();
    blob.create(api).await?;
    let (created, began) = (began.elapsed(), Instant::now());
    blob.get(api).await?;
    println!(
        "{} MiB on {place}: created in {created:.1?}, read in {:.1?}",
        blob.len() >> 20,
        began.elapsed()
    );
    // Another label leaves all chunks where they are.
    let label = json!({"metadata": {"labels": {"seen": "yes"}}});
    let answer = api.patch(&path(&blob.name), "application/merge-patch+json", &label).await?;
    ensure!(answer.status == 200, "{answer}");
    blob.get(api).await?;
    Ok(blob)
}

#[test]
fn the_largest_state_rests_in_the_embedded_store() {
    run(async |env| {
        let mut dev = Dev::start(env, [format!("--max-object-bytes={LARGEST}"), PATIENT.to_owned()]).await?;
        let api = dev.api()?;
        let blob = round_trip(&api, "the embedded store").await?;
        dev.repot().kill();
        dev.repot().restart().await?;
        blob.get(&api).await?;
        let found = api.get(&collection("default")).await?.ok()?;
        let version = found["items"][0]["metadata"]["resourceVersion"].as_str().context("a version")?;
        let again = Blob::new(1, &noise(size() - BESIDE)).at(version);
        let answer = again.send(&api, Method::PUT, &path(&blob.name)).await?;
        ensure!(answer.status() == 200, "another state was answered {}", answer.status());
        drop(answer);
        again.get(&api).await?;
        ensure!(api.delete(&path(&blob.name)).await?.status == 200);
        ensure!(api.get(&path(&blob.name)).await?.status == 404);
        Ok(())
    });
}

/// A server on one member of etcd that refuses requests above one MiB, asked directly.
async fn on_etcd(env: &TestEnv) -> Result<(EtcdCluster, Garden, Repot, Api)> {
    let flags = vec!["--max-request-bytes=1048576".to_owned()];
    let options = EtcdOptions { name: "states".into(), flags, ..EtcdOptions::default() };
    let etcd = EtcdCluster::start_with(env, 1, options).await?;
    let garden = Garden::start(env).await?;
    let keys = write_encryption_config(env.path())?;
    let flags = [
        format!("--etcd-servers={}", etcd.endpoints().join(",")),
        format!("--encryption-provider-config={}", keys.display()),
        format!("--max-object-bytes={LARGEST}"),
        PATIENT.to_owned(),
    ];
    let repot = Repot::replica(env, &garden, flags).await?;
    let server = format!("https://127.0.0.1:{}", repot.port()?);
    let api = Api::new(&Access { server, ..garden.admin().clone() })?;
    Ok((etcd, garden, repot, api))
}

#[test]
fn the_largest_state_rests_on_etcd_and_no_list_reads_a_chunk_of_it() {
    run(async |env| {
        let (etcd, _garden, _repot, api) = on_etcd(env).await?;
        let blob = round_trip(&api, "etcd").await?;
        api.post(&collection("default"), &small("little", &json!(1))).await?.ok()?;
        let before = api.get(&collection("default")).await?.ok()?;
        let removed = etcd.etcdctl(&["del", "--prefix", "/repot/chunks/"]).await?;
        let removed: usize = removed.text()?.trim().parse().context("a count")?;
        ensure!(removed > size() >> 20, "only {removed} chunks were there");
        let after = api.get(&collection("default")).await?.ok()?;
        ensure!(
            before["items"] == after["items"]
                && before["items"].as_array().is_some_and(|items| items.len() == 2),
            "{after}"
        );
        // That they were chunks of it is seen by what needs them.
        let answer = api.get(&path(&blob.name)).await?;
        ensure!(answer.status == 500 && answer.json()?["reason"] == "StorageReadError", "{answer}");
        Ok(())
    });
}

#[test]
fn kubectl_creates_gets_and_deletes_a_large_state_through_a_kube_apiserver() {
    let size = if is_soak() { 64 << 20 } else { 20 << 20 };
    run(async |env| {
        let flags = vec![format!("--max-object-bytes={}", size + (1 << 20))];
        let world = World::garden_with(env, flags).await?;
        world.until_published().await?;
        let blob = Blob::new(1, &noise(size));
        let file = env.path().join("blob.json");
        std::fs::write(&file, blob.text())?;
        let file = file.to_str().context("a path")?;
        let created = world.kubectl.run(["create", "-f", file]).await?;
        ensure!(created.code == 0, "{created:?}");
        blob.get(&world.api).await?;
        let found = world
            .kubectl
            .run(["get", "shootstate", &blob.name, "-o", "jsonpath={.spec.extensions[0].state}"])
            .await?;
        ensure!(
            found.code == 0 && found.stdout.len() == size,
            "{} bytes: {}",
            found.stdout.len(),
            found.stderr
        );
        let listed = world.kubectl.run(["get", "shootstates"]).await?;
        ensure!(listed.text()?.contains(&blob.name));
        // As a list shows it, it must not be written back.
        let list = world.api.get(&collection("default")).await?.ok()?;
        let trimmed = env.path().join("trimmed.json");
        let mut item = list["items"][0].clone();
        item["kind"] = json!("ShootState");
        std::fs::write(&trimmed, item.to_string())?;
        let replaced = world.kubectl.run(["replace", "-f", trimmed.to_str().context("a path")?]).await?;
        ensure!(replaced.code != 0 && replaced.stderr.contains("trimmed form"), "{replaced:?}");
        blob.get(&world.api).await?;
        let deleted = world.kubectl.run(["delete", "shootstate", &blob.name]).await?;
        ensure!(deleted.code == 0, "{deleted:?}");
        Ok(())
    });
}
