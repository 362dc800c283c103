//! The landscape for migrations of control planes: what a test finds when it has started.

mod provider;
mod tunnel;
mod workers;
mod world;

use anyhow::{Context, Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use repot_tests::landscape::{
    ControlPlaneOptions, DEADLINE, Landscape, LandscapeOptions, Shoot, ShootName, carry, etcd, extensions,
    garden, memory,
};
use repot_tests::run_large;
use repot_tests::wait::until;
use serde_json::{Value, json};

/// What the whole landscape may use, in KiB.
const MEMORY_LIMIT: u64 = 12 * 1024 * 1024;
const SEED: &str = "seed-a";
/// Kinds of a control plane by the path of their group.
const MOVING: &[(&str, &[&str])] = &[
    ("/api/v1", &["secrets", "services", "serviceaccounts"]),
    ("/apis/apps/v1", &["deployments"]),
    ("/apis/rbac.authorization.k8s.io/v1", &["roles", "rolebindings"]),
    ("/apis/druid.gardener.cloud/v1alpha1", &["etcds"]),
    ("/apis/machine.sapcloud.io/v1alpha1", &["machineclasses"]),
    (
        "/apis/extensions.gardener.cloud/v1alpha1",
        &[
            "infrastructures",
            "controlplanes",
            "networks",
            "workers",
            "operatingsystemconfigs",
            "containerruntimes",
            "extensions",
            "dnsrecords",
        ],
    ),
];
/// Some of each kind.
const CARRIED: &[&str] = &[
    "secrets/kube-apiserver",
    "secrets/etcd-main-server",
    "secrets/machine-user-data",
    "secrets/cloudprovider",
    "services/kube-apiserver",
    "serviceaccounts/machine-controller-manager",
    "deployments/kube-apiserver",
    "deployments/kube-controller-manager",
    "deployments/kube-scheduler",
    "deployments/machine-controller-manager",
    "roles/machine-controller-manager",
    "rolebindings/machine-controller-manager",
    "etcds/etcd-main",
    "etcds/etcd-events",
    "infrastructures/alpha",
    "controlplanes/alpha",
    "networks/alpha",
    "workers/alpha",
    "operatingsystemconfigs/worker-a-original",
    "containerruntimes/local-worker-a",
    "extensions/local-before",
    "extensions/local-after",
    "dnsrecords/alpha-internal",
];

#[test]
#[ignore = "minutes, in make soak; each migration starts such a Shoot"]
fn shoot_has_nodes_machines_etcds_backups_and_running_pods() {
    run_large(async |env| {
        let landscape = Landscape::start(env, LandscapeOptions::default()).await?;
        let name = ShootName::new("dev", "alpha");
        let shoot = landscape.create_shoot(env, name, SEED, ControlPlaneOptions::default()).await?;
        nodes_of_both_pools_are_ready(&landscape, &shoot).await?;
        etcd_has_three_members_and_a_snapshot(&landscape, &shoot).await?;
        pods_of_a_deployment_run(&landscape, &shoot).await?;
        garden_has_ready_seeds_and_the_shoot(&landscape, &shoot).await?;
        garden_has_credentials_of_the_buckets(&landscape).await?;
        records_name_the_seed_and_its_load_balancer(&landscape, &shoot).await?;
        objects_say_whether_they_move(&landscape, &shoot).await?;
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
    let files = seed.store.files(&format!("{}/{}", plane.shoot.backup_entry(), etcd::MAIN));
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

async fn garden_has_credentials_of_the_buckets(landscape: &Landscape) -> Result<()> {
    let api = landscape.garden.as_ref().context("there is no garden")?.cluster.api();
    for seed in &landscape.seeds {
        let found = api.get(&format!("{}/seeds/{}", garden::CORE, seed.name)).await?.ok()?;
        let reference = &found["spec"]["backup"]["credentialsRef"];
        ensure!(reference["name"] == garden::backup_credentials(&seed.name), "{reference}");
        let namespace = reference["namespace"].as_str().context("a namespace")?;
        let path =
            format!("/api/v1/namespaces/{namespace}/secrets/{}", garden::backup_credentials(&seed.name));
        let (secret, wanted) = (api.get(&path).await?.ok()?, seed.backup_secret("x"));
        for (key, value) in wanted["stringData"].as_object().context("no data")? {
            let data = STANDARD.decode(secret["data"][key].as_str().context("a key is missing")?)?;
            ensure!(Some(data.as_slice()) == value.as_str().map(str::as_bytes), "{key} differs");
        }
    }
    Ok(())
}

async fn records_name_the_seed_and_its_load_balancer(landscape: &Landscape, shoot: &Shoot) -> Result<()> {
    let (seed, plane, resolver) = (landscape.seed(SEED)?, &shoot.control_plane, landscape.dns.resolver());
    let owner = resolver.texts(&plane.shoot.owner_domain()).await?;
    ensure!(owner == ["seed-a/1"], "the owner is {owner:?}");
    let address = resolver.addresses(&plane.shoot.api_domain()).await?;
    ensure!(address == [plane.address(seed).await?], "the API is at {address:?}");
    let answer = plane.api_at(seed).await?.get("/readyz").await?;
    ensure!(answer.status == 200, "{answer}");
    let record = extensions::read(plane, seed, "DNSRecord", "alpha-internal").await?;
    let bindings = record["metadata"]["annotations"][carry::BINDINGS].as_str();
    ensure!(bindings == Some(r#"{"/spec/values/0":"${apiServer.address}"}"#), "{bindings:?}");
    Ok(())
}

/// Whether each object of the control plane is carried, by its path in the namespace; objects of controllers are left out.
async fn objects_say_whether_they_move(landscape: &Landscape, shoot: &Shoot) -> Result<()> {
    let (seed, namespace) = (landscape.seed(SEED)?, shoot.control_plane.shoot.technical_id());
    let (mut moves, mut stays) = (Vec::new(), Vec::new());
    for (group, plurals) in MOVING {
        for plural in *plurals {
            let list =
                seed.cluster.api().get(&format!("{group}/namespaces/{namespace}/{plural}")).await?.ok()?;
            for object in items(&list) {
                let metadata = &object["metadata"];
                let name = format!("{plural}/{}", metadata["name"].as_str().unwrap_or_default());
                let (carried, persists) =
                    (metadata["labels"][carry::CARRY] == "true", metadata["labels"]["persist"] == "true");
                ensure!(!(carried && persists), "{name} is carried twice");
                if metadata["ownerReferences"].is_null() && !persists {
                    (if carried { &mut moves } else { &mut stays }).push(name);
                }
            }
        }
    }
    for name in CARRIED {
        ensure!(moves.iter().any(|found| found == name), "{name} is not carried: {moves:?}");
    }
    for name in ["secrets/etcd-backup", "dnsrecords/alpha-owner", "serviceaccounts/default"] {
        ensure!(stays.iter().any(|found| found == name), "{name} is not left: {stays:?}");
    }
    ensure!(!moves.iter().any(|name| name.starts_with("machineclasses")), "{moves:?}");
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

pub(crate) fn items(list: &Value) -> impl Iterator<Item = &Value> {
    list["items"].as_array().into_iter().flatten()
}
