//! The controllers are killed in each step.

use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use repot_tests::run;

use super::super::table::Lane;
use super::super::world::{CONTROLLERS, SYSTEM, TestNamespace};
use super::{FaultRun, LaneRun};

/// How long the migration may take: each kill costs the time of a Lease.
const LIMIT: Duration = Duration::from_secs(900);

#[test]
#[ignore = "takes minutes: make soak"]
fn controllers_are_killed_in_each_step() {
    run(async |env| {
        let mut lane = LaneRun::start(env, Lane::Soak, "1m").await?;
        lane.play("controllers", controllers_are_killed).await?;
        lane.ends()
    });
}

async fn controllers_are_killed(run: &FaultRun<'_>) -> Result<()> {
    let ns = run.ns();
    let pod = pod_of_controllers(ns).await?;
    let running = r#"-o=custom-columns=R:.status.steps[?(@.state=="Running")].name,E:.status.completionTime"#;
    // Each state that is written is shown, however short it lasts.
    let mut watch = ns.watch(&["get", "etcdmigrations", "-w", "--no-headers", running])?;
    run.migrate().await?;
    let killed = async {
        let mut steps: Vec<String> = Vec::new();
        loop {
            let line = watch.line().await?;
            let [running, ended] = line.split_whitespace().collect::<Vec<_>>()[..] else { bail!("{line}") };
            if ended != "<none>" {
                return Ok::<_, anyhow::Error>(steps);
            }
            let begun = running.split(',').filter(|step| *step != "<none>");
            let begun: Vec<_> =
                begun.filter(|step| !steps.iter().any(|known| known == step)).map(str::to_owned).collect();
            if !begun.is_empty() {
                ns.world.runner.kill(SYSTEM, &pod, "controllers")?;
                steps.extend(begun);
            }
        }
    };
    let killed = tokio::time::timeout(LIMIT, killed).await??;
    println!("killed in {killed:?}");
    let ended = run.ends().await?;
    let all = ended["status"]["steps"].as_array().context("steps")?;
    let left: Vec<_> = all
        .iter()
        .filter_map(|step| step["name"].as_str())
        .filter(|name| !killed.iter().any(|step| step == name))
        .collect();
    // What these wait for is there already: nobody sees them run, and nobody is killed in them.
    let quick = ["EtcdServes", "ProvedEqual"];
    let missed = left.iter().any(|step| !quick.contains(step));
    ensure!(!missed && all.len() == 12, "not killed in {left:?} of {}", all.len());
    Ok(())
}

async fn pod_of_controllers(ns: &TestNamespace) -> Result<String> {
    let listed = ["get", "pods", "-n", SYSTEM, "-l", "app=repot-controllers", "-o", "name"];
    let pods = ns.world.garden.kubectl(listed).await?.text()?;
    let pod = pods.lines().next().context("there are no controllers")?.trim_start_matches("pod/").to_owned();
    ensure!(pod.starts_with(CONTROLLERS), "{pod}");
    Ok(pod)
}
