//! Lists, pages, watches and forms, over HTTP.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use repot_tests::http::{Answer, send};
use repot_tests::run;
use reqwest::Method;
use serde_json::{Value, json};

use super::world::{Watch, World, collection, path, small};

const METADATA: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
const METADATA_LIST: &str = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
const TABLE: &str = "application/json;as=Table;g=meta.k8s.io;v=v1";

async fn get(world: &World, query: &str, accept: &str) -> Result<Answer> {
    let request = world.api.request(Method::GET, &format!("{}{query}", collection("default")));
    send(request.header("Accept", accept)).await
}

async fn fill(world: &World, count: usize) -> Result<()> {
    for n in 0..count {
        let mut object = small(&format!("s{n:02}"), &json!(n));
        object["metadata"]["labels"] = json!({"parity": if n % 2 == 0 { "even" } else { "odd" }});
        world.create(&object).await?;
    }
    Ok(())
}

fn names(list: &Value) -> Vec<String> {
    let items = list["items"].as_array().map(Vec::as_slice).unwrap_or_default();
    items.iter().map(|item| item["metadata"]["name"].as_str().unwrap_or_default().to_owned()).collect()
}

#[test]
fn pages_show_one_version_whatever_happens_between_them() {
    run(async |env| {
        let world = World::dev(env).await?;
        fill(&world, 7).await?;
        let first = get(&world, "?limit=3", "application/json").await?.ok()?;
        ensure!(names(&first) == ["s00", "s01", "s02"], "{}", first["metadata"]);
        world.create(&small("s03-new", &json!(1))).await?;
        world.api.delete(&path("s05")).await?.ok()?;
        let mut seen = names(&first);
        let mut page = first.clone();
        while let Some(token) = page["metadata"]["continue"].as_str() {
            page = get(&world, &format!("?limit=3&continue={token}"), "application/json").await?.ok()?;
            ensure!(
                page["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"],
                "{}",
                page["metadata"]
            );
            seen.extend(names(&page));
        }
        ensure!(seen == ["s00", "s01", "s02", "s03", "s04", "s05", "s06"], "{seen:?}");
        let odd = get(&world, "?limit=2&labelSelector=parity%3Dodd", "application/json").await?.ok()?;
        ensure!(
            names(&odd) == ["s01", "s03"] && odd["metadata"]["remainingItemCount"].is_null(),
            "{}",
            odd["metadata"]
        );
        let one = get(&world, "?fieldSelector=metadata.name%3Ds04", "application/json").await?.ok()?;
        ensure!(names(&one) == ["s04"], "{one}");
        let exact = first["metadata"]["resourceVersion"].as_str().context("a version")?;
        let then =
            get(&world, &format!("?resourceVersion={exact}&resourceVersionMatch=Exact"), METADATA_LIST)
                .await?
                .ok()?;
        ensure!(names(&then).len() == 7 && then["kind"] == "PartialObjectMetadataList", "{then}");
        Ok(())
    });
}

#[test]
fn combinations_that_make_no_sense_are_refused() {
    run(async |env| {
        let world = World::dev(env).await?;
        for (query, code) in [
            ("?resourceVersionMatch=Exact", 422),
            ("?resourceVersion=0&resourceVersionMatch=Exact", 422),
            ("?resourceVersion=1&resourceVersionMatch=Sometimes", 422),
            ("?continue=x&resourceVersion=1&resourceVersionMatch=Exact", 422),
            ("?sendInitialEvents=true", 422),
            ("?watch=1&sendInitialEvents=true", 422),
            ("?watch=1&resourceVersionMatch=NotOlderThan", 422),
            ("?resourceVersion=abc", 400),
            ("?limit=-1", 400),
            ("?continue=nonsense", 400),
            ("?labelSelector=a%20b", 400),
            ("?fieldSelector=spec.x%3D1", 400),
            ("?timeout=soon", 400),
        ] {
            let answer = get(&world, query, "application/json").await?;
            ensure!(answer.status == code && answer.json()?["kind"] == "Status", "{query}: {answer}");
        }
        let future = get(&world, "?resourceVersion=999999999", "application/json").await?;
        let status = future.json()?;
        ensure!(
            future.status == 504 && status["details"]["causes"][0]["reason"] == "ResourceVersionTooLarge",
            "{future}"
        );
        ensure!(future.headers.get("retry-after").is_some_and(|seconds| seconds == "1"), "{future}");
        Ok(())
    });
}

