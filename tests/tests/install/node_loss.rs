//! A node with one of two API servers loses its power. Nothing tells kube-apiserver, so some requests fail until the endpoint is gone.
//! docs/operate/node-loss.md has what this measures.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use repot_tests::TestEnv;
use repot_tests::clientgo::ClientGo;
use repot_tests::etcd::EtcdCluster;
use repot_tests::install::{NAMESPACE, World};
use repot_tests::run;
use repot_tests::wait::until;
use serde_json::Value;

const RELEASE: &str = "repot-garden";
const API: &str = "v1alpha1.core.gardener.cloud";
const POD: &str = "app.kubernetes.io/name=repot-apiserver";
const SLICE: &str = "kubernetes.io/service-name=repot-apiserver";
/// kube-controller-manager's `--node-monitor-grace-period`, and what it takes to look, to write and to tell all others.
const UNNOTICED: f64 = 50.0 + 15.0;
/// kube-apiserver's `--request-timeout`, and some time to answer.
const LONGEST_ANSWER: f64 = 60.0 + 10.0;
/// Whether API servers watch each other.
const WATCHED: &str = "--set=apiserver.markLostPeers=true";
const UNWATCHED: &str = "--set=apiserver.markLostPeers=false";
const PAUSED: Duration = Duration::from_secs(10);

#[test]
#[ignore = "minutes, in make soak"]
fn requests_fail_until_a_lost_node_is_noticed_and_no_acknowledged_write_is_lost() {
    run(async |env| {
        let (unready, found) = lose_node(env, UNWATCHED, async |_, _, _| Ok(())).await?;
        ensure!(unready < UNNOTICED, "the endpoint was there for {unready:.1} s");
        let failed = found["create"]["failed"].as_u64().context("no number")?;
        ensure!(failed > 0, "nobody has noticed that the node is lost: {found}");
        Ok(())
    });
}

#[test]
#[ignore = "minutes, in make soak"]
fn requests_fail_no_longer_once_the_pod_of_a_lost_node_is_deleted() {
    run(async |env| {
        let delete = async |world: &World<'_>, node: &str, pod: &str| {
            // Nobody knows yet that the node cannot run the Pod that replaces this one.
            world.kubectl(&["cordon", node]).await?;
            world.kubectl(&["delete", "pod", pod, "-n", NAMESPACE, "--wait=false"]).await?;
            let began = Instant::now();
            let rollout =
                ["rollout", "status", "deployment/repot-apiserver", "-n", NAMESPACE, "--timeout=120s"];
            world.kubectl(&rollout).await?;
            println!("two API servers were ready after {:.1} s", began.elapsed().as_secs_f64());
            Ok(())
        };
        let (unready, _) = lose_node(env, UNWATCHED, delete).await?;
        ensure!(unready < 10.0, "the endpoint was there for {unready:.1} s");
        Ok(())
    });
}

#[test]
#[ignore = "minutes, in make soak"]
fn other_api_server_notices_a_lost_node_within_seconds() {
    run(async |env| {
        let look = async |world: &World<'_>, _: &str, pod: &str| marked(world, pod).await;
        let (unready, _) = lose_node(env, WATCHED, look).await?;
        ensure!(unready < 10.0, "the endpoint was there for {unready:.1} s");
        Ok(())
    });
}

#[test]
#[ignore = "minutes, in make soak"]
fn api_server_that_is_paused_for_ten_seconds_serves_again_by_itself() {
    run(async |env| {
        let (world, _etcd) = two_servers(env, WATCHED).await?;
        let (node, pod) = one_of_two(&world).await?;
        let mut load = begin_load(env, &world).await?;
        let paused = Instant::now();
        world.runner.freeze(NAMESPACE, &pod, "apiserver")?;
        until_unready(&world, &node).await?;
        println!("the endpoint was gone after {:.1} s", paused.elapsed().as_secs_f64());
        marked(&world, &pod).await?;
        tokio::time::sleep_until((paused + PAUSED).into()).await;
        world.runner.resume(NAMESPACE, &pod, "apiserver")?;
        let resumed = Instant::now();
        until_ready(&world, &node).await?;
        println!("it was back {:.1} s after the pause", resumed.elapsed().as_secs_f64());
        until_calm(&mut load, Duration::from_secs(20)).await?;
        println!("{:#}", load.ask("verify").await?);
        ensure!(ready_nodes(&world).await?.contains(&node), "it is not ready any more");
        let path = "jsonpath={.status.containerStatuses[*].restartCount}";
        let restarts = world.kubectl(&["get", "pod", &pod, "-n", NAMESPACE, "-o", path]).await?;
        ensure!(restarts == "0", "it was restarted {restarts} times");
        Ok(())
    });
}

