//! What clients say they want and what they send, and the headers they find on every answer.

use anyhow::{Context, ensure};
use repot_apimachinery::protobuf;
use repot_tests::http::{Answer, send};
use repot_tests::run;
use reqwest::Method;
use serde_json::json;

use super::namespace::{Behind, JSON, TestNamespace, ask, expect, header, post};

#[test]
fn the_audit_id_is_the_callers() {
    run(async |_| {
        let place = TestNamespace::new("audit-id")?;
        let ids = |answer: &Answer| answer.headers.get_all("audit-id").iter().cloned().collect::<Vec<_>>();
        for path in [place.all(""), place.one("missing"), "/livez".to_owned()] {
            let given =
                send(place.api.request(Method::GET, &path).header("Audit-ID", "from-the-front")).await?;
            ensure!(ids(&given) == ["from-the-front"], "{path}: {:?}", ids(&given));
            let own = place.api.get(&path).await?;
            ensure!(ids(&own).len() == 1 && ids(&own)[0].len() == 36, "{path}: {:?}", ids(&own));
        }
        let through = TestNamespace::of(Behind::value()?.garden.api().clone(), "default");
        let answer = through.api.get(&through.all("")).await?;
        // The front server says it, too; it may not be another one.
        let first = ids(&answer).first().cloned().context("no id")?;
        ensure!(first.len() == 36 && ids(&answer).iter().all(|id| *id == first), "{:?}", ids(&answer));
        Ok(())
    });
}

#[test]
fn json_is_what_wildcards_mean() {
    run(async |_| {
        let place = TestNamespace::new("accept")?;
        place.create("a").await?;
        for accept in [
            "*/*",
            "application/*",
            "application/vnd.kubernetes.protobuf,application/json",
            "application/vnd.kubernetes.protobuf, */*;q=0.1",
            "application/json;as=Unknown;g=meta.k8s.io;v=v1,application/json",
            "application/json;as=Table;g=meta.k8s.io;v=v99,application/json",
            "application/json;charset=utf-8",
            "application/json;stream=watch",
        ] {
            let answer = ask(&place.api, Method::GET, &place.one("a"), accept).await?;
            ensure!(header(&answer, "content-type") == JSON, "{accept}: {answer}");
            ensure!(answer.ok()?["kind"] == "ShootState", "{accept}");
        }
        for accept in ["text/html", "application/json;as=Unknown"] {
            let status =
                expect(&ask(&place.api, Method::GET, &place.one("a"), accept).await?, 406, "NotAcceptable")?;
            ensure!(status["message"].as_str().is_some_and(|m| m.contains(JSON)), "{status}");
        }
        // Who takes nothing but protobuf is told in protobuf that there is none.
        let answer = ask(&place.api, Method::GET, &place.one("a"), protobuf::MEDIA_TYPE).await?;
        ensure!(answer.status == 406, "{answer}");
        ensure!(header(&answer, "content-type") == protobuf::MEDIA_TYPE, "{:?}", answer.headers);
        let status =
            protobuf::encode(br#"{"kind":"Status","apiVersion":"v1"}"#).context("a kind that is known")?;
        ensure!(answer.body.starts_with(&status[..18]), "{:?}", answer.body);
        Ok(())
    });
}

#[test]
fn bodies_of_other_types_are_refused_by_name() {
    run(async |_| {
        let place = TestNamespace::new("types")?;
        for content_type in ["application/vnd.kubernetes.protobuf", "application/cbor", "text/plain"] {
            let answer = post(&place.api, &place.all(""), content_type, "x").await?;
            let status = expect(&answer, 415, "UnsupportedMediaType")?;
            ensure!(status["message"].as_str().is_some_and(|m| m.contains(JSON)), "{status}");
        }
        ensure!(place.list("").await?["items"] == json!([]), "something was made of it");
        Ok(())
    });
}

#[test]
fn a_body_is_one_whole_object() {
    run(async |_| {
        let place = TestNamespace::new("bodies")?;
        let good = place.object("a").to_string();
        // No Content-Type means JSON.
        let untyped = place.api.request(Method::POST, &place.all("?dryRun=All")).body(good.clone());
        ensure!(send(untyped).await?.status == 201, "a body without a type was refused");
        let typed =
            post(&place.api, &place.all("?dryRun=All"), "application/json; charset=utf-8", good.clone())
                .await?;
        ensure!(typed.status == 201, "{typed}");
        for body in [
            String::new(),
            "null".to_owned(),
            "[]".to_owned(),
            good[..good.len() - 1].to_owned(),
            format!("{good}x"),
            format!("{good}{good}"),
            good.replace("\"kind\":\"ShootState\"", "\"kind\":\"Other\""),
            good.replace("\"kind\":\"ShootState\",", ""),
        ] {
            let answer = post(&place.api, &place.all(""), JSON, body.clone()).await?;
            expect(&answer, 400, "BadRequest").map_err(|error| error.context(body))?;
        }
        ensure!(place.list("").await?["items"] == json!([]), "something was created");
        Ok(())
    });
}

#[test]
fn headers_are_set_on_all_answers() {
    run(async |_| {
        let place = TestNamespace::new("headers")?;
        place.create("a").await?;
        for path in [place.one("a"), place.all(""), place.one("missing"), place.all("?limit=x")] {
            let answer = place.api.get(&path).await?;
            ensure!(header(&answer, "cache-control") == "no-cache, private", "{path}: {:?}", answer.headers);
            ensure!(header(&answer, "content-type") == JSON, "{path}: {:?}", answer.headers);
            ensure!(!header(&answer, "audit-id").is_empty(), "{path}: {:?}", answer.headers);
            if answer.status >= 400 {
                ensure!(
                    header(&answer, "x-content-type-options") == "nosniff",
                    "{path}: {:?}",
                    answer.headers
                );
            }
        }
        Ok(())
    });
}