async fn watch(world: &World, query: &str, accept: &str) -> Result<Watch> {
    let path = format!("{}?watch=true{query}", collection("default"));
    let response = world.api.request(Method::GET, &path).header("Accept", accept).send().await?;
    ensure!(response.status() == 200, "the watch answered {}", response.status());
    Ok(Watch::new(response))
}

#[test]
fn a_watch_list_ends_its_initial_events_with_a_marked_bookmark() {
    run(async |env| {
        let world = World::dev(env).await?;
        fill(&world, 3).await?;
        let query = "&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
        for accept in ["application/json", METADATA, TABLE] {
            let mut events = watch(&world, query, accept).await?;
            for _ in 0..3 {
                ensure!(events.next().await?["type"] == "ADDED", "{accept}: no initial event");
            }
            let end = events.next().await?;
            let meta = if accept == TABLE {
                &end["object"]["rows"][0]["object"]["metadata"]
            } else {
                &end["object"]["metadata"]
            };
            ensure!(
                end["type"] == "BOOKMARK" && meta["annotations"]["k8s.io/initial-events-end"] == "true",
                "{accept}: {end}"
            );
        }
        let mut events = watch(&world, query, "application/json").await?;
        for _ in 0..4 {
            events.next().await?;
        }
        world.create(&small("late", &json!(1))).await?;
        let event = events.next().await?;
        ensure!(event["type"] == "ADDED" && event["object"]["metadata"]["name"] == "late", "{event}");
        Ok(())
    });
}

#[test]
fn a_watch_shows_what_enters_and_leaves_its_selector() {
    run(async |env| {
        let world = World::dev(env).await?;
        fill(&world, 2).await?;
        let version = get(&world, "", METADATA_LIST).await?.ok()?["metadata"]["resourceVersion"].clone();
        let version = version.as_str().context("a version")?;
        let query = format!("&resourceVersion={version}&labelSelector=parity%3Deven");
        let mut events = watch(&world, &query, METADATA).await?;
        let label = |value: &str| json!({"metadata": {"labels": {"parity": value}}});
        for (name, value) in [("s01", "even"), ("s01", "odd"), ("s00", "even"), ("s00", "odd")] {
            world.api.patch(&path(name), "application/merge-patch+json", &label(value)).await?.ok()?;
        }
        for (kind, name) in [("ADDED", "s01"), ("DELETED", "s01"), ("DELETED", "s00")] {
            let event = events.next().await?;
            ensure!(event["type"] == kind && event["object"]["metadata"]["name"] == name, "{event}");
            ensure!(
                event["object"]["kind"] == "PartialObjectMetadata" && event["object"]["spec"].is_null(),
                "{event}"
            );
        }
        Ok(())
    });
}

#[test]
fn a_watch_ends_in_time_and_at_a_stop_without_a_cut_line() {
    run(async |env| {
        let mut world = World::dev(env).await?;
        fill(&world, 1).await?;
        let mut timed =
            watch(&world, "&timeoutSeconds=1&allowWatchBookmarks=true", "application/json").await?;
        let mut open = watch(&world, "", "application/json").await?;
        ensure!(timed.rest().await?.ends_with(b"\n"), "the watch ended in the middle of a line");
        ensure!(open.next().await?["type"] == "ADDED", "no initial event");
        let stopped = world.repot().stop();
        let (stopped, rest) =
            tokio::join!(tokio::time::timeout(Duration::from_secs(20), stopped), open.rest());
        stopped.context("it did not stop")??;
        ensure!(rest?.is_empty(), "the watch ended in the middle of a line");
        Ok(())
    });
}

#[test]
fn too_old_a_version_is_told_as_expired() {
    run(async |env| {
        let mut world = World::garden_on_etcd(env).await?;
        let created = world.create(&small("old", &json!(1))).await?;
        let version = created["metadata"]["resourceVersion"].as_str().context("a version")?;
        // Two: what the revision of the compaction itself did can still be told.
        world.create(&small("newer", &json!(1))).await?;
        world.create(&small("newest", &json!(1))).await?;
        super::etcd_values::Values::new(world.etcd.as_mut().context("etcd")?)?.compact().await?;
        let exact = format!("?resourceVersion={version}&resourceVersionMatch=Exact");
        let list = get(&world, &exact, "application/json").await?;
        ensure!(list.status == 410 && list.json()?["reason"] == "Expired", "{list}");
        let mut events = watch(&world, &format!("&resourceVersion={version}"), "application/json").await?;
        let event = events.next().await?;
        ensure!(event["type"] == "ERROR" && event["object"]["code"] == 410, "{event}");
        ensure!(event["object"]["reason"] == "Expired", "{event}");
        Ok(())
    });
}

