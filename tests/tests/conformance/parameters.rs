//! Parameters without a value, and with odd ones: they mean what they mean to a real kube-apiserver.

use anyhow::{Result, ensure};
use repot_tests::http::Answer;
use repot_tests::run;
use reqwest::Method;
use serde_json::{Value, json};

use super::alike::{Twin, judge, same};
use super::namespace::{JSON, MERGE_PATCH};

const APPLY: &str = "application/apply-patch+yaml";

/// Sends the same to both, and gathers where the answers differ.
async fn compare(
    twins: &[Twin; 2],
    method: Method,
    path: &str,
    content_type: &str,
    body: impl Fn(&Twin) -> Option<Value>,
) -> Result<(Option<String>, Answer)> {
    let [one, other] = twins;
    let theirs = one.call(method.clone(), path, content_type, body(one)).await?;
    let ours = other.call(method.clone(), path, content_type, body(other)).await?;
    Ok((same(&format!("{method} {path}"), &theirs, &ours), ours))
}

#[test]
fn an_empty_dry_run_is_refused_and_writes_nothing() {
    run(async |_| {
        let twins = Twin::both("alike-dry-runs").await?;
        for twin in &twins {
            twin.create("a", &json!({})).await?;
        }
        let labels = json!({"labels": {"written": "yes"}});
        let mut differences = Vec::new();
        for query in ["dryRun=", "dryRun", "dryRun=All&dryRun=", "dryRun=all"] {
            let put = |twin: &Twin| Some(twin.object("a", &labels));
            let new = |twin: &Twin| Some(twin.object("new", &labels));
            let patch = |_: &Twin| Some(json!({"metadata": labels}));
            for (method, path, content_type, body) in [
                (Method::POST, format!("?{query}"), JSON, &new as &dyn Fn(&Twin) -> Option<Value>),
                (Method::PUT, format!("/a?{query}"), JSON, &put),
                (Method::PATCH, format!("/a?{query}"), MERGE_PATCH, &patch),
                (Method::PATCH, format!("/a?{query}&fieldManager=m"), APPLY, &put),
                (Method::PATCH, format!("/new?{query}&fieldManager=m"), APPLY, &new),
                (Method::DELETE, format!("/a?{query}"), JSON, &|_| None),
                (Method::DELETE, format!("/missing?{query}"), JSON, &|_| None),
                (Method::DELETE, format!("?{query}"), JSON, &|_| None),
            ] {
                let (difference, ours) = compare(&twins, method, &path, content_type, body).await?;
                ensure!(ours.status == 422, "{ours}");
                differences.extend(difference);
            }
        }
        for options in [json!({"dryRun": [""]}), json!({"dryRun": ["All", ""]})] {
            for path in ["/a", "/missing", ""] {
                let body = |_: &Twin| Some(options.clone());
                let (difference, ours) = compare(&twins, Method::DELETE, path, JSON, body).await?;
                ensure!(ours.status == 422, "{ours}");
                differences.extend(difference);
            }
        }
        for twin in &twins {
            let list = twin.call(Method::GET, "", JSON, None).await?.ok()?;
            let items = list["items"].as_array().map(Vec::as_slice).unwrap_or_default();
            let names: Vec<_> = items.iter().map(|item| &item["metadata"]["name"]).collect();
            ensure!(names.contains(&&json!("a")) && !names.contains(&&json!("new")), "{names:?}");
            ensure!(items.iter().all(|item| item["metadata"]["labels"]["written"].is_null()), "{list}");
        }
        judge(differences)
    });
}

#[test]
fn parameters_without_a_value_mean_what_they_mean_to_kube_apiserver() {
    run(async |_| {
        let twins = Twin::both("alike-empty").await?;
        for twin in &twins {
            twin.create("a", &json!({"labels": {"a": "b"}})).await?;
        }
        let mut differences = Vec::new();
        for query in [
            "limit=",
            "limit",
            "timeoutSeconds=",
            "timeoutSeconds=x",
            "continue=",
            "resourceVersion=",
            "resourceVersionMatch=",
            "resourceVersion=&resourceVersionMatch=",
            "labelSelector=",
            "fieldSelector=",
            "watch=false",
            "watch=False",
            "watch=0",
            "sendInitialEvents=",
            "sendInitialEvents=perhaps",
            "allowWatchBookmarks=perhaps",
            "timeout=",
            "pretty=",
            "pretty=perhaps",
        ] {
            let path = format!("?{query}");
            differences.extend(compare(&twins, Method::GET, &path, JSON, |_| None).await?.0);
        }
        let long = "x".repeat(129);
        let wide = "é".repeat(65);
        for query in [
            "fieldManager=".to_owned(),
            "fieldValidation=".to_owned(),
            format!("fieldManager={long}"),
            format!("fieldManager={wide}"),
            "fieldManager=a%C2%A0b".to_owned(),
            "fieldManager=a%20b".to_owned(),
            format!("fieldManager={long}&fieldValidation=Other&dryRun=Some"),
        ] {
            let path = format!("?dryRun=All&{query}");
            differences.extend(
                compare(&twins, Method::POST, &path, JSON, |t| Some(t.object("n", &json!({})))).await?.0,
            );
        }
        for (query, content_type) in [
            ("force=", MERGE_PATCH),
            ("fieldManager=", APPLY),
            ("fieldManager=m&force=", APPLY),
            ("fieldManager=m&force=maybe", APPLY),
        ] {
            let (path, body) = (format!("/a?dryRun=All&{query}"), |t: &Twin| Some(t.object("a", &json!({}))));
            differences.extend(compare(&twins, Method::PATCH, &path, content_type, body).await?.0);
        }
        for query in [
            "gracePeriodSeconds=",
            "gracePeriodSeconds=x",
            "propagationPolicy=",
            "propagationPolicy=&orphanDependents=",
            "orphanDependents=",
            "orphanDependents=perhaps",
            "uid=",
            "resourceVersion=",
        ] {
            let path = format!("/a?dryRun=All&{query}");
            differences.extend(compare(&twins, Method::DELETE, &path, JSON, |_| None).await?.0);
        }
        judge(differences)
    });
}

#[test]
fn what_is_meant_for_another_object_is_refused_as_for_a_built_in_kind() {
    run(async |_| {
        let twins = Twin::both("alike-uids").await?;
        for twin in &twins {
            twin.create("a", &json!({})).await?;
        }
        let uid = "00000000-0000-4000-8000-000000000000";
        let mut differences = Vec::new();
        for meta in [json!({"uid": uid}), json!({"uid": uid, "resourceVersion": "1"})] {
            let body = |twin: &Twin| Some(twin.object("a", &meta));
            for (method, path, content_type) in [
                (Method::PUT, "/a", JSON),
                (Method::PUT, "/a?dryRun=All", JSON),
                (Method::PATCH, "/a?fieldManager=m", APPLY),
                (Method::PATCH, "/missing?fieldManager=m", APPLY),
                (Method::PATCH, "/a", MERGE_PATCH),
            ] {
                let sent = |twin: &Twin| {
                    let mut object = body(twin)?;
                    object["metadata"]["name"] = json!(path[1..].split('?').next());
                    Some(object)
                };
                differences.extend(compare(&twins, method, path, content_type, sent).await?.0);
            }
        }
        let options = json!({"preconditions": {"uid": uid}});
        for path in ["/a", ""] {
            let body = |_: &Twin| Some(options.clone());
            differences.extend(compare(&twins, Method::DELETE, path, JSON, body).await?.0);
        }
        judge(differences)
    });
}
