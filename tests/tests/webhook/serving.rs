//! The server itself: down, slow, with a new certificate, under load, with large and broken questions.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use repot_tests::access::{Access, Credential};
use repot_tests::garden::Garden;
use repot_tests::http::{Answer, Api, send};
use repot_tests::pki::{Ca, Leaf};
use repot_tests::relay::Relay;
use repot_tests::repot::Repot;
use repot_tests::wait::until;
use repot_tests::{Bed, run};
use reqwest::{Client, Method};
use serde_json::{Value, json};

use super::world::{self, NAMESPACE, Place, SERVICE, mk_seed, mk_shoot, put, registrations};

const SHOOTS: &str = "/apis/core.gardener.cloud/v1beta1/namespaces/default/shoots";
const MERGE: &str = "application/merge-patch+json";
const KNOWN: Duration = Duration::from_secs(60);

/// A garden of one test, with webhooks whose server the test may stop.
struct Own {
    garden: Garden,
    repot: Repot,
    dir: PathBuf,
}

impl Own {
    /// `change`: of each webhook as it is registered.
    async fn start(bed: &Bed, change: impl Fn(&mut Value)) -> Result<Self> {
        let (garden, _) = world::garden(bed).await?;
        let dir = bed.make_dir("webhook")?;
        let repot = world::webhook(bed, &garden, &dir, &[]).await?;
        for name in ["a", "b"] {
            put(&garden, &mk_seed(name)).await?;
        }
        put(&garden, &mk_shoot("default", "one", "a")).await?;
        let mut configurations = registrations(&garden, repot.port()?);
        for configuration in &mut configurations {
            configuration["webhooks"].as_array_mut().into_iter().flatten().for_each(&change);
        }
        garden.apply(&configurations).await?;
        let own = Self { garden, repot, dir };
        until("webhooks to be asked", KNOWN, async || {
            let bad = json!({"metadata": {"annotations": {"shoot.gardener.cloud/isolated-zone": "No Zone"}}});
            let answer = own.patch("one?dryRun=All", &bad).await?;
            ensure!(answer.status == 403, "{answer}");
            Ok(())
        })
        .await?;
        Ok(own)
    }

    async fn patch(&self, name: &str, patch: &Value) -> Result<Answer> {
        self.garden.api().patch(&format!("{SHOOTS}/{name}"), MERGE, patch).await
    }
}

fn to_b() -> Value {
    json!({"spec": {"seedName": "b"}})
}

fn spec(purpose: &str) -> Value {
    json!({"spec": {"purpose": purpose}})
}

fn marker(value: &str) -> Value {
    json!({"metadata": {"annotations": {"migration.gardener.cloud/allow-distant-regions": value}}})
}

/// Everything that is left of a cluster whose webhook does not answer.
async fn nothing_but_migrations_waits(own: &Own) -> Result<()> {
    let failed = own.patch("one", &to_b()).await?;
    ensure!(failed.status == 500 && failed.to_string().contains("failed calling webhook"), "{failed}");
    ensure!(own.patch("one", &marker("false")).await?.status == 500, "a marker was set by nobody's leave");
    for (patch, what) in [
        (spec("testing"), "a spec"),
        (json!({"metadata": {"labels": {"x": "y"}}}), "a label"),
        (
            json!({"metadata": {"annotations": {"migration.gardener.cloud/allow-distant-regions": null}}}),
            "a removed marker",
        ),
    ] {
        let answer = own.patch("one", &patch).await?;
        ensure!(answer.status == 200, "{what} has to wait: {answer}");
    }
    let created = own.garden.api().post(SHOOTS, &mk_shoot("default", "two", "a")).await?;
    ensure!(created.status == 201, "{created}");
    let deleted = own.garden.api().delete(&format!("{SHOOTS}/two")).await?;
    ensure!(deleted.status == 200, "{deleted}");
    Ok(())
}

#[test]
fn a_webhook_that_is_down_holds_up_migrations_and_nothing_else() {
    run(async |bed| {
        let mut own = Own::start(bed, |_| ()).await?;
        ensure!(
            own.patch("one", &marker("true")).await?.status == 200,
            "a marker is allowed while it answers"
        );
        own.repot.kill();
        nothing_but_migrations_waits(&own).await
    });
}

#[test]
fn a_webhook_that_is_slow_holds_up_migrations_and_nothing_else() {
    run(async |bed| {
        let mut own = Own::start(bed, |webhook| webhook["timeoutSeconds"] = json!(1)).await?;
        ensure!(
            own.patch("one", &marker("true")).await?.status == 200,
            "a marker is allowed while it answers"
        );
        own.repot.process().pause();
        let outcome = nothing_but_migrations_waits(&own).await;
        own.repot.process().resume();
        outcome
    });
}

#[test]
fn no_request_fails_while_the_certificate_is_replaced() {
    run(async |bed| {
        let other = Ca::new("another-ca")?;
        let mut own = Own::start(bed, |_| ()).await?;
        // Both authorities first, then the certificate: as an operator would do it.
        let mut both = registrations(&own.garden, own.repot.port()?);
        let bundle = format!("{}{}", own.garden.pki().serving.pem(), other.pem());
        let bundle = STANDARD.encode(bundle);
        for webhook in both.iter_mut().flat_map(|c| c["webhooks"].as_array_mut().into_iter().flatten()) {
            webhook["clientConfig"]["caBundle"] = json!(bundle);
        }
        own.garden.apply(&both).await?;
        let stop = Arc::new(AtomicBool::new(false));
        let done = Arc::new(AtomicUsize::new(0));
        let traffic: Vec<_> = (0..4)
            .map(|at| tokio::spawn(traffic(own.garden.api().clone(), at, stop.clone(), done.clone())))
            .collect();
        until("traffic", KNOWN, async || {
            ensure!(done.load(Ordering::Relaxed) > 20, "hardly any");
            Ok(())
        })
        .await?;
        let name = format!("{SERVICE}.{NAMESPACE}.svc");
        other.server(&[&name, "localhost", "127.0.0.1"])?.write(&own.dir, "serving")?;
        let new = direct(own.repot.url(), &other.pem(), Credential::Anonymous)?;
        until("the new certificate", KNOWN, async || {
            ensure!(new.get("/readyz").await?.status == 200, "not ready");
            Ok(())
        })
        .await?;
        let before = done.load(Ordering::Relaxed);
        until("traffic after it", KNOWN, async || {
            ensure!(done.load(Ordering::Relaxed) > before + 20, "hardly any");
            Ok(())
        })
        .await?;
        stop.store(true, Ordering::Relaxed);
        for one in traffic {
            one.await??;
        }
        own.repot.stop().await
    });
}

