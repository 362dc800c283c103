//! The tunnel to the Shoot moves with the control plane: what kube-apiservers reach through it, they reach all the time.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use repot_tests::clientgo::ClientGo;
use repot_tests::landscape::konnectivity::AGENT_NAMESPACE;
use repot_tests::landscape::tunnel::{HOOKED, PING, SERVED};
use repot_tests::landscape::wide_network::TRANSLATION;
use repot_tests::landscape::{ControlPlaneOptions, DEADLINE};
use repot_tests::wait::until;
use repot_tests::{TestEnv, binaries};
use serde::Deserialize;
use serde_json::Value;
use tokio::process::Command;

use super::whole::{ensure_hidden, highly_available};
use crate::migration::departure::{self, Departure};
use crate::migration::faulty_seed::Fault;
use crate::migration::story;
use crate::migration::world::{SEEDS, World, run};

/// What the program says of its operations and streams.
#[derive(Debug, Deserialize)]
struct Stats {
    operations: BTreeMap<String, Operation>,
    streams: BTreeMap<String, Stream>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Operation {
    done: u64,
    failed: u64,
    longest_ms: u64,
    first_errors: Vec<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Stream {
    broken: u64,
    longest_silence_ms: u64,
}

/// Each of these needs the tunnel.
const OPERATIONS: [&str; 5] = ["webhook", "exec", "logs", "portforward", "aggregated"];
/// A migration takes minutes, and each operation runs four times a second.
const LEAST: u64 = 300;
/// A request that is under way when the temporary client ends may fail: one through each kube-apiserver.
const UNDER_WAY: u64 = 2;

/// A webhook that must not fail, `exec`, `logs`, `port-forward` and an aggregated API, four times a second each; and streams of `exec` and
/// `logs`, which break where the kube-apiserver ends that they go through.
#[test]
#[ignore = "minutes, in make soak"]
fn webhooks_exec_and_logs_work_while_a_control_plane_moves_there_and_back() {
    run(async |env| {
        let options = ControlPlaneOptions { tunnel: true, ..highly_available() };
        let world = World::create(env, "tunnel", options).await?;
        let before = world.workload().await?;
        let mut load = start(env, &world)?;
        println!("{}", load.answer().await?);
        for (moves, (name, seeds)) in (1..).zip([("there", SEEDS), ("back", (SEEDS.1, SEEDS.0))]) {
            story::create_live(&world, name, seeds).await?;
            let migration = story::until_success(&world, name, seeds.1).await?;
            println!("{}", story::timeline(&migration).join("\n"));
            ensure_works(load.ask("stats").await?, moves)?;
            world.ensure_moved(&before, seeds).await?;
            ensure_hidden(&world, seeds.1).await?;
            ensure_usual_clients(&world).await?;
        }
        ensure_works(load.ask("stop").await?, 2)?;
        world.stop(SEEDS.0).await
    });
}

/// An abort leaves the tunnel as it was.
#[test]
#[ignore = "minutes, in make soak"]
fn tunnel_is_as_before_when_a_migration_is_aborted() {
    run(async |env| {
        let options = ControlPlaneOptions { tunnel: true, ..highly_available() };
        let world = World::create(env, "stays", options).await?;
        let mut load = start(env, &world)?;
        println!("{}", load.answer().await?);
        story::create_live(&world, "there", SEEDS).await?;
        story::until_started(&world, "there", ("destination", "ApiDnsSwitched")).await?;
        story::abort(&world, "there").await?;
        story::ensure_phase(&story::until_end(&world, "there").await?, "Cancelled")?;
        ensure_works(load.ask("stop").await?, 1)?;
        ensure_hidden(&world, SEEDS.0).await?;
        ensure_usual_clients(&world).await?;
        world.stop(SEEDS.0).await
    });
}

/// The source dies when the Shoot has a temporary client. It is in the snapshot that a forced migration restores, and its name in DNS is gone.
#[test]
#[ignore = "minutes, in make soak"]
fn temporary_client_is_removed_by_the_forced_migration_that_follows() {
    run(async |env| {
        let options = ControlPlaneOptions { tunnel: true, ..highly_available() };
        let world = World::create(env, "orphan", options).await?;
        story::create_live(&world, "there", SEEDS).await?;
        story::until_reached(&world, "there", ("destination", "TunnelServes")).await?;
        let clients = temporary_clients(&world).await?;
        let [client] = clients.as_slice() else { bail!("one temporary client, not {clients:?}") };
        departure::until_object_is_stored(&world, SEEDS.0, client).await?;
        let fault = Fault::StandsStill;
        let departure =
            Departure { world: &world, name: "forced", seeds: SEEDS, fault, lasts: Duration::ZERO };
        departure::leave(&[departure]).await?;
        story::ensure_phase(&story::read(&world, "there").await?, "RolledBack")?;
        ensure_usual_clients(&world).await?;
        let mut load = start(env, &world)?;
        println!("{}", load.answer().await?);
        until("all operations to work", DEADLINE, async || {
            let stats: Stats = serde_json::from_value(load.ask("stats").await?)?;
            let is_used = |name: &&str| stats.operations.get(*name).is_some_and(|it| it.done >= LEAST / 10);
            ensure!(OPERATIONS.iter().all(is_used), "{stats:?}");
            Ok(())
        })
        .await?;
        let stats: Stats = serde_json::from_value(load.ask("stop").await?)?;
        ensure!(stats.operations.values().all(|it| it.failed == 0), "{stats:?}");
        for name in ["there", "forced"] {
            story::delete(&world, name).await?;
        }
        world.stop(SEEDS.1).await
    });
}

fn start(env: &TestEnv, world: &World) -> Result<ClientGo> {
    let dir = env.make_dir("tunnel-load")?;
    let server = format!("https://{}", world.name().api_domain());
    let kubeconfig = world.shoot.control_plane.admin_access(&server)?.write(dir.join("kubeconfig"))?;
    let mut program = Command::new(binaries::find("tunnel")?);
    program.arg("--kubeconfig").arg(&kubeconfig);
    program.args([
        format!("--resolver={}", world.landscape.dns.address()),
        format!("--translation={TRANSLATION}"),
        format!("--pod={SERVED}"),
        format!("--webhook-namespace={HOOKED}"),
        format!("--aggregated={PING}/pings"),
    ]);
    ClientGo::speak_with("tunnel", program, &dir.join("tunnel.log"))
}

/// After so many moves, or returns.
fn ensure_works(answer: Value, moves: u64) -> Result<()> {
    println!("{answer}");
    let stats: Stats = serde_json::from_value(answer).context("not what the program says")?;
    for name in OPERATIONS {
        let operation = stats.operations.get(name).with_context(|| format!("{name} is not used"))?;
        let (failed, most) = (operation.failed, moves * UNDER_WAY);
        ensure!(failed <= most, "{name} failed {failed} times: {:?}", operation.first_errors);
        ensure!(operation.done >= LEAST, "{name} was used {} times only", operation.done);
        ensure!(operation.longest_ms < 10_000, "{name} took {} ms", operation.longest_ms);
    }
    for (name, stream) in &stats.streams {
        println!("{name} broke {} times, silent for {} ms", stream.broken, stream.longest_silence_ms);
    }
    Ok(())
}

/// No Deployment in the Shoot says that a migration has made it.
async fn ensure_usual_clients(world: &World) -> Result<()> {
    until("the temporary client to be gone", DEADLINE, async || {
        let clients = temporary_clients(world).await?;
        ensure!(clients.is_empty(), "{clients:?}");
        Ok(())
    })
    .await
}

/// Deployments in the Shoot that say that a migration has made them.
async fn temporary_clients(world: &World) -> Result<Vec<Value>> {
    let selector = "labelSelector=migration.gardener.cloud/made-by";
    let path = format!("/apis/apps/v1/namespaces/{AGENT_NAMESPACE}/deployments?{selector}");
    let mut all = world.api()?.get(&path).await?.ok()?;
    Ok(serde_json::from_value(all["items"].take())?)
}
