//! Webhooks that only judge.

use anyhow::ensure;
use repot_tests::run;
use repot_tests::webhook::Reply;
use serde_json::{Value, json};

use super::world::{MERGE, TestNamespace, failure, warnings};

#[test]
fn a_denial_reaches_the_client_with_its_code_and_words() {
    run(async |_| {
        let place = TestNamespace::make("denied").await?;
        place.server.on("/judge", |asked| match asked.review["request"]["name"].as_str() {
            Some("plain") => Reply::deny("not today"),
            Some("coded") => Reply::Response(json!({
                "allowed": false, "warnings": ["mind the gap"],
                "status": {"code": 403, "reason": "Forbidden", "message": "no", "details": {"causes": [{"field": "spec"}]}},
            })),
            Some("silent") => Reply::Response(json!({"allowed": false})),
            _ => Reply::Response(json!({"allowed": true, "warnings": ["be careful"]})),
        });
        place.validating("denied", &[place.hook("/judge", &json!({}))]).await?;
        let name = "admission webhook \"judge.example.com\" denied the request";
        for (object, code, message) in [
            ("plain", 400, format!("{name}: not today")),
            ("coded", 403, format!("{name}: no")),
            ("silent", 400, format!("{name} without explanation")),
        ] {
            let answer = place.create(object).await?;
            ensure!(failure(&answer)? == (code, message), "{answer}");
            ensure!(!place.exists(object).await?, "{object} was stored");
        }
        let coded = place.create("coded").await?;
        ensure!(coded.json()?["details"]["causes"][0]["field"] == "spec", "{coded}");
        ensure!(warnings(&coded) == ["299 - \"mind the gap\""], "{:?}", warnings(&coded));
        let good = place.create("good").await?;
        ensure!(good.status == 201 && warnings(&good) == ["299 - \"be careful\""], "{good}");
        Ok(())
    });
}

#[test]
fn all_validating_webhooks_are_asked_about_every_kind_of_write() {
    run(async |_| {
        let place = TestNamespace::make("writes").await?;
        let hooks = [place.hook("/one", &json!({})), place.hook("/two", &json!({}))];
        place.validating("writes", &hooks).await?;
        let created = place.create("a").await?.ok()?;
        place.api.patch(&place.path("a"), MERGE, &json!({"metadata": {"labels": {"x": "y"}}})).await?.ok()?;
        place.api.delete(&format!("{}?propagationPolicy=Background", place.path("a"))).await?.ok()?;
        for path in ["/one", "/two"] {
            let asked = place.asked_about(path, "a");
            let operations: Vec<&Value> = asked.iter().map(|request| &request["operation"]).collect();
            ensure!(operations == ["CREATE", "UPDATE", "DELETE"], "{operations:?}");
            let removal = &asked[2];
            ensure!(removal["object"].is_null(), "{removal}");
            ensure!(removal["oldObject"]["metadata"]["uid"] == created["metadata"]["uid"], "{removal}");
            ensure!(removal["oldObject"]["spec"] == created["spec"], "{removal}");
            ensure!(removal["options"]["propagationPolicy"] == "Background", "{removal}");
        }
        Ok(())
    });
}

#[test]
fn a_webhook_can_keep_objects_from_being_deleted() {
    run(async |_| {
        let place = TestNamespace::make("keep").await?;
        place.server.on("/keep", |asked| {
            let labels = &asked.review["request"]["oldObject"]["metadata"]["labels"];
            if labels["keep"] == "yes" { Reply::deny("kept") } else { Reply::allow() }
        });
        let deletes = json!({"rules": [{"operations": ["DELETE"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["shootstates"]}]});
        place.mutating("keep", &[place.hook("/change", &deletes)]).await?;
        place.validating("keep", &[place.hook("/keep", &deletes)]).await?;
        let mut kept = place.object("kept");
        kept["metadata"]["labels"] = json!({"keep": "yes"});
        place.api.post(&place.collection(), &kept).await?.ok()?;
        place.create("other").await?.ok()?;
        ensure!(
            failure(&place.api.delete(&place.path("kept")).await?)?.1.ends_with("kept"),
            "another answer"
        );
        // Each object of a collection is asked about by its name.
        let answer = place.api.delete(&place.collection()).await?;
        ensure!(failure(&answer)?.1.ends_with("kept"), "{answer}");
        ensure!(place.exists("kept").await?, "it was deleted all the same");
        ensure!(place.asked_about("/keep", "kept").len() == 2, "not asked twice");
        ensure!(
            place.asked_about("/change", "kept").len() == 2,
            "a mutating webhook was not asked about a deletion"
        );
        Ok(())
    });
}

#[test]
fn a_mutation_is_seen_by_those_who_judge() {
    run(async |_| {
        let place = TestNamespace::make("both").await?;
        place.server.on("/change", |_| {
            Reply::patch(&json!([{"op": "add", "path": "/metadata/labels", "value": {"team": "x"}}]))
        });
        place.server.on("/require", |asked| {
            let team = &asked.review["request"]["object"]["metadata"]["labels"]["team"];
            if team == "x" { Reply::allow() } else { Reply::deny("a team is required") }
        });
        place.validating("both", &[place.hook("/require", &json!({}))]).await?;
        ensure!(failure(&place.create("a").await?)?.1.ends_with("a team is required"), "another answer");
        place.mutating("both", &[place.hook("/change", &json!({}))]).await?;
        place.create("a").await?.ok()?;
        Ok(())
    });
}
