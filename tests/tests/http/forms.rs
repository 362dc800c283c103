//! Compressed and indented answers.

use std::io::Read;

use anyhow::{Result, ensure};
use repot_tests::http::{Answer, send};
use repot_tests::run;
use reqwest::{Method, RequestBuilder};
use serde_json::json;

use crate::shootstate::world::{World, collection, large, path, small};

/// An address outside of private networks (RFC 5737).
const FAR_AWAY: &str = "203.0.113.9";

/// What a client gets that takes gzip and is not in a private network.
async fn gzipped(world: &World, path: &str) -> Result<Answer> {
    send(far_away(world.api.request(Method::GET, path))).await
}

fn far_away(request: RequestBuilder) -> RequestBuilder {
    request.header("Accept-Encoding", "gzip").header("X-Forwarded-For", FAR_AWAY)
}

fn is_gzip(answer: &Answer) -> bool {
    answer.headers.get("content-encoding").is_some_and(|coding| coding == "gzip")
}

fn inflate(answer: &Answer) -> Result<Vec<u8>> {
    let mut plain = Vec::new();
    flate2::read::GzDecoder::new(&answer.body[..]).read_to_end(&mut plain)?;
    Ok(plain)
}

#[test]
fn large_answers_are_compressed_for_who_takes_gzip_and_watches_never_are() {
    run(async |env| {
        let world = World::dev(env).await?;
        world.create(&large("large", 4 << 20)).await?;
        world.create(&small("small", &json!(1))).await?;
        for path in [path("large"), collection("default")] {
            let (plain, coded) = (world.api.get(&path).await?, gzipped(&world, &path).await?);
            ensure!(
                coded.status == 200 && is_gzip(&coded) && !is_gzip(&plain),
                "{path}: {:?}",
                coded.headers
            );
            let vary = coded.headers.get_all("vary").iter().any(|value| value == "Accept-Encoding");
            ensure!(vary && coded.body.len() < plain.body.len(), "{path}: {:?}", coded.headers);
            ensure!(inflate(&coded)? == plain.body, "{path}: the answers differ");
        }
        let tried = world.api.request(Method::POST, &format!("{}?dryRun=All", collection("default")));
        let tried = send(far_away(tried).json(&large("tried", 1 << 20))).await?;
        ensure!(tried.status == 201 && is_gzip(&tried), "{} {:?}", tried.status, tried.headers);
        for short in [path("small"), format!("{}?limit=1&watch=1&timeoutSeconds=1", collection("default"))] {
            let answer = gzipped(&world, &short).await?;
            ensure!(answer.status == 200 && !is_gzip(&answer), "{short}: {:?}", answer.headers);
        }
        Ok(())
    });
}

#[test]
fn documents_are_compressed_when_they_are_long() {
    run(async |env| {
        let world = World::dev(env).await?;
        for path in ["/openapi/v2", "/openapi/v3/apis/core.gardener.cloud/v1alpha1", "/apis"] {
            let (plain, coded) = (world.api.get(path).await?, gzipped(&world, path).await?);
            ensure!(is_gzip(&coded) == (plain.body.len() > 128 << 10), "{path}: {:?}", coded.headers);
            let text = if is_gzip(&coded) { inflate(&coded)? } else { coded.body.to_vec() };
            ensure!(text == plain.body, "{path}: the answers differ");
        }
        Ok(())
    });
}

#[test]
fn a_client_that_takes_no_gzip_gets_none_through_a_front_server_that_does() {
    run(async |env| {
        let world = World::garden(env).await?;
        let object = large("large", 4 << 20);
        world.create(&object).await?;
        // The front server asks for gzip in the name of a client that does not, and gets it.
        let plain = world.api.request(Method::GET, &path("large")).header("X-Forwarded-For", FAR_AWAY);
        let read = send(plain).await?;
        ensure!(!is_gzip(&read) && read.json()?["spec"] == object["spec"], "{:?}", read.headers);
        let coded = gzipped(&world, &path("large")).await?;
        ensure!(is_gzip(&coded) && inflate(&coded)? == read.body, "{:?}", coded.headers);
        Ok(())
    });
}

