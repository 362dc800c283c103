//! Errors as clients read them.

use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use repot_tests::http::{Answer, send};
use repot_tests::repot::Dev;
use repot_tests::run;
use repot_tests::wait::until;
use reqwest::Method;
use serde_json::{Value, json};

use super::namespace::{GROUP, JSON, JSON_PATCH, MERGE_PATCH, TestNamespace, ask, expect, header, post};

const DEADLINE: Duration = Duration::from_secs(60);

async fn call(place: &TestNamespace, method: Method, path: &str, body: &Value) -> Result<Answer> {
    send(place.api.request(method, path).json(body)).await
}

#[test]
fn codes_and_reasons_belong_together() {
    run(async |_| {
        let place = TestNamespace::new("statuses")?;
        let (all, one) = (place.all(""), place.one("a"));
        let created = place.create("a").await?;
        place.merge("a", &json!({"metadata": {"labels": {"a": "b"}}})).await?.ok()?;
        let mut nameless = place.object("B");
        nameless["metadata"]["labels"] = json!({"a": "not a value"});
        let stale = call(&place, Method::PUT, &one, &created).await?;
        let large = place.object(&"x".repeat(17 << 20));
        for (answer, code, reason) in [
            (place.api.get(&place.all("?limit=many")).await?, 400, "BadRequest"),
            (place.api.get(&place.one("missing")).await?, 404, "NotFound"),
            (place.api.get(&place.all("").replace("shootstates", "nothings")).await?, 404, "NotFound"),
            (call(&place, Method::PUT, &all, &created).await?, 405, "MethodNotAllowed"),
            (call(&place, Method::PATCH, &all, &json!({})).await?, 405, "MethodNotAllowed"),
            (call(&place, Method::POST, &one, &created).await?, 405, "MethodNotAllowed"),
            (ask(&place.api, Method::GET, &one, "text/html").await?, 406, "NotAcceptable"),
            (call(&place, Method::POST, &all, &place.object("a")).await?, 409, "AlreadyExists"),
            (stale, 409, "Conflict"),
            (call(&place, Method::POST, &all, &large).await?, 413, "RequestEntityTooLarge"),
            (post(&place.api, &all, "text/plain", "x").await?, 415, "UnsupportedMediaType"),
            (call(&place, Method::POST, &all, &nameless).await?, 422, "Invalid"),
            (
                place.api.patch(&one, JSON_PATCH, &json!([{"op": "remove", "path": "/x"}])).await?,
                422,
                "Invalid",
            ),
            (place.api.get(&place.all("?resourceVersion=9999999999")).await?, 504, "Timeout"),
        ] {
            let status = expect(&answer, code, reason)?;
            let retry = status["details"]["retryAfterSeconds"].as_u64().map(|seconds| seconds.to_string());
            ensure!(
                header(&answer, "retry-after") == retry.unwrap_or_default(),
                "{answer}: {:?}",
                answer.headers
            );
            ensure!(header(&answer, "content-type") == JSON, "{answer}: {:?}", answer.headers);
            if matches!(reason, "AlreadyExists" | "Conflict") {
                let details = json!({"name": "a", "group": GROUP, "kind": "shootstates"});
                ensure!(status["details"] == details, "{status}");
            }
        }
        let missing = expect(&place.api.get(&place.one("missing")).await?, 404, "NotFound")?;
        ensure!(missing["message"] == format!("shootstates.{GROUP} \"missing\" not found"), "{missing}");
        ensure!(
            missing["details"] == json!({"name": "missing", "group": GROUP, "kind": "shootstates"}),
            "{missing}"
        );
        Ok(())
    });
}

#[test]
fn causes_name_reason_and_field() {
    run(async |_| {
        let place = TestNamespace::new("causes")?;
        let mut object = place.object("Upper");
        object["metadata"]["annotations"] = json!({"a": "x".repeat(257 << 10)});
        object["metadata"]["ownerReferences"] =
            json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "", "uid": ""}]);
        object["metadata"]["finalizers"] = json!(["two/many/slashes"]);
        object["spec"]["gardener"] = json!([{"name": "", "type": "secret", "data": {}}]);
        let status = expect(&call(&place, Method::POST, &place.all(""), &object).await?, 422, "Invalid")?;
        let causes = status["details"]["causes"].as_array().context("causes")?;
        for (field, reason) in [
            ("metadata.name", "FieldValueInvalid"),
            ("metadata.annotations", "FieldValueTooLong"),
            ("metadata.ownerReferences.name", "FieldValueInvalid"),
            ("metadata.ownerReferences.uid", "FieldValueInvalid"),
            ("metadata.finalizers", "FieldValueInvalid"),
            ("spec.gardener[0].name", "FieldValueRequired"),
        ] {
            let cause = causes.iter().find(|cause| cause["field"] == field);
            let cause = cause.with_context(|| format!("{field} is not in {causes:?}"))?;
            ensure!(cause["reason"] == reason, "{field}: {cause}");
            ensure!(cause["message"].as_str().is_some_and(|message| !message.is_empty()), "{field}: {cause}");
        }
        ensure!(status["details"]["kind"] == "ShootState" && status["details"]["group"] == GROUP, "{status}");
        for (query, field) in [("?dryRun=Some", "dryRun"), ("?fieldValidation=Maybe", "fieldValidation")] {
            let answer = call(&place, Method::POST, &place.all(query), &place.object("a")).await?;
            let status = expect(&answer, 422, "Invalid")?;
            let cause = &status["details"]["causes"][0];
            ensure!(cause["field"] == field && cause["reason"] == "FieldValueNotSupported", "{status}");
        }
        Ok(())
    });
}

