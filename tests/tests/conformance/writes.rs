//! Creation, update and patch of objects.

use anyhow::{Context, ensure};
use futures::future::try_join_all;
use repot_tests::http::send;
use repot_tests::repot::Dev;
use repot_tests::run;
use reqwest::Method;
use serde_json::{Value, json};

use super::namespace::{JSON, JSON_PATCH, MERGE_PATCH, TestNamespace, expect, header, names, text};

#[test]
fn a_new_object_has_what_only_the_server_sets() {
    run(async |_| {
        let place = TestNamespace::new("creates")?;
        let claimed = json!({
            "uid": "00000000-0000-4000-8000-000000000000",
            "creationTimestamp": "2001-01-01T00:00:00Z",
            "deletionTimestamp": "2001-01-01T00:00:00Z",
            "deletionGracePeriodSeconds": 7,
            "selfLink": "/somewhere",
            "generation": 7,
        });
        let created = place.create_with("a", claimed).await?;
        let meta = &created["metadata"];
        let uid = text(&meta["uid"])?;
        let variant = uid.as_bytes().get(19).copied().unwrap_or_default();
        ensure!(
            uid.len() == 36 && uid.as_bytes()[14] == b'4' && b"89ab".contains(&variant),
            "{uid} is no UUID"
        );
        ensure!(!uid.starts_with("00000000"), "the claimed uid was taken");
        let time = text(&meta["creationTimestamp"])?;
        ensure!(time.len() == 20 && time.ends_with('Z') && !time.starts_with("2001"), "created at {time}");
        ensure!(meta["generation"] == 1 && meta["resourceVersion"].is_string(), "{meta}");
        for field in ["deletionTimestamp", "deletionGracePeriodSeconds", "selfLink"] {
            ensure!(meta.get(field).is_none(), "{field} was taken: {meta}");
        }
        ensure!(place.get("a").await? == created, "what is there is not what was answered");
        let mut versioned = place.object("b");
        versioned["metadata"]["resourceVersion"] = json!("1");
        let refused = place.api.post(&place.all(""), &versioned).await?;
        ensure!((400..=500).contains(&refused.status), "{refused}");
        expect(&place.api.get(&place.one("b")).await?, 404, "NotFound").map(drop)
    });
}

#[test]
fn a_second_object_of_the_name_is_refused() {
    run(async |_| {
        let place = TestNamespace::new("seconds")?;
        let mut bare = place.object("a");
        bare["metadata"].as_object_mut().context("metadata")?.remove("namespace");
        let created = place.api.post(&place.all(""), &bare).await?;
        ensure!(created.status == 201 && created.json()?["metadata"]["namespace"] == "seconds", "{created}");
        expect(&place.api.post(&place.all(""), &bare).await?, 409, "AlreadyExists")?;
        let elsewhere = place.api.post(&place.all(""), &TestNamespace::new("thirds")?.object("b")).await?;
        expect(&elsewhere, 400, "BadRequest").map(drop)
    });
}

#[test]
fn names_are_generated() {
    run(async |_| {
        let place = TestNamespace::new("generated")?;
        let mut object = place.object("");
        object["metadata"] = json!({"generateName": "state-"});
        let mut seen = Vec::new();
        for _ in 0..5 {
            let created = place.api.post(&place.all(""), &object).await?;
            ensure!(created.status == 201, "{created}");
            let meta = created.json()?["metadata"].clone();
            let name = text(&meta["name"])?;
            let random = name.strip_prefix("state-").with_context(|| format!("the name is {name}"))?;
            ensure!(random.len() == 5, "the name is {name}");
            ensure!(random.chars().all(|c| "bcdfghjklmnpqrstvwxz2456789".contains(c)), "the name is {name}");
            ensure!(meta["generateName"] == "state-" && !seen.contains(&name), "{meta}");
            seen.push(name);
        }
        object["metadata"] = json!({});
        let status = expect(&place.api.post(&place.all(""), &object).await?, 422, "Invalid")?;
        ensure!(status["details"]["causes"][0]["reason"] == "FieldValueRequired", "{status}");
        Ok(())
    });
}

