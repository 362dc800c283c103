//! The whole life of a ShootState of 12 MiB, in every place where one can live.

use anyhow::{Context, Result, ensure};
use repot_tests::{TestEnv, run};
use serde_json::{Value, json};

use super::world::{GROUP, TWELVE_MIB, World, large, path, small};

const JSON_PATCH: &str = "application/json-patch+json";
const MERGE_PATCH: &str = "application/merge-patch+json";

#[test]
fn a_state_of_twelve_mebibytes_lives_in_repot_dev() {
    run(async |env| live(env, &World::dev(env).await?).await);
}

#[test]
fn a_state_of_twelve_mebibytes_lives_behind_a_real_kube_apiserver() {
    run(async |env| live(env, &World::garden(env).await?).await);
}

#[test]
fn a_state_of_twelve_mebibytes_lives_in_three_etcd_members_without_a_request_above_one_mebibyte() {
    run(async |env| live(env, &World::garden_on_etcd(env).await?).await);
}

async fn live(env: &TestEnv, world: &World) -> Result<()> {
    let big = large("big", TWELVE_MIB);
    let file = env.path().join("big.json");
    std::fs::write(&file, big.to_string())?;

    let said = world.kubectl.run(["create", "-f", &file.display().to_string()]).await?.text()?;
    ensure!(said.contains("shootstate.core.gardener.cloud/big created"), "kubectl said {said}");
    let read = world.kubectl.run(["get", "shootstate", "big", "-o", "json"]).await?.json()?;
    ensure!(read["spec"] == big["spec"], "what was read is not what was created");
    ensure!(read["metadata"]["generation"] == 1, "{}", read["metadata"]);

    patches(world, &read).await?;
    table_and_explain(world).await?;
    finalizers(world).await?;
    one_winner(world).await?;
    opaque_parts_keep_their_tokens(world).await
}

/// A patch of one entry and one of a whole list; a watch sees both.
async fn patches(world: &World, before: &Value) -> Result<()> {
    let version = before["metadata"]["resourceVersion"].as_str().context("a version")?;
    let mut watch = world.watch(version).await?;

    let replace = json!([{"op": "replace", "path": "/spec/extensions/0/state", "value": {"replaced": 1}}]);
    let patched = world.api.patch(&path("big"), JSON_PATCH, &replace).await?.ok()?;
    let mut expected = before["spec"].clone();
    expected["extensions"][0]["state"] = json!({"replaced": 1});
    ensure!(patched["spec"] == expected, "the patch changed something else");
    let event = watch.next().await?;
    ensure!(event["type"] == "MODIFIED" && event["object"] == patched, "the watch saw {}", event["type"]);

    let list = json!({"spec": {"resources": [{"apiVersion": "v1", "kind": "Secret", "name": "s", "data": {"a": null}}]}});
    let merged = world.api.patch(&path("big"), MERGE_PATCH, &list).await?.ok()?;
    ensure!(merged["spec"]["resources"] == list["spec"]["resources"], "{}", merged["spec"]["resources"]);
    ensure!(merged["spec"]["extensions"] == expected["extensions"], "the patch changed something else");
    ensure!(merged["metadata"]["generation"] == 3, "{}", merged["metadata"]);
    ensure!(watch.next().await?["object"] == merged, "the watch saw another object");

    let read = world.api.get(&path("big")).await?.ok()?;
    ensure!(read == merged, "what was read is not what was patched");
    Ok(())
}

async fn table_and_explain(world: &World) -> Result<()> {
    let table = world.kubectl.run(["get", "shootstates", "-A", "-o", "wide"]).await?.text()?;
    let heading: Vec<&str> = table.lines().next().unwrap_or_default().split_whitespace().collect();
    let expected =
        ["NAMESPACE", "NAME", "GARDENER", "DATA", "EXTENSION", "STATES", "SIZE", "RESOURCES", "AGE"];
    ensure!(heading == expected, "the heading is {heading:?}");
    let row = table.lines().nth(1).unwrap_or_default();
    ensure!(row.starts_with("default") && row.contains("big") && row.contains("Mi"), "the row is {row:?}");

    let explained = world.kubectl.run(["explain", "shootstate.spec.extensions"]).await?.text()?;
    ensure!(
        explained.contains("purpose") && explained.contains("States of extension resources"),
        "{explained}"
    );
    Ok(())
}

