//! The local provider and the load balancers of two seeds that share a cloud and a DNS zone.

use std::net::Ipv4Addr;

use anyhow::{Context, Result, ensure};
use repot_tests::landscape::dns::ZONE;
use repot_tests::landscape::provider::NetworkCounters;
use repot_tests::landscape::wide_network::here;
use repot_tests::landscape::{DEADLINE, Landscape, LandscapeOptions, Seed};
use repot_tests::wait::until;
use repot_tests::{operator, run_large};
use serde_json::{Value, json};
use tokio::net::TcpStream;

use super::world::{ExtensionResource, make_namespace};

const NAMESPACE: &str = "shoot--dev--beta";

#[test]
fn seeds_share_a_zone_and_a_cloud_without_harm_to_each_other() {
    run_large(async |env| {
        let options = LandscapeOptions { garden: false, ..LandscapeOptions::default() };
        let landscape = Landscape::start(env, options).await?;
        let (source, destination) = (landscape.seed("seed-a")?, landscape.seed("seed-b")?);
        for seed in [source, destination] {
            make_namespace(seed, NAMESPACE).await?;
        }
        deleted_record_leaves_the_values_of_the_other_seed(&landscape, source, destination).await?;
        infrastructure_moves_with_its_state(&landscape, source, destination).await?;
        service_at_the_second_seed_gets_an_address(destination).await
    });
}

fn record(name: &str, kind: &str, value: &str) -> Value {
    json!({
        "type": "local", "secretRef": {"name": "cloudprovider", "namespace": NAMESPACE}, "name": name,
        "recordType": kind, "values": [value],
    })
}

async fn deleted_record_leaves_the_values_of_the_other_seed(
    landscape: &Landscape,
    source: &Seed,
    destination: &Seed,
) -> Result<()> {
    let (owner, api, alias) =
        (format!("owner.beta.{ZONE}"), format!("api.beta.{ZONE}"), format!("alias.{ZONE}"));
    let make = async |seed, name: &str, spec| {
        let object = ExtensionResource::create(seed, NAMESPACE, ("DNSRecord", name), spec, json!({})).await?;
        object.until("Create", "Succeeded").await?;
        anyhow::Ok(object)
    };
    let resolver = landscape.dns.resolver();
    let of_source = [
        make(source, "owner", record(&owner, "TXT", "seed-a/1")).await?,
        make(source, "api", record(&api, "A", "127.0.0.1")).await?,
    ];
    ensure!(resolver.texts(&owner).await? == ["seed-a/1"], "the record of the source is missing");
    let of_destination = [
        make(destination, "owner", record(&owner, "TXT", "seed-b/2")).await?,
        make(destination, "api", record(&api, "A", "127.0.0.2")).await?,
        make(destination, "alias", record(&alias, "CNAME", &api)).await?,
    ];
    for object in &of_source {
        object.delete().await?;
    }
    let second = [Ipv4Addr::new(127, 0, 0, 2)];
    ensure!(resolver.texts(&owner).await? == ["seed-b/2"], "the owner of the destination is gone");
    ensure!(resolver.addresses(&api).await? == second, "the address of the destination is gone");
    ensure!(resolver.addresses(&alias).await? == second, "the alias leads elsewhere");
    for object in &of_destination {
        object.delete().await?;
    }
    let gone = [resolver.texts(&owner).await.is_err(), resolver.addresses(&alias).await.is_err()];
    ensure!(gone == [true, true], "records are left after their objects were deleted");
    Ok(())
}

async fn infrastructure_moves_with_its_state(
    landscape: &Landscape,
    source: &Seed,
    destination: &Seed,
) -> Result<()> {
    let spec = json!({
        "type": "local", "region": "eu", "secretRef": {"name": "cloudprovider", "namespace": NAMESPACE},
    });
    let (kind, networks) = (("Infrastructure", "beta"), &landscape.providers.networks);
    let old = ExtensionResource::create(source, NAMESPACE, kind, spec.clone(), json!({})).await?;
    let state = old.until("Create", "Succeeded").await?["status"]["state"].clone();
    ensure!(state["data"].as_str().is_some_and(|data| data.contains("1e400")), "the state is {state}");
    old.request("migrate").await?;
    old.until("Migrate", "Succeeded").await?;
    old.delete().await?;

    destination.stop_providers();
    let waits = json!({"gardener.cloud/operation": "wait-for-state"});
    let new = ExtensionResource::create(destination, NAMESPACE, kind, spec, waits).await?;
    new.set_state(&state).await?;
    new.request("restore").await?;
    destination.start_providers();
    let restored = new.until("Restore", "Succeeded").await?;
    ensure!(restored["status"]["state"] == state, "the state is {}", restored["status"]["state"]);
    let wanted = NetworkCounters { created: 1, restored: 1, deleted: 0 };
    ensure!(networks.counters() == wanted, "{:?}", networks.counters());
    ensure!(networks.of(NAMESPACE).len() == 1, "{:?}", networks.of(NAMESPACE));
    new.delete().await?;
    ensure!(networks.of(NAMESPACE).is_empty(), "{:?}", networks.of(NAMESPACE));
    let calls = landscape.providers.journal.of("seed-b", "restore");
    ensure!(calls == ["Infrastructure/beta"], "{calls:?}");
    Ok(())
}

/// A Service in front of the controllers of Repot, whose Pods answer on port 8081.
async fn service_at_the_second_seed_gets_an_address(seed: &Seed) -> Result<()> {
    let service = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"namespace": operator::SYSTEM, "name": "balanced"},
        "spec": {
            "type": "LoadBalancer", "selector": {"app": "repot-controllers"},
            "ports": [{"port": 80, "targetPort": 8081}],
        },
    });
    seed.cluster.apply(&[service]).await?;
    let path = format!("/api/v1/namespaces/{}/services/balanced", operator::SYSTEM);
    let ip = until("an address", DEADLINE, async || {
        let service = seed.cluster.api().get(&path).await?.ok()?;
        let ip = service["status"]["loadBalancer"]["ingress"][0]["ip"].as_str();
        anyhow::Ok(here(ip.context("there is none")?.parse::<Ipv4Addr>()?))
    })
    .await?;
    let client = reqwest::Client::builder().no_proxy().build()?;
    until("an answer of a Pod", DEADLINE, async || {
        let status = client.get(format!("http://{ip}/readyz")).send().await?.status();
        ensure!(status.is_success(), "{status}");
        Ok(())
    })
    .await?;
    seed.cluster.api().delete(&path).await?.ok()?;
    until("the address to be closed", DEADLINE, async || {
        ensure!(TcpStream::connect((ip, 80)).await.is_err(), "{ip} is open");
        Ok(())
    })
    .await
}
