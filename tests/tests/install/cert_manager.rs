//! The chart with cert-manager as the issuer of certificates.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use repot_tests::access::{Access, Credential};
use repot_tests::cert_manager::CertManager;
use repot_tests::clientgo::ClientGo;
use repot_tests::http::Api;
use repot_tests::install::{NAMESPACE, World};
use repot_tests::run;
use repot_tests::wait::until;
use reqwest::{Client, Method};
use serde_json::Value;

const RELEASE: &str = "repot-garden";
const API: &str = "v1alpha1.core.gardener.cloud";
const SERVICES: [&str; 2] = ["repot-apiserver", "repot-webhook"];
const DEADLINE: Duration = Duration::from_secs(60);
const VALUES: [&str; 4] = [
    "--set=certificates.issuer=cert-manager",
    "--set=storage.embedded.size=1Gi",
    "--set=storage.embedded.storageClassName=standard",
    "--set=apiserver.watchTerminationSeconds=1",
];

#[test]
#[ignore = "cert-manager takes minutes to build: make soak"]
fn cert_manager_renews_certificates_and_their_authority_without_a_failed_request() {
    run(async |env| {
        let world = World::start(env, 2).await?;
        world.apply_gardener_kinds().await?;
        let cert_manager = CertManager::start(env, &world.garden).await?;
        world.deploy("install", RELEASE, &VALUES).await?;
        world.until_available(API).await?;
        authority_is_published(&world).await?;
        let pods = pods(&world).await?;
        let mut client = ClientGo::start(env, "follow", world.garden.kubeconfig(), &["--pause=20ms"])?;
        client.answer().await?;
        client.ask("write").await?;
        let ports = [publish(&world, SERVICES[0], 8443).await?, publish(&world, SERVICES[1], 9443).await?];
        renew_and_expect(&world, &cert_manager, ports).await?;
        renew_authority(&world, &cert_manager).await?;
        renew_and_expect(&world, &cert_manager, ports).await?;
        authority_is_published(&world).await?;
        ensure!(pods == self::pods(&world).await?, "a Pod was started again");
        // None of the writes has failed, or this says which. Each update and deletion was admitted by the webhooks.
        let written = client.ask("rest").await?;
        ensure!(written["written"].as_u64().unwrap_or(0) > 100 && written["unknown"] == 0, "{written}");
        client.ask("verify").await?;
        webhook_answers(&world).await
    });
}

/// Makes another authority with another key, which signs from now on.
async fn renew_authority(world: &World<'_>, cert_manager: &CertManager) -> Result<()> {
    let first = value(world, "secret/repot-authority", "tls.crt").await?;
    cert_manager.renew(&world.garden, NAMESPACE, "repot-authority").await?;
    until("another authority", DEADLINE, async || {
        ensure!(value(world, "secret/repot-authority", "tls.crt").await? != first, "it is the first one");
        Ok(())
    })
    .await
}

/// Renews both serving certificates and waits until the servers show them.
async fn renew_and_expect(world: &World<'_>, cert_manager: &CertManager, ports: [u16; 2]) -> Result<()> {
    for (service, port) in SERVICES.into_iter().zip(ports) {
        let before = shown(world, service, port).await?;
        cert_manager.renew(&world.garden, NAMESPACE, &format!("{service}-tls")).await?;
        until(&format!("another certificate of {service}"), DEADLINE, async || {
            ensure!(shown(world, service, port).await? != before, "the old one is shown");
            Ok(())
        })
        .await?;
    }
    Ok(())
}

/// What the server of a Service shows to a client that trusts the published authority.
async fn shown(world: &World<'_>, service: &str, port: u16) -> Result<Vec<u8>> {
    let ca = value(world, &format!("secret/{service}-tls"), "ca.crt").await?;
    let host = format!("{service}.{NAMESPACE}.svc");
    let access = Access {
        server: format!("https://{host}:{port}"),
        ca_pem: pem(&ca)?,
        credential: Credential::Anonymous,
    };
    let client = Client::builder().tls_info(true).resolve(&host, SocketAddr::from(([127, 0, 0, 1], port)));
    let response = Api::build(&access, client)?.request(Method::GET, "/readyz").send().await?;
    let info = response.extensions().get::<reqwest::tls::TlsInfo>().context("no TLS")?;
    Ok(info.peer_certificate().context("no certificate")?.to_vec())
}

