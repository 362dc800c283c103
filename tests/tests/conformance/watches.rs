//! Streams of changes.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use repot_tests::run;
use reqwest::Method;
use serde_json::{Value, json};

use super::namespace::{JSON, TestNamespace, Watch, header, number, text};
use crate::shootstate::world::collection;

/// Type, name and version of an event.
fn short(event: &Value) -> Result<(String, String, u64)> {
    let meta = &event["object"]["metadata"];
    Ok((text(&event["type"])?, text(&meta["name"])?, number(&meta["resourceVersion"])?))
}

#[test]
fn a_watch_begins_at_once_and_has_no_length() {
    run(async |_| {
        let place = TestNamespace::new("silent")?;
        let path = place.all(&format!("?watch=1&resourceVersion={}", place.version().await?));
        // Nothing happens, and the head of the answer is there all the same.
        let head =
            tokio::time::timeout(Duration::from_secs(30), place.api.request(Method::GET, &path).send());
        let response = head.await.context("no head")??;
        ensure!(response.status() == 200, "{}", response.status());
        ensure!(response.headers().get("content-length").is_none(), "{:?}", response.headers());
        ensure!(response.headers().get("content-encoding").is_none(), "{:?}", response.headers());
        ensure!(response.headers()["content-type"] == JSON, "{:?}", response.headers());
        place.create("a").await?;
        let event = Watch::new(response).next().await?;
        ensure!(event["type"] == "ADDED" && event["object"]["kind"] == "ShootState", "{event}");
        Ok(())
    });
}

#[test]
fn each_change_is_told_once_and_in_order() {
    run(async |_| {
        let place = TestNamespace::new("changes")?;
        place.create("before").await?;
        let version = place.version().await?;
        let from = format!("&resourceVersion={version}");
        let mut one = place.watch(&from, JSON).await?;
        place.create("a").await?;
        place.merge("a", &json!({"spec": {"resources": []}})).await?.ok()?;
        // A second watcher begins in the middle, from the same version.
        let mut other = place.watch(&from, JSON).await?;
        place.create("b").await?;
        place.api.delete(&place.one("a")).await?.ok()?;
        place.merge("b", &json!({"metadata": {"labels": {"a": "b"}}})).await?.ok()?;
        place.create("a").await?;

        let mut last = version.parse()?;
        for expected in [
            ("ADDED", "a"),
            ("MODIFIED", "a"),
            ("ADDED", "b"),
            ("DELETED", "a"),
            ("MODIFIED", "b"),
            ("ADDED", "a"),
        ] {
            let event = one.next().await?;
            let (kind, name, version) = short(&event)?;
            ensure!((kind.as_str(), name.as_str()) == expected, "{kind} {name} instead of {expected:?}");
            ensure!(version > last, "{version} came after {last}");
            last = version;
            ensure!(other.next().await? == event, "the other watcher saw something else than {event}");
        }
        Ok(())
    });
}

#[test]
fn a_watch_from_nothing_begins_with_the_present() {
    run(async |_| {
        let place = TestNamespace::new("present")?;
        place.create("a").await?;
        place.create("b").await?;
        place.api.delete(&place.one("b")).await?.ok()?;
        for query in ["", "&resourceVersion=0", "&resourceVersion="] {
            let mut events = place.watch(query, JSON).await?;
            let (kind, name, seen) = short(&events.next().await?)?;
            ensure!((kind.as_str(), name.as_str()) == ("ADDED", "a"), "{query:?}: {kind} {name}");
            place
                .merge("a", &json!({"metadata": {"labels": {"seen": query.len().to_string()}}}))
                .await?
                .ok()?;
            let (kind, name, version) = short(&events.next().await?)?;
            ensure!((kind.as_str(), name.as_str()) == ("MODIFIED", "a"), "{query:?}: {kind} {name}");
            ensure!(version > seen, "{version} came after {seen}");
        }
        Ok(())
    });
}

