//! Which groups, versions and resources there are.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use repot_tests::http::{Answer, Api, send};
use repot_tests::repot::Dev;
use repot_tests::run;
use repot_tests::wait::until;
use reqwest::Method;
use serde_json::{Value, json};

use super::namespace::{Behind, GROUP, JSON, MERGE_PATCH, TestNamespace, VERSION, ask, expect, header};

const V2: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
const V2BETA1: &str = "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList";
const VERBS: [&str; 8] = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];

fn group_path() -> String {
    format!("/apis/{GROUP}")
}

fn version_path() -> String {
    format!("/apis/{GROUP}/{VERSION}")
}

fn find<'a>(list: &'a Value, key: &str, name: &str) -> Result<&'a Value> {
    let mut items = list.as_array().map(Vec::as_slice).unwrap_or_default().iter();
    items
        .find(|item| item.pointer(key).is_some_and(|value| value == name))
        .with_context(|| format!("no {name}"))
}

#[test]
fn resources_are_listed_in_the_old_form() {
    run(async |_| {
        let api = TestNamespace::new("discovery")?.api;
        let groups = api.get("/apis").await?.ok()?;
        ensure!(groups["kind"] == "APIGroupList" && groups["apiVersion"] == "v1", "{groups}");
        let version = json!({"groupVersion": format!("{GROUP}/{VERSION}"), "version": VERSION});
        let listed = find(&groups["groups"], "/name", GROUP)?;
        ensure!(listed["preferredVersion"] == version && listed["versions"] == json!([version]), "{listed}");
        let group = api.get(&group_path()).await?.ok()?;
        ensure!(group["kind"] == "APIGroup" && group["apiVersion"] == "v1", "{group}");
        ensure!(group["name"] == GROUP && group["preferredVersion"] == version, "{group}");

        let list = api.get(&version_path()).await?.ok()?;
        ensure!(list["kind"] == "APIResourceList" && list["apiVersion"] == "v1", "{list}");
        ensure!(list["groupVersion"] == version["groupVersion"], "{list}");
        let states = find(&list["resources"], "/name", "shootstates")?;
        ensure!(states["singularName"] == "shootstate" && states["kind"] == "ShootState", "{states}");
        ensure!(states["namespaced"] == true && states["verbs"] == json!(VERBS), "{states}");
        ensure!(states["shortNames"].is_array() && states["categories"].is_array(), "{states}");
        // The first eight bytes of the SHA-256 of "core.gardener.cloud/v1alpha1/ShootState".
        ensure!(states["storageVersionHash"] == "uI6TXHnH9A0=", "{states}");
        for resource in list["resources"].as_array().context("resources")? {
            let verbs: Vec<_> =
                resource["verbs"].as_array().context("verbs")?.iter().map(Value::as_str).collect();
            ensure!(!verbs.is_empty() && verbs.is_sorted(), "{resource}");
            ensure!(resource["kind"].is_string() && resource["namespaced"].is_boolean(), "{resource}");
        }
        Ok(())
    });
}

#[test]
fn resources_are_listed_in_the_aggregated_form() {
    run(async |_| {
        let api = TestNamespace::new("discovery")?.api;
        for (accept, version) in [
            (V2.to_owned(), "v2"),
            (format!("{V2BETA1},{JSON}"), "v2beta1"),
            (format!("{V2};profile=nopeer,{V2BETA1},{JSON}"), "v2"),
            ("application/json;as=APIGroupDiscoveryList;v=v2;g=apidiscovery.k8s.io".to_owned(), "v2"),
        ] {
            let answer = ask(&api, Method::GET, "/apis", &accept).await?;
            let kind = format!("application/json;g=apidiscovery.k8s.io;v={version};as=APIGroupDiscoveryList");
            ensure!(header(&answer, "content-type") == kind, "{accept}: {}", header(&answer, "content-type"));
            let document = answer.ok()?;
            ensure!(document["kind"] == "APIGroupDiscoveryList", "{document}");
            ensure!(document["apiVersion"] == format!("apidiscovery.k8s.io/{version}"), "{document}");
            let group = find(&document["items"], "/metadata/name", GROUP)?;
            let served = find(&group["versions"], "/version", VERSION)?;
            ensure!(served["freshness"] == "Current", "{served}");
            check_resources(&served["resources"])?;
        }
        let core = ask(&api, Method::GET, "/api", V2).await?.ok()?;
        ensure!(core["kind"] == "APIGroupDiscoveryList" && core["items"] == json!([]), "{core}");
        let unknown = "application/json;g=apidiscovery.k8s.io;v=v9;as=APIGroupDiscoveryList,application/json";
        let legacy = ask(&api, Method::GET, "/apis", unknown).await?;
        ensure!(
            header(&legacy, "content-type") == JSON && legacy.ok()?["kind"] == "APIGroupList",
            "no fallback"
        );
        Ok(())
    });
}

fn check_resources(resources: &Value) -> Result<()> {
    let states = find(resources, "/resource", "shootstates")?;
    ensure!(states["scope"] == "Namespaced" && states["singularResource"] == "shootstate", "{states}");
    ensure!(
        states["verbs"] == json!(VERBS) && states["shortNames"].is_null() | states["shortNames"].is_array(),
        "{states}"
    );
    let kind = json!({"group": GROUP, "version": VERSION, "kind": "ShootState"});
    ensure!(states["responseKind"] == kind, "{states}");
    for resource in resources.as_array().context("resources")? {
        ensure!(resource["responseKind"]["kind"].is_string(), "{resource}");
        for subresource in resource["subresources"].as_array().into_iter().flatten() {
            ensure!(subresource["subresource"].is_string() && subresource["verbs"].is_array(), "{resource}");
            ensure!(subresource["responseKind"]["kind"].is_string(), "{resource}");
        }
    }
    Ok(())
}

