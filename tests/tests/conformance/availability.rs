//! How a kube-apiserver finds us, and what is answered while something is away.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use repot_tests::access::{Access, Credential};
use repot_tests::aggregate::Aggregation;
use repot_tests::garden::Garden;
use repot_tests::http::Api;
use repot_tests::pki::Ca;
use repot_tests::process::Spec;
use repot_tests::repot::{program, write_encryption_config};
use repot_tests::wait::until;
use repot_tests::{TestEnv, port, run};
use serde_json::{Value, json};

use super::namespace::{Behind, GROUP, TestNamespace, VERSION, expect, header};
use crate::shootstate::world::World;

const PATIENCE: Duration = Duration::from_secs(90);

fn aggregation<'a>(ca_pem: &'a str, group: &'a str, service: &'a str) -> Aggregation<'a> {
    Aggregation { group, version: VERSION, namespace: "repot-system", service, port: 443, ca_pem }
}

#[test]
fn kube_apiserver_finds_it_available() {
    run(async |_| {
        let garden = &Behind::value()?.garden;
        let place = aggregation("", GROUP, "repot-apiserver");
        let condition = place.observe_condition(garden).await?;
        ensure!(condition["status"] == "True" && condition["reason"] == "Passed", "{condition}");
        let path = format!("/apis/apiregistration.k8s.io/v1/apiservices/{}", place.name());
        let spec = garden.api().get(&path).await?.ok()?["spec"].clone();
        ensure!(spec["group"] == GROUP && spec["version"] == VERSION, "{spec}");
        ensure!(
            spec["caBundle"].is_string() && spec["insecureSkipTLSVerify"].as_bool() != Some(true),
            "{spec}"
        );
        ensure!(spec["groupPriorityMinimum"].is_u64() && spec["versionPriority"].is_u64(), "{spec}");
        Ok(())
    });
}

/// Every reason for which kube-apiserver holds a server for unavailable before it has asked it.
#[test]
fn failures_of_registration_have_their_reasons() {
    run(async |_| {
        let garden = &Behind::value()?.garden;
        let service = |name: &str, port: u16| {
            json!({
                "apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "namespace": "repot-system"},
                "spec": {"type": "ClusterIP", "ports": [{"name": "https", "port": port, "targetPort": 8443}]},
            })
        };
        let slice = json!({
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4", "endpoints": [],
            "metadata": {"name": "empty-1", "namespace": "repot-system", "labels": {"kubernetes.io/service-name": "empty"}},
            "ports": [{"name": "https", "port": 8443}],
        });
        garden.apply(&[service("alone", 443), service("empty", 443), service("closed", 444), slice]).await?;
        for (name, reason) in [
            ("nowhere", "ServiceNotFound"),
            ("closed", "ServicePortError"),
            ("alone", "EndpointsNotFound"),
            ("empty", "MissingEndpoints"),
        ] {
            let group = format!("{name}.example.com");
            let ca_pem = garden.pki().serving.pem();
            let place = aggregation(&ca_pem, &group, name);
            // Only the registration: the Services are above.
            garden.apply(&place.render()[2..]).await?;
            until(&format!("the reason {reason}"), PATIENCE, async || {
                let condition = place.observe_condition(garden).await?;
                ensure!(condition["status"] == "False" && condition["reason"] == reason, "{condition}");
                Ok(())
            })
            .await?;
            let refused = garden.api().get(&format!("/apis/{group}/{VERSION}/things")).await?;
            ensure!(refused.status == 503, "{refused}");
            garden.kubectl(["delete", "apiservice", &place.name()]).await?.text()?;
        }
        Ok(())
    });
}