#[test]
fn the_largest_object_is_a_flag_with_a_bound() {
    run(async |env| {
        let dev = Dev::start(env, ["--max-object-bytes=1048576"]).await?;
        let place = TestNamespace::of(dev.api()?, "small");
        place.create("a").await?;
        let mut object = place.object("b");
        object["spec"]["extensions"][0]["state"] = json!("x".repeat(1 << 20));
        let answer = call(&place, Method::POST, &place.all(""), &object).await?;
        let status = expect(&answer, 413, "RequestEntityTooLarge")?;
        ensure!(status["message"].as_str().is_some_and(|m| m.contains("limit is 1048576")), "{status}");
        let Err(error) = Dev::start(env, ["--max-object-bytes=268435457"]).await else { bail!("it started") };
        ensure!(format!("{error:#}").contains("must be from 1024 to 268435456"), "{error:#}");
        Ok(())
    });
}

#[test]
fn a_namespace_holds_no_more_than_it_may_and_can_be_made_room_in() {
    run(async |env| {
        let mut dev = Dev::start(env, ["--max-namespace-bytes=100000"]).await?;
        let (place, other) = (TestNamespace::of(dev.api()?, "full"), TestNamespace::of(dev.api()?, "other"));
        let large = |place: &TestNamespace, name: &str, bytes: usize| {
            let mut object = place.object(name);
            object["spec"]["extensions"][0]["state"] = json!("x".repeat(bytes));
            object
        };
        let refused = |answer: &Answer| {
            let status = expect(answer, 403, "Forbidden")?;
            let message = status["message"].as_str().unwrap_or_default();
            ensure!(
                message.contains("--max-namespace-bytes") && message.contains("limited: 100000"),
                "{message}"
            );
            Ok(())
        };
        place.create("a").await?;
        place.api.post(&place.all(""), &large(&place, "b", 60_000)).await?.ok()?;
        refused(&call(&place, Method::POST, &place.all(""), &large(&place, "c", 60_000)).await?)?;
        refused(&place.api.patch(&place.one("a"), MERGE_PATCH, &large(&place, "a", 60_000)).await?)?;
        let label = json!({"metadata": {"annotations": {"note": "x".repeat(60_000)}}});
        refused(&place.api.patch(&place.one("a"), MERGE_PATCH, &label).await?)?;
        // Other namespaces have their own room, and what shrinks or goes makes some.
        other.api.post(&other.all(""), &large(&other, "c", 60_000)).await?.ok()?;
        place.api.patch(&place.one("b"), MERGE_PATCH, &large(&place, "b", 20_000)).await?.ok()?;
        place.api.patch(&place.one("a"), MERGE_PATCH, &large(&place, "a", 60_000)).await?.ok()?;
        place.api.delete(&place.one("b")).await?.ok()?;
        // Counted at every start, and every minute.
        dev.repot().restart().await?;
        until("usage to be counted", DEADLINE, async || {
            let text = String::from_utf8(place.api.get("/metrics").await?.body.to_vec())?;
            let value = |name: &str, namespace: &str| {
                let label = format!("namespace=\"{namespace}\"");
                let mut lines = text.lines().filter(|line| line.starts_with(name) && line.contains(&label));
                lines.next().and_then(|line| line.rsplit(' ').next()?.parse::<u64>().ok())
            };
            ensure!(value("repot_namespace_objects", "full") == Some(1), "{text}");
            ensure!(value("repot_namespace_objects", "other") == Some(1), "{text}");
            ensure!(
                value("repot_namespace_bytes", "full").is_some_and(|bytes| (60_000..62_000).contains(&bytes)),
                "{text}"
            );
            Ok(())
        })
        .await
    });
}

#[test]
fn a_request_that_takes_too_long_is_given_up() {
    run(async |_| {
        let place = TestNamespace::new("deadlines")?;
        let mut large = place.object("a");
        large["spec"]["extensions"][0]["state"] = json!("x".repeat(12 << 20));
        // No body of this size comes in a millisecond.
        let late = call(&place, Method::POST, &place.all("?timeout=1ms"), &large).await?;
        let status = expect(&late, 504, "Timeout")?;
        ensure!(late.headers.get("retry-after").is_none(), "as if it were safe to try again: {late}");
        ensure!(status["details"]["retryAfterSeconds"].is_null(), "{status}");
        for timeout in ["soon", "5", "-1s"] {
            expect(&place.api.get(&place.all(&format!("?timeout={timeout}"))).await?, 400, "BadRequest")?;
        }
        for timeout in ["0s", "5s", "48h", "1m30s"] {
            place.list(&format!("?timeout={timeout}")).await?;
        }
        let patched = place.api.patch(&place.one("b"), MERGE_PATCH, &json!({})).await?;
        expect(&patched, 404, "NotFound").map(drop)
    });
}
