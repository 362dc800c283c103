//! Deletion, of one object and of many.

use anyhow::{Context, Result, ensure};
use repot_tests::http::{Answer, send};
use repot_tests::run;
use reqwest::Method;
use serde_json::{Value, json};

use super::namespace::{GROUP, JSON, TestNamespace, expect, names, text};

async fn delete(place: &TestNamespace, path: &str, options: &Value) -> Result<Answer> {
    send(place.api.request(Method::DELETE, path).json(options)).await
}

fn held() -> Value {
    json!({"finalizers": ["example.com/held"]})
}

#[test]
fn the_answer_says_whether_the_object_is_gone() {
    run(async |_| {
        let place = TestNamespace::new("deletes")?;
        let created = place.create("a").await?;
        let gone = place.api.delete(&place.one("a")).await?;
        ensure!(gone.status == 200, "{gone}");
        let status = gone.json()?;
        let details =
            json!({"name": "a", "group": GROUP, "kind": "shootstates", "uid": created["metadata"]["uid"]});
        ensure!(status["kind"] == "Status" && status["status"] == "Success", "{status}");
        ensure!(status["details"] == details, "{status}");
        expect(&place.api.delete(&place.one("a")).await?, 404, "NotFound")?;

        for (name, options, code) in [
            ("b", json!({}), 200),
            ("c", json!({"orphanDependents": true}), 200),
            ("d", json!({"orphanDependents": false}), 202),
        ] {
            place.create_with(name, held()).await?;
            let waits = delete(&place, &place.one(name), &options).await?;
            ensure!(waits.status == code, "{options}: {waits}");
            let object = waits.json()?;
            ensure!(object["kind"] == "ShootState" && object["metadata"]["name"] == name, "{object}");
            ensure!(object["metadata"]["deletionTimestamp"].is_string(), "{object}");
            ensure!(object["metadata"]["generation"] == 2, "{object}");
            ensure!(object == place.get(name).await?, "{object} is not what is there");
        }
        // A second object of the name has to wait.
        let answer = place.api.post(&place.all(""), &place.object("b")).await?;
        let status = expect(&answer, 409, "AlreadyExists")?;
        ensure!(text(&status["message"])?.starts_with("object is being deleted:"), "{status}");
        Ok(())
    });
}

#[test]
fn options_come_in_a_body_or_as_parameters() {
    run(async |_| {
        let place = TestNamespace::new("delete-options")?;
        place.create("a").await?;
        for api_version in ["v1", "meta.k8s.io/v1", "core.gardener.cloud/v1alpha1"] {
            let options = json!({"kind": "DeleteOptions", "apiVersion": api_version, "dryRun": ["All"]});
            let answer = delete(&place, &place.one("a"), &options).await?;
            ensure!(answer.status == 200 && answer.json()?["status"] == "Success", "{api_version}: {answer}");
        }
        let bare = delete(&place, &place.one("a"), &json!({"dryRun": ["All"]})).await?;
        ensure!(bare.status == 200, "{bare}");
        let wrong = json!({"kind": "Secret", "apiVersion": "v1"});
        expect(&delete(&place, &place.one("a"), &wrong).await?, 400, "BadRequest")?;
        expect(&delete(&place, &place.one("a"), &json!([])).await?, 400, "BadRequest")?;
        let text = place.api.request(Method::DELETE, &place.one("a")).header("Content-Type", "text/plain");
        expect(&send(text.body("x")).await?, 415, "UnsupportedMediaType")?;
        // As parameters, where there is no body.
        let ask = async |query: &str| place.api.delete(&format!("{}?{query}", place.one("a"))).await;
        ensure!(ask("dryRun=All&gracePeriodSeconds=0").await?.status == 200, "a dry run was refused");
        expect(&ask("uid=another").await?, 409, "Conflict")?;
        expect(&ask("resourceVersion=1").await?, 409, "Conflict")?;
        expect(&ask("gracePeriodSeconds=x").await?, 400, "BadRequest")?;
        expect(&ask("propagationPolicy=Never").await?, 422, "Invalid")?;
        ensure!(place.get("a").await?["metadata"]["deletionTimestamp"].is_null(), "it was deleted");
        let orphaned = ask("propagationPolicy=Orphan").await?.ok()?;
        ensure!(orphaned["metadata"]["finalizers"] == json!(["orphan"]), "{orphaned}");
        Ok(())
    });
}

