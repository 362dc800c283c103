//! A real kube-apiserver answers for a kind of its own; we answer the same for ours.

use std::collections::BTreeSet;

use anyhow::{Context, Result, ensure};
use repot_tests::http::{Answer, Api, send};
use repot_tests::run;
use reqwest::Method;
use serde_json::{Value, json};

use super::namespace::{Behind, JSON, JSON_PATCH, MERGE_PATCH, TestNamespace};

/// A kind in a namespace of the garden.
pub(super) struct Twin {
    api: Api,
    collection: String,
    template: Value,
}

impl Twin {
    /// ConfigMaps, which kube-apiserver serves, and ShootStates, which we serve through it.
    pub(super) async fn both(namespace: &str) -> Result<[Self; 2]> {
        let garden = &Behind::value()?.garden;
        garden.kubectl(["create", "namespace", namespace]).await?.text()?;
        let place = TestNamespace::of(garden.api().clone(), namespace);
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"a": "b"}});
        let maps = format!("/api/v1/namespaces/{namespace}/configmaps");
        let twin = |collection: String, mut template: Value| {
            template["metadata"] = json!({});
            Self { api: garden.api().clone(), collection, template }
        };
        Ok([twin(maps, map), twin(place.all(""), place.object(""))])
    }

    pub(super) fn object(&self, name: &str, metadata: &Value) -> Value {
        let mut object = self.template.clone();
        object["metadata"] = metadata.clone();
        object["metadata"]["name"] = json!(name);
        object
    }

    pub(super) async fn create(&self, name: &str, metadata: &Value) -> Result<Value> {
        self.api.post(&self.collection, &self.object(name, metadata)).await?.ok()
    }

    pub(super) async fn call(
        &self,
        method: Method,
        path: &str,
        content_type: &str,
        body: Option<Value>,
    ) -> Result<Answer> {
        let request = self.api.request(method, &format!("{}{path}", self.collection));
        let request = request.header("Content-Type", content_type).header("Accept", JSON);
        send(match body {
            Some(body) => request.body(body.to_string()),
            None => request,
        })
        .await
    }
}

/// What may not differ between two answers.
fn essence(answer: &Answer) -> Result<Value> {
    let body = answer.json()?;
    let status = body["kind"] == "Status";
    // Some are said more than once, since kinds of their own check metadata again.
    let list = |value: &Value, key: &str| -> BTreeSet<String> {
        value.as_array().into_iter().flatten().map(|cause| cause[key].to_string()).collect()
    };
    let causes = &body["details"]["causes"];
    let meta = &body["metadata"];
    Ok(json!({
        "code": answer.status,
        "retry": answer.headers.contains_key("retry-after"),
        "outcome": if status { body["status"].clone() } else { json!("object") },
        "reason": body["reason"],
        "causes": list(causes, "reason"),
        "fields": list(causes, "field"),
        "deleting": meta["deletionTimestamp"].is_string(),
        "grace": meta["deletionGracePeriodSeconds"],
        "finalizers": meta["finalizers"],
        "warnings": answer.headers.get_all("warning").iter().count(),
    }))
}

pub(super) fn same(what: &str, one: &Answer, other: &Answer) -> Option<String> {
    match (essence(one), essence(other)) {
        (Ok(a), Ok(b)) if a == b => None,
        (Ok(a), Ok(b)) => Some(format!("{what}\n  theirs: {a}\n  ours:   {b}\n  {other}")),
        (a, b) => Some(format!("{what}: {a:?} {b:?}")),
    }
}

pub(super) fn judge(differences: Vec<String>) -> Result<()> {
    ensure!(differences.is_empty(), "{} answers differ:\n{}", differences.len(), differences.join("\n"));
    Ok(())
}

#[test]
fn reads_are_refused_as_for_a_built_in_kind() {
    run(async |_| {
        let twins = Twin::both("alike-reads").await?;
        for twin in &twins {
            twin.create("a", &json!({"labels": {"a": "b"}})).await?;
        }
        let mut differences = Vec::new();
        for query in [
            "?limit=x",
            "?limit=1&continue=x",
            "?continue=e30",
            "?resourceVersion=x",
            "?resourceVersion=-1",
            "?resourceVersionMatch=Exact",
            "?resourceVersionMatch=Other",
            "?resourceVersion=0&resourceVersionMatch=Exact",
            "?resourceVersion=1&resourceVersionMatch=Other",
            "?resourceVersion=1&resourceVersionMatch=Exact&continue=x",
            "?sendInitialEvents=true",
            "?sendInitialEvents=false",
            "?sendInitialEvents=true&resourceVersionMatch=NotOlderThan",
            "?watch=true&sendInitialEvents=true",
            "?watch=true&sendInitialEvents=true&resourceVersionMatch=Exact",
            "?watch=true&resourceVersionMatch=NotOlderThan",
            "?watch=true&resourceVersionMatch=Exact&resourceVersion=1",
            "?labelSelector=a%20b",
            "?labelSelector=a%20in%20(b",
            "?labelSelector=a%3Db%20c",
            "?fieldSelector=spec.x%3D1",
            "?fieldSelector=metadata.uid%3D1",
            "?fieldSelector=metadata.name",
            "?watch=true&fieldSelector=spec.x%3D1",
            "?timeout=x",
            "?timeoutSeconds=x&watch=true",
            "?resourceVersion=99999999999",
            "/missing",
            "/a?resourceVersion=99999999999",
            "/a/nothing",
        ] {
            let [one, other] = &twins;
            let (a, b) = tokio::join!(
                one.call(Method::GET, query, JSON, None),
                other.call(Method::GET, query, JSON, None)
            );
            differences.extend(same(query, &a?, &b?));
        }
        judge(differences)
    });
}