/// Sets a marker and takes it away again, both of which are asked about by webhooks that fail closed.
async fn traffic(api: Api, at: usize, stop: Arc<AtomicBool>, done: Arc<AtomicUsize>) -> Result<()> {
    let name = format!("traffic-{at}");
    let created = api.post(SHOOTS, &mk_shoot("default", &name, "a")).await?;
    ensure!(created.status == 201, "{created}");
    let mut value = false;
    while !stop.load(Ordering::Relaxed) {
        value = !value;
        let answer = api.patch(&format!("{SHOOTS}/{name}"), MERGE, &marker(&value.to_string())).await?;
        ensure!(answer.status == 200, "{answer}");
        done.fetch_add(1, Ordering::Relaxed);
    }
    Ok(())
}

/// A client of the webhook server itself.
fn direct(url: &str, ca_pem: &str, credential: Credential) -> Result<Api> {
    Api::new(&Access { server: url.to_owned(), ca_pem: ca_pem.to_owned(), credential })
}

#[test]
fn two_hundred_updates_at_once_are_all_judged() {
    run(async |_| {
        let place = Place::make("parallel").await?;
        place.put(&place.shoot("one")).await?;
        let api = place.world.garden.api().clone();
        let path = format!("/apis/core.gardener.cloud/v1beta1/namespaces/{}/shoots/one", place.namespace);
        let all = (0..200).map(|at| {
            let (api, path) = (api.clone(), path.clone());
            // Every second one is wrong.
            let zone = if at % 2 == 0 {
                json!({"labels": {"n": at.to_string()}})
            } else {
                json!({"annotations": {"shoot.gardener.cloud/isolated-zone": "No Zone"}})
            };
            tokio::spawn(async move { api.patch(&path, MERGE, &json!({"metadata": zone})).await })
        });
        for (at, one) in all.collect::<Vec<_>>().into_iter().enumerate() {
            let answer = one.await??;
            let expected = if at % 2 == 0 { 200 } else { 403 };
            // A conflict is kube-apiserver's own answer to a crowd.
            ensure!(answer.status == expected || (at % 2 == 0 && answer.status == 409), "{at}: {answer}");
        }
        Ok(())
    });
}

#[test]
fn a_dry_run_is_judged_and_leaves_no_trace() {
    run(async |_| {
        let place = Place::make("dry-run").await?;
        place.put(&place.shoot("one")).await?;
        let before = place.get("one").await?;
        let there = json!({"spec": {"seedName": "dry-run-b"}});
        let (done, said) = place.patch("one", &there, &["--dry-run=server", "-o", "json"]).await?;
        ensure!(done && said.contains("requested-at"), "{said}");
        let nowhere = json!({"spec": {"seedName": "nowhere"}});
        let (done, said) = place.patch("one", &nowhere, &["--dry-run=server"]).await?;
        ensure!(!done && said.contains("(destination-exists)"), "{said}");
        ensure!(place.get("one").await? == before, "something changed");
        // Still possible: nothing remembers the rehearsal.
        place.allows("one", &there).await?;
        Ok(())
    });
}

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
        let place = Place::make("bindings").await?;
        let world = place.world;
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
    run(async |bed| {
        let (garden, _) = world::garden(bed).await?;
        let (ours, theirs) = (Ca::new("webhook-clients")?, Ca::new("other-clients")?);
        let dir = bed.make_dir("clients")?;
        let file = dir.join("ca.crt");
        std::fs::write(&file, ours.pem())?;
        let facts = bed.make_dir("facts")?;
        let args = [
            format!("--client-ca-file={}", file.display()),
            format!("--facts={}", Path::new(&facts).display()),
        ];
        let repot = world::webhook(bed, &garden, &dir, &args).await?;
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
        let place = Place::make("ends").await?;
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
        place.refuses("one", &json!({"spec": {"purpose": "testing"}}), &["spec-rests"]).await?;
        place.allows("one", &json!({"metadata": {"finalizers": null}})).await?;
        let left = place.world.garden.kubectl(["get", "shoot", "one", "-n", "ends"]).await?;
        ensure!(left.stderr.contains("NotFound"), "{left:?}");
        Ok(())
    });
}

#[test]
fn facts_that_do_not_come_are_not_waited_for() {
    run(async |bed| {
        let (garden, _) = world::garden(bed).await?;
        let address = garden.admin().server.trim_start_matches("https://").parse()?;
        let wire = Relay::start(&[address]).await?;
        let mut access = world::service_account(&garden).await?;
        access.server = format!("https://127.0.0.1:{}", wire.port());
        let dir = bed.make_dir("behind-a-wire")?;
        let kubeconfig = access.write(dir.join("wired"))?;
        let args = [format!("--kubeconfig={}", kubeconfig.display())];
        let repot = world::webhook(bed, &garden, &dir, &args).await?;
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
