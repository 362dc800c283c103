//! kube-apiservers of the destination that are started before its etcd serves.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use repot_tests::landscape::DEADLINE;
use repot_tests::wait::until;

use super::story;
use super::world::{SEEDS, World, run, small};

/// From the etcd's first answer until a kube-apiserver is ready: less than the kubelet would wait by now.
const LONGEST: Duration = Duration::from_secs(10);

/// The member that takes over stands still until kube-apiserver has given up, and the kubelet waits ever longer before it starts it again.
#[test]
#[ignore = "minutes, in make soak"]
fn kube_apiservers_that_have_given_up_serve_as_soon_as_the_etcd_does() {
    run(async |env| {
        let world = World::create(env, "sigma", small()).await?;
        let runner = &world.landscape.seed(SEEDS.1)?.runner;
        let before = world.workload().await?;
        story::create(&world, "move", SEEDS).await?;
        story::until_started(&world, "move", ("source", "SourceApiStopped")).await?;
        let all = world.containers(SEEDS.1).await?;
        let member: Vec<_> = all.into_iter().filter(|(pod, _)| pod == "etcd-main-0").collect();
        ensure!(!member.is_empty(), "the standby does not run");
        runner.wait_as_kubelet(true);
        world.freeze(SEEDS.1, &member, true)?;
        let waits =
            until("a kube-apiserver to be held back", DEADLINE, async || is_held_back(&world).await).await;
        runner.wait_as_kubelet(false);
        world.freeze(SEEDS.1, &member, false)?;
        waits?;

        let migration = story::until_success(&world, "move", SEEDS.1).await?;
        let took = story::duration(&migration, ("destination", "ApiServes"))?;
        println!("a kube-apiserver was ready {took:?} after the etcd");
        ensure!(took < LONGEST, "a kube-apiserver was ready {took:?} after the etcd");
        world.ensure_moved(&before, SEEDS).await?;
        world.stop(SEEDS.1).await
    });
}

/// Fails until the kubelet has waited twice, so that the wait is longer than what the test allows.
async fn is_held_back(world: &World) -> Result<()> {
    let path = format!("/api/v1/namespaces/{}/pods", world.name().technical_id());
    let all = world.landscape.seed(SEEDS.1)?.cluster.api().get(&path).await?.ok()?;
    let pods = all["items"].as_array().context("no list")?.iter();
    let waits = |pod: &&serde_json::Value| {
        let container = &pod["status"]["containerStatuses"][0];
        container["restartCount"].as_u64() >= Some(2)
            && container["state"]["waiting"]["reason"] == "CrashLoopBackOff"
    };
    let is_api = |pod: &&serde_json::Value| {
        pod["metadata"]["name"].as_str().is_some_and(|name| name.starts_with("kube-apiserver"))
    };
    let seen: Vec<_> = pods.filter(is_api).map(|pod| &pod["status"]["containerStatuses"]).collect();
    ensure!(all["items"].as_array().into_iter().flatten().filter(is_api).any(|pod| waits(&pod)), "{seen:?}");
    Ok(())
}