async fn with_tag(api: &Api, path: &str, accept: &str, tag: &str) -> Result<Answer> {
    send(api.request(Method::GET, path).header("Accept", accept).header("If-None-Match", tag)).await
}

#[test]
fn a_known_document_is_not_sent_again() {
    run(async |_| {
        let api = TestNamespace::new("discovery")?.api;
        let mut tags = Vec::new();
        for accept in [V2, V2BETA1] {
            let first = ask(&api, Method::GET, "/apis", accept).await?;
            let tag = header(&first, "etag").to_owned();
            ensure!(tag.len() > 2 && tag.starts_with('"') && tag.ends_with('"'), "the tag is {tag}");
            ensure!(header(&first, "vary").contains("Accept"), "Vary is {}", header(&first, "vary"));
            ensure!(header(&first, "cache-control") == "public", "{}", header(&first, "cache-control"));
            let known = with_tag(&api, "/apis", accept, &tag).await?;
            ensure!(known.status == 304 && known.body.is_empty() && header(&known, "etag") == tag, "{known}");
            let other = with_tag(&api, "/apis", accept, "\"0123\"").await?;
            ensure!(other.status == 200 && other.body == first.body, "{other}");
            tags.push(tag);
        }
        ensure!(tags[0] != tags[1], "two documents have one tag");
        // The front server asks for the old form with the tag of the new one.
        for path in [version_path(), group_path(), "/apis".to_owned()] {
            let legacy = with_tag(&api, &path, JSON, &tags[0]).await?;
            ensure!(legacy.status == 200, "{legacy}");
        }
        Ok(())
    });
}

#[test]
fn documents_are_equal_on_every_replica() {
    run(async |env| {
        let one = TestNamespace::new("discovery")?.api;
        let other = Dev::start(env, [""; 0]).await?;
        let other = other.api()?;
        let document = format!("/openapi/v3{}", version_path());
        for (path, accept) in [
            ("/apis", V2),
            ("/apis", JSON),
            (version_path().as_str(), JSON),
            ("/openapi/v2", JSON),
            ("/openapi/v3", JSON),
            (document.as_str(), JSON),
        ] {
            let (a, b) =
                (ask(&one, Method::GET, path, accept).await?, ask(&other, Method::GET, path, accept).await?);
            ensure!(a.status == 200 && a.body == b.body, "{path} differs");
            ensure!(header(&a, "etag") == header(&b, "etag"), "the tags of {path} differ");
        }
        Ok(())
    });
}

#[test]
fn verbs_that_are_listed_work() {
    run(async |_| {
        let place = TestNamespace::new("discovery-verbs")?;
        let created = place.create("a").await?;
        place.get("a").await?;
        place.list("").await?;
        ensure!(place.watch("", JSON).await?.next().await?["type"] == "ADDED", "no watch");
        ensure!(place.api.put(&place.one("a"), &created).await?.status == 200, "no update");
        let patch = json!({"metadata": {"labels": {"a": "b"}}});
        ensure!(place.api.patch(&place.one("a"), MERGE_PATCH, &patch).await?.status == 200, "no patch");
        ensure!(place.api.delete(&place.one("a")).await?.status == 200, "no delete");
        place.create("b").await?;
        ensure!(place.api.delete(&place.all("")).await?.status == 200, "no deletecollection");
        ensure!(place.list("").await?["items"] == json!([]), "it deleted nothing");
        Ok(())
    });
}

#[test]
fn what_is_not_served_is_not_found() {
    run(async |_| {
        let api = TestNamespace::new("discovery")?.api;
        let (other_version, other_resource) =
            (format!("{}/v9", group_path()), format!("{}/nothings", version_path()));
        let watch = format!("{}/watch/shootstates", version_path());
        for path in
            ["/apis/example.com/v1", &other_version, &other_resource, &watch, "/api/v1/pods", "/nothing"]
        {
            expect(&api.get(path).await?, 404, "NotFound")?;
        }
        Ok(())
    });
}

#[test]
fn the_version_has_all_its_fields() {
    run(async |_| {
        let version = TestNamespace::new("discovery")?.api.get("/version").await?.ok()?;
        for field in [
            "major",
            "minor",
            "gitVersion",
            "gitCommit",
            "gitTreeState",
            "buildDate",
            "goVersion",
            "compiler",
            "platform",
        ] {
            ensure!(version[field].is_string(), "{field} of {version}");
        }
        ensure!(version["gitVersion"].as_str().is_some_and(|text| text.starts_with('v')), "{version}");
        Ok(())
    });
}

#[test]
fn kube_apiserver_shows_the_group_as_current() {
    run(async |_| {
        let behind = Behind::value()?;
        let api = behind.garden.api();
        until("the group in aggregated discovery", Duration::from_secs(90), async || {
            let document = ask(api, Method::GET, "/apis", V2).await?.ok()?;
            let group = find(&document["items"], "/metadata/name", GROUP)?;
            let served = find(&group["versions"], "/version", VERSION)?;
            ensure!(served["freshness"] == "Current", "{served}");
            check_resources(&served["resources"])
        })
        .await?;
        let list = api.get(&version_path()).await?.ok()?;
        ensure!(find(&list["resources"], "/name", "shootstates")?["verbs"] == json!(VERBS), "{list}");
        Ok(())
    });
}