#[test]
fn a_put_means_the_object_that_is_there() {
    run(async |_| {
        let place = TestNamespace::new("puts")?;
        let created = place.create("a").await?;
        let put = async |name: &str, object: &Value| place.api.put(&place.one(name), object).await;
        expect(&put("b", &created).await?, 400, "BadRequest")?;
        let mut missing = created.clone();
        missing["metadata"]["name"] = json!("b");
        expect(&put("b", &missing).await?, 404, "NotFound")?;
        let mut other = created.clone();
        other["metadata"]["uid"] = json!("00000000-0000-4000-8000-000000000000");
        expect(&put("a", &other).await?, 409, "Conflict")?;
        let mut newer = created.clone();
        newer["metadata"]["labels"] = json!({"a": "b"});
        ensure!(put("a", &newer).await?.status == 200, "an update in good order was refused");
        let status = expect(&put("a", &newer).await?, 409, "Conflict")?;
        ensure!(
            text(&status["message"])?.contains("please apply your changes to the latest version"),
            "{status}"
        );
        Ok(())
    });
}

#[test]
fn identity_stays_and_generation_follows_the_spec() {
    run(async |_| {
        let place = TestNamespace::new("identity")?;
        let created = place.create("a").await?;
        let mut claimed = created.clone();
        claimed["metadata"]["creationTimestamp"] = json!("2001-01-01T00:00:00Z");
        claimed["metadata"]["deletionTimestamp"] = json!("2001-01-01T00:00:00Z");
        claimed["metadata"]["generation"] = json!(70);
        claimed["metadata"]["labels"] = json!({"a": "b"});
        let updated = place.api.put(&place.one("a"), &claimed).await?.ok()?;
        for field in ["uid", "creationTimestamp", "generation", "name", "namespace"] {
            ensure!(
                updated["metadata"][field] == created["metadata"][field],
                "{field} was changed: {updated}"
            );
        }
        ensure!(updated["metadata"]["deletionTimestamp"].is_null(), "{updated}");
        ensure!(updated["metadata"]["labels"]["a"] == "b", "{updated}");
        for (patch, generation) in [
            (json!({"metadata": {"annotations": {"a": "b"}}}), 1),
            (json!({"spec": {"resources": []}}), 2),
            (json!({"metadata": {"finalizers": ["example.com/held"]}}), 2),
            (json!({"spec": {"extensions": [{"kind": "Worker", "name": "w", "state": 2}]}}), 3),
        ] {
            let patched = place.merge("a", &patch).await?.ok()?;
            ensure!(patched["metadata"]["generation"] == generation, "{patch}: {}", patched["metadata"]);
        }
        let waiting = place.api.delete(&place.one("a")).await?.ok()?;
        ensure!(waiting["metadata"]["generation"] == 4, "deletion: {}", waiting["metadata"]);
        Ok(())
    });
}

#[test]
fn a_write_without_a_change_is_none() {
    run(async |_| {
        let place = TestNamespace::new("no-ops")?;
        place.create("a").await?;
        let current = place.merge("a", &json!({"metadata": {"labels": {"a": "b"}}})).await?.ok()?;
        let mut events = place.watch(&format!("&resourceVersion={}", place.version().await?), JSON).await?;
        let label = json!({"metadata": {"labels": {"a": "b"}}});
        let test = json!([{"op": "test", "path": "/metadata/name", "value": "a"}]);
        for same in [
            place.api.put(&place.one("a"), &current).await?,
            place.merge("a", &label).await?,
            place.merge("a", &json!({})).await?,
            place.api.patch(&place.one("a"), JSON_PATCH, &test).await?,
            place.merge("a", &json!({"spec": current["spec"]})).await?,
        ] {
            let same = same.ok()?;
            ensure!(same == current, "{same} is not {current}");
        }
        place.create("b").await?;
        let event = events.next().await?;
        ensure!(event["object"]["metadata"]["name"] == "b", "a write without a change was told: {event}");
        Ok(())
    });
}