/// Deletion waits for a finalizer.
async fn finalizers(world: &World) -> Result<()> {
    let held = json!({"metadata": {"finalizers": ["core.gardener.cloud/shootstate"]}});
    world.api.patch(&path("big"), MERGE_PATCH, &held).await?.ok()?;
    world.kubectl.run(["delete", "shootstate", "big", "--wait=false"]).await?.text()?;
    let waiting = world.api.get(&path("big")).await?.ok()?;
    ensure!(waiting["metadata"]["deletionTimestamp"].is_string(), "{}", waiting["metadata"]);
    let more = json!({"metadata": {"finalizers": ["core.gardener.cloud/shootstate", "example.com/late"]}});
    let refused = world.api.patch(&path("big"), MERGE_PATCH, &more).await?;
    ensure!(refused.status == 422, "a finalizer was added during deletion: {refused}");

    let version = waiting["metadata"]["resourceVersion"].as_str().context("a version")?;
    let mut watch = world.watch(version).await?;
    let released = json!({"metadata": {"finalizers": null}});
    world.api.patch(&path("big"), MERGE_PATCH, &released).await?.ok()?;
    let event = watch.next().await?;
    ensure!(event["type"] == "DELETED" && event["object"]["metadata"]["name"] == "big", "{}", event["type"]);
    ensure!(
        event["object"]["metadata"]["resourceVersion"] != version,
        "the deletion has the version of the object"
    );
    let gone = world.api.get(&path("big")).await?;
    ensure!(gone.status == 404 && gone.json()?["reason"] == "NotFound", "{gone}");
    Ok(())
}

/// Of two writers with one version exactly one wins, again and again.
async fn one_winner(world: &World) -> Result<()> {
    let mut current = world.create(&small("race", &json!(0))).await?;
    for round in 1..=20 {
        let draft = |writer: &str| {
            let mut draft = current.clone();
            draft["spec"]["extensions"][0]["state"] = json!([round, writer]);
            draft
        };
        let (a, b) = (draft("a"), draft("b"));
        let path = path("race");
        let (a, b) = tokio::join!(world.api.put(&path, &a), world.api.put(&path, &b));
        let (a, b) = (a?, b?);
        let (winner, loser) = if a.status == 200 { (a, b) } else { (b, a) };
        ensure!((winner.status, loser.status) == (200, 409), "{winner}\n{loser}");
        let why = loser.json()?;
        ensure!(why["reason"] == "Conflict" && why["details"]["name"] == "race", "{why}");
        current = winner.json()?;
        ensure!(world.api.get(&path).await?.ok()? == current, "the loser's write is visible");
    }
    Ok(())
}

async fn opaque_parts_keep_their_tokens(world: &World) -> Result<()> {
    let state = r#"{"n":1.50,"e":1E+2,"big":123456789012345678901234567890,"\u0061":"\/","n":2}"#;
    let body = small("tokens", &json!("STATE")).to_string().replace("\"STATE\"", &format!(" {state} "));
    let request = world.api.request(reqwest::Method::POST, &super::world::collection("default"));
    let created =
        repot_tests::http::send(request.header("Content-Type", "application/json").body(body)).await?;
    ensure!(created.status == 201, "{created}");
    let text = |answer: &repot_tests::http::Answer| String::from_utf8_lossy(&answer.body).into_owned();
    ensure!(text(&created).contains(state), "{created}");
    let patch = json!([{"op": "add", "path": "/spec/extensions/0/state/added", "value": true}]);
    world.api.patch(&path("tokens"), JSON_PATCH, &patch).await?.ok()?;
    let read = world.api.get(&path("tokens")).await?;
    let expected = format!("{},\"added\":true}}", &state[..state.len() - 1]);
    ensure!(text(&read).contains(&expected), "{read}");
    ensure!(read.json()?["apiVersion"] == format!("{GROUP}/v1alpha1"), "{read}");
    Ok(())
}
