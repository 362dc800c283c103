//! What is wrong with a request is told by a Status that says what, where and what instead.

use anyhow::{Result, ensure};
use repot_tests::http::{Answer, send};
use repot_tests::run;
use reqwest::Method;
use serde_json::{Value, json};

use super::world::{World, collection, path, small};

async fn post(world: &World, query: &str, body: impl Into<String>) -> Result<Answer> {
    let request = world.api.request(Method::POST, &format!("{}{query}", collection("default")));
    send(request.header("Content-Type", "application/json").body(body.into())).await
}

/// The answer is a Status with this code and reason, whose message has all these words.
fn expect(answer: &Answer, code: u16, reason: &str, words: &[&str]) -> Result<Value> {
    let status = answer.json()?;
    ensure!(answer.status == code && status["code"] == code && status["reason"] == reason, "{answer}");
    ensure!(status["kind"] == "Status" && status["status"] == "Failure", "{answer}");
    let message = status["message"].as_str().unwrap_or_default();
    for word in words {
        ensure!(message.contains(word), "{word:?} is not in {message:?}");
    }
    Ok(status)
}

#[test]
fn bad_bodies_are_refused_by_name() {
    run(async |env| bodies(&World::dev(env).await?).await);
}

#[test]
fn bad_bodies_are_refused_by_name_behind_a_real_kube_apiserver() {
    run(async |env| bodies(&World::garden(env).await?).await);
}

async fn bodies(world: &World) -> Result<()> {
    let good = small("bad", &json!(1));
    let with = |at: &str, value: Value| {
        let mut object = good.clone();
        *object.pointer_mut(at).expect("a place in the object") = value;
        object.to_string()
    };
    expect(&post(world, "", "{\"kind\":").await?, 400, "BadRequest", &["line 1"])?;
    expect(
        &post(world, "", with("/kind", json!("Secret"))).await?,
        400,
        "BadRequest",
        &["Secret", "ShootState"],
    )?;
    expect(
        &post(world, "", with("/apiVersion", json!("v1"))).await?,
        400,
        "BadRequest",
        &["core.gardener.cloud"],
    )?;
    expect(
        &post(world, "", with("/metadata/namespace", json!("other"))).await?,
        400,
        "BadRequest",
        &["namespace"],
    )?;
    let mismatch = post(world, "", with("/spec/gardener", json!({}))).await?;
    expect(&mismatch, 400, "BadRequest", &["spec.gardener: expected an array, got an object"])?;

    let mut invalid = good.clone();
    invalid["metadata"]["name"] = json!("Upper");
    invalid["metadata"]["labels"] = json!({"a b": "c d"});
    invalid["spec"]["gardener"][0]["name"] = json!("");
    let status = expect(&post(world, "", invalid.to_string()).await?, 422, "Invalid", &["metadata.name"])?;
    let fields: Vec<_> =
        status["details"]["causes"].as_array().map(Vec::as_slice).unwrap_or_default().to_vec();
    for field in ["metadata.name", "metadata.labels", "spec.gardener[0].name"] {
        ensure!(fields.iter().any(|cause| cause["field"] == field), "{field} is not among {fields:?}");
    }
    strictness(world).await?;
    versions(world).await?;
    sizes(world).await?;
    older_shape(world).await?;
    media_types(world).await
}

async fn strictness(world: &World) -> Result<()> {
    let body = small("strict", &json!(1)).to_string();
    let body =
        body.replacen("\"spec\":{", "\"spec\":{\"x\":1,\"extensions\":[],", 1).replacen('{', "{\"y\":2,", 1);
    let strict = post(world, "?fieldValidation=Strict", body.clone()).await?;
    let words = [
        "strict decoding error",
        "unknown field \"y\"",
        "unknown field \"spec.x\"",
        "duplicate field \"spec.extensions\"",
    ];
    expect(&strict, 400, "BadRequest", &words)?;
    let warned = post(world, "", body.clone()).await?;
    ensure!(warned.status == 201, "{warned}");
    let warnings: Vec<_> =
        warned.headers.get_all("warning").iter().map(|w| w.to_str().unwrap_or_default()).collect();
    ensure!(warnings.len() == 3 && warnings[0].contains("unknown field"), "{warnings:?}");
    let silent =
        post(world, "?fieldValidation=Ignore&dryRun=All", body.replace("\"strict\"", "\"silent\"")).await?;
    ensure!(silent.status == 201 && silent.headers.get("warning").is_none(), "{silent}");
    ensure!(world.api.get(&path("silent")).await?.status == 404, "a dry run was stored");
    expect(&post(world, "?fieldValidation=Maybe", body).await?, 422, "Invalid", &["fieldValidation"])?;
    Ok(())
}

