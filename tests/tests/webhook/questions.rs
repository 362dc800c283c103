//! Questions put to the server directly, as kube-apiserver puts them: good, large, broken, from strangers, and about facts that do
//! not come.

use std::path::Path;

use anyhow::{Context, ensure};
use repot_tests::access::{Access, Credential};
use repot_tests::http::{Api, send};
use repot_tests::pki::{Ca, Leaf};
use repot_tests::relay::Relay;
use repot_tests::run;
use reqwest::{Client, Method};
use serde_json::{Value, json};

use super::serving::direct;
use super::world::{self, TestNamespace, mk_shoot};

/// The question about an update of a Shoot, as kube-apiserver puts it.
pub fn review(object: Value, old: Value) -> Value {
    json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
        "uid": "7", "operation": "UPDATE", "namespace": "direct", "name": "one",
        "kind": {"group": "core.gardener.cloud", "version": "v1beta1", "kind": "Shoot"},
        "resource": {"group": "core.gardener.cloud", "version": "v1beta1", "resource": "shoots"},
        "userInfo": {"username": "u"}, "object": object, "oldObject": old,
    }})
}

#[test]
fn questions_are_answered_over_both_versions_of_http_and_bad_ones_by_a_code() {
    run(async |_| {
        let world = world::shared()?;
        let access = Access {
            server: world.url.clone(),
            ca_pem: world.garden.pki().serving.pem(),
            credential: Credential::Anonymous,
        };
        let one = Api::build(&access, Client::builder().http1_only())?;
        let two = Api::build(&access, Client::builder().http2_prior_knowledge())?;
        let shoot = mk_shoot("direct", "one", "a");
        let mut zone = shoot.clone();
        zone["metadata"]["annotations"] = json!({"shoot.gardener.cloud/isolated-zone": "No Zone"});
        for api in [&one, &two] {
            let answer = api
                .post("/validate-markers?timeout=10s", &review(zone.clone(), shoot.clone()))
                .await?
                .ok()?;
            let response = &answer["response"];
            ensure!(
                answer["apiVersion"] == "admission.k8s.io/v1" && answer["kind"] == "AdmissionReview",
                "{answer}"
            );
            ensure!(
                response["uid"] == "7" && response["allowed"] == false && response["status"]["code"] == 403,
                "{answer}"
            );
            ensure!(response["auditAnnotations"]["refused-by"] == "zone-form", "{answer}");
            let filled = api.post("/mutate-shoots", &review(zone.clone(), shoot.clone())).await?.ok()?;
            ensure!(
                filled["response"]["patchType"] == "JSONPatch" && filled["response"]["patch"].is_string(),
                "{filled}"
            );
        }
        let post = |path: &str, body: Vec<u8>| send(one.request(Method::POST, path).body(body));
        for (path, body, code) in [
            ("/validate-markers", b"{}".to_vec(), 400),
            ("/validate-markers", b"no JSON".to_vec(), 400),
            ("/validate-nothing", b"{}".to_vec(), 404),
            ("/validate-markers", vec![b' '; 33 << 20], 413),
        ] {
            let answer = post(path, body).await?;
            ensure!(answer.status == code, "{answer}");
        }
        ensure!(one.get("/validate-markers").await?.status == 405, "GET is no review");
        // Two objects of three MiB.
        let large = |mut shoot: Value| {
            shoot["spec"]["filler"] = json!("x".repeat(3 << 20));
            shoot
        };
        let answer = one.post("/validate-markers", &review(large(zone), large(shoot))).await?.ok()?;
        ensure!(answer["response"]["allowed"] == false, "{answer}");
        for path in ["/livez", "/healthz", "/readyz"] {
            ensure!(one.get(path).await?.status == 200, "{path}");
        }
        let metrics = one.get("/metrics").await?;
        let text = String::from_utf8_lossy(&metrics.body);
        for line in [
            "repot_webhook_reviews_total{code=\"200\",path=\"/validate-markers\",verdict=\"refused\"}",
            "repot_webhook_findings_total{rule=\"zone-form\",verdict=\"refuse\"}",
            "repot_webhook_review_duration_seconds_count{path=\"/mutate-shoots\"}",
        ] {
            ensure!(text.contains(line), "{line} is not in the metrics: {text}");
        }
        Ok(())
    });
}

