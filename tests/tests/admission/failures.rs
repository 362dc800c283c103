//! Webhooks that do not answer, answer nonsense, or must not be asked.

use anyhow::ensure;
use repot_tests::run;
use repot_tests::webhook::Reply;
use serde_json::json;

use super::world::{TestNamespace, failure};

const FAILED: &str = "Internal error occurred: failed calling webhook";

#[test]
fn the_failure_policy_decides_what_a_failure_means() {
    run(async |_| {
        let place = TestNamespace::make("failing").await?;
        place.server.on("/fail", |asked| match asked.review["request"]["name"].as_str() {
            Some("slow") => Reply::Silence,
            Some("broken") => Reply::Raw(500, "boom".to_owned()),
            Some("html") => Reply::Raw(200, "<html>".to_owned()),
            Some("uid") => Reply::Response(json!({"uid": "another", "allowed": true})),
            Some("patch") => Reply::Response(json!({"allowed": true, "patchType": "JSONPatch"})),
            _ => Reply::allow(),
        });
        let names = ["slow", "broken", "html", "uid", "patch"];
        place.validating("failing", &[place.hook("/fail", &json!({"timeoutSeconds": 1}))]).await?;
        for name in names {
            let answer = place.create(name).await?;
            let (code, message) = failure(&answer)?;
            ensure!(
                code == 500 && message.starts_with(&format!("{FAILED} \"fail.example.com\": ")),
                "{name}: {answer}"
            );
            ensure!(answer.json()?["reason"] == "InternalError", "{answer}");
            ensure!(!place.exists(name).await?, "{name} was stored");
        }
        let slow = place.create("slow").await?;
        ensure!(failure(&slow)?.1.contains("context deadline exceeded"), "{slow}");
        let ignored = json!({"timeoutSeconds": 1, "failurePolicy": "Ignore"});
        place.server.on("/marker-two", |_| Reply::allow());
        place.world.garden.kubectl(["delete", "validatingwebhookconfiguration", "failing"]).await?.text()?;
        place.validating("failing-open", &[place.hook("/fail", &ignored)]).await?;
        // The old configuration may live on for a moment.
        repot_tests::wait::until(
            "failures to be passed over",
            std::time::Duration::from_secs(20),
            async || {
                place
                    .api
                    .post(&format!("{}?dryRun=All", place.collection()), &place.object("broken"))
                    .await?
                    .ok()
            },
        )
        .await?;
        for name in names {
            place.create(name).await?.ok()?;
        }
        Ok(())
    });
}

#[test]
fn a_webhook_that_cannot_be_reached_or_trusted_has_failed() {
    run(async |_| {
        let place = TestNamespace::make("unreachable").await?;
        let only = |name: &str| json!({"matchLabels": {"case": name}});
        let mut nobody = place.hook("/nobody", &json!({"objectSelector": only("nobody")}));
        nobody["clientConfig"]["service"]["port"] = repot_tests::port::reserve()?.into();
        let mut missing = place.hook("/missing", &json!({"objectSelector": only("missing")}));
        missing["clientConfig"]["service"]["name"] = "none".into();
        let mut stranger = place.hook("/stranger", &json!({"objectSelector": only("stranger")}));
        let other = repot_tests::pki::Ca::new("another")?;
        stranger["clientConfig"]["caBundle"] =
            base64::Engine::encode(&base64::engine::general_purpose::STANDARD, other.pem()).into();
        let mut url = place.hook("/url", &json!({"objectSelector": only("url")}));
        let ca = url["clientConfig"]["caBundle"].clone();
        url["clientConfig"] =
            json!({"url": format!("https://localhost:{}/url", place.server.port()), "caBundle": ca});
        place.validating("unreachable", &[nobody, missing, stranger, url]).await?;
        let labelled = |case: &str| {
            let mut object = place.object(case);
            object["metadata"]["labels"] = json!({"case": case});
            object
        };
        for case in ["nobody", "missing", "stranger"] {
            let answer = place.api.post(&place.collection(), &labelled(case)).await?;
            ensure!(failure(&answer)?.1.starts_with(FAILED), "{case}: {answer}");
            ensure!(place.server.asked(&format!("/{case}")).is_empty(), "{case} was asked all the same");
        }
        place.api.post(&place.collection(), &labelled("url")).await?.ok()?;
        ensure!(place.asked_about("/url", "url").len() == 1, "a url is not asked");
        Ok(())
    });
}

#[test]
fn a_dry_run_is_told_to_webhooks_and_stores_nothing() {
    run(async |_| {
        let place = TestNamespace::make("dry").await?;
        let with = |path: &str, effects: &str| place.hook(path, &json!({"sideEffects": effects}));
        let harmless = [with("/none", "None"), with("/none-on-dry-run", "NoneOnDryRun")];
        place.validating("dry", &harmless).await?;
        let dry = format!("{}?dryRun=All&fieldManager=me", place.collection());
        place.api.post(&dry, &place.object("a")).await?.ok()?;
        for path in ["/none", "/none-on-dry-run"] {
            let asked = place.asked_about(path, "a");
            ensure!(asked.len() == 1 && asked[0]["dryRun"] == true, "{path}: {asked:?}");
            let options = &asked[0]["options"];
            ensure!(
                options["dryRun"] == json!(["All"]) && options["fieldManager"] == "me",
                "{path}: {asked:?}"
            );
        }
        ensure!(!place.exists("a").await?, "a dry run stored something");
        // Without it the same webhooks are told so.
        place.create("a").await?.ok()?;
        for path in ["/none", "/none-on-dry-run"] {
            let asked = place.asked_about(path, "a");
            ensure!(asked.len() == 2 && asked[1]["dryRun"] == false, "{path}: {asked:?}");
        }
        // No other webhook is to be asked: kube-apiserver takes none, and one that it took in earlier times is refused by us
        // (`admission::hook`).
        for effects in ["Some", "Unknown"] {
            let configuration = json!({
                "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
                "metadata": {"name": "harmful"}, "webhooks": [with("/harmful", effects)],
            });
            let path = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
            let answer = place.api.post(path, &configuration).await?;
            ensure!(answer.status == 422, "{effects}: {answer}");
        }
        Ok(())
    });
}

#[test]
fn a_review_that_is_too_large_counts_as_a_failure() {
    run(async |_| {
        let place = TestNamespace::make("toolarge").await?;
        let mut object = place.object("large");
        let text = "x".repeat(13 << 20);
        object["spec"]["extensions"][0]["state"] = json!({"text": text});
        place.validating("toolarge", &[place.hook("/large", &json!({}))]).await?;
        // New, it fits; an update carries the old object beside the new one, and does not.
        place.api.post(&place.collection(), &object).await?.ok()?;
        let labels = json!({"metadata": {"labels": {"x": "y"}}});
        let answer = place.api.patch(&place.path("large"), super::world::MERGE, &labels).await?;
        let (code, message) = failure(&answer)?;
        ensure!(code == 500 && message.contains("--max-admission-review-bytes=25165824"), "{answer}");
        Ok(())
    });
}