#[test]
fn bookmarks_come_before_the_end_to_whoever_asks() {
    run(async |_| {
        let place = TestNamespace::new("bookmarks")?;
        place.create("a").await?;
        let version = place.version().await?;
        let mut silent = place.watch("&timeoutSeconds=3", JSON).await?;
        let mut events = place.watch("&timeoutSeconds=3&allowWatchBookmarks=true", JSON).await?;
        ensure!(events.next().await?["type"] == "ADDED", "no initial event");
        let bookmark = events.next().await?;
        ensure!(bookmark["type"] == "BOOKMARK", "{bookmark}");
        let object = bookmark["object"].as_object().context("an object")?;
        ensure!(object.keys().eq(["apiVersion", "kind", "metadata"]), "{bookmark}");
        ensure!(
            object["kind"] == "ShootState" && object["apiVersion"] == "core.gardener.cloud/v1alpha1",
            "{bookmark}"
        );
        let meta = object["metadata"].as_object().context("metadata")?;
        let said = meta.iter().filter(|(_, value)| !value.is_null()).map(|(key, _)| key.as_str());
        ensure!(said.eq(["resourceVersion"]), "{bookmark}");
        ensure!(number(&meta["resourceVersion"])? >= version.parse()?, "{bookmark} is before {version}");
        ensure!(events.rest().await?.is_empty(), "something came after the last bookmark");
        let lines = String::from_utf8(silent.rest().await?)?;
        ensure!(lines.lines().count() == 1 && lines.contains("ADDED"), "nobody asked for bookmarks: {lines}");
        // Whoever goes on from a bookmark misses nothing and sees nothing twice.
        place.create("b").await?;
        let from = format!("&resourceVersion={}", text(&meta["resourceVersion"])?);
        let (kind, name, _) = short(&place.watch(&from, JSON).await?.next().await?)?;
        ensure!((kind.as_str(), name.as_str()) == ("ADDED", "b"), "{kind} {name}");
        Ok(())
    });
}

#[test]
fn an_idle_watch_says_each_minute_how_far_it_is() {
    run(async |_| {
        let (place, busy) = (TestNamespace::new("idle")?, TestNamespace::new("busy")?);
        let version = place.version().await?;
        let mut events =
            place.watch(&format!("&resourceVersion={version}&allowWatchBookmarks=true"), JSON).await?;
        let elsewhere = number(&busy.create("a").await?["metadata"]["resourceVersion"])?;
        let bookmark = events.next_within(Duration::from_secs(90)).await?;
        ensure!(bookmark["type"] == "BOOKMARK", "{bookmark}");
        let reached = number(&bookmark["object"]["metadata"]["resourceVersion"])?;
        ensure!(reached >= elsewhere, "{reached} is before what happened elsewhere at {elsewhere}");
        Ok(())
    });
}

#[test]
fn a_watch_keeps_to_its_scope() {
    run(async |_| {
        let (one, other) = (TestNamespace::new("scope-one")?, TestNamespace::new("scope-other")?);
        let from = format!("&resourceVersion={}", one.version().await?);
        let field = format!("{from}&fieldSelector=metadata.name%3Db");
        let mut all = one.watch(&from, JSON).await?;
        let mut named = one.watch(&field, JSON).await?;
        let path = format!("{}?watch=true{from}", one.one("b"));
        let mut single = Watch::new(one.api.request(Method::GET, &path).send().await?);
        let everywhere = collection("x").replace("/namespaces/x", "");
        let path = format!("{everywhere}?watch=true{from}&labelSelector=scope");
        let mut wide = Watch::new(one.api.request(Method::GET, &path).send().await?);
        let labels = json!({"labels": {"scope": "watched"}});
        other.create_with("b", labels.clone()).await?;
        one.create_with("a", labels.clone()).await?;
        one.create_with("b", labels).await?;
        for (events, expected) in [
            (&mut all, vec![("scope-one", "a"), ("scope-one", "b")]),
            (&mut named, vec![("scope-one", "b")]),
            (&mut single, vec![("scope-one", "b")]),
            (&mut wide, vec![("scope-other", "b"), ("scope-one", "a"), ("scope-one", "b")]),
        ] {
            for (namespace, name) in expected {
                let event = events.next().await?;
                let meta = &event["object"]["metadata"];
                ensure!(meta["namespace"] == namespace && meta["name"] == name, "{event}");
            }
        }
        Ok(())
    });
}

#[test]
fn the_largest_object_makes_an_event_that_clients_can_read() {
    run(async |_| {
        let place = TestNamespace::new("largest")?;
        let version = place.version().await?;
        let mut object = place.object("a");
        object["spec"]["extensions"][0]["state"] = json!("x".repeat((15 << 20) - 2048));
        let answer = place.api.post(&place.all(""), &object).await?;
        ensure!(answer.status == 201, "{answer}");
        ensure!(header(&answer, "content-type") == JSON, "{:?}", answer.headers);
        let events =
            place.watch(&format!("&resourceVersion={version}&timeoutSeconds=5"), JSON).await?.rest().await?;
        let longest = events.split(|byte| *byte == b'\n').map(<[u8]>::len).max().unwrap_or_default();
        ensure!(((15 << 20) - 2048..16 << 20).contains(&longest), "the longest line has {longest} bytes");
        // One more than the limit does not come in.
        object["metadata"]["name"] = json!("b");
        object["spec"]["extensions"][0]["state"] = json!("x".repeat(15 << 20));
        ensure!(place.api.post(&place.all(""), &object).await?.status == 413, "it came in");
        Ok(())
    });
}
