//! The trimmed form: the same in lists and watches, never by GET, and never written back.

use anyhow::{Context, Result, ensure};
use repot_tests::http::{Answer, send};
use repot_tests::run;
use reqwest::Method;
use serde_json::{Value, json};

use super::blob::noise;
use crate::shootstate::world::{Watch, World, collection, path, small};

const MARKER: &str = "migration.gardener.cloud/trimmed";
const APPLY: &str = "application/apply-patch+yaml";
const MERGE_PATCH: &str = "application/merge-patch+json";
const JSON_PATCH: &str = "application/json-patch+json";
const TABLE: &str = "application/json;as=Table;g=meta.k8s.io;v=v1";
const METADATA: &str = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";

async fn world(env: &repot_tests::TestEnv) -> Result<World> {
    World::dev_with(env, vec!["--max-object-bytes=33554432".to_owned()]).await
}

/// A state just above what is shown whole.
fn long(name: &str) -> Result<Value> {
    let text = String::from_utf8(noise(15 << 20).to_vec())?;
    Ok(small(name, &json!(text)))
}

async fn get(world: &World, query: &str, accept: &str) -> Result<Value> {
    let request = world.api.request(Method::GET, &format!("{}{query}", collection("default")));
    send(request.header("Accept", accept)).await?.ok()
}

async fn watch(world: &World, query: &str, accept: &str) -> Result<Watch> {
    let path = format!("{}?watch=true{query}", collection("default"));
    let response = world.api.request(Method::GET, &path).header("Accept", accept).send().await?;
    ensure!(response.status() == 200, "the watch answered {}", response.status());
    Ok(Watch::new(response))
}

/// The item of a list, with what the list says of all its items.
fn item(list: &Value, name: &str) -> Result<Value> {
    let items = list["items"].as_array().context("items")?;
    items.iter().find(|item| item["metadata"]["name"] == name).cloned().context("it is not in the list")
}

fn expect_trimmed(object: &Value) -> Result<()> {
    let mut keys: Vec<&str> = object.as_object().context("an object")?.keys().map(String::as_str).collect();
    keys.sort_unstable();
    ensure!(keys == ["apiVersion", "kind", "metadata"], "{keys:?}");
    let marker = object["metadata"]["annotations"][MARKER].as_str().context("no marker")?;
    ensure!(marker.parse::<u64>()? > 15 << 20, "{marker}");
    ensure!(object["kind"] == "ShootState" && object["metadata"]["managedFields"].is_array(), "{object}");
    Ok(())
}

fn expect_whole(object: &Value, as_sent: &Value) -> Result<()> {
    ensure!(object["spec"] == as_sent["spec"], "another spec came back");
    ensure!(object["metadata"]["annotations"].get(MARKER).is_none(), "{}", object["metadata"]);
    Ok(())
}

#[test]
fn lists_and_watches_show_the_same_form_and_get_shows_all() {
    run(async |env| {
        let world = world(env).await?;
        world.create(&small("short", &json!(1))).await?;
        let before = get(&world, "", "application/json").await?;
        let version = before["metadata"]["resourceVersion"].as_str().context("a version")?;
        let mut events = watch(&world, &format!("&resourceVersion={version}"), "application/json").await?;
        let object = long("long")?;
        expect_whole(&world.create(&object).await?, &object)?;
        let added = events.next().await?;
        expect_trimmed(&added["object"])?;
        ensure!(
            added["type"] == "ADDED" && added["object"] == item(&lists(&world).await?, "long")?,
            "{added}"
        );
        expect_whole(&world.api.get(&path("long")).await?.ok()?, &object)?;

        let label = json!({"metadata": {"labels": {"a": "b"}, "finalizers": ["g.io/wait"]}});
        expect_whole(&world.api.patch(&path("long"), MERGE_PATCH, &label).await?.ok()?, &object)?;
        let modified = events.next().await?;
        ensure!(modified["type"] == "MODIFIED" && modified["object"] == item(&lists(&world).await?, "long")?);
        expect_trimmed(&modified["object"])?;
        initial_events(&world, &modified["object"]).await?;
        other_forms(&world, &object).await?;

        world.api.delete(&path("long")).await?.ok()?;
        expect_trimmed(&events.next().await?["object"])?;
        let free = json!([{"op": "remove", "path": "/metadata/finalizers"}]);
        expect_whole(&world.api.patch(&path("long"), JSON_PATCH, &free).await?.ok()?, &object)?;
        let deleted = events.next().await?;
        ensure!(deleted["type"] == "DELETED", "{}", deleted["type"]);
        expect_trimmed(&deleted["object"])
    });
}

/// The list from memory; pages, and the list of a version, which are read from the store, have to be the same.
async fn lists(world: &World) -> Result<Value> {
    let list = get(world, "", "application/json").await?;
    let version = list["metadata"]["resourceVersion"].as_str().context("a version")?;
    for query in ["?limit=10".to_owned(), format!("?resourceVersion={version}&resourceVersionMatch=Exact")] {
        let other = get(world, &query, "application/json").await?;
        ensure!(other["items"] == list["items"], "{query}: {other}");
    }
    Ok(list)
}