#[test]
fn answers_inside_of_a_private_network_are_not_compressed() {
    run(async |env| {
        let world = World::garden(env).await?;
        world.create(&large("large", 4 << 20)).await?;
        let near = world.api.request(Method::GET, &path("large")).header("Accept-Encoding", "gzip");
        let near = send(near).await?;
        ensure!(near.status == 200 && !is_gzip(&near), "{:?}", near.headers);
        ensure!(near.body == world.api.get(&path("large")).await?.body, "the answers differ");
        Ok(())
    });
}

#[test]
fn answers_are_indented_for_people_who_ask_for_it() {
    run(async |env| {
        let world = World::dev(env).await?;
        world.create(&small("a", &json!({"text": "{ \"as\": [it, was] }"}))).await?;
        let plain = world.api.get(&path("a")).await?;
        let asked = world.api.get(&format!("{}?pretty=true", path("a"))).await?;
        ensure!(!plain.body.contains(&b'\n') && asked.body.starts_with(b"{\n  \"kind\""), "{asked}");
        ensure!(plain.json()? == asked.json()?, "{asked}");
        let curl = send(world.api.request(Method::GET, &path("none")).header("User-Agent", "curl/8")).await?;
        ensure!(curl.status == 404 && curl.body.starts_with(b"{\n  \"kind\": \"Status\""), "{curl}");
        Ok(())
    });
}

#[test]
fn every_answer_says_that_it_must_not_be_kept_and_has_one_audit_id() {
    run(async |env| {
        let world = World::dev(env).await?;
        for path in ["/version", "/metrics", "/livez", "/apis", "/nowhere", &path("none")] {
            let request = world.api.request(Method::GET, path).header("Audit-ID", "of-the-front-server");
            let answer = send(request).await?;
            let all = |name: &str| {
                let values = answer.headers.get_all(name).iter();
                values.map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned()).collect::<Vec<_>>()
            };
            ensure!(all("cache-control") == ["no-cache, private"], "{path}: {:?}", answer.headers);
            ensure!(all("audit-id") == ["of-the-front-server"], "{path}: {:?}", answer.headers);
            let nosniff = all("x-content-type-options") == ["nosniff"];
            ensure!(nosniff || answer.status == 200, "{path}: {:?}", answer.headers);
        }
        Ok(())
    });
}

#[test]
fn objects_come_in_yaml_too_and_other_types_are_told_what_is_accepted() {
    run(async |env| {
        let world = World::dev(env).await?;
        let send_as = async |media_type: &str, body: String| {
            let request = world.api.request(Method::POST, &collection("default"));
            send(request.header("Content-Type", media_type.to_owned()).body(body)).await
        };
        let yaml = "apiVersion: core.gardener.cloud/v1alpha1\nkind: ShootState\nmetadata:\n  name: in-yaml\nspec:\n  \
                    extensions:\n  - kind: Worker\n    name: w\n    state: {replicas: 3, text: 'yes'}\n";
        let created = send_as("application/yaml", yaml.to_owned()).await?.ok()?;
        ensure!(
            created["spec"]["extensions"][0]["state"] == json!({"replicas": 3, "text": "yes"}),
            "{created}"
        );
        let bad = send_as("application/yaml", "a: [".to_owned()).await?;
        ensure!(bad.status == 400 && bad.json()?["reason"] == "BadRequest", "{bad}");
        for other in ["application/vnd.kubernetes.protobuf", "application/cbor"] {
            let refused = send_as(other, "x".to_owned()).await?;
            let message = refused.json()?["message"].as_str().unwrap_or_default().to_owned();
            ensure!(refused.status == 415 && message.contains("application/json"), "{refused}");
        }
        Ok(())
    });
}
