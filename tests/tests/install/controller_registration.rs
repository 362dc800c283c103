//! The seed chart as a ControllerRegistration has it: stored by gardener-apiserver, handed out by gardener-controller-manager, and
//! rendered with the values that gardenlet adds.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use repot_tests::install::World;
use repot_tests::virtual_garden::VirtualGarden;
use repot_tests::wait::until;
use serde_json::{Value, json};

use super::page::Pages;

const CORE: &str = "/apis/core.gardener.cloud";
const DEADLINE: Duration = Duration::from_secs(60);
/// The seed that gets the chart, and the one that does not.
const SEEDS: [&str; 2] = ["eu-1", "eu-2"];
/// The heading of the page above the registration.
pub const REGISTRATION: &str = "The registration";
/// As a gardenlet sets it that is configured as the page says.
pub const LABEL: &str = "repot.gardener.cloud/install=true";
/// As gardenlet names it.
const NAMESPACE: &str = "extension-repot-seed-x7k2p";
/// An account that gardenlet makes for the extension in the garden.
const ACCOUNT: (&str, &str) = ("seed-eu-1", "extension-repot-seed-x7k2p");

/// Registers the seed chart as the page says, and follows it as far as a seed without a gardenlet lets it go.
pub async fn is_handed_out(pages: &Pages, runtime: &World<'_>, garden: &VirtualGarden) -> Result<()> {
    garden.start_controllers(runtime).await?;
    pages.write("seed.yaml", &pages.text(REGISTRATION, "yaml")?)?;
    pages.run(&[REGISTRATION]).await?;
    garden.kubectl(&["label", "seed", SEEDS[0], LABEL]).await?;
    only_the_labelled_seed_gets_it(garden).await?;
    account_has_rights(garden).await?;
    renders(runtime, garden).await
}

async fn only_the_labelled_seed_gets_it(garden: &VirtualGarden) -> Result<()> {
    until("the ControllerInstallation of the seed", DEADLINE, async || {
        let all = garden.api.get(&format!("{CORE}/v1beta1/controllerinstallations")).await?.ok()?;
        let of_chart = all["items"].as_array().context("no items")?.iter();
        let of_chart = of_chart.filter(|one| one["spec"]["registrationRef"]["name"] == "repot-seed");
        let seeds: BTreeSet<_> = of_chart.filter_map(|one| one["spec"]["seedRef"]["name"].as_str()).collect();
        ensure!(seeds == BTreeSet::from([SEEDS[0]]), "{seeds:?} get it");
        Ok(())
    })
    .await
}

/// gardener-controller-manager binds the role of the garden chart to accounts of the ControllerRegistration.
async fn account_has_rights(garden: &VirtualGarden) -> Result<()> {
    let (namespace, name) = ACCOUNT;
    let labels = json!({"controllerregistration.core.gardener.cloud/name": "repot-seed"});
    garden
        .kubectl
        .apply(&[
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}),
            json!({
                "apiVersion": "v1", "kind": "ServiceAccount",
                "metadata": {"namespace": namespace, "name": name, "labels": labels},
            }),
        ])
        .await?;
    let user = format!("--as=system:serviceaccount:{namespace}:{name}");
    until("the account to have its rights", DEADLINE, async || {
        let can = |verb, kind| ["auth", "can-i", verb, kind, "-n", "garden-virtual", &user];
        garden.kubectl(&can("create", "shootstates.migration.gardener.cloud")).await.map(drop)
    })
    .await?;
    let all = ["auth", "can-i", "delete", "shoots.core.gardener.cloud", "-n", "garden-virtual", &user];
    ensure!(garden.kubectl(&all).await.is_err(), "the account may delete Shoots");
    Ok(())
}

/// The stored chart with the stored values and those of gardenlet; a seed accepts its objects.
async fn renders(runtime: &World<'_>, garden: &VirtualGarden) -> Result<()> {
    let deployment = garden.api.get(&format!("{CORE}/v1/controllerdeployments/repot-seed")).await?.ok()?;
    let chart = STANDARD.decode(deployment["helm"]["rawChart"].as_str().context("no chart")?)?;
    let file = runtime.path().join("repot-seed.tgz");
    std::fs::write(&file, chart)?;
    let seed = garden.api.get(&format!("{CORE}/v1beta1/seeds/{}", SEEDS[0])).await?.ok()?;
    let stored = runtime.write("stored.json", &deployment["helm"]["values"].to_string())?;
    let added = runtime.write("gardenlet.json", &gardenlet_values(&seed).to_string())?;
    let file = file.display().to_string();
    let template = ["template", "repot-seed", &file, "--values", &stored, "--values", &added, "--no-hooks"];
    let manifest = runtime.helm_in(NAMESPACE, &template).await?;
    for expected in ["image: registry.example.com/repot:0.1.0", "--seed-name=eu-1", "$(GARDEN_KUBECONFIG)"] {
        ensure!(manifest.contains(expected), "{expected} is not in {manifest}");
    }
    let manifest = runtime.write("repot-seed.yaml", &manifest)?;
    runtime.kubectl(&["create", "namespace", NAMESPACE]).await?;
    runtime.kubectl(&["apply", "--server-side", "--dry-run=server", "-f", &manifest]).await.map(drop)
}

/// What `pkg/gardenlet/controller/controllerinstallation` of Gardener 1.150 adds to the values of a ControllerDeployment.
fn gardenlet_values(seed: &Value) -> Value {
    let (metadata, spec) = (&seed["metadata"], &seed["spec"]);
    json!({"gardener": {
        "version": repot_tests::gardener::RELEASE,
        "garden": {
            "clusterIdentity": "testbed", "genericKubeconfigSecretName": "generic-garden-kubeconfig-81fb3a88",
        },
        "gardenlet": {"featureGates": {"LiveControlPlaneMigration": false}},
        "seed": {
            "name": metadata["name"], "clusterIdentity": "eu-1-identity", "annotations": metadata["annotations"],
            "labels": metadata["labels"], "provider": spec["provider"]["type"], "region": spec["provider"]["region"],
            "volumeProvider": "", "volumeProviders": null, "protected": false, "visible": true, "taints": null,
            "networks": spec["networks"], "blockCIDRs": null, "ingressDomain": spec["ingress"]["domain"], "spec": spec,
        },
    }})
}
