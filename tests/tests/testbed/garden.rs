use std::time::Duration;

use anyhow::{Context, Result, ensure};
use repot_tests::aggregate::Aggregation;
use repot_tests::garden::{Garden, GardenOptions};
use repot_tests::http::Api;
use repot_tests::kubectl::Kubectl;
use repot_tests::null_server::{GROUP, NullServer};
use repot_tests::process::wait_until_gone;
use repot_tests::relay::Relay;
use repot_tests::wait::until;
use repot_tests::{Shared, run, start_shared};
use serde_json::json;

const BLOBS: &str = "/apis/null.repot.dev/v1/blobs";
const TWELVE_MIB: usize = 12 << 20;

async fn register(garden: &Garden, port: u16) -> Result<()> {
    let ca_pem = &garden.pki().serving.pem();
    let aggregation =
        Aggregation { group: GROUP, version: "v1", namespace: "testbed", service: "null", port, ca_pem };
    aggregation.register(garden).await
}

#[test]
fn aggregated_server_becomes_available_and_takes_twelve_mebibytes() {
    run(async |env| {
        let garden = Garden::start(env).await?;
        let server = NullServer::start(&garden.pki().serve("testbed", "null")?).await?;
        let relay = Relay::start(&[server.address()]).await?;
        register(&garden, relay.port()).await?;

        let body = json!({ "kind": "Blob", "data": "x".repeat(TWELVE_MIB) });
        let sent = body.to_string().len();
        let answer = garden.api().post(BLOBS, &body).await?.ok()?;
        ensure!(answer["received"] == sent, "of {sent} bytes came {}", answer["received"]);
        ensure!(answer["user"] == "admin", "the front proxy named {}", answer["user"]);

        let large = garden.api().get(&format!("{BLOBS}/{TWELVE_MIB}")).await?;
        ensure!(large.body.len() == TWELVE_MIB, "of {TWELVE_MIB} bytes came back {}", large.body.len());
        large.ok()?;

        let raw = ["create", "--raw", BLOBS, "-f", "-"];
        let created = garden.kubectl_tool().run_with(raw, body.to_string().as_bytes()).await?.json()?;
        ensure!(created["received"] == sent, "kubectl was told {created}");
        until("kubectl to know the resource", Duration::from_secs(60), async || {
            let names =
                garden.kubectl(["api-resources", "--api-group", GROUP, "-o", "name"]).await?.text()?;
            names
                .contains("blobs.null.repot.dev")
                .then_some(())
                .with_context(|| format!("it knows {names:?}"))
        })
        .await
    });
}

#[test]
fn unreachable_aggregated_server_is_reported_with_its_reason() {
    run(async |env| {
        let garden = Garden::start(env).await?;
        let server = NullServer::start(&garden.pki().serve("testbed", "null")?).await?;
        let relay = Relay::start(&[server.address()]).await?;
        relay.cut();
        let ca_pem = &garden.pki().serving.pem();
        let port = relay.port();
        let aggregation =
            Aggregation { group: GROUP, version: "v1", namespace: "testbed", service: "null", port, ca_pem };
        garden.apply(&aggregation.render()).await?;
        until("the failure to be seen", Duration::from_secs(60), async || {
            let condition = aggregation.observe_condition(&garden).await?;
            ensure!(condition["reason"] == "FailedDiscoveryCheck", "it says {condition}");
            Ok(())
        })
        .await?;
        relay.heal();
        aggregation.wait_until_available(&garden).await
    });
}

/// For tests that only ask.
static GARDEN: Shared<Garden> = Shared::new(|env| start_shared(Garden::start(env)));

#[test]
fn users_have_the_rights_that_are_bound_to_them() {
    run(async |env| {
        let garden = GARDEN.value()?;
        let version = garden.kubectl(["version", "-o", "json"]).await?.json()?;
        ensure!(
            version["serverVersion"]["gitVersion"] == version["clientVersion"]["gitVersion"],
            "{version}"
        );

        let alice = Kubectl::new(env, garden.user_kubeconfig("alice", &["plants", "pots"])?)?;
        let identity = alice.run(["auth", "whoami", "-o", "json"]).await?.json()?;
        let expected = json!(["plants", "pots", "system:authenticated"]);
        ensure!(identity["status"]["userInfo"]["groups"] == expected, "{identity}");
        let refused = alice.run(["get", "secrets"]).await?;
        ensure!(!refused.succeeded() && refused.stderr.contains("Forbidden"), "{refused:?}");
        Ok(())
    });
}

#[test]
fn delegate_may_ask_who_somebody_is_and_what_they_may_do() {
    run(async |_| {
        let garden = GARDEN.value()?;
        let delegate = Api::from_kubeconfig(&garden.delegate("repot-apiserver").await?)?;
        let config = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication";
        delegate.get(config).await?.ok()?;
        delegate.get("/api/v1/namespaces").await?.ok()?;
        let review = json!({
            "apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview",
            "spec": { "user": "alice", "resourceAttributes": { "verb": "get", "resource": "secrets" } },
        });
        let judged =
            delegate.post("/apis/authorization.k8s.io/v1/subjectaccessreviews", &review).await?.ok()?;
        ensure!(judged["status"]["allowed"] == false, "{judged}");
        ensure!(delegate.get("/api/v1/secrets").await?.status == 403, "a delegate may read secrets");
        Ok(())
    });
}

#[test]
fn controllers_finish_the_deletion_of_a_namespace_and_all_ends_with_the_garden() {
    run(async |env| {
        let options = GardenOptions { controller_manager: true, ..GardenOptions::default() };
        let mut garden = Garden::start_with(env, options).await?;
        garden.kubectl(["create", "namespace", "short-lived"]).await?.text()?;
        garden.kubectl(["--namespace", "short-lived", "create", "configmap", "leaf"]).await?.text()?;
        garden.kubectl(["delete", "namespace", "short-lived", "--timeout=60s"]).await?.text()?;
        let gone = garden.api().get("/api/v1/namespaces/short-lived").await?;
        ensure!(gone.status == 404, "{gone}");

        let manager = garden.controller_manager().context("it has one")?.pid();
        let pids = [manager, garden.apiserver().pid(), garden.etcd().member(0).process().pid()];
        drop(garden);
        for pid in pids {
            wait_until_gone(pid, Duration::from_secs(10)).await?;
        }
        Ok(())
    });
}