#[test]
fn writes_are_refused_as_for_a_built_in_kind() {
    run(async |_| {
        let twins = Twin::both("alike-writes").await?;
        let mut differences = Vec::new();
        let mut answers = Vec::new();
        for twin in &twins {
            answers.push(writes(twin).await?);
        }
        for ((what, one), (_, other)) in answers[0].iter().zip(&answers[1]) {
            differences.extend(same(what, one, other));
        }
        judge(differences)
    });
}

async fn writes(twin: &Twin) -> Result<Vec<(String, Answer)>> {
    let created = twin.create("a", &json!({})).await?;
    twin.create("held", &json!({"finalizers": ["example.com/held"]})).await?;
    twin.api.delete(&format!("{}/held", twin.collection)).await?.ok()?;
    let with = |metadata: Value| Some(twin.object("b", &metadata));
    let changed = |metadata: Value| {
        let mut object = created.clone();
        for (key, value) in metadata.as_object().into_iter().flatten() {
            object["metadata"][key] = value.clone();
        }
        Some(object)
    };
    let (post, put, patch) = (Method::POST, Method::PUT, Method::PATCH);
    let owner = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "o", "uid": "1", "controller": true});
    let second =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "p", "uid": "2", "controller": true});
    let uid = "00000000-0000-4000-8000-000000000000";
    let cases = vec![
        (&post, "", JSON, Some(twin.object("a", &json!({})))),
        (&post, "", JSON, Some(twin.object("held", &json!({})))),
        (&post, "", JSON, Some(twin.object("Upper", &json!({})))),
        (&post, "", JSON, Some(twin.object("", &json!({})))),
        (&post, "", JSON, with(json!({"namespace": "elsewhere"}))),
        (&post, "", JSON, with(json!({"labels": {"a b": "c"}}))),
        (&post, "", JSON, with(json!({"labels": {"a": "b c"}}))),
        (&post, "", JSON, with(json!({"annotations": {"a b": "c"}}))),
        (&post, "", JSON, with(json!({"annotations": {"a": "x".repeat(257 << 10)}}))),
        (&post, "", JSON, with(json!({"finalizers": ["a/b/c"]}))),
        (&post, "", JSON, with(json!({"ownerReferences": [{"apiVersion": "v1"}]}))),
        (&post, "", JSON, with(json!({"ownerReferences": [owner, second]}))),
        (&post, "?dryRun=All", JSON, with(json!({"ownerReferences": [owner, owner]}))),
        (&post, "?dryRun=Some", JSON, with(json!({}))),
        (&post, "?fieldValidation=Other", JSON, with(json!({}))),
        (&post, "?fieldManager=a%07b", JSON, with(json!({}))),
        (&post, "?dryRun=All&fieldValidation=Strict", JSON, with(json!({"unknown": 1}))),
        (&post, "?dryRun=All", JSON, with(json!({"unknown": 1}))),
        (&post, "", "text/plain", with(json!({}))),
        (&post, "", JSON, Some(json!([]))),
        (&post, "", JSON, Some(json!({"kind": "Secret", "apiVersion": "v1"}))),
        (&post, "/a", JSON, with(json!({}))),
        (&put, "/a", JSON, with(json!({}))),
        (&put, "/b", JSON, with(json!({"resourceVersion": "1"}))),
        (&put, "/a", JSON, changed(json!({"resourceVersion": "1"}))),
        (&put, "/a", JSON, changed(json!({"uid": uid}))),
        (&put, "/a", JSON, changed(json!({"namespace": "elsewhere"}))),
        (&put, "/a", JSON, changed(json!({"labels": {"a": "b c"}}))),
        (&put, "", JSON, changed(json!({}))),
        (&put, "/a?dryRun=All", JSON, changed(json!({}))),
        (&patch, "/a", "text/plain", Some(json!({}))),
        (&patch, "/a", MERGE_PATCH, Some(json!({"metadata": {"name": "b"}}))),
        (&patch, "/a", MERGE_PATCH, Some(json!({"metadata": {"namespace": "b"}}))),
        (&patch, "/a", MERGE_PATCH, Some(json!({"metadata": {"resourceVersion": "1"}}))),
        (&patch, "/a", MERGE_PATCH, Some(json!({"metadata": {"uid": uid}}))),
        (&patch, "/a", MERGE_PATCH, Some(json!({"metadata": {"labels": {"a": "b c"}}}))),
        (&patch, "/a", MERGE_PATCH, Some(json!({"metadata": 1}))),
        (&patch, "/a", MERGE_PATCH, Some(json!([]))),
        (&patch, "/a?force=true", MERGE_PATCH, Some(json!({}))),
        (&patch, "/a", JSON_PATCH, Some(json!({}))),
        (&patch, "/a", JSON_PATCH, Some(json!([{"op": "jump", "path": "/kind"}]))),
        (&patch, "/a", JSON_PATCH, Some(json!([{"op": "test", "path": "/kind", "value": "Other"}]))),
        (&patch, "/a", JSON_PATCH, Some(json!([{"op": "remove", "path": "/nowhere"}]))),
        (&patch, "/a", JSON_PATCH, Some(json!([{"op": "replace", "path": "/kind", "value": "Other"}]))),
        (&patch, "/missing", MERGE_PATCH, Some(json!({}))),
        (&patch, "", MERGE_PATCH, Some(json!({}))),
        (
            &patch,
            "/held",
            MERGE_PATCH,
            Some(json!({"metadata": {"finalizers": ["example.com/new", "example.com/held"]}})),
        ),
        (&patch, "/a?dryRun=All&fieldValidation=Strict", MERGE_PATCH, Some(json!({"unknown": 1}))),
        (&patch, "/a?dryRun=All", MERGE_PATCH, Some(json!({"unknown": 1}))),
    ];
    let mut answers = Vec::new();
    for (method, path, content_type, body) in cases {
        let shown: String =
            body.as_ref().map(Value::to_string).unwrap_or_default().chars().take(160).collect();
        let what = format!("{method} {path} {shown}");
        answers.push((what, twin.call(method.clone(), path, content_type, body).await?));
    }
    Ok(answers)
}