#[test]
fn json_patches_fail_as_they_should() {
    run(async |_| {
        let place = TestNamespace::new("json-patches")?;
        let before = place.create("a").await?;
        let patch = async |body: Value| place.api.patch(&place.one("a"), JSON_PATCH, &body).await;
        let many = vec![json!({"op": "test", "path": "/kind", "value": "ShootState"}); 10_001];
        for (body, code, reason) in [
            (json!([{"op": "test", "path": "/kind", "value": "Other"}]), 422, "Invalid"),
            (json!([{"op": "replace", "path": "/spec/nowhere/x", "value": 1}]), 422, "Invalid"),
            (json!([{"op": "jump", "path": "/spec"}]), 422, "Invalid"),
            (json!([1]), 400, "BadRequest"),
            (json!({"op": "remove", "path": "/spec"}), 400, "BadRequest"),
            (Value::Array(many), 413, "RequestEntityTooLarge"),
            (json!([{"op": "replace", "path": "/metadata/name", "value": "b"}]), 400, "BadRequest"),
        ] {
            let answer = patch(body.clone()).await?;
            expect(&answer, code, reason)
                .with_context(|| body.to_string().chars().take(99).collect::<String>())?;
        }
        ensure!(place.get("a").await? == before, "a patch that failed left something");
        // All or nothing: what came before the failing operation is not there.
        let half = json!([
            {"op": "add", "path": "/metadata/labels", "value": {"a": "b"}},
            {"op": "test", "path": "/kind", "value": "Other"},
        ]);
        expect(&patch(half).await?, 422, "Invalid")?;
        ensure!(place.get("a").await? == before, "half of a patch was applied");
        Ok(())
    });
}

#[test]
fn patches_are_as_strict_as_bodies() {
    run(async |_| {
        let place = TestNamespace::new("strict-patches")?;
        place.create("a").await?;
        let patch = json!({"spec": {"unknown": 1}});
        let send = async |query: &str| {
            place.api.patch(&format!("{}{query}", place.one("a")), MERGE_PATCH, &patch).await
        };
        let strict = expect(&send("?fieldValidation=Strict").await?, 422, "Invalid")?;
        ensure!(text(&strict["message"])?.contains("unknown field \"spec.unknown\""), "{strict}");
        let warned = send("").await?;
        ensure!(
            warned.status == 200 && header(&warned, "warning").contains("spec.unknown"),
            "{:?}",
            warned.headers
        );
        let silent = send("?fieldValidation=Ignore").await?;
        ensure!(silent.status == 200 && header(&silent, "warning").is_empty(), "{:?}", silent.headers);
        ensure!(place.get("a").await?["spec"]["unknown"].is_null(), "an unknown field was kept");
        Ok(())
    });
}

#[test]
fn patches_at_once_all_arrive() {
    run(async |_| {
        let place = TestNamespace::new("at-once")?;
        place.create_with("a", json!({"labels": {"first": "yes"}})).await?;
        let patches = (0..24).map(|n| {
            let place = &place;
            async move {
                let patch = json!([{"op": "add", "path": format!("/metadata/labels/n{n}"), "value": "yes"}]);
                place.api.patch(&place.one("a"), JSON_PATCH, &patch).await
            }
        });
        for answer in try_join_all(patches).await? {
            ensure!(answer.status == 200, "{answer}");
        }
        let labels = place.get("a").await?["metadata"]["labels"].clone();
        ensure!(labels.as_object().context("labels")?.len() == 25, "some are lost: {labels}");
        let stale = json!({"metadata": {"resourceVersion": "1", "labels": {"late": "yes"}}});
        expect(&place.merge("a", &stale).await?, 409, "Conflict").map(drop)
    });
}