async fn versions(world: &World) -> Result<()> {
    let created = world.create(&small("versions", &json!(1))).await?;
    expect(
        &post(world, "", small("versions", &json!(1)).to_string()).await?,
        409,
        "AlreadyExists",
        &["versions"],
    )?;
    let put = |object: Value| async move { world.api.put(&path("versions"), &object).await };
    let mut newer = created.clone();
    newer["spec"]["extensions"][0]["state"] = json!(2);
    ensure!(put(newer.clone()).await?.status == 200, "an update in good order was refused");
    newer["spec"]["extensions"][0]["state"] = json!(3);
    expect(&put(newer.clone()).await?, 409, "Conflict", &["the object has been modified"])?;
    newer["metadata"]["resourceVersion"] = json!("");
    expect(&put(newer.clone()).await?, 422, "Invalid", &["must be specified for an update"])?;
    newer["metadata"]["uid"] = json!("another");
    newer["metadata"].as_object_mut().expect("metadata").remove("resourceVersion");
    let stale = json!({"metadata": {"resourceVersion": created["metadata"]["resourceVersion"]}, "spec": {"gardener": []}});
    let patch = world.api.patch(&path("versions"), "application/merge-patch+json", &stale).await?;
    expect(&patch, 409, "Conflict", &["the object has been modified"])?;
    let options = json!({"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": {"uid": "another"}});
    let delete = send(world.api.request(Method::DELETE, &path("versions")).json(&options)).await?;
    expect(&delete, 409, "Conflict", &["Precondition failed"])?;
    let unchanged = world.api.get(&path("versions")).await?.ok()?;
    ensure!(unchanged["spec"]["extensions"][0]["state"] == 2, "{unchanged}");
    let again = world.api.put(&path("versions"), &unchanged).await?.ok()?;
    ensure!(again == unchanged, "an update without a change made a new version");
    Ok(())
}

async fn sizes(world: &World) -> Result<()> {
    let limit = 15 << 20;
    let large = small("large", &json!("x".repeat(limit)));
    expect(
        &post(world, "", large.to_string()).await?,
        413,
        "RequestEntityTooLarge",
        &[&format!("limit is {limit}")],
    )?;
    ensure!(world.api.get(&path("large")).await?.status == 404, "it was stored all the same");
    let fits = small("fits", &json!("x".repeat(limit - 4096)));
    let created = world.create(&fits).await?;
    ensure!(created["spec"] == fits["spec"], "what was created is not what was sent");
    let grow = json!([{"op": "copy", "from": "/spec/extensions/0", "path": "/spec/extensions/1"}]);
    let patched = world.api.patch(&path("fits"), "application/json-patch+json", &grow).await?;
    expect(&patched, 413, "RequestEntityTooLarge", &["limit is"])?;
    Ok(())
}

/// The shape of the paper is accepted, brought into today's, and warned of.
async fn older_shape(world: &World) -> Result<()> {
    let old = json!({
        "apiVersion": "core.gardener.cloud/v1alpha1",
        "kind": "ShootState",
        "metadata": {"name": "old", "namespace": "default"},
        "gardenlet": {"secrets": [{"name": "ca", "data": {"ca.crt": "AA=="}}]},
        "extensions": [{"kind": "Infrastructure", "state": {"terraform": 1.0}}],
    });
    let created = post(world, "", old.to_string()).await?;
    ensure!(created.status == 201 && created.headers.get_all("warning").iter().count() == 2, "{created}");
    let spec = &created.json()?["spec"];
    let secret = json!({"name": "ca", "type": "secret", "data": {"data": {"ca.crt": "AA=="}}});
    ensure!(spec["gardener"][0] == secret && spec["extensions"] == old["extensions"], "{spec}");
    Ok(())
}

async fn media_types(world: &World) -> Result<()> {
    world.create(&small("types", &json!(1))).await?;
    let request =
        world.api.request(Method::POST, &collection("default")).header("Content-Type", "text/plain");
    expect(&send(request.body("x")).await?, 415, "UnsupportedMediaType", &["application/json"])?;
    let strategic =
        world.api.patch(&path("types"), "application/strategic-merge-patch+json", &json!({})).await?;
    expect(&strategic, 415, "UnsupportedMediaType", &["application/merge-patch+json"])?;
    let request = world.api.request(Method::GET, &path("types")).header("Accept", "text/html");
    expect(&send(request).await?, 406, "NotAcceptable", &["application/json"])?;
    let request = world.api.request(Method::GET, &path("types"));
    let read = send(request.header("Accept", "application/vnd.kubernetes.protobuf,application/json")).await?;
    ensure!(read.status == 200, "{read}");
    let selector = world.api.get(&format!("{}?fieldSelector=spec.x=1", collection("default"))).await?;
    expect(&selector, 400, "BadRequest", &["field label not supported: spec.x"])?;
    let patch = json!([{"op": "remove", "path": "/spec/nowhere"}]);
    let failed = world.api.patch(&path("types"), "application/json-patch+json", &patch).await?;
    expect(&failed, 422, "Invalid", &["/spec/nowhere"])?;
    Ok(())
}
