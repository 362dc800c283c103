use std::time::Duration;

use anyhow::{Context, Result, ensure};
use repot_tests::garden::{Garden, GardenOptions};
use repot_tests::pods::{PodRunner, PodRunnerOptions};
use repot_tests::process::wait_until_gone;
use repot_tests::wait::until;
use repot_tests::{TestEnv, run};
use serde_json::{Value, json};

use super::world::{DEADLINE, images, pod, shell};

async fn start(env: &TestEnv) -> Result<(Garden, PodRunner)> {
    // A node is lost after forty seconds as a rule; no pod is driven away here before five minutes.
    let flags = ["--node-monitor-period=500ms", "--node-monitor-grace-period=4s"].map(str::to_owned);
    let options = GardenOptions {
        controller_manager: true,
        controller_manager_flags: flags.into(),
        ..GardenOptions::default()
    };
    let garden = Garden::start_with(env, options).await?;
    let options = PodRunnerOptions { images: images()?, ..PodRunnerOptions::default() };
    let runner = PodRunner::start(env, &garden, options).await?;
    Ok((garden, runner))
}

async fn wait_for_ready(garden: &Garden, expected: &str) -> Result<()> {
    until(&format!("Ready={expected}"), DEADLINE, async || {
        let node = garden.kubectl(["get", "node", "node-0", "-o", "json"]).await?.json()?;
        let conditions = node["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let ready = conditions.iter().find(|c| c["type"] == "Ready").context("no condition")?;
        ensure!(ready["status"] == expected, "it is {ready}");
        Ok(())
    })
    .await
}

#[test]
fn node_without_heartbeat_is_lost_and_found_and_all_ends_with_the_runner() {
    run(async |env| {
        let (garden, runner) = start(env).await?;
        let mut main = shell("echo $$$$ >/env/pid; sleep 600 & wait");
        main["volumeMounts"] = json!([{"name": "env", "mountPath": "/env"}]);
        let volumes = json!([{"name": "env", "hostPath": {"path": env.path()}}]);
        let mut object: Value = pod("p", json!({"containers": [main], "volumes": volumes}));
        object["metadata"]["namespace"] = "default".into();
        garden.apply(&[object]).await?;
        let pid = until("its pid", DEADLINE, async || {
            Ok(std::fs::read_to_string(env.path().join("pid"))?.trim().parse::<u32>()?)
        });
        let pid = pid.await?;

        runner.set_heartbeat("node-0", false).await?;
        wait_for_ready(&garden, "Unknown").await?;
        runner.set_heartbeat("node-0", true).await?;
        wait_for_ready(&garden, "True").await?;
        runner.set_ready("node-0", false).await?;
        wait_for_ready(&garden, "False").await?;

        drop(runner);
        wait_until_gone(pid, Duration::from_secs(10)).await
    });
}
