//! The published OpenAPI documents.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use repot_tests::http::{Answer, Api, send};
use repot_tests::run;
use repot_tests::wait::until;
use reqwest::Method;
use serde_json::{Map, Value, json};

use super::namespace::{Behind, GROUP, JSON, TestNamespace, VERSION, ask, expect, header, text};

const METHODS: [&str; 5] = ["get", "put", "post", "patch", "delete"];
const PROTOBUF_V3: &str = "application/com.github.proto-openapi.spec.v3.v1.0+protobuf";

fn key() -> String {
    format!("apis/{GROUP}/{VERSION}")
}

fn document() -> String {
    format!("/openapi/v3/{}", key())
}

fn map<'a>(value: &'a Value, pointer: &str) -> Result<&'a Map<String, Value>> {
    value.pointer(pointer).and_then(Value::as_object).with_context(|| format!("nothing at {pointer}"))
}

/// Path, method and operation of everything that is about the kind.
fn operations(document: &Value) -> Result<Vec<(String, String, &Value)>> {
    let mut found = Vec::new();
    for (path, item) in map(document, "/paths")? {
        for method in METHODS {
            found.extend(item.get(method).map(|operation| (path.clone(), method.to_owned(), operation)));
        }
    }
    Ok(found)
}

#[test]
fn documents_are_revalidated_by_their_tags() {
    run(async |_| {
        let api = TestNamespace::new("openapi")?.api;
        for path in ["/openapi/v2".to_owned(), document()] {
            let first = api.get(&path).await?;
            let tag = header(&first, "etag").to_owned();
            ensure!(header(&first, "content-type") == JSON && tag.starts_with('"'), "{path}: {tag}");
            first.ok()?;
            let again = send(api.request(Method::GET, &path).header("If-None-Match", &tag)).await?;
            ensure!(again.status == 304 && again.body.is_empty(), "{again}");
        }
        ensure!(api.get("/openapi/v2").await?.ok()?["swagger"] == "2.0", "no document of version 2");
        ensure!(api.get(&document()).await?.ok()?["openapi"].as_str().is_some_and(|v| v.starts_with("3.")));
        Ok(())
    });
}

async fn follow_index(api: &Api) -> Result<(Answer, String)> {
    let index = api.get("/openapi/v3").await?.ok()?;
    let url = text(&index["paths"][key()]["serverRelativeURL"]).with_context(|| format!("in {index}"))?;
    ensure!(url.starts_with(&format!("{}?hash=", document())), "the index leads to {url}");
    Ok((api.get(&url).await?, url))
}

#[test]
fn the_index_leads_to_the_document() {
    run(async |_| {
        let api = TestNamespace::new("openapi")?.api;
        let (current, url) = follow_index(&api).await?;
        ensure!(current.status == 200, "{current}");
        let cache = header(&current, "cache-control");
        ensure!(cache.contains("public") && cache.contains("immutable"), "Cache-Control is {cache}");
        ensure!(header(&current, "expires").ends_with(" GMT"), "Expires is {}", header(&current, "expires"));
        ensure!(header(&current, "vary").contains("Accept"), "Vary is {}", header(&current, "vary"));
        let tag = header(&current, "etag").trim_matches('"');
        ensure!(url.ends_with(&format!("hash={tag}")), "{url} has another hash than {tag}");
        for outdated in [format!("{}?hash=0123", document()), document()] {
            let answer = api.get(&outdated).await?;
            ensure!(answer.status == 200 && answer.body == current.body, "{answer}");
            ensure!(!header(&answer, "cache-control").contains("immutable"), "{outdated} is kept for ever");
        }
        Ok(())
    });
}

#[test]
fn documents_are_json_only() {
    run(async |_| {
        let api = TestNamespace::new("openapi")?.api;
        expect(&ask(&api, Method::GET, &document(), PROTOBUF_V3).await?, 406, "NotAcceptable")?;
        let fallback = ask(&api, Method::GET, &document(), &format!("{PROTOBUF_V3},{JSON}")).await?;
        ensure!(header(&fallback, "content-type") == JSON, "{}", header(&fallback, "content-type"));
        fallback.ok().map(drop)
    });
}

#[test]
fn operations_name_their_kind_and_action() {
    run(async |_| {
        let api = TestNamespace::new("openapi")?.api;
        for path in ["/openapi/v2".to_owned(), document()] {
            let document = api.get(&path).await?.ok()?;
            let mut actions = Vec::new();
            for (path, method, operation) in operations(&document)? {
                ensure!(path.starts_with("/apis/"), "{path} is not below a group");
                // The document of resources is about no kind.
                if path.ends_with('/') {
                    continue;
                }
                let kind = &operation["x-kubernetes-group-version-kind"];
                ensure!(kind["group"].is_string() && kind["version"].is_string(), "{method} {path}: {kind}");
                ensure!(kind["kind"].is_string(), "{method} {path}: {kind}");
                let action = operation["x-kubernetes-action"].as_str();
                actions.push(action.with_context(|| format!("{method} {path} has no action"))?.to_owned());
            }
            for action in ["list", "post", "deletecollection", "get", "put", "patch", "delete"] {
                ensure!(actions.iter().any(|a| a == action), "no operation is {action}");
            }
        }
        let v2 = api.get("/openapi/v2").await?.ok()?;
        let kind = &v2["definitions"]["cloud.gardener.core.v1alpha1.ShootState"];
        let expected = json!([{"group": GROUP, "version": VERSION, "kind": "ShootState"}]);
        ensure!(kind["x-kubernetes-group-version-kind"] == expected, "{kind}");
        Ok(())
    });
}