#[test]
fn a_dry_run_writes_nothing() {
    run(async |_| {
        let place = TestNamespace::new("dry-runs")?;
        let a = place.create("a").await?;
        let held = place.create_with("held", json!({"finalizers": ["example.com/held"]})).await?;
        let mut events = place.watch(&format!("&resourceVersion={}", place.version().await?), JSON).await?;
        let mut changed = a.clone();
        changed["spec"]["extensions"][0]["state"] = json!("changed");
        let dry = |path: String| format!("{path}?dryRun=All");
        let one = dry(place.one("a"));
        let labels = json!({"metadata": {"labels": {"a": "b"}}});
        for (answer, code) in [
            (place.api.post(&dry(place.all("")), &place.object("new")).await?, 201),
            (place.api.post(&dry(place.all("")), &place.object("a")).await?, 409),
            (place.api.put(&one, &changed).await?, 200),
            (place.api.patch(&one, MERGE_PATCH, &labels).await?, 200),
            (
                place
                    .api
                    .patch(&one, JSON_PATCH, &json!([{"op": "remove", "path": "/spec/extensions"}]))
                    .await?,
                200,
            ),
            (place.api.delete(&one).await?, 200),
            (place.api.delete(&dry(place.one("held"))).await?, 200),
            (place.api.delete(&dry(place.all(""))).await?, 200),
            (place.api.delete(&dry(place.one("missing"))).await?, 404),
        ] {
            ensure!(answer.status == code, "{answer}");
        }
        let shown = place.api.put(&one, &changed).await?.ok()?;
        ensure!(shown["spec"] == changed["spec"] && shown["metadata"]["generation"] == 2, "{shown}");
        let list = place.list("").await?;
        ensure!(names(&list) == ["a", "held"], "{:?}", names(&list));
        ensure!(place.get("a").await? == a && place.get("held").await? == held, "something was changed");
        place.create("witness").await?;
        let event = events.next().await?;
        ensure!(event["object"]["metadata"]["name"] == "witness", "a dry run was told: {event}");
        expect(&place.api.delete(&format!("{}?dryRun=Some", place.one("a"))).await?, 422, "Invalid").map(drop)
    });
}

#[test]
fn an_owner_given_twice_is_kept_once() {
    run(async |_| {
        let place = TestNamespace::new("owners")?;
        let owner = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "o", "uid": "1-2-3"});
        let mut object = place.object("a");
        object["metadata"]["ownerReferences"] = json!([owner, owner]);
        let created = place.api.post(&place.all(""), &object).await?;
        ensure!(
            created.status == 201 && header(&created, "warning").contains("ownerReferences"),
            "{:?}",
            created.headers
        );
        ensure!(created.json()?["metadata"]["ownerReferences"] == json!([owner]), "{created}");
        Ok(())
    });
}

#[test]
fn annotations_have_a_limit_of_their_own() {
    run(async |_| {
        let place = TestNamespace::new("annotations")?;
        let with = |size: usize| json!({"metadata": {"annotations": {"a": "x".repeat(size)}}});
        place.create("a").await?;
        ensure!(place.merge("a", &with((256 << 10) - 1)).await?.status == 200, "256 KiB do not fit");
        let status = expect(&place.merge("a", &with(256 << 10)).await?, 422, "Invalid")?;
        ensure!(status["details"]["causes"][0]["reason"] == "FieldValueTooLong", "{status}");
        Ok(())
    });
}

#[test]
fn uids_and_owners_survive_a_restart() {
    run(async |env| {
        let mut dev = Dev::start(env, [""; 0]).await?;
        let place = TestNamespace::of(dev.api()?, "restarted");
        let owner = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "o", "uid": "1-2-3", "controller": true, "blockOwnerDeletion": true});
        place.create_with("a", json!({"ownerReferences": [owner]})).await?;
        let before = place.merge("a", &json!({"metadata": {"labels": {"a": "b"}}})).await?.ok()?;
        dev.repot().restart().await?;
        let place = TestNamespace::of(dev.api()?, "restarted");
        let after = place.get("a").await?;
        ensure!(after == before && after["metadata"]["ownerReferences"] == json!([owner]), "{after}");
        let patched = place.merge("a", &json!({"spec": {"resources": []}})).await?.ok()?;
        ensure!(patched["metadata"]["uid"] == before["metadata"]["uid"], "{patched}");
        ensure!(patched["metadata"]["ownerReferences"] == json!([owner]), "{patched}");
        Ok(())
    });
}

#[test]
fn field_managers_are_short_and_printable() {
    run(async |_| {
        let place = TestNamespace::new("managers")?;
        for (manager, good) in
            [("x".repeat(128), true), ("x".repeat(129), false), ("a%07b".to_owned(), false)]
        {
            let path = place.all(&format!("?dryRun=All&fieldManager={manager}"));
            let answer = send(place.api.request(Method::POST, &path).json(&place.object("a"))).await?;
            match good {
                true => ensure!(answer.status == 201, "{answer}"),
                false => drop(expect(&answer, 422, "Invalid")?),
            }
        }
        Ok(())
    });
}
