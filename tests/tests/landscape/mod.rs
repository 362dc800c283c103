//! The landscape for migrations of control planes: what a test finds when it has started.

use anyhow::{Context, Result, ensure};
use repot_tests::landscape::{
    ControlPlaneOptions, DEADLINE, Landscape, LandscapeOptions, Shoot, ShootName, etcd, garden, memory,
};
use repot_tests::run;
use repot_tests::wait::until;
use serde_json::{Value, json};

/// What the whole landscape may use, in KiB.
const MEMORY_LIMIT: u64 = 12 * 1024 * 1024;
const SEED: &str = "seed-a";

#[test]
fn shoot_has_nodes_machines_etcds_backups_and_running_pods() {
    run(async |bed| {
        let landscape = Landscape::start(bed, LandscapeOptions::default()).await?;
        let name = ShootName::new("dev", "alpha");
        let shoot = landscape.create_shoot(bed, name, SEED, ControlPlaneOptions::default()).await?;
        nodes_of_both_pools_are_ready(&landscape, &shoot).await?;
        etcd_has_three_members_and_a_snapshot(&landscape, &shoot).await?;
        pods_of_a_deployment_run(&landscape, &shoot).await?;
        garden_has_ready_seeds_and_the_shoot(&landscape, &shoot).await?;
        deleted_machine_alone_is_replaced(&landscape, &shoot).await?;
        let used: u64 = memory::usage()?.values().map(|usage| usage.kib).sum();
        ensure!(used < MEMORY_LIMIT, "the landscape uses {used} KiB");
        Ok(())
    });
}

async fn nodes_of_both_pools_are_ready(landscape: &Landscape, shoot: &Shoot) -> Result<()> {
    let nodes = shoot.ready_nodes(&landscape.dns).await?;
    for pool in ["worker-a", "worker-b"] {
        let count = nodes.iter().filter(|(of, _)| of == pool).count();
        ensure!(count == 3, "{count} nodes of {pool} are Ready: {nodes:?}");
    }
    let api = shoot.control_plane.api(&landscape.dns)?;
    let listed = api.get("/api/v1/nodes").await?.ok()?;
    let mut ids: Vec<_> = items(&listed).filter_map(|node| node["spec"]["providerID"].as_str()).collect();
    ids.sort_unstable();
    let vms = landscape.cloud.client().vms().await?;
    let wanted: Vec<_> = vms.iter().map(|vm| vm.provider_id.as_str()).collect();
    ensure!(ids == wanted, "nodes have {ids:?}, the cloud has {wanted:?}");
    Ok(())
}

async fn etcd_has_three_members_and_a_snapshot(landscape: &Landscape, shoot: &Shoot) -> Result<()> {
    let (seed, plane) = (landscape.seed(SEED)?, &shoot.control_plane);
    let main = etcd::read(plane, seed, etcd::MAIN).await?;
    let members = main["status"]["members"].as_array().map_or(0, Vec::len);
    ensure!(members == 3, "{}", main["status"]);
    let files = seed.store.files(&format!("{}/{}", plane.shoot.technical_id(), etcd::MAIN));
    until("the first snapshot", DEADLINE, async || {
        let names: Vec<_> = std::fs::read_dir(files.join("v2"))?
            .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
            .collect::<std::io::Result<_>>()?;
        ensure!(names.iter().any(|name| name.starts_with("Full-")), "{names:?}");
        Ok(())
    })
    .await
}

async fn pods_of_a_deployment_run(landscape: &Landscape, shoot: &Shoot) -> Result<()> {
    let api = shoot.control_plane.api(&landscape.dns)?;
    let labels = json!({"app": "web"});
    let deployment = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"},
        "spec": {
            "replicas": 3, "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "web", "image": "web"}]}},
        },
    });
    api.post("/apis/apps/v1/namespaces/default/deployments", &deployment).await?.ok()?;
    until("the Deployment to be available", DEADLINE, async || {
        let path = "/apis/apps/v1/namespaces/default/deployments/web";
        let status = api.get(path).await?.ok()?["status"].clone();
        ensure!(status["availableReplicas"] == 3, "{status}");
        Ok(())
    })
    .await
}

async fn garden_has_ready_seeds_and_the_shoot(landscape: &Landscape, shoot: &Shoot) -> Result<()> {
    let garden = landscape.garden.as_ref().context("there is no garden")?;
    let (api, namespace) = (garden.cluster.api(), shoot.control_plane.shoot.project_namespace());
    let found = api.get(&format!("{}/namespaces/{namespace}/shoots/alpha", garden::CORE)).await?.ok()?;
    ensure!(found["spec"]["seedName"] == SEED && found["status"]["seedName"] == SEED, "{found}");
    let entries = api.get(&format!("{}/namespaces/{namespace}/backupentries", garden::CORE)).await?.ok()?;
    ensure!(items(&entries).count() == 1, "{entries}");
    let seeds = api.get(&format!("{}/seeds", garden::CORE)).await?.ok()?;
    let names: Vec<_> = items(&seeds).filter_map(|seed| seed["metadata"]["name"].as_str()).collect();
    ensure!(names == ["seed-a", "seed-b"], "{names:?}");
    let conditions =
        items(&seeds).flat_map(|seed| seed["status"]["conditions"].as_array().into_iter().flatten());
    let failing: Vec<_> = conditions.filter(|condition| condition["status"] != "True").collect();
    ensure!(failing.is_empty(), "{failing:?}");
    Ok(())
}

/// A Machine that is deleted by hand is replaced, so the controller acts on the cloud; the other five keep their VMs.
async fn deleted_machine_alone_is_replaced(landscape: &Landscape, shoot: &Shoot) -> Result<()> {
    let cloud = landscape.cloud.client();
    let counters = cloud.counters().await?;
    ensure!((counters.created, counters.deleted) == (6, 0), "{counters:?}");
    let before = cloud.vms().await?;
    let (seed, namespace) = (landscape.seed(SEED)?, shoot.control_plane.shoot.technical_id());
    let victim = &before[0].name;
    let delete = ["delete", "machine", victim, "-n", &namespace, "--wait=false"];
    seed.cluster.kubectl(delete).await?.text()?;
    until("the machine to be replaced", DEADLINE, async || {
        let counters = cloud.counters().await?;
        ensure!((counters.created, counters.deleted) == (7, 1), "{counters:?}");
        Ok(())
    })
    .await?;
    let after = cloud.vms().await?;
    let kept = before.iter().skip(1).all(|vm| after.contains(vm));
    ensure!(kept && after.len() == 6, "before {before:?}, after {after:?}");
    Ok(())
}

fn items(list: &Value) -> impl Iterator<Item = &Value> {
    list["items"].as_array().into_iter().flatten()
}