#[test]
fn it_becomes_available_again_after_a_restart() {
    run(async |env| {
        let mut world = World::garden(env).await?;
        let place = TestNamespace::of(world.api.clone(), "default");
        place.create("a").await?;
        world.repot().kill();
        until("the failure to be seen", PATIENCE, async || {
            let answer = place.api.get(&place.one("a")).await?;
            ensure!(answer.status == 503, "{answer}");
            Ok(())
        })
        .await?;
        world.repot().restart().await?;
        until("the object to be seen again", PATIENCE, async || place.get("a").await.map(drop)).await?;
        let garden = world.garden.as_ref().context("a garden")?;
        aggregation("", GROUP, "repot-apiserver").wait_until_available(garden).await
    });
}

/// A server whose kube-apiserver does not answer: it knows from a flag who the administrator is, and nothing of a front proxy.
async fn start_without_trust(env: &TestEnv) -> Result<(repot_tests::process::Process, Api)> {
    let dir = env.make_dir("without-trust")?;
    let ca = Ca::new("ca")?;
    let (cert, key) = ca.server(&["localhost", "127.0.0.1"])?.write(&dir, "serving")?;
    let admin = ca.client("admin", &["system:masters"])?;
    let nobody = format!("https://127.0.0.1:{}", port::reserve()?);
    let away =
        Access { server: nobody, ca_pem: ca.pem(), credential: Credential::Certificate(admin.clone()) };
    let kubeconfig = away.write(dir.join("kubeconfig"))?;
    let own = port::reserve()?;
    let spec = Spec::new("repot-apiserver", program()?)
        .arg("apiserver")
        .flag("bind-address", "127.0.0.1")
        .flag("secure-port", own.to_string())
        .flag("tls-cert-file", cert)
        .flag("tls-private-key-file", key)
        .flag("client-ca-file", ca.write(&dir, "ca")?)
        .flag("authentication-kubeconfig", &kubeconfig)
        .flag("authorization-kubeconfig", &kubeconfig)
        .flag("encryption-provider-config", write_encryption_config(&dir)?)
        .arg(format!("--storage=embedded:{}", env.make_dir("store")?.display()));
    let mut process = repot_tests::process::Process::start(env, spec)?;
    let server = format!("https://localhost:{own}");
    let api = Api::new(&Access { server, ca_pem: ca.pem(), credential: Credential::Certificate(admin) })?;
    process
        .ready(PATIENCE, async || api.get("/livez").await?.status.eq(&200).then_some(()).context("not alive"))
        .await?;
    Ok((process, api))
}

#[test]
fn without_trust_there_are_documents_but_no_data() {
    run(async |env| {
        let (_process, api) = start_without_trust(env).await?;
        let place = TestNamespace::of(api, "default");
        for path in [place.all(""), place.one("a"), place.all("").replace("shootstates", "nothings")] {
            let answer = place.api.get(&path).await?;
            let status = expect(&answer, 503, "ServiceUnavailable")?;
            ensure!(
                status["details"]["retryAfterSeconds"] == 5 && header(&answer, "retry-after") == "5",
                "{answer}"
            );
        }
        let created = place.api.post(&place.all(""), &place.object("a")).await?;
        expect(&created, 503, "ServiceUnavailable")?;
        let version = format!("/apis/{GROUP}/{VERSION}");
        for path in ["/apis", &version, "/openapi/v2", "/openapi/v3", "/livez", "/version"] {
            ensure!(place.api.get(path).await?.status == 200, "{path} is away");
        }
        ensure!(place.api.get("/readyz").await?.status == 500, "it says that it is ready");
        Ok(())
    });
}