/// Takes a node from an API server under load, does something about it, and gives the seconds until its endpoint is gone, and
/// the outcomes of all requests.
async fn lose_node(
    env: &TestEnv,
    watched: &str,
    react: impl AsyncFnOnce(&World<'_>, &str, &str) -> Result<()>,
) -> Result<(f64, Value)> {
    let (world, _etcd) = two_servers(env, watched).await?;
    let (node, pod) = one_of_two(&world).await?;
    let mut load = begin_load(env, &world).await?;
    let lost = Instant::now();
    world.runner.lose(&node).await?;
    let unready = async {
        until_unready(&world, &node).await?;
        anyhow::Ok(lost.elapsed().as_secs_f64())
    };
    let (unready, ()) = tokio::try_join!(unready, react(&world, &node, &pod))?;
    println!("the endpoint was gone after {unready:.1} s");
    until_calm(&mut load, Duration::from_secs(20)).await?;
    // Each object whose creation was acknowledged is there, or this says which is not.
    let found = load.ask("verify").await?;
    println!("{found:#}");
    for verb in ["create", "get"] {
        let number = |name: &str| found[verb][name].as_f64().context("no such number");
        // kube-apiserver learns of the endpoint a little later than this test.
        ensure!(
            number("lastFailed")? < unready + 5.0,
            "a {verb} failed after the endpoint was gone: {found}"
        );
        ensure!(number("slowestFailure")? < LONGEST_ANSWER, "a {verb} took too long to fail: {found}");
    }
    Ok((unready, found))
}

/// Two API servers on etcd, each on a node, and a third node.
async fn two_servers<'a>(env: &'a TestEnv, watched: &str) -> Result<(World<'a>, EtcdCluster)> {
    let world = World::start(env, 3).await?;
    world.apply_gardener_kinds().await?;
    let etcd = EtcdCluster::start(env, 1).await?;
    let url = etcd.endpoints().first().context("no etcd")?.clone();
    let port: u16 = url.rsplit(':').next().context("no port")?.parse()?;
    let servers = format!("--set=storage.etcd.servers={{http://{}}}", world.runner.expose(port)?);
    world.deploy("install", RELEASE, &["--set=storage.type=etcd", &servers, watched]).await?;
    world.until_available(API).await?;
    Ok((world, etcd))
}

/// Clients whose requests are counted from now on.
async fn begin_load(env: &TestEnv, world: &World<'_>) -> Result<ClientGo> {
    let mut load = ClientGo::start(env, "load", world.garden.kubeconfig(), &[])?;
    load.answer().await?;
    until_calm(&mut load, Duration::from_secs(10)).await?;
    load.ask("mark").await?;
    Ok(load)
}

/// Waits for the Event on a Pod that another API server has marked as not ready.
async fn marked(world: &World<'_>, pod: &str) -> Result<()> {
    let of_pod = format!("--field-selector=involvedObject.name={pod},reason=PeerUnreachable");
    until("the Event on the Pod", Duration::from_secs(60), async || {
        let found = world.kubectl(&["get", "events", "-n", NAMESPACE, &of_pod, "-o", "name"]).await?;
        ensure!(found.lines().count() == 1, "Events: {found:?}");
        Ok(())
    })
    .await
}

/// The node and the name of one of the API servers, which are on two.
async fn one_of_two(world: &World<'_>) -> Result<(String, String)> {
    let path = "jsonpath={range .items[*]}{.spec.nodeName} {.metadata.name}{\"\\n\"}{end}";
    let found = world.kubectl(&["get", "pods", "-n", NAMESPACE, "-l", POD, "-o", path]).await?;
    let pods: Vec<(&str, &str)> = found.lines().filter_map(|line| line.split_once(' ')).collect();
    ensure!(pods.len() == 2 && pods[0].0 != pods[1].0, "API servers are on {pods:?}");
    Ok((pods[0].0.to_owned(), pods[0].1.to_owned()))
}

async fn until_unready(world: &World<'_>, node: &str) -> Result<()> {
    until("the endpoint to be gone", Duration::from_secs(120), async || {
        let nodes = ready_nodes(world).await?;
        ensure!(!nodes.is_empty() && !nodes.iter().any(|ready| ready == node), "{nodes:?}");
        Ok(())
    })
    .await
}

async fn until_ready(world: &World<'_>, node: &str) -> Result<()> {
    until("the endpoint to be back", Duration::from_secs(60), async || {
        let nodes = ready_nodes(world).await?;
        ensure!(nodes.iter().any(|ready| ready == node), "{nodes:?}");
        Ok(())
    })
    .await
}

/// Nodes of ready endpoints.
async fn ready_nodes(world: &World<'_>) -> Result<Vec<String>> {
    let path = "jsonpath={.items[*].endpoints[?(@.conditions.ready==true)].nodeName}";
    let nodes = world.kubectl(&["get", "endpointslices", "-n", NAMESPACE, "-l", SLICE, "-o", path]).await?;
    Ok(nodes.split_whitespace().map(str::to_owned).collect())
}

/// Waits until for so long no request has failed or took a second, and none waits for an answer.
async fn until_calm(load: &mut ClientGo, calm: Duration) -> Result<()> {
    until("calm", Duration::from_secs(300), async || {
        let found: Value = load.ask("report").await?;
        let seconds = found["seconds"].as_f64().context("no time")?;
        let trouble = ["create", "get"].iter().flat_map(|verb| {
            let of = &found[verb];
            [of["lastFailed"].as_f64(), of["lastSlow"].as_f64()]
        });
        let last = trouble.flatten().fold(0.0, f64::max);
        ensure!(seconds - last > calm.as_secs_f64() && found["waiting"] == 0, "{found}");
        Ok(())
    })
    .await
}
