//! Seeds in which members are behind one Gateway: of the Gateway API in one of them, of Istio in the other.

use anyhow::{Result, ensure};
use serde_json::Value;

use super::requests::Requests;
use super::whole::{ensure_hidden, highly_available};
use crate::migration::story;
use crate::migration::world::{BEHIND_GATEWAY, SEEDS, World, run_in};

/// Envoy leads peers and clients to members by the names that they ask for, on the way there and on the way back.
#[test]
#[ignore = "minutes, in make soak"]
fn no_request_fails_when_members_of_a_seed_are_behind_a_gateway() {
    run_in(&BEHIND_GATEWAY, async |env| {
        let world = World::create_in(&BEHIND_GATEWAY, env, "gated", highly_available()).await?;
        let before = world.workload().await?;
        let apis = (0..4).map(|_| world.api()).collect::<Result<Vec<_>>>()?;
        let requests = Requests::start(apis);
        for (name, seeds) in [("there", SEEDS), ("back", (SEEDS.1, SEEDS.0))] {
            story::create_live(&world, name, seeds).await?;
            story::until_started(&world, name, ("destination", "ApiServes")).await?;
            for seed in [SEEDS.0, SEEDS.1] {
                ensure_one_address(&world, seed).await?;
            }
            story::until_success(&world, name, seeds.1).await?;
            println!("{name}: {}", requests.ensure_none_failed(1_000)?.summary());
            world.ensure_moved(&before, seeds).await?;
            ensure_hidden(&world, seeds.1).await?;
        }
        ensure_no_routes(&world).await?;
        world.stop(SEEDS.0).await
    });
}

/// Names of all members in a seed lead to the address of its Gateway, and no member has a load balancer.
async fn ensure_one_address(world: &World, seed: &str) -> Result<()> {
    let (cluster, namespace) = (&world.landscape.seed(seed)?.cluster, world.name().technical_id());
    let selector = "labelSelector=migration.gardener.cloud/exposes-member";
    let records =
        format!("/apis/extensions.gardener.cloud/v1alpha1/namespaces/{namespace}/dnsrecords?{selector}");
    let records = cluster.api().get(&records).await?.ok()?;
    let mut values: Vec<String> =
        items(&records).map(|record| record["spec"]["values"].to_string()).collect();
    ensure!(values.len() == 3, "{records}");
    values.dedup();
    ensure!(values.len() == 1, "members have different addresses: {values:?}");
    let services =
        cluster.api().get(&format!("/api/v1/namespaces/{namespace}/services?{selector}")).await?.ok()?;
    ensure!(items(&services).all(|service| service["spec"]["type"] == "ClusterIP"), "{services}");
    Ok(())
}

async fn ensure_no_routes(world: &World) -> Result<()> {
    let namespace = world.name().technical_id();
    let kinds = [
        (SEEDS.0, "networking.istio.io/v1", "virtualservices"),
        (SEEDS.0, "networking.istio.io/v1", "destinationrules"),
        (SEEDS.1, "gateway.networking.k8s.io/v1", "tlsroutes"),
    ];
    for (seed, version, kind) in kinds {
        let path = format!("/apis/{version}/namespaces/{namespace}/{kind}");
        let routes = world.landscape.seed(seed)?.cluster.api().get(&path).await?.ok()?;
        ensure!(items(&routes).count() == 0, "{routes}");
    }
    Ok(())
}

fn items(list: &Value) -> impl Iterator<Item = &Value> {
    list["items"].as_array().into_iter().flatten()
}