#[test]
fn a_binding_is_the_way_where_there_is_one() {
    run(async |_| {
        // A small stand-in has no subresource of this name, so the question is put as kube-apiserver would put it.
        let place = TestNamespace::make("bindings").await?;
        let world = &place.world;
        let api = direct(&world.url, &world.garden.pki().serving.pem(), Credential::Anonymous)?;
        let mut question = review(place.shoot("one"), place.shoot("one"));
        question["request"]["subResource"] = json!("binding");
        let answer = api.post("/validate-seed-change", &question).await?.ok()?;
        let said = answer["response"]["status"]["message"].as_str().context("a message")?;
        ensure!(
            said.contains("the Shoot is assigned to seed \"bindings-a\" already")
                && said.contains("(different-seed)"),
            "{said}"
        );
        question["request"]["object"]["spec"]["seedName"] = json!("bindings-b");
        let answer = api.post("/validate-seed-change", &question).await?.ok()?;
        ensure!(answer["response"]["allowed"] == true, "{answer}");
        Ok(())
    });
}

#[test]
fn reviews_are_taken_from_known_clients_only_where_that_is_asked_for() {
    run(async |env| {
        let (garden, _) = world::garden(env).await?;
        let (ours, theirs) = (Ca::new("webhook-clients")?, Ca::new("other-clients")?);
        let dir = env.make_dir("clients")?;
        let file = dir.join("ca.crt");
        std::fs::write(&file, ours.pem())?;
        let facts = env.make_dir("facts")?;
        let args = [
            format!("--client-ca-file={}", file.display()),
            format!("--facts={}", Path::new(&facts).display()),
        ];
        let repot = world::webhook(env, &garden, &dir, &args).await?;
        let ca_pem = garden.pki().serving.pem();
        let client = |leaf: Leaf| direct(repot.url(), &ca_pem, Credential::Certificate(leaf));
        let question = review(mk_shoot("d", "one", "a"), mk_shoot("d", "one", "a"));
        for (api, code) in [
            (direct(repot.url(), &ca_pem, Credential::Anonymous)?, 401),
            (client(theirs.client("kube-apiserver", &[])?)?, 401),
            (client(ours.client("kube-apiserver", &[])?)?, 200),
        ] {
            let answer = api.post("/validate-markers", &question).await?;
            ensure!(answer.status == code, "{answer}");
            ensure!(api.get("/readyz").await?.status == 200, "health is for everybody");
        }
        Ok(())
    });
}

#[test]
fn a_shoot_that_ends_loses_its_finalizers() {
    run(async |_| {
        let place = TestNamespace::make("ends").await?;
        let mut shoot = place.shoot("one");
        shoot["metadata"]["finalizers"] = json!(["example.com/test"]);
        place.put(&shoot).await?;
        let person = &place.world.person;
        person.run(["delete", "shoot", "one", "-n", "ends", "--wait=false"]).await?.text()?;
        // It begins to move only now, as one whose migration was under way when its deletion was allowed.
        let moving =
            json!({"status": {"lastOperation": {"type": "Migrate", "state": "Processing"}}}).to_string();
        let status =
            ["patch", "shoot", "one", "-n", "ends", "--subresource=status", "--type=merge", "-p", &moving];
        place.world.garden.kubectl(status).await?.text()?;
        place
            .refuses("one", &json!({"spec": {"purpose": "testing"}}), &["spec-immutable-while-migrating"])
            .await?;
        place.allows("one", &json!({"metadata": {"finalizers": null}})).await?;
        let left = place.world.garden.kubectl(["get", "shoot", "one", "-n", "ends"]).await?;
        ensure!(left.stderr.contains("NotFound"), "{left:?}");
        Ok(())
    });
}

#[test]
fn facts_that_do_not_come_are_not_waited_for() {
    run(async |env| {
        let (garden, _) = world::garden(env).await?;
        let address = garden.admin().server.trim_start_matches("https://").parse()?;
        let wire = Relay::start(&[address]).await?;
        let mut access = world::service_account(&garden).await?;
        access.server = format!("https://127.0.0.1:{}", wire.port());
        let dir = env.make_dir("behind-a-wire")?;
        let kubeconfig = access.write(dir.join("wired"))?;
        let args = [format!("--kubeconfig={}", kubeconfig.display())];
        let repot = world::webhook(env, &garden, &dir, &args).await?;
        let api = direct(repot.url(), &garden.pki().serving.pem(), Credential::Anonymous)?;
        let mut moved = mk_shoot("d", "one", "a");
        moved["spec"]["seedName"] = json!("b");
        let question = review(moved, mk_shoot("d", "one", "a"));
        let told = api.post("/validate-seed-change?timeout=5s", &question).await?.ok()?;
        ensure!(told["response"]["allowed"] == false, "there are no seeds: {told}");
        wire.stall();
        let late = api.post("/validate-seed-change?timeout=1s", &question).await?;
        ensure!(late.status == 504, "{late}");
        // What needs no facts is judged all the same.
        let same = review(mk_shoot("d", "one", "a"), mk_shoot("d", "one", "a"));
        ensure!(
            api.post("/validate-markers?timeout=1s", &same).await?.ok()?["response"]["allowed"] == true,
            "it was refused"
        );
        wire.heal();
        Ok(())
    });
}