/// Of a watch that begins with the present state, in both ways.
async fn initial_events(world: &World, expected: &Value) -> Result<()> {
    let marked = "&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
    for query in [marked, ""] {
        let mut events = watch(world, query, "application/json").await?;
        let first = [events.next().await?, events.next().await?];
        let event = first.iter().find(|event| event["object"]["metadata"]["name"] == "long");
        ensure!(event.context("no event")?["object"] == *expected, "{query:?}: {first:?}");
    }
    Ok(())
}

/// Tables with whole objects; metadata has no marker, since it is all there.
async fn other_forms(world: &World, object: &Value) -> Result<()> {
    let table = get(world, "?includeObject=Object&fieldSelector=metadata.name%3Dlong", TABLE).await?;
    expect_trimmed(&table["rows"][0]["object"])?;
    let mut events = watch(world, "&includeObject=Object&fieldSelector=metadata.name%3Dlong", TABLE).await?;
    expect_trimmed(&events.next().await?["object"]["rows"][0]["object"])?;
    let request = world.api.request(Method::GET, &format!("{}?includeObject=Object", path("long")));
    let single = send(request.header("Accept", TABLE)).await?.ok()?;
    expect_whole(&single["rows"][0]["object"], object)?;
    let metadata = item(&get(world, "", METADATA).await?, "long")?;
    ensure!(metadata["metadata"].get("annotations").is_none(), "{metadata}");
    Ok(())
}

fn refused(what: &str, answer: &Answer) -> Result<()> {
    let status = answer.json()?;
    let cause = &status["details"]["causes"][0]["field"];
    ensure!(answer.status == 422 && status["reason"] == "Invalid", "{what}: {answer}");
    ensure!(cause == &format!("metadata.annotations[{MARKER}]"), "{what}: {status}");
    Ok(())
}

async fn apply(world: &World, path: &str, object: &Value) -> Result<Answer> {
    let path = format!("{path}?fieldManager=me&force=true");
    let request = world.api.request(Method::PATCH, &path).header("Content-Type", APPLY);
    send(request.body(object.to_string())).await
}

#[test]
fn no_write_carries_the_marker() {
    run(async |env| {
        let world = world(env).await?;
        let object = long("long")?;
        world.create(&object).await?;
        let trimmed = item(&get(&world, "", "application/json").await?, "long")?;
        expect_trimmed(&trimmed)?;
        refused("PUT", &world.api.put(&path("long"), &trimmed).await?)?;
        let annotations = json!({"annotations": {MARKER: "1"}});
        let merge = json!({"metadata": annotations, "spec": null});
        refused("merge patch", &world.api.patch(&path("long"), MERGE_PATCH, &merge).await?)?;
        let merge = json!({"metadata": annotations});
        refused("metadata", &world.api.patch(&path("long"), MERGE_PATCH, &merge).await?)?;
        let add = json!([{"op": "add", "path": "/metadata/annotations", "value": {MARKER: "1"}}]);
        refused("JSON patch", &world.api.patch(&path("long"), JSON_PATCH, &add).await?)?;
        let mut config = trimmed.clone();
        config["metadata"] = json!({"name": "long", "annotations": {MARKER: "1"}});
        refused("apply", &apply(&world, &path("long"), &config).await?)?;
        config["metadata"]["name"] = json!("new");
        refused("apply of a new one", &apply(&world, &path("new"), &config).await?)?;
        refused("POST", &world.api.post(&collection("default"), &config).await?)?;
        expect_whole(&world.api.get(&path("long")).await?.ok()?, &object)
    });
}

#[test]
fn no_write_of_a_status_carries_the_marker() {
    run(async |env| {
        let world = world(env).await?;
        let all = "/apis/migration.gardener.cloud/v1alpha1/namespaces/default/hostedetcds";
        let mut object = json!({
            "apiVersion": "migration.gardener.cloud/v1alpha1", "kind": "HostedEtcd", "metadata": {"name": "main"},
            "spec": {"etcdRef": {"name": "main"}, "apiServerRef": {"name": "kube-apiserver"}},
        });
        world.api.post(all, &object).await?.ok()?;
        object["metadata"]["annotations"] = json!({MARKER: "1"});
        object["status"] = json!({"lifecycleStatus": "running"});
        let status = format!("{all}/main/status");
        refused("PUT", &world.api.put(&status, &object).await?)?;
        let merge = json!({"metadata": object["metadata"], "status": object["status"]});
        refused("patch", &world.api.patch(&status, MERGE_PATCH, &merge).await?)?;
        object.as_object_mut().context("an object")?.remove("spec");
        refused("apply", &apply(&world, &status, &object).await?)?;
        let found = world.api.get(&format!("{all}/main")).await?.ok()?;
        ensure!(found.get("status").is_none(), "{found}");
        Ok(())
    });
}