#[test]
fn documents_are_served_while_the_store_is_away() {
    run(async |env| {
        let mut world = World::garden_on_etcd(env).await?;
        let garden = world.garden.as_ref().context("a garden")?;
        let admin = garden.pki().client.client("admin", &["system:masters"])?;
        let ca_pem = garden.pki().serving.pem();
        let server = world.repot().url().replace("127.0.0.1", "localhost");
        let api = Api::new(&Access { server, ca_pem, credential: Credential::Certificate(admin) })?;
        let place = TestNamespace::of(api, "default");
        place.create("a").await?;
        let etcd = world.etcd.as_mut().context("etcd")?;
        for member in 0..3 {
            etcd.member(member).process().kill();
        }
        let version = format!("/apis/{GROUP}/{VERSION}");
        let index = format!("/openapi/v3{version}");
        for path in ["/apis", &version, "/openapi/v2", "/openapi/v3", &index, "/livez"] {
            let began = std::time::Instant::now();
            ensure!(place.api.get(path).await?.status == 200, "{path} is away");
            ensure!(began.elapsed() < Duration::from_secs(5), "{path} took {:?}", began.elapsed());
        }
        for path in [place.all(""), place.one("a"), place.one("missing"), place.all("?limit=1")] {
            let answer = place.api.get(&path).await?;
            let status = answer.json()?;
            ensure!(matches!(answer.status, 500 | 503 | 504) && status["kind"] == "Status", "{answer}");
            let message = status["message"].as_str().unwrap_or_default();
            ensure!(
                !message.contains("/repot") && !message.contains("://"),
                "it tells of its inside: {message}"
            );
            ensure!(
                answer.status == 504 || answer.headers.contains_key("retry-after"),
                "{answer}: {:?}",
                answer.headers
            );
        }
        until("readiness to fail", PATIENCE, async || {
            let ready = place.api.get("/readyz").await?;
            ensure!(ready.status == 500 && String::from_utf8_lossy(&ready.body).contains("[-]"), "{ready}");
            Ok(())
        })
        .await
    });
}

async fn set_bundle(garden: &Garden, bundle: &str) -> Result<()> {
    let mut registration = aggregation(bundle, GROUP, "repot-apiserver").render()[2].clone();
    // Everything else stays as it is.
    let spec = registration["spec"].as_object_mut().context("a spec")?;
    spec.retain(|key, _| key == "caBundle");
    let path = format!("/apis/apiregistration.k8s.io/v1/apiservices/{VERSION}.{GROUP}");
    let patch = json!({"spec": Value::Object(spec.clone())});
    garden.api().patch(&path, "application/merge-patch+json", &patch).await?.ok().map(drop)
}

#[test]
fn the_serving_authority_changes_without_an_outage() {
    run(async |env| {
        let mut world = World::garden(env).await?;
        let place = TestNamespace::of(world.api.clone(), "default");
        place.create("a").await?;
        let over = Arc::new(AtomicBool::new(false));
        let asking = tokio::spawn({
            let (api, path, over) = (place.api.clone(), place.one("a"), over.clone());
            async move {
                let mut asked = 0;
                while !over.load(Ordering::Relaxed) {
                    let answer = api.get(&path).await?;
                    ensure!(answer.status == 200, "after {asked} good answers {answer}");
                    asked += 1;
                }
                Ok(asked)
            }
        });
        let new = Ca::new("new-serving-ca")?;
        let url = world.repot().url().replace("127.0.0.1", "localhost");
        let garden = world.garden.as_ref().context("a garden")?;
        let old = garden.pki().serving.pem();
        set_bundle(garden, &format!("{old}{}", new.pem())).await?;
        let names = ["repot-apiserver.repot-system.svc", "localhost", "127.0.0.1"];
        new.server(&names)?.write(&env.path().join("repot-config"), "serving")?;
        let trusting = Access { server: url, ca_pem: new.pem(), credential: Credential::Anonymous };
        until("the new certificate", PATIENCE, async || Api::new(&trusting)?.get("/livez").await.map(drop))
            .await?;
        set_bundle(garden, &new.pem()).await?;
        until("kube-apiserver to come over a new connection", PATIENCE, async || {
            place.get("a").await.map(drop)
        })
        .await?;
        aggregation("", GROUP, "repot-apiserver").wait_until_available(garden).await?;
        over.store(true, Ordering::Relaxed);
        let asked = asking.await??;
        ensure!(asked > 10, "only {asked} requests were made meanwhile");
        Ok(())
    });
}
