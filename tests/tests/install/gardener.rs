//! The garden chart on a Gardener landscape: Pods in a runtime cluster, API objects in a virtual garden with gardener-apiserver. The
//! commands are those of the pages.

use std::time::Duration;

use anyhow::{Result, ensure};
use repot_tests::gardener::{self, operation};
use repot_tests::install::{ImageSource, NAMESPACE, World};
use repot_tests::pods::Image;
use repot_tests::virtual_garden::VirtualGarden;
use repot_tests::wait::until;
use repot_tests::{TestEnv, repot, run};
use serde_json::{Value, json};

use super::controller_registration;
use super::page::Pages;

const PAGES: [&str; 2] = ["install/gardener.md", "install/gardener-seeds.md"];
const PROJECT: &str = "virtual";
const CORE: &str = "/apis/core.gardener.cloud/v1beta1";
const SHOOTS: &str = "/apis/core.gardener.cloud/v1beta1/namespaces/garden-virtual/shoots";
/// The path of the Shoot of these tests.
pub const SHOOT: &str = "/apis/core.gardener.cloud/v1beta1/namespaces/garden-virtual/shoots/one";
/// The namespace of its control plane.
pub const TECHNICAL_ID: &str = "shoot--virtual--one";
const MERGE: &str = "application/merge-patch+json";
/// Plugins of gardener-apiserver look at caches, which learn of new objects a little later.
const KNOWN_DEADLINE: Duration = Duration::from_secs(60);
/// The steps of the first page that install the chart.
pub const INSTALL: [&str; 3] = ["1. An account in the virtual garden", "2. The Pods", "3. The registration"];
/// Where the pages have the images.
const REGISTRY: &str = "registry.example.com";

#[test]
fn garden_chart_serves_a_virtual_garden_beside_gardener() {
    run(async |env| {
        let runtime = World::start_bare(env, 2, &ImageSource::Programs).await?;
        let garden = VirtualGarden::start(env, &runtime).await?;
        let pages = open(env, &runtime, &garden).await?;
        pages.run(&INSTALL).await?;
        let said = pages.run(&["4. See that it works"]).await?;
        ensure!(said.contains("Phase:          Succeeded"), "{said}");
        stores_a_shootstate(&garden).await?;
        webhooks_are_asked(&garden).await?;
        controller_registration::is_handed_out(&pages, &runtime, &garden).await?;
        pages.run(&["Uninstall"]).await?;
        is_gone(&runtime, &garden).await
    });
}

/// The pages with the files and variables that their reader has.
pub async fn open(env: &TestEnv, runtime: &World<'_>, garden: &VirtualGarden) -> Result<Pages> {
    for image in ["repot", "repot-etcd"] {
        runtime.runner.images().add(&format!("{REGISTRY}/{image}:0.1.0"), Image::of(repot::program()?));
    }
    let class = ["annotate", "storageclass", "standard", "storageclass.kubernetes.io/is-default-class=true"];
    runtime.kubectl(&class).await?;
    let variables = [
        ("RUNTIME", runtime.garden.kubeconfig().display().to_string()),
        ("GARDEN", garden.kubectl.kubeconfig().display().to_string()),
        ("SERVER", VirtualGarden::server()),
    ];
    let pages = Pages::open(env, &PAGES, &variables)?;
    pages.write("garden.yaml", &pages.text("The virtual garden", "yaml")?)?;
    Ok(pages)
}

async fn stores_a_shootstate(garden: &VirtualGarden) -> Result<()> {
    let states = "/apis/migration.gardener.cloud/v1alpha1/namespaces/default/shootstates";
    let state = json!({
        "apiVersion": "migration.gardener.cloud/v1alpha1", "kind": "ShootState", "metadata": {"name": "one"},
        "spec": {"gardener": [{"name": "a", "type": "secret", "data": {"k": "dg=="}}]},
    });
    garden.api.post(states, &state).await?.ok()?;
    let found = garden.api.get(&format!("{states}/one")).await?.ok()?;
    ensure!(found["spec"]["gardener"][0]["data"]["k"] == "dg==", "{found}");
    let listed = garden.kubectl(&["get", "shst", "-A"]).await?;
    ensure!(listed.contains("one"), "{listed}");
    // Repot's API server asks the webhook itself, by its URL.
    let refused = garden.api.delete(&format!("{states}/one")).await?;
    ensure!(refused.status == 403 && refused.to_string().contains("confirm"), "{refused}");
    Ok(())
}

/// gardener-apiserver asks the webhooks of Repot by their URL, and does what they say.
async fn webhooks_are_asked(garden: &VirtualGarden) -> Result<()> {
    for seed in ["eu-1", "eu-2", "eu-3"] {
        put_seed(garden, &gardener::seed(seed)).await?;
    }
    create_shoot(garden).await?;
    bind(garden, "eu-2").await?.ok()?;
    let refused = bind(garden, "eu-3").await?;
    let rule = "(one-migration)";
    ensure!(
        refused.status == 403 && refused.to_string().contains(rule),
        "{rule} does not refuse it: {refused}"
    );
    Ok(())
}

/// Makes the Shoot of [`SHOOT`] as its gardenlet on seed `eu-1` would have it, and its Project.
pub async fn create_shoot(garden: &VirtualGarden) -> Result<()> {
    garden.kubectl.apply(&gardener::project(PROJECT)).await?;
    let shoot = gardener::shoot(PROJECT, "one");
    until("the project to be known", KNOWN_DEADLINE, async || garden.api.post(SHOOTS, &shoot).await?.ok())
        .await?;
    bind(garden, "eu-1").await?.ok()?;
    let status = json!({"status": {
        "seedName": "eu-1", "technicalID": TECHNICAL_ID, "uid": "one", "clusterIdentity": "one",
        "lastOperation": operation("Reconcile", "Succeeded"),
    }});
    garden.api.patch(&format!("{SHOOT}/status"), MERGE, &status).await?.ok().map(drop)
}

async fn bind(garden: &VirtualGarden, seed: &str) -> Result<repot_tests::http::Answer> {
    let patch = json!({"spec": {"seedName": seed}});
    garden.api.patch(&format!("{SHOOT}/binding"), MERGE, &patch).await
}

/// Makes a Seed with its status.
pub async fn put_seed(garden: &VirtualGarden, seed: &Value) -> Result<()> {
    let (mut spec, name) = (seed.clone(), seed["metadata"]["name"].as_str().unwrap_or_default());
    spec.as_object_mut().map(|seed| seed.remove("status"));
    garden.kubectl.apply(&[spec]).await?;
    let status = json!({"status": seed["status"]});
    garden.api.patch(&format!("{CORE}/seeds/{name}/status"), MERGE, &status).await?.ok().map(drop)
}

/// Nothing asks Repot any more, and its data is still there.
async fn is_gone(runtime: &World<'_>, garden: &VirtualGarden) -> Result<()> {
    let registered =
        garden.kubectl(&["get", "apiservices,validatingwebhookconfigurations", "-o", "name"]).await?;
    ensure!(registered.contains("v1beta1.core.gardener.cloud"), "{registered}");
    ensure!(!registered.contains("migration") && !registered.contains("repot"), "{registered}");
    bind(garden, "eu-3").await?.ok()?;
    for kept in ["secret/repot-encryption", "secret/repot-authorities", "pvc/data-repot-apiserver-0"] {
        runtime.kubectl(&["get", kept, "-n", NAMESPACE]).await?;
    }
    Ok(())
}