#[test]
fn deletions_go_as_those_of_a_built_in_kind() {
    run(async |_| {
        let twins = Twin::both("alike-deletes").await?;
        let options = |text: &str| serde_json::from_str::<Value>(text).context(text.to_owned());
        let first = [
            "{}",
            r#"{"propagationPolicy":"Orphan"}"#,
            r#"{"propagationPolicy":"Foreground"}"#,
            r#"{"propagationPolicy":"Background"}"#,
            r#"{"orphanDependents":true}"#,
            r#"{"orphanDependents":false}"#,
            r#"{"gracePeriodSeconds":-1}"#,
            r#"{"propagationPolicy":"Other"}"#,
            r#"{"propagationPolicy":"Orphan","orphanDependents":true}"#,
            r#"{"preconditions":{"uid":"other"}}"#,
            r#"{"dryRun":["All"],"propagationPolicy":"Foreground"}"#,
            r#"{"dryRun":["Some"]}"#,
            r#"{"kind":"Secret","apiVersion":"v1"}"#,
        ];
        let second = [first[0], first[1], first[2], first[3], first[5]];
        let mut differences = Vec::new();
        for (m, finalizers) in
            [json!([]), json!(["example.com/held"]), json!(["orphan", "example.com/held"])].iter().enumerate()
        {
            for (i, one) in first.iter().enumerate() {
                for (j, other) in second.iter().enumerate() {
                    let name = format!("s-{m}-{i}-{j}");
                    let mut answers = Vec::new();
                    for twin in &twins {
                        twin.create(&name, &json!({"finalizers": finalizers})).await?;
                        let path = format!("/{name}");
                        let a = twin.call(Method::DELETE, &path, JSON, Some(options(one)?)).await?;
                        let b = twin.call(Method::DELETE, &path, JSON, Some(options(other)?)).await?;
                        answers.push((a, b, twin.call(Method::GET, &path, JSON, None).await?));
                    }
                    let what = format!("{finalizers}: DELETE {one}");
                    let (theirs, ours) = (&answers[0], &answers[1]);
                    differences.extend(same(&what, &theirs.0, &ours.0));
                    differences.extend(same(&format!("{what}, then {other}"), &theirs.1, &ours.1));
                    differences.extend(same(&format!("{what}, then {other}, then GET"), &theirs.2, &ours.2));
                }
            }
        }
        judge(differences)
    });
}