#[test]
fn forms_are_those_that_were_asked_for() {
    run(async |env| {
        let world = World::dev(env).await?;
        fill(&world, 2).await?;
        let ask = |method: Method, name: &str, accept: &str| {
            world.api.request(method, &path(name)).header("Accept", accept.to_owned())
        };
        let metadata = send(ask(Method::GET, "s00", METADATA)).await?.ok()?;
        ensure!(metadata["kind"] == "PartialObjectMetadata" && metadata["spec"].is_null(), "{metadata}");
        let table = get(&world, "", TABLE).await?.ok()?;
        let cells = |row: usize| table["rows"][row]["cells"].as_array().cloned().unwrap_or_default();
        ensure!(cells(0)[..3] == [json!("s00"), json!(1), json!(1)], "{table}");
        ensure!(table["rows"][0]["object"]["kind"] == "PartialObjectMetadata", "{table}");
        let whole = get(&world, "?includeObject=Object", TABLE).await?.ok()?;
        ensure!(whole["rows"][1]["object"]["spec"]["extensions"][0]["state"] == 1, "{whole}");
        let held = json!({"metadata": {"finalizers": ["example.com/hold"]}});
        world.api.patch(&path("s00"), "application/merge-patch+json", &held).await?.ok()?;
        let deleted = send(ask(Method::DELETE, "s00", METADATA)).await?.ok()?;
        ensure!(deleted["kind"] == "PartialObjectMetadata" && deleted["spec"].is_null(), "{deleted}");
        let all = send(world.api.request(Method::DELETE, &collection("default"))).await?.ok()?;
        ensure!(all["status"] == "Success", "{all}");
        ensure!(
            names(&get(&world, "", METADATA_LIST).await?.ok()?) == ["s00"],
            "more than the held one is left"
        );
        let metrics = world.api.get("/metrics").await?;
        let text = String::from_utf8_lossy(&metrics.body).into_owned();
        ensure!(
            text.contains("apiserver_request_total{") && text.contains("verb=\"DELETECOLLECTION\""),
            "{text}"
        );
        Ok(())
    });
}

#[test]
fn kubectl_replaces_edits_and_watches() {
    run(async |env| {
        let world = World::dev(env).await?;
        world.create(&small("k", &json!({"count": 1}))).await?;
        let mut object = world.kubectl.run(["get", "shootstate", "k", "-o", "json"]).await?.json()?;
        object["spec"]["extensions"][0]["state"]["count"] = json!(2);
        world.kubectl.run_with(["replace", "-f", "-"], object.to_string().as_bytes()).await?.text()?;
        let editor = env.path().join("editor.sh");
        std::fs::write(&editor, "#!/bin/sh\nsed -i 's/count: 2/count: 3/' \"$1\"\n")?;
        std::fs::set_permissions(&editor, std::os::unix::fs::PermissionsExt::from_mode(0o755))?;
        let mut edit = world.kubectl.command(["edit", "shootstate", "k"]);
        edit.env("EDITOR", &editor);
        let said = repot_tests::tool::run(edit, b"").await?.text()?;
        ensure!(said.contains("edited"), "kubectl said {said}");
        let read = world.api.get(&path("k")).await?.ok()?;
        ensure!(
            read["spec"]["extensions"][0]["state"]["count"] == 3 && read["metadata"]["generation"] == 3,
            "{read}"
        );
        world
            .kubectl
            .run([
                "patch",
                "shootstate",
                "k",
                "--type=merge",
                "-p",
                "{\"metadata\":{\"labels\":{\"a\":\"b\"}}}",
            ])
            .await?
            .text()?;
        let waited = ["wait", "shootstate", "k", "--for=jsonpath={.metadata.labels.a}=b", "--timeout=30s"];
        world.kubectl.run(waited).await?.text()?;
        let watched = world.kubectl.run(["get", "shootstates", "-w", "--request-timeout=2s"]).await?;
        ensure!(String::from_utf8_lossy(&watched.stdout).contains("GARDENER DATA"), "{watched:?}");
        Ok(())
    });
}
