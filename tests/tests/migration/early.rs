//! kube-apiservers of the destination that are started before its etcd serves.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use repot_tests::wait::until;
use serde_json::Value;

use super::story;
use super::world::{SEEDS, World, run, small};

/// From the etcd's first answer until a kube-apiserver is ready: less than the kubelet would wait by now.
const LONGEST: Duration = Duration::from_secs(15);
/// kube-apiserver gives up four times, each time after 20 s and longer waits.
const HELD_BACK: Duration = Duration::from_secs(300);

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
        let held_back =
            until("a kube-apiserver to be held back", HELD_BACK, async || held_back(&world).await).await;
        runner.wait_as_kubelet(false);
        world.freeze(SEEDS.1, &member, false)?;
        let held_back = held_back?;

        let migration = story::until_success(&world, "move", SEEDS.1).await?;
        let took = story::duration(&migration, ("destination", "ApiServes"))?;
        println!("a kube-apiserver was ready {took:?} after the etcd");
        ensure!(took < LONGEST, "a kube-apiserver was ready {took:?} after the etcd");
        let pods = api_pods(&world).await?;
        let stays = pods.iter().any(|pod| pod["metadata"]["name"] == held_back.as_str());
        ensure!(!stays, "{held_back} has waited for the kubelet, and was not replaced");
        world.ensure_moved(&before, SEEDS).await?;
        world.stop(SEEDS.1).await
    });
}

/// The Pod of a kube-apiserver that waits for so long that the etcd serves first: 40 s, after its third restart.
async fn held_back(world: &World) -> Result<String> {
    let pods = api_pods(world).await?;
    let waits = |pod: &&Value| {
        let container = &pod["status"]["containerStatuses"][0];
        let is_waiting = container["state"]["waiting"]["reason"] == "CrashLoopBackOff";
        is_waiting && container["restartCount"].as_u64() >= Some(3)
    };
    let held = pods.iter().find(waits).with_context(|| format!("none is held back: {pods:?}"))?;
    held["metadata"]["name"].as_str().map(str::to_owned).context("a Pod without a name")
}

/// Pods of kube-apiservers of the Shoot at the destination.
async fn api_pods(world: &World) -> Result<Vec<Value>> {
    let path = format!("/api/v1/namespaces/{}/pods", world.name().technical_id());
    let all = world.landscape.seed(SEEDS.1)?.cluster.api().get(&path).await?.ok()?;
    let is_api = |pod: &&Value| {
        pod["metadata"]["name"].as_str().is_some_and(|name| name.starts_with("kube-apiserver"))
    };
    Ok(all["items"].as_array().context("no list")?.iter().filter(is_api).cloned().collect())
}
