//! The server itself: down, slow, with a new certificate, under load, with large and broken questions.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use repot_tests::access::{Access, Credential};
use repot_tests::garden::Garden;
use repot_tests::http::{Answer, Api};
use repot_tests::pki::Ca;
use repot_tests::repot::Repot;
use repot_tests::wait::until;
use repot_tests::{TestEnv, run};
use serde_json::{Value, json};

use super::world::{self, NAMESPACE, SERVICE, TestNamespace, mk_seed, mk_shoot, put, registrations};

const SHOOTS: &str = "/apis/core.gardener.cloud/v1beta1/namespaces/default/shoots";
const MERGE: &str = "application/merge-patch+json";
const KNOWN: Duration = Duration::from_secs(60);

/// A garden of one test, with webhooks whose server the test may stop.
pub struct Own {
    pub garden: Garden,
    pub repot: Repot,
    dir: PathBuf,
}

impl Own {
    /// `change`: of each webhook as it is registered.
    pub async fn start(env: &TestEnv, change: impl Fn(&mut Value)) -> Result<Self> {
        let (garden, _) = world::garden(env).await?;
        let dir = env.make_dir("webhook")?;
        let repot = world::webhook(env, &garden, &dir, &[]).await?;
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

    pub async fn patch(&self, name: &str, patch: &Value) -> Result<Answer> {
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

fn operation(value: &str) -> Value {
    json!({"metadata": {"annotations": {"gardener.cloud/operation": value}}})
}

fn marker_off() -> Value {
    json!({"metadata": {"annotations": {"migration.gardener.cloud/live-migrate": "false"}}})
}

/// What starts a migration waits, and each other write to a Shoot is tried and goes through.
async fn nothing_but_migrations_waits(own: &Own) -> Result<()> {
    let failed = own.patch("one", &to_b()).await?;
    ensure!(failed.status == 500 && failed.to_string().contains("failed calling webhook"), "{failed}");
    let isolate = json!({"metadata": {"annotations": {"shoot.gardener.cloud/isolated-zone": "euc1-az1"}}});
    ensure!(own.patch("one", &isolate).await?.status == 500, "a marker was set by nobody's leave");
    for (patch, what) in [
        (spec("testing"), "a spec"),
        (json!({"spec": {"hibernation": {"enabled": true}}}), "hibernation"),
        (operation("reconcile"), "a reconciliation"),
        (operation("maintain"), "maintenance"),
        (operation("rotate-credentials-start"), "a rotation"),
        (operation("retry"), "a retry"),
        (marker_off(), "a marker that says no"),
        (json!({"metadata": {"labels": {"x": "y"}}}), "a label"),
        (
            json!({"metadata": {"annotations": {"migration.gardener.cloud/allow-distant-regions": null}}}),
            "a removed marker",
        ),
    ] {
        let answer = own.patch("one", &patch).await?;
        ensure!(answer.status == 200, "{what} has to wait: {answer}");
    }
    let status = json!({"status": {"lastOperation": {"type": "Reconcile", "state": "Processing"}}});
    let written = own.patch("one/status", &status).await?;
    ensure!(written.status == 200, "a status has to wait: {written}");
    let mut two = mk_shoot("default", "two", "a");
    two["spec"].as_object_mut().map(|spec| spec.remove("seedName"));
    let created = own.garden.api().post(SHOOTS, &two).await?;
    ensure!(created.status == 201, "{created}");
    let scheduled = own.patch("two", &json!({"spec": {"seedName": "a", "dns": {"domain": "x"}}})).await?;
    ensure!(scheduled.status == 200, "a first seed has to wait: {scheduled}");
    let deleted = own.garden.api().delete(&format!("{SHOOTS}/two")).await?;
    ensure!(deleted.status == 200, "{deleted}");
    Ok(())
}

#[test]
fn a_webhook_that_is_down_holds_up_migrations_and_nothing_else() {
    run(async |env| {
        let mut own = Own::start(env, |_| ()).await?;
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
    run(async |env| {
        let mut own = Own::start(env, |webhook| webhook["timeoutSeconds"] = json!(1)).await?;
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
    run(async |env| {
        let other = Ca::new("another-ca")?;
        let mut own = Own::start(env, |_| ()).await?;
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
pub fn direct(url: &str, ca_pem: &str, credential: Credential) -> Result<Api> {
    Api::new(&Access { server: url.to_owned(), ca_pem: ca_pem.to_owned(), credential })
}

#[test]
fn two_hundred_updates_at_once_are_all_judged() {
    run(async |_| {
        let place = TestNamespace::make("parallel").await?;
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
        let place = TestNamespace::make("dry-run").await?;
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
