//! The gardenlet of Gardener installs the seed chart, as the page about seeds of a Gardener landscape says, and removes it again. The
//! runtime cluster is the seed.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use repot_tests::gardener;
use repot_tests::install::{ImageSource, World};
use repot_tests::run;
use repot_tests::virtual_garden::VirtualGarden;
use repot_tests::wait::until;
use serde_json::{Value, json};

use super::controller_registration::{LABEL, REGISTRATION};
use super::gardener::{INSTALL, SHOOT, TECHNICAL_ID, create_shoot, open, put_seed};

const SEED: &str = "eu-1";
const INSTALLATIONS: &str = "/apis/core.gardener.cloud/v1beta1/controllerinstallations";
const DEADLINE: Duration = Duration::from_secs(300);

#[test]
#[ignore = "minutes, in make soak"]
fn gardenlet_installs_the_seed_chart_and_removes_it() {
    run(async |env| {
        let runtime = World::start_bare(env, 2, &ImageSource::Programs).await?;
        let garden = VirtualGarden::start(env, &runtime).await?;
        let pages = open(env, &runtime, &garden).await?;
        pages.run(&INSTALL).await?;
        put_seed(&garden, &gardener::seed(SEED)).await?;
        garden.start_controllers(&runtime).await?;
        for kinds in ["crds/extensions.yaml", "../deploy/crds/etcds.yaml"] {
            let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(kinds).display().to_string();
            runtime.kubectl(&["apply", "--server-side", "-f", &file]).await?;
        }
        pages.write("seed.yaml", &pages.text(REGISTRATION, "yaml")?)?;
        pages.run(&[REGISTRATION]).await?;
        garden.kubectl(&["label", "seed", SEED, LABEL]).await?;
        garden.start_gardenlet(&runtime, SEED).await?;
        until_says(&garden, "Installed").await?;
        until_says(&garden, "Healthy").await?;
        works(&runtime).await?;
        controllers_reach_the_garden(&runtime, &garden).await?;
        garden.kubectl(&["label", "seed", SEED, "repot.gardener.cloud/install-"]).await?;
        is_removed(&runtime, &garden).await
    });
}

/// The ControllerInstallation of the chart; `None` when there is none.
async fn installation(garden: &VirtualGarden) -> Result<Option<Value>> {
    let all = garden.api.get(INSTALLATIONS).await?.ok()?;
    let mut all = all["items"].as_array().context("no items")?.iter();
    Ok(all.find(|one| one["spec"]["registrationRef"]["name"] == "repot-seed").cloned())
}

async fn until_says(garden: &VirtualGarden, condition: &str) -> Result<()> {
    until(&format!("the ControllerInstallation to be {condition}"), DEADLINE, async || {
        let found = installation(garden).await?.context("there is no ControllerInstallation")?;
        let conditions = found["status"]["conditions"].as_array().context("it has no conditions")?;
        let is_true = conditions.iter().any(|one| one["type"] == condition && one["status"] == "True");
        ensure!(is_true, "{conditions:?}");
        Ok(())
    })
    .await
}

/// The namespace that gardenlet has made for the chart.
async fn namespace(runtime: &World<'_>) -> Result<String> {
    let label = "controllerregistration.core.gardener.cloud/name=repot-seed";
    runtime.kubectl(&["get", "namespaces", "-l", label, "-o", "jsonpath={.items[*].metadata.name}"]).await
}

/// All Pods are ready, and the API is served with a CA bundle that gardener-resource-manager leaves alone.
async fn works(runtime: &World<'_>) -> Result<()> {
    let namespace = namespace(runtime).await?;
    let rollout = |name| ["rollout", "status", name, "-n", &namespace, "--timeout=120s"];
    for name in ["statefulset/repot-apiserver", "deployment/repot-webhook", "deployment/repot-controllers"] {
        runtime.kubectl(&rollout(name)).await?;
    }
    runtime.until_available("v1alpha1.migration.gardener.cloud").await?;
    runtime.kubectl(&["get", "hostedetcds.migration.gardener.cloud", "-A"]).await.map(drop)
}

/// The controllers bring the state of a Shoot to the garden, by the kubeconfig and with the rights of the account that gardenlet made.
async fn controllers_reach_the_garden(runtime: &World<'_>, garden: &VirtualGarden) -> Result<()> {
    create_shoot(garden).await?;
    let shoot = garden.api.get(SHOOT).await?.ok()?;
    let labels = json!({"gardener.cloud/role": "shoot"});
    let cluster = json!({
        "apiVersion": "extensions.gardener.cloud/v1alpha1", "kind": "Cluster", "metadata": {"name": TECHNICAL_ID},
        "spec": {"cloudProfile": {}, "seed": {}, "shoot": shoot},
    });
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "stringData": {"key": "value"},
        "metadata": {"name": "ca", "namespace": TECHNICAL_ID, "labels": {"persist": "true", "managed-by": "secrets-manager", "manager-identity": "gardenlet"}},
    });
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": TECHNICAL_ID, "labels": labels}});
    runtime.garden.apply(&[namespace, secret, cluster]).await?;
    let path = "/apis/migration.gardener.cloud/v1alpha1/namespaces/garden-virtual/shootstates/one";
    until("the ShootState of the Shoot", DEADLINE, async || {
        let state = garden.api.get(path).await?.ok()?;
        ensure!(state["spec"]["gardener"][0]["name"] == "ca", "{state}");
        Ok(())
    })
    .await
}

/// gardenlet deletes all of the chart, with its namespace and volume.
async fn is_removed(runtime: &World<'_>, garden: &VirtualGarden) -> Result<()> {
    until("the chart to be removed", DEADLINE, async || {
        ensure!(installation(garden).await?.is_none(), "the ControllerInstallation is there");
        let namespace = namespace(runtime).await?;
        ensure!(namespace.is_empty(), "{namespace} is there");
        Ok(())
    })
    .await?;
    let services = runtime.kubectl(&["get", "apiservices", "-o", "name"]).await?;
    ensure!(!services.contains("migration.gardener.cloud"), "{services}");
    Ok(())
}