#[test]
fn patch_types_are_those_that_work() {
    run(async |_| {
        let place = TestNamespace::new("openapi-patch")?;
        place.create("a").await?;
        let v2 = place.api.get("/openapi/v2").await?.ok()?;
        let v3 = place.api.get(&document()).await?.ok()?;
        let item = format!("/{}/namespaces/{{namespace}}/shootstates/{{name}}", key());
        let listed: Vec<String> = serde_json::from_value(v2["paths"][&item]["patch"]["consumes"].clone())?;
        let content = v3["paths"][&item]["patch"]["requestBody"]["content"].as_object().context("content")?;
        ensure!(
            content.len() == listed.len() && listed.iter().all(|t| content.contains_key(t)),
            "{listed:?}"
        );
        for (media_type, body) in [
            ("application/json-patch+json", json!([])),
            ("application/merge-patch+json", json!({})),
            ("application/apply-patch+yaml", place.object("a")),
            ("application/strategic-merge-patch+json", json!({})),
            ("application/apply-patch+cbor", json!({})),
        ] {
            let path = format!("{}?fieldManager=test&dryRun=All", place.one("a"));
            let answer = place.api.patch(&path, media_type, &body).await?;
            if listed.iter().any(|t| t == media_type) {
                ensure!(answer.status == 200, "{media_type} is listed: {answer}");
            } else {
                expect(&answer, 415, "UnsupportedMediaType")?;
            }
        }
        Ok(())
    });
}

#[test]
fn lists_say_how_they_are_merged() {
    run(async |_| {
        let v3 = TestNamespace::new("openapi")?.api.get(&document()).await?.ok()?;
        let mut lists = 0;
        for (name, schema) in map(&v3, "/components/schemas")? {
            let own = name.starts_with("cloud.gardener.") && !name.ends_with("List");
            for (field, property) in schema["properties"].as_object().into_iter().flatten() {
                if !own || property["type"] != "array" {
                    continue;
                }
                lists += 1;
                let keys = property["x-kubernetes-list-map-keys"].as_array().map_or(0, Vec::len);
                match property["x-kubernetes-list-type"].as_str() {
                    Some("map") => ensure!(keys > 0, "{name}.{field} has no keys"),
                    Some("atomic" | "set") => ensure!(keys == 0, "{name}.{field} has keys"),
                    other => anyhow::bail!("{name}.{field} is a list of type {other:?}"),
                }
            }
        }
        ensure!(lists >= 3, "only {lists} lists were found");
        let spec = &v3["components"]["schemas"]["cloud.gardener.core.v1alpha1.ShootStateSpec"]["properties"];
        let keys = &spec["extensions"]["x-kubernetes-list-map-keys"];
        ensure!(*keys == json!(["kind", "name", "purpose"]), "extensions are merged by {keys}");
        ensure!(spec["gardener"]["x-kubernetes-list-map-keys"] == json!(["name"]), "{}", spec["gardener"]);
        Ok(())
    });
}

#[test]
fn shared_types_have_upstream_names() {
    run(async |_| {
        let v2 = TestNamespace::new("openapi")?.api.get("/openapi/v2").await?.ok()?;
        for name in
            ["ObjectMeta", "ListMeta", "OwnerReference", "Status", "DeleteOptions", "WatchEvent", "Patch"]
        {
            let full = format!("io.k8s.apimachinery.pkg.apis.meta.v1.{name}");
            ensure!(v2["definitions"][&full].is_object(), "{full} is missing");
        }
        Ok(())
    });
}

#[test]
fn kube_apiserver_publishes_our_documents() {
    run(async |_| {
        let behind = Behind::value()?;
        let api = behind.garden.api();
        until("the document of version 3", Duration::from_secs(120), async || {
            let (current, _) = follow_index(api).await?;
            ensure!(map(&current.ok()?, "/components/schemas")?.len() > 5, "the document is empty");
            Ok(())
        })
        .await?;
        let outdated = api.get(&format!("{}?hash=0123", document())).await?;
        ensure!(outdated.status == 200, "an outdated hash: {outdated}");
        until("the document of version 2", Duration::from_secs(120), async || {
            let v2 = api.get("/openapi/v2").await?.ok()?;
            let path = format!("/{}/namespaces/{{namespace}}/shootstates", key());
            ensure!(v2["paths"][&path]["post"].is_object(), "{path} is not in it");
            Ok(())
        })
        .await
    });
}