async fn publish(world: &World<'_>, service: &str, port: u16) -> Result<u16> {
    world.runner.publish(&format!("{service}.{NAMESPACE}.svc"), port).await
}

/// cert-manager has written the authority that signs to whoever calls a server. Earlier ones stay beside it until they expire.
async fn authority_is_published(world: &World<'_>) -> Result<()> {
    let authority = pem(&value(world, "secret/repot-authority", "tls.crt").await?)?;
    until("the authority of cert-manager", DEADLINE, async || {
        for service in SERVICES {
            let own = pem(&value(world, &format!("secret/{service}-tls"), "ca.crt").await?)?;
            ensure!(own == authority, "another authority has signed for {service}");
        }
        let services = list(world, "apiservices").await?;
        ensure!(services.len() == 2, "{} APIServices", services.len());
        let mut configurations = list(world, "validatingwebhookconfigurations").await?;
        configurations.extend(list(world, "mutatingwebhookconfigurations").await?);
        let webhooks = configurations.iter().flat_map(|one| one["webhooks"].as_array().into_iter().flatten());
        let webhooks: Vec<&Value> = webhooks.map(|one| &one["clientConfig"]["caBundle"]).collect();
        ensure!(webhooks.len() > 2, "{} webhooks", webhooks.len());
        for bundle in services.iter().map(|one| &one["spec"]["caBundle"]).chain(webhooks) {
            let bundle = pem(bundle.as_str().context("no caBundle")?)?;
            ensure!(bundle.contains(authority.trim()), "a caBundle lacks the authority");
        }
        Ok(())
    })
    .await
}

fn pem(base64: &str) -> Result<String> {
    Ok(String::from_utf8(STANDARD.decode(base64)?)?)
}

/// Objects of Repot in the cluster.
async fn list(world: &World<'_>, kind: &str) -> Result<Vec<Value>> {
    let found = world.kubectl(&["get", kind, "-l", "app.kubernetes.io/part-of=repot", "-o", "json"]).await?;
    let mut found: Value = serde_json::from_str(&found)?;
    Ok(found["items"].as_array_mut().map(std::mem::take).unwrap_or_default())
}

/// A value of a Secret, in base64.
async fn value(world: &World<'_>, secret: &str, key: &str) -> Result<String> {
    let path = format!("jsonpath={{.data.{}}}", key.replace('.', "\\."));
    let found = world.kubectl(&["get", secret, "-n", NAMESPACE, "-o", &path]).await?;
    ensure!(!found.is_empty(), "{secret} has no {key}");
    Ok(found)
}

/// Each Pod, and how often its container was started again.
async fn pods(world: &World<'_>) -> Result<String> {
    let path =
        "jsonpath={range .items[*]}{.metadata.uid} {.status.containerStatuses[*].restartCount}{\"\\n\"}{end}";
    world.kubectl(&["get", "pods", "-n", NAMESPACE, "-o", path]).await
}

/// A deletion without a confirmation is refused, by the webhook itself.
async fn webhook_answers(world: &World<'_>) -> Result<()> {
    let state = "apiVersion: core.gardener.cloud/v1alpha1\nkind: ShootState\nmetadata: {name: one, namespace: default}\n";
    world.kubectl(&["create", "-f", &world.write("state.yaml", state)?]).await?;
    let refused = world.garden.kubectl(&["delete", "shootstate", "one", "-n", "default"]).await?;
    let message = &refused.stderr;
    ensure!(!refused.succeeded() && message.contains("confirmation.gardener.cloud/deletion"), "{message}");
    Ok(())
}
