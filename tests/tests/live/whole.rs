//! A whole control plane moves while both seeds serve.

use anyhow::{Result, ensure};
use repot_tests::landscape::ControlPlaneOptions;
use repot_tests::wait::until;
use serde_json::Value;

use super::clients::Clients;
use super::requests::{self, Requests};
use super::watches::Watches;
use crate::migration::story::{self, DEADLINE};
use crate::migration::world::{SEEDS, World, run};

/// A control plane that is highly available, with one node.
pub fn highly_available() -> ControlPlaneOptions {
    ControlPlaneOptions {
        etcd_members: 3,
        api_servers: 2,
        pools: vec![("worker-a".to_owned(), 1)],
        ..ControlPlaneOptions::default()
    }
}

/// Each is told of every write.
const WATCHES: usize = 40;
/// Watches of one object each, beside those. Every fifth object of each client is watched.
const WATCHES_OF_ONE: usize = 960;
/// An API server lets a connection have so many streams.
const WATCHES_PER_CONNECTION: usize = 80;

#[test]
#[ignore = "minutes, in make soak"]
fn control_plane_moves_and_no_request_fails() {
    run(async |env| {
        let world = World::create(env, "live", highly_available()).await?;
        let before = world.workload().await?;
        let apis = (0..4).map(|_| world.api()).collect::<Result<Vec<_>>>()?;
        let mut watches = Watches::start(apis.clone(), WATCHES).await?;
        let more =
            (0..WATCHES_OF_ONE / WATCHES_PER_CONNECTION).map(|_| world.api()).collect::<Result<Vec<_>>>()?;
        let names = (0..WATCHES_OF_ONE).map(|at| requests::object_name(at % 4, (at / 4) as u64 * 5));
        watches.add_of_one(&more, names).await?;
        let requests = Requests::start(apis);
        let clients = Clients::start(env, &world).await?;
        story::create_live(&world, "move", SEEDS).await?;
        let migration = story::until_success(&world, "move", SEEDS.1).await?;
        println!("{}", story::timeline(&migration).join("\n"));
        let count = requests.ensure_none_failed(1_000)?;
        println!("{}", count.summary());
        println!("{}", clients.ensure_all_went_on().await?);
        drop((requests, clients));
        println!("{}", watches.ensure_none_missed(&world.api()?, DEADLINE).await?);
        world.ensure_moved(&before, SEEDS).await?;
        ensure_hidden(&world, SEEDS.1).await?;
        world.stop(SEEDS.1).await
    });
}

/// As many as are asked for to say that a request fails rarely.
const MANY_REQUESTS: u64 = 100_000;
const ROUNDS: usize = 3;

#[test]
#[ignore = "half an hour, in make soak"]
fn control_plane_moves_there_and_back_three_times_and_none_of_100_000_requests_fails() {
    run(async |env| {
        let world = World::create(env, "commuter", highly_available()).await?;
        let before = world.workload().await?;
        let apis = (0..4).map(|_| world.api()).collect::<Result<Vec<_>>>()?;
        let requests = Requests::start(apis);
        for round in 1..=ROUNDS {
            for (way, seeds) in [("there", SEEDS), ("back", (SEEDS.1, SEEDS.0))] {
                let name = format!("{way}-{round}");
                story::create_live(&world, &name, seeds).await?;
                story::until_success(&world, &name, seeds.1).await?;
                println!("{name}: {}", requests.ensure_none_failed(1_000)?.summary());
                world.ensure_moved(&before, seeds).await?;
                ensure_hidden(&world, seeds.1).await?;
            }
        }
        println!("{}", requests.ensure_none_failed(MANY_REQUESTS)?.summary());
        world.stop(SEEDS.0).await
    });
}

/// Steps of the forward table in which a person aborts the migration.
const ABORTED_IN: [(&str, &str); 4] = [
    ("source", "SourceMembersExposed"),
    ("destination", "SixMemberETCDReady"),
    ("destination", "ApiDnsSwitched"),
    ("source", "SourceApiStopped"),
];

/// One control plane for all of them: each abort leaves it as it was.
#[test]
#[ignore = "minutes, in make soak"]
fn migration_that_is_aborted_in_any_of_its_steps_fails_no_request_and_leaves_nothing_behind() {
    run(async |env| {
        let world = World::create(env, "back", highly_available()).await?;
        let before = world.workload().await?;
        let apis = (0..4).map(|_| world.api()).collect::<Result<Vec<_>>>()?;
        let requests = Requests::start(apis);
        for (side, step) in ABORTED_IN {
            let name = step.to_lowercase();
            story::create_live(&world, &name, SEEDS).await?;
            story::until_started(&world, &name, (side, step)).await?;
            story::abort(&world, &name).await?;
            let migration = story::until_end(&world, &name).await?;
            story::ensure_phase(&migration, "Cancelled")?;
            println!("{step}: {}", requests.ensure_none_failed(100)?.summary());
            let after = world.workload().await?;
            ensure!(before == after, "before {before:?}, after {after:?}");
            world.ensure_gone(SEEDS.1).await?;
            ensure_hidden(&world, SEEDS.0).await?;
        }
        world.stop(SEEDS.0).await
    });
}

/// No Service and no DNSRecord leads to a member, and the Etcd is as it was.
pub async fn ensure_hidden(world: &World, seed: &str) -> Result<()> {
    let (cluster, namespace) = (&world.landscape.seed(seed)?.cluster, world.name().technical_id());
    until("members to be hidden", DEADLINE, async || {
        for path in ["api/v1", "apis/extensions.gardener.cloud/v1alpha1"] {
            let kind = if path == "api/v1" { "services" } else { "dnsrecords" };
            let selector = "labelSelector=migration.gardener.cloud/exposes-member";
            let path = format!("/{path}/namespaces/{namespace}/{kind}?{selector}");
            let all = cluster.api().get(&path).await?.ok()?;
            ensure!(all["items"].as_array().is_some_and(Vec::is_empty), "{all}");
        }
        let path = format!("/apis/druid.gardener.cloud/v1alpha1/namespaces/{namespace}/etcds/etcd-main");
        let etcd = cluster.api().get(&path).await?.ok()?;
        ensure!(etcd["spec"]["etcd"]["additionalAdvertisePeerURLs"] == Value::Null, "{etcd}");
        ensure!(etcd["spec"]["etcd"]["peerUrlTls"]["skipClientSANVerification"] != true, "{etcd}");
        Ok(())
    })
    .await
}
