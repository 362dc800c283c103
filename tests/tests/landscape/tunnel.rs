//! The tunnel of a Shoot: what kube-apiserver reaches only while an agent is connected.

use anyhow::{Result, ensure};
use repot_tests::kubectl::Kubectl;
use repot_tests::landscape::konnectivity::{AGENT, AGENT_NAMESPACE, SERVER};
use repot_tests::landscape::tunnel::{HOOKED, PING, SERVED};
use repot_tests::landscape::{
    ControlPlane, ControlPlaneOptions, DEADLINE, Landscape, LandscapeOptions, Seed, ShootName,
};
use repot_tests::run_large;
use repot_tests::wait::until;
use serde_json::json;

const SEED: &str = "seed-a";

#[test]
#[ignore = "minutes, in make soak"]
fn webhooks_exec_and_logs_go_through_the_tunnel() {
    run_large(async |env| {
        let seeds = vec![SEED.to_owned()];
        let landscape =
            Landscape::start(env, LandscapeOptions { seeds, garden: false, ..LandscapeOptions::default() })
                .await?;
        let options = ControlPlaneOptions {
            etcd_members: 1,
            api_servers: 1,
            pools: vec![("worker-a".to_owned(), 2)],
            tunnel: true,
            ..ControlPlaneOptions::default()
        };
        let shoot = landscape.create_shoot(env, ShootName::new("dev", "delta"), SEED, options).await?;
        let (seed, plane) = (landscape.seed(SEED)?, &shoot.control_plane);
        let kubectl = plane.kubectl_at(env, seed).await?;
        all_is_reached(plane, seed, &kubectl, "first").await?;

        kubectl.run(["scale", "deployment", AGENT, "-n", AGENT_NAMESPACE, "--replicas=0"]).await?.text()?;
        until_agents_are_gone(plane, seed).await?;
        nothing_is_reached(plane, seed, &kubectl).await?;
        until_server_is_ready(plane, seed, false).await?;

        kubectl.run(["scale", "deployment", AGENT, "-n", AGENT_NAMESPACE, "--replicas=1"]).await?.text()?;
        until_server_is_ready(plane, seed, true).await?;
        all_is_reached(plane, seed, &kubectl, "second").await
    });
}

async fn all_is_reached(plane: &ControlPlane, seed: &Seed, kubectl: &Kubectl, name: &str) -> Result<()> {
    create_in_hooked(kubectl, name).await?;
    let logs = kubectl.run(["logs", SERVED, "--tail=1"]).await?.text()?;
    ensure!(!logs.is_empty(), "the Pod has no logs");
    let answer = kubectl.run(["exec", SERVED, "--", "echo", name]).await?.text()?;
    ensure!(answer.contains(name), "exec answered {answer:?}");
    // kube-apiserver looks again at an API that failed after a while.
    until("the aggregated API to answer", DEADLINE, async || {
        let answer = plane.api_at(seed).await?.get(PING).await?;
        ensure!(answer.status == 200, "{answer}");
        Ok(())
    })
    .await
}

async fn nothing_is_reached(plane: &ControlPlane, seed: &Seed, kubectl: &Kubectl) -> Result<()> {
    let refused = create_in_hooked(kubectl, "refused").await;
    ensure!(refused.is_err(), "the webhook is reached without an agent");
    let logs = kubectl.run(["logs", SERVED, "--tail=1"]).await?.text();
    ensure!(logs.is_err(), "the kubelet is reached without an agent: {logs:?}");
    let answer = plane.api_at(seed).await?.get(PING).await?;
    ensure!(answer.status == 503, "the aggregated API is reached without an agent: {answer}");
    Ok(())
}

async fn create_in_hooked(kubectl: &Kubectl, name: &str) -> Result<()> {
    kubectl.run(["create", "configmap", name, "-n", HOOKED]).await?.text().map(drop)
}

async fn until_agents_are_gone(plane: &ControlPlane, seed: &Seed) -> Result<()> {
    until("the agents to be gone", DEADLINE, async || {
        let path = format!("/api/v1/namespaces/{AGENT_NAMESPACE}/pods?labelSelector=app%3D{AGENT}");
        let pods = plane.api_at(seed).await?.get(&path).await?.ok()?;
        ensure!(pods["items"] == json!([]), "{}", pods["items"]);
        Ok(())
    })
    .await
}

/// The server is ready while an agent is connected.
async fn until_server_is_ready(plane: &ControlPlane, seed: &Seed, ready: bool) -> Result<()> {
    until("the server to follow its agents", DEADLINE, async || {
        let path = format!("/apis/apps/v1/namespaces/{}/deployments/{SERVER}", plane.shoot.technical_id());
        let status = seed.cluster.api().get(&path).await?.ok()?["status"].clone();
        ensure!((status["readyReplicas"] == 1) == ready, "{status}");
        Ok(())
    })
    .await
}
