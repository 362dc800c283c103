//! Webhooks that change objects.

use anyhow::ensure;
use repot_tests::run;
use repot_tests::webhook::Reply;
use serde_json::{Value, json};

use super::world::{GROUP, MERGE, TestNamespace, failure};

fn label(key: &str, value: &str) -> Value {
    json!([{"op": "add", "path": format!("/metadata/labels/{key}"), "value": value}])
}

fn with_labels(place: &TestNamespace, name: &str) -> Value {
    let mut object = place.object(name);
    object["metadata"]["labels"] = json!({"app": "test"});
    object
}

#[test]
fn a_mutating_webhook_changes_what_is_created_and_updated() {
    run(async |_| {
        let place = TestNamespace::make("mutate").await?;
        place.server.on("/seen", |_| Reply::patch(&label("seen", "yes")));
        place.mutating("mutate", &[place.hook("/seen", &json!({}))]).await?;

        // Numbers and strings keep the spelling of their author, whatever the webhook does elsewhere.
        let opaque = r#"{"n":1.50,"e":1e3,"s":"\u0041"}"#;
        let text = with_labels(&place, "a").to_string().replace(r#"{"n":1}"#, opaque);
        let request = place.api.request(reqwest::Method::POST, &place.collection());
        let request = request.header("Content-Type", "application/json").body(text);
        let created = repot_tests::http::send(request).await?;
        ensure!(created.ok()?["metadata"]["labels"]["seen"] == "yes", "{created}");
        let read = place.api.get(&place.path("a")).await?;
        ensure!(String::from_utf8_lossy(&read.body).contains(opaque), "{read}");
        ensure!(read.ok()?["metadata"]["labels"]["seen"] == "yes", "{read}");

        let request = &place.asked_about("/seen", "a")[0];
        ensure!(request["operation"] == "CREATE" && request["oldObject"].is_null(), "{request}");
        ensure!(request["options"]["kind"] == "CreateOptions", "{request}");
        ensure!(request["userInfo"]["username"] == "admin", "{request}");
        ensure!(
            request["kind"] == request["requestKind"] && request["kind"]["kind"] == "ShootState",
            "{request}"
        );
        ensure!(request["resource"]["resource"] == "shootstates" && request["dryRun"] == false, "{request}");
        ensure!(request["namespace"] == "mutate" && request["name"] == "a", "{request}");

        // Metadata alone is patched, and yet the webhook sees the whole object.
        let patch = json!({"metadata": {"labels": {"seen": null, "more": "x"}}});
        let patched = place.api.patch(&place.path("a"), MERGE, &patch).await?.ok()?;
        ensure!(
            patched["metadata"]["labels"] == json!({"app": "test", "seen": "yes", "more": "x"}),
            "{patched}"
        );
        let request = &place.asked_about("/seen", "a")[1];
        ensure!(request["operation"] == "UPDATE", "{request}");
        ensure!(request["object"]["spec"] == request["oldObject"]["spec"], "{request}");
        ensure!(request["oldObject"]["metadata"]["uid"] == patched["metadata"]["uid"], "{request}");
        ensure!(request["options"]["kind"] == "UpdateOptions", "{request}");

        let mut whole = patched.clone();
        whole["spec"]["extensions"][0]["state"] = json!({"n": 2});
        let updated = place.api.put(&place.path("a"), &whole).await?.ok()?;
        ensure!(updated["metadata"]["generation"] == 2, "{updated}");
        ensure!(place.asked_about("/seen", "a").len() == 3, "PUT did not ask");
        Ok(())
    });
}

#[test]
fn mutating_webhooks_are_asked_by_configuration_name_and_again_where_they_want_it() {
    run(async |_| {
        let place = TestNamespace::make("order").await?;
        place.server.on("/first", |asked| {
            let seen = asked.review["request"]["object"]["metadata"]["labels"]["second"].is_string();
            Reply::patch(&label("first", if seen { "after" } else { "before" }))
        });
        place.server.on("/second", |_| Reply::patch(&label("second", "yes")));
        place.server.on("/third", |_| Reply::allow());
        let again = json!({"reinvocationPolicy": "IfNeeded"});
        let hooks = [place.hook("/second", &again), place.hook("/third", &json!({}))];
        place.mutating("order-b", &hooks).await?;
        place.mutating("order-a", &[place.hook("/first", &again)]).await?;

        let created = place.api.post(&place.collection(), &with_labels(&place, "a")).await?.ok()?;
        let labels = &created["metadata"]["labels"];
        ensure!(labels["first"] == "after" && labels["second"] == "yes", "{created}");
        let times = |path: &str| place.asked_about(path, "a").len();
        // The change of the second has the first asked again, and the change that the first then makes the second; there is
        // no third round, and who does not want to be asked again is not.
        let times = (times("/first"), times("/second"), times("/third"));
        ensure!(times == (2, 2, 1), "asked {times:?} times");
        Ok(())
    });
}

#[test]
fn what_a_webhook_makes_of_an_object_is_judged_again() {
    run(async |_| {
        let place = TestNamespace::make("judged").await?;
        place.server.on("/patch", |asked| {
            let name = asked.review["request"]["object"]["metadata"]["name"].clone();
            Reply::patch(&match name.as_str().unwrap_or_default() {
                "bad-label" => json!([{"op": "add", "path": "/metadata/labels", "value": {"a b": "c"}}]),
                "bad-type" => json!([{"op": "add", "path": "/metadata/labels", "value": 7}]),
                "bad-path" => json!([{"op": "remove", "path": "/spec/none"}]),
                "other-kind" => json!([{"op": "replace", "path": "/kind", "value": "Secret"}]),
                "other-namespace" => {
                    json!([{"op": "replace", "path": "/metadata/namespace", "value": "default"}])
                }
                "fields" => {
                    json!([{"op": "add", "path": "/metadata/managedFields", "value": [{"manager": "x"}]}])
                }
                _ => json!([]),
            })
        });
        place.mutating("judged", &[place.hook("/patch", &json!({"failurePolicy": "Ignore"}))]).await?;
        for (name, code) in [
            ("bad-label", 422),
            ("bad-type", 500),
            ("bad-path", 500),
            ("other-kind", 500),
            ("other-namespace", 400),
        ] {
            let answer = place.create(name).await?;
            ensure!(failure(&answer)?.0 == code, "{name}: {answer}");
            ensure!(!place.exists(name).await?, "{name} was stored");
        }
        let kept = place.create("fields").await?.ok()?;
        let managers = kept["metadata"]["managedFields"].as_array().cloned().unwrap_or_default();
        ensure!(managers.iter().all(|entry| entry["manager"] != "x"), "{kept}");
        Ok(())
    });
}

#[test]
fn only_what_the_selectors_choose_is_asked_about() {
    run(async |_| {
        let place = TestNamespace::make("selected").await?;
        place.world.garden.kubectl(["label", "namespace", "selected", "env=prod"]).await?.text()?;
        let prod = json!({"namespaceSelector": {"matchExpressions": [
            {"key": "kubernetes.io/metadata.name", "operator": "In", "values": ["selected"]},
            {"key": "env", "operator": "NotIn", "values": ["test"]},
        ]}});
        let test = json!({"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "selected", "env": "test"}}});
        let labelled = json!({"objectSelector": {"matchLabels": {"app": "test"}}});
        // Not of other groups: objects of the cluster, which kube-apiserver asks about, have no namespace to be told by.
        let creates = json!({"rules": [{"operations": ["CREATE"], "apiGroups": [GROUP], "apiVersions": ["*"], "resources": ["*/*"]}]});
        let others = json!({"rules": [{"operations": ["*"], "apiGroups": [GROUP], "apiVersions": ["*"], "resources": ["shootstates/status"]}]});
        let hooks = [
            place.hook("/prod", &prod),
            place.hook("/test", &test),
            place.hook("/labelled", &labelled),
            place.hook("/creates", &creates),
            place.hook("/others", &others),
        ];
        place.mutating("selected", &hooks).await?;
        place.api.post(&place.collection(), &with_labels(&place, "a")).await?.ok()?;
        // The label goes: the old object still has it.
        let gone = json!({"metadata": {"labels": {"app": null}}});
        place.api.patch(&place.path("a"), MERGE, &gone).await?.ok()?;
        place.api.patch(&place.path("a"), MERGE, &json!({"metadata": {"labels": {"x": "y"}}})).await?.ok()?;
        let times = |path: &str| place.asked_about(path, "a").len();
        for (path, expected) in
            [("/prod", 3), ("/test", 0), ("/labelled", 2), ("/creates", 1), ("/others", 0)]
        {
            ensure!(times(path) == expected, "{path} was asked {} times", times(path));
        }
        Ok(())
    });
}

#[test]
fn an_object_of_ten_mebibytes_passes_a_webhook() {
    run(async |_| {
        let place = TestNamespace::make("large").await?;
        place.server.on("/large", |_| {
            Reply::patch(&json!([{"op": "add", "path": "/metadata/labels", "value": {"seen": "yes"}}]))
        });
        place.mutating("large", &[place.hook("/large", &json!({}))]).await?;
        let mut object = place.object("large");
        let text = "x".repeat(1 << 20);
        object["spec"]["extensions"] = (0..10)
            .map(|n| json!({"kind": "Worker", "name": format!("w{n}"), "state": {"text": text}}))
            .collect();
        let created = place.api.post(&place.collection(), &object).await?.ok()?;
        ensure!(created["metadata"]["labels"]["seen"] == "yes", "the patch is missing");
        ensure!(created["spec"] == object["spec"], "the payload is another");
        let asked = &place.asked_about("/large", "large")[0];
        ensure!(asked["object"]["spec"] == object["spec"], "the webhook saw another payload");
        let patched = place
            .api
            .patch(&place.path("large"), MERGE, &json!({"metadata": {"labels": {"seen": "no"}}}))
            .await?;
        ensure!(patched.ok()?["metadata"]["labels"]["seen"] == "yes", "the update was not asked about");
        let asked = &place.asked_about("/large", "large")[1];
        ensure!(asked["object"]["spec"] == asked["oldObject"]["spec"], "old and new differ");
        Ok(())
    });
}

#[test]
fn a_generated_name_is_known_to_those_who_judge() {
    run(async |_| {
        let place = TestNamespace::make("generated").await?;
        place.mutating("generated", &[place.hook("/change", &json!({}))]).await?;
        place.validating("generated", &[place.hook("/judge", &json!({}))]).await?;
        let mut object = place.object("");
        object["metadata"] = json!({"generateName": "gen-", "namespace": place.namespace});
        let created = place.api.post(&place.collection(), &object).await?.ok()?;
        let name = created["metadata"]["name"].as_str().unwrap_or_default();
        ensure!(name.starts_with("gen-"), "{created}");
        let judged = place.asked_about("/judge", name);
        ensure!(judged.len() == 1 && judged[0]["name"] == name, "{judged:?}");
        ensure!(judged[0]["object"]["metadata"]["uid"] == created["metadata"]["uid"], "{judged:?}");
        let asked: Vec<Value> =
            place.server.asked("/change").into_iter().map(|asked| asked.review["request"].clone()).collect();
        ensure!(
            asked.iter().any(|request| request["name"].is_null()
                && request["object"]["metadata"]["generateName"] == "gen-"),
            "{asked:?}"
        );
        Ok(())
    });
}

#[test]
fn a_webhook_of_the_first_form_is_asked_in_it() {
    run(async |_| {
        let place = TestNamespace::make("beta").await?;
        place.server.on("/beta", |_| {
            Reply::patch(&json!([{"op": "add", "path": "/metadata/labels", "value": {"seen": "yes"}}]))
        });
        place
            .mutating(
                "beta",
                &[place.hook("/beta", &json!({"admissionReviewVersions": ["v1beta1"], "timeoutSeconds": 7}))],
            )
            .await?;
        let created = place.create("a").await?.ok()?;
        ensure!(created["metadata"]["labels"]["seen"] == "yes", "{created}");
        let asked = place.server.asked("/beta");
        ensure!(
            asked.iter().all(|asked| asked.review["apiVersion"] == "admission.k8s.io/v1beta1"),
            "another form"
        );
        ensure!(asked.iter().all(|asked| asked.query == "timeout=7s"), "another time");
        Ok(())
    });
}

#[test]
fn match_conditions_narrow_what_a_webhook_is_asked_about() {
    run(async |_| {
        let place = TestNamespace::make("conditions").await?;
        let when = |path: &str, policy: &str, expressions: &[&str]| {
            let conditions: Vec<Value> = expressions
                .iter()
                .enumerate()
                .map(|(n, text)| json!({"name": format!("c{n}"), "expression": text}))
                .collect();
            place.hook(path, &json!({"failurePolicy": policy, "matchConditions": conditions}))
        };
        let mine = "request.namespace == 'conditions'";
        let labelled = "has(object.metadata.labels) && object.metadata.labels['app'] == 'test'";
        let strict = "request.name != 'strict' || object.metadata.annotations['none'] == 'x'";
        let allowed = "authorizer.group('').resource('pods').check('get').allowed()";
        let hooks = [
            when("/labelled", "Fail", &[mine, labelled]),
            when("/payload", "Fail", &["object.spec.extensions.exists(e, e.state.n == 1)"]),
            when("/users", "Fail", &["!('system:masters' in request.userInfo.groups)"]),
            when("/unjudged", "Ignore", &[allowed]),
            when("/overruled", "Fail", &[allowed, "false"]),
            when("/strict", "Fail", &[strict, "request.name == 'strict'"]),
        ];
        place.mutating("conditions", &hooks).await?;
        place.create("plain").await?.ok()?;
        place.api.post(&place.collection(), &with_labels(&place, "labelled")).await?.ok()?;
        for (path, plain, labelled) in [
            ("/labelled", 0, 1),
            ("/payload", 1, 1),
            ("/users", 0, 0),
            ("/unjudged", 0, 0),
            ("/overruled", 0, 0),
        ] {
            let times = |name: &str| place.asked_about(path, name).len();
            ensure!((times("plain"), times("labelled")) == (plain, labelled), "{path} was asked otherwise");
        }
        let answer = place.create("strict").await?;
        let (code, message) = failure(&answer)?;
        ensure!(
            code == 403 && message.contains("match condition \"c0\": no such key: annotations"),
            "{answer}"
        );
        ensure!(!place.exists("strict").await?, "it was stored");
        Ok(())
    });
}