#[test]
fn preconditions_are_kept() {
    run(async |_| {
        let place = TestNamespace::new("preconditions")?;
        let old = place.create("a").await?["metadata"].clone();
        place.merge("a", &json!({"metadata": {"labels": {"a": "b"}}})).await?.ok()?;
        let meta = place.get("a").await?["metadata"].clone();
        let other_uid = json!("00000000-0000-4000-8000-000000000000");
        for (uid, version) in [
            (&other_uid, &Value::Null),
            (&other_uid, &meta["resourceVersion"]),
            (&Value::Null, &old["resourceVersion"]),
            (&meta["uid"], &old["resourceVersion"]),
        ] {
            let options = json!({"preconditions": {"uid": uid, "resourceVersion": version}});
            let status = expect(&delete(&place, &place.one("a"), &options).await?, 409, "Conflict")?;
            ensure!(text(&status["message"])?.contains("Precondition failed"), "{status}");
        }
        let options =
            json!({"preconditions": {"uid": meta["uid"], "resourceVersion": meta["resourceVersion"]}});
        ensure!(delete(&place, &place.one("a"), &options).await?.status == 200, "it was not deleted");
        Ok(())
    });
}

#[test]
fn grace_is_accepted_and_has_no_effect() {
    run(async |_| {
        let place = TestNamespace::new("grace")?;
        for grace in [-5, 0, 30] {
            let options = json!({"gracePeriodSeconds": grace});
            place.create("a").await?;
            let gone = delete(&place, &place.one("a"), &options).await?;
            ensure!(gone.status == 200 && gone.json()?["status"] == "Success", "{grace}: {gone}");
            let name = format!("held{}", grace + 5);
            place.create_with(&name, held()).await?;
            let waits = delete(&place, &place.one(&name), &options).await?.ok()?;
            ensure!(waits["metadata"]["deletionGracePeriodSeconds"] == 0, "{grace}: {}", waits["metadata"]);
        }
        Ok(())
    });
}

#[test]
fn the_last_finalizer_takes_the_object_with_it() {
    run(async |_| {
        let place = TestNamespace::new("finalizers")?;
        place.create_with("a", json!({"finalizers": ["example.com/one", "example.com/two"]})).await?;
        place.api.delete(&place.one("a")).await?.ok()?;
        let mut events = place.watch(&format!("&resourceVersion={}", place.version().await?), JSON).await?;
        let set = async |finalizers: Value| {
            place.merge("a", &json!({"metadata": {"finalizers": finalizers}})).await
        };
        expect(&set(json!(["example.com/one", "example.com/three"])).await?, 422, "Invalid")?;
        let one = set(json!(["example.com/two"])).await?.ok()?;
        ensure!(one["metadata"]["deletionTimestamp"].is_string(), "{one}");
        let none = set(Value::Null).await?;
        ensure!(none.status == 200 && none.json()?["metadata"]["name"] == "a", "{none}");
        expect(&place.api.get(&place.one("a")).await?, 404, "NotFound")?;
        for kind in ["MODIFIED", "DELETED"] {
            let event = events.next().await?;
            ensure!(event["type"] == kind, "{event}");
        }
        Ok(())
    });
}

#[test]
fn collections_are_deleted_by_what_is_selected() {
    run(async |_| {
        let place = TestNamespace::new("collections")?;
        for (name, app) in [("a", "x"), ("b", "y"), ("c", "x"), ("d", "x")] {
            place.create_with(name, json!({"labels": {"app": app}})).await?;
        }
        place.merge("d", &json!({"metadata": held()})).await?.ok()?;
        let all = |query: &str| place.all(query);
        let dry = place.api.delete(&all("?dryRun=All")).await?;
        ensure!(dry.status == 200 && names(&place.list("").await?).len() == 4, "a dry run deleted: {dry}");
        place.api.delete(&all("?limit=1&labelSelector=app%3Dx")).await?.ok()?;
        ensure!(names(&place.list("").await?) == ["b", "c", "d"], "{:?}", names(&place.list("").await?));
        let other = json!({"preconditions": {"uid": "00000000-0000-4000-8000-000000000000"}});
        expect(&delete(&place, &all("?fieldSelector=metadata.name%3Dc"), &other).await?, 409, "Conflict")?;
        let answer = place.api.delete(&all("?labelSelector=app%3Dx")).await?.ok()?;
        ensure!(answer["kind"] == "Status" || answer["kind"] == "ShootStateList", "{answer}");
        ensure!(names(&place.list("").await?) == ["b", "d"], "{:?}", names(&place.list("").await?));
        let waiting = place.get("d").await?;
        ensure!(waiting["metadata"]["deletionTimestamp"].is_string(), "{waiting}");
        let policy = json!({"propagationPolicy": "Foreground"});
        delete(&place, &all("?labelSelector=app%3Dy"), &policy).await?.ok()?;
        let waiting = place.get("b").await?;
        ensure!(waiting["metadata"]["finalizers"] == json!(["foregroundDeletion"]), "{waiting}");
        // Again, as controllers do until nothing is left.
        place.api.delete(&all("")).await?.ok()?;
        ensure!(names(&place.list("").await?) == ["b", "d"], "{:?}", names(&place.list("").await?));
        let both = json!({"propagationPolicy": "Orphan", "orphanDependents": true});
        let status = expect(&delete(&place, &all(""), &both).await?, 422, "Invalid")?;
        ensure!(status["details"]["causes"].as_array().context("causes")?.len() == 1, "{status}");
        Ok(())
    });
}
