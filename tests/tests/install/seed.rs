//! The chart of a seed: its operator makes an etcd from the image of the chart.

use std::path::Path;

use anyhow::{Result, ensure};
use repot_tests::install::{ImageSource, NAMESPACE, World};
use repot_tests::{TestEnv, run};

const RELEASE: &str = "repot-seed";

#[test]
fn seed_has_an_etcd_that_is_made_from_its_chart() {
    run(async |env| install(env, &ImageSource::Programs).await);
}

/// Installs the chart with images of a source, makes an etcd, and uninstalls the chart.
pub(super) async fn install(env: &TestEnv, images: &ImageSource) -> Result<()> {
    let world = World::start_with(env, 1, images).await?;
    let crds = Path::new(env!("CARGO_MANIFEST_DIR")).join("crds/seed.yaml").display().to_string();
    world.kubectl(&["apply", "-f", &crds]).await?;
    let values = [
        "--set=storage.embedded.size=1Gi",
        "--set=storage.embedded.storageClassName=standard",
        "--set=apiserver.watchTerminationSeconds=1",
    ];
    world.deploy("install", RELEASE, &values).await?;
    world.until_available("v1alpha1.migration.gardener.cloud").await?;
    let said = world.helm(&["test", RELEASE, "--timeout=60s"]).await?;
    ensure!(said.contains("Phase:          Succeeded"), "{said}");
    world.kubectl(&["create", "namespace", "shoot--a--b"]).await?;
    let etcd = world.write("etcd.yaml", ETCD)?;
    world.kubectl(&["apply", "-f", &etcd]).await?;
    let ready = ["wait", "--for=condition=Ready", "etcd/main", "-n", "shoot--a--b", "--timeout=120s"];
    world.kubectl(&ready).await?;
    let hosted = world.write("hosted.yaml", HOSTED)?;
    world.kubectl(&["apply", "-f", &hosted]).await?;
    world.kubectl(&["get", "hostedetcds.migration.gardener.cloud", "b", "-n", "shoot--a--b"]).await?;
    let image = "jsonpath={.items[0].spec.containers[0].image}";
    let image = world.kubectl(&["get", "pods", "-n", "shoot--a--b", "-o", image]).await?;
    ensure!(image == "repot-etcd:0.1.0", "members run {image}");
    world.helm(&["uninstall", RELEASE, "--wait"]).await?;
    // What the operator made goes on without it.
    world.kubectl(&["get", "pod", "main-0", "-n", "shoot--a--b"]).await?;
    world.kubectl(&["get", "pvc/data-repot-apiserver-0", "-n", NAMESPACE]).await.map(drop)
}

const ETCD: &str = "
apiVersion: druid.gardener.cloud/v1alpha1
kind: Etcd
metadata: {name: main, namespace: shoot--a--b}
spec: {replicas: 1, storageClass: standard, storageCapacity: 1Gi}
";
const HOSTED: &str = "
apiVersion: migration.gardener.cloud/v1alpha1
kind: HostedEtcd
metadata: {name: b, namespace: shoot--a--b}
spec: {etcdRef: {name: main}, apiServerRef: {name: kube-apiserver}}
";
