//! What gardener-controller-manager does and says, beside Repot: it works on while Repot is away, and the two agree on seeds.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use repot_tests::gardener;
use repot_tests::gardener_controllers::{Controllers, lease};
use repot_tests::wait::until;
use repot_tests::{TestEnv, run};
use serde_json::{Value, json};

use super::world::{Project, World, merge, refused_by};

const DEADLINE: Duration = Duration::from_secs(60);
const CORE: &str = "/apis/core.gardener.cloud/v1beta1";
const OPERATION: &str = "gardener.cloud/operation";

/// A garden with Repot and both programs of Gardener.
async fn start(env: &TestEnv) -> Result<(World, Controllers)> {
    let world = World::start(env, true).await?;
    let controllers = Controllers::start(env, &world.garden, &world.gardener).await?;
    Ok((world, controllers))
}

/// The gardenlets of these seeds of a project live. Their Leases come before the seeds: gardener-controller-manager calls a seed without
/// one dead, and no gardenlet would set that right.
async fn live(world: &World, project: &str, seeds: &[&str]) -> Result<()> {
    let leases: Vec<Value> = seeds.iter().map(|seed| lease(&format!("{project}-{seed}"))).collect();
    world.garden.apply(&leases).await
}

/// The extensions of a seed are installed, as its gardenlet would report. gardener-controller-manager asks for them a little after the
/// seed is there, and a Shoot that comes may ask for more.
async fn install_extensions(project: &Project<'_>, seed: &str) -> Result<()> {
    let (api, seed) = (project.world.api(), project.seed(seed));
    let conditions =
        [("Valid", "True"), ("Installed", "True"), ("Healthy", "True"), ("Progressing", "False")];
    let time = "2026-01-01T00:00:00Z";
    let conditions = conditions.map(|(kind, status)| {
        json!({
            "type": kind, "status": status, "reason": "ByATest", "message": "by a test",
            "lastTransitionTime": time, "lastUpdateTime": time,
        })
    });
    until("the extensions of the seed to be installed", DEADLINE, async || {
        let path = format!("{CORE}/controllerinstallations");
        let all = api.get(&path).await?.ok()?;
        let own = all["items"].as_array().into_iter().flatten();
        let own: Vec<&Value> = own.filter(|one| one["spec"]["seedRef"]["name"] == seed).collect();
        ensure!(!own.is_empty(), "no ControllerInstallation yet");
        for one in own.into_iter().filter(|one| one["status"]["conditions"].is_null()) {
            let name = one["metadata"]["name"].as_str().unwrap_or_default();
            let status = json!({"status": {"conditions": conditions}});
            project.patch_at(&format!("{path}/{name}/status"), &status).await?.ok()?;
        }
        let seed = api.get(&format!("{CORE}/seeds/{seed}")).await?.ok()?;
        let ready = seed["status"]["conditions"].as_array().into_iter().flatten();
        let ready = ready.filter(|one| one["type"] == "ExtensionsReady").any(|one| one["status"] == "True");
        ensure!(ready, "{}", seed["status"]["conditions"]);
        Ok(())
    })
    .await
}

/// A Shoot is maintained at once, which asks for a rotation, and hibernated by its owner, as every day.
async fn everyday(project: &Project<'_>, name: &str) -> Result<()> {
    project.create_on_a(name).await?;
    let maintain = json!({OPERATION: "maintain", "maintenance.gardener.cloud/operation": "rotate-observability-credentials"});
    project.annotate(name, &maintain).await?.ok()?;
    until("the maintenance to be done", DEADLINE, async || {
        let shoot = project.get(name).await?;
        ensure!(shoot["metadata"]["annotations"][OPERATION] != "maintain", "{}", shoot["metadata"]);
        let maintenance = &shoot["status"]["lastMaintenance"];
        // gardener-controller-manager gives maintenance up when one of its other controllers writes the Shoot meanwhile. Its owner
        // asks again then.
        if maintenance["failureReason"].as_str().is_some_and(|reason| reason.contains("has been modified")) {
            project.annotate(name, &maintain).await?.ok()?;
        }
        ensure!(maintenance["state"] == "Succeeded", "{}", shoot["status"]);
        Ok(())
    })
    .await?;
    project.patch(name, &json!({"spec": {"hibernation": {"enabled": true}}})).await?.ok().map(drop)
}

/// The namespace of a new Project, which gardener-controller-manager makes.
async fn namespace_of_a_new_project(world: &World, name: &str) -> Result<()> {
    let [_, _, mut project, _] = gardener::project(name);
    project["spec"]["namespace"] = Value::Null;
    let path = format!("{CORE}/projects");
    world.api().post(&path, &project).await?.ok()?;
    until("the Project to be ready", DEADLINE, async || {
        let made = world.api().get(&format!("{path}/{name}")).await?.ok()?;
        ensure!(made["status"]["phase"] == "Ready", "{}", made["status"]);
        Ok(())
    })
    .await
}

#[test]
fn gardener_controller_manager_works_on_while_repot_is_down_or_hangs() {
    run(async |env| {
        let (mut world, _controllers) = start(env).await?;
        live(&world, "gcm", &["a", "b"]).await?;
        let project = Project::make(&world, "gcm").await?;
        everyday(&project, "served").await.context("while Repot answers")?;
        world.webhook.process().pause();
        let project = Project { world: &world, name: "gcm".into() };
        let hangs = everyday(&project, "hangs").await.context("while Repot hangs");
        let made = namespace_of_a_new_project(&world, "hanging").await.context("while Repot hangs");
        world.webhook.process().resume();
        hangs.and(made)?;
        world.webhook.kill();
        let project = Project { world: &world, name: "gcm".into() };
        everyday(&project, "down").await.context("while Repot is down")?;
        namespace_of_a_new_project(&world, "downed").await.context("while Repot is down")
    });
}

/// What makes a destination unready, as merge patches of the Seed.
fn destinations() -> Vec<(&'static str, Value)> {
    let condition = |kind: &str, status: &str| {
        let mut all = gardener::seed("x")["status"]["conditions"].clone();
        for one in all.as_array_mut().into_iter().flatten().filter(|one| one["type"] == kind) {
            one["status"] = json!(status);
        }
        json!({"status": {"conditions": all}})
    };
    vec![
        ("fine", json!({})),
        ("another version", json!({"status": {"gardener": {"version": "v1.149.0"}}})),
        ("outdated", json!({"status": {"observedGeneration": 0}})),
        ("ill", condition("SeedSystemComponentsHealthy", "False")),
        ("unknown", condition("SeedSystemComponentsHealthy", "Unknown")),
        ("getting worse", condition("SeedSystemComponentsHealthy", "Progressing")),
        ("dead", condition("GardenletReady", "False")),
    ]
}

/// Whether gardener-controller-manager calls the destination of a Shoot ready for the migration.
async fn readiness(project: &Project<'_>, shoot: &str) -> Result<bool> {
    until("a verdict of gardener-controller-manager", DEADLINE, async || {
        let shoot = project.get(shoot).await?;
        let all = shoot["status"]["constraints"].as_array().into_iter().flatten();
        let found = all.clone().find(|one| one["type"] == "ReadyForMigration");
        let found = found.with_context(|| format!("no constraint ReadyForMigration: {}", shoot["status"]))?;
        Ok(found["status"] == "True")
    })
    .await
}

#[test]
fn rules_and_gardener_controller_manager_agree_on_destinations() {
    run(async |env| {
        let (world, _controllers) = start(env).await?;
        live(&world, "agree", &["a", "b"]).await?;
        let project = Project::make(&world, "agree").await?;
        for (number, (what, patch)) in destinations().iter().enumerate() {
            let (name, seed) = (format!("s{number}"), format!("d{number}"));
            live(&world, "agree", &[&seed]).await?;
            project.put_seed(&gardener::seed(&project.seed(&seed))).await?;
            project.create_on_a(&name).await?;
            install_extensions(&project, &seed).await?;
            let before = project.get(&name).await?;
            let mut wanted = before.clone();
            wanted["spec"]["seedName"] = json!(project.seed(&seed));
            // Bound while the seed is fine, so that gardener-controller-manager has a Shoot to judge; then the seed changes.
            project.bind(&name, &seed).await?.ok()?;
            let mut changed = gardener::seed(&project.seed(&seed));
            merge(&mut changed, patch);
            project.put_seed(&changed).await?;
            let said = project.ask("seed-change", &before, &wanted).await?;
            until("both to agree", DEADLINE, async || {
                let ready = readiness(&project, &name).await?;
                ensure!(ready == said.is_empty(), "{what}: ready is {ready}, and the rules say {said:?}");
                Ok(())
            })
            .await?;
            // gardenlet begins only when the constraint is True; until then the Shoot may go back to its source.
            let back = project.bind(&name, "a").await?;
            if said.is_empty() {
                refused_by(&back, &["one-migration"])?;
            } else {
                back.ok().context(*what)?;
            }
        }
        Ok(())
    });
}

#[test]
fn a_source_that_gardener_controller_manager_calls_dead_may_be_left_by_force() {
    run(async |env| {
        let (world, _controllers) = start(env).await?;
        live(&world, "dead", &["a", "b"]).await?;
        let project = Project::make(&world, "dead").await?;
        project.create_on_a("one").await?;
        install_extensions(&project, "b").await?;
        project.bind("one", "b").await?.ok()?;
        let force = json!({
            "shoot.gardener.cloud/force-restore": "true", "confirmation.gardener.cloud/force-restore": project.seed("a"),
        });
        refused_by(&project.annotate("one", &force).await?, &["forced-restore"])?;
        let leases = "/apis/coordination.k8s.io/v1/namespaces/gardener-system-seed-lease/leases";
        world.api().delete(&format!("{leases}/{}", project.seed("a"))).await?.ok()?;
        until("the source to be called dead", DEADLINE, async || {
            project.annotate("one", &force).await?.ok().map(drop)
        })
        .await?;
        let seed = world.api().get(&format!("{CORE}/seeds/{}", project.seed("a"))).await?.ok()?;
        ensure!(
            seed["status"]["conditions"].to_string().contains("Gardenlet stopped posting status updates"),
            "{seed}"
        );
        Ok(())
    });
}

#[test]
#[ignore = "minutes, in make soak"]
fn a_namespaced_cloud_profile_says_which_seeds_are_fit() {
    run(async |env| {
        let (world, _controllers) = start(env).await?;
        live(&world, "spaced", &["a", "b"]).await?;
        let project = Project::make(&world, "spaced").await?;
        let parent = json!({"spec": {"seedSelector": {"matchLabels": {"fit": "yes"}}}});
        let mut profile = gardener::profile();
        profile["metadata"]["name"] = json!("parent");
        merge(&mut profile, &parent);
        // A CloudProfile of the same name as the NamespacedCloudProfile, which allows every seed.
        let mut namesake = gardener::profile();
        namesake["metadata"]["name"] = json!("own");
        let own = json!({
            "apiVersion": "core.gardener.cloud/v1beta1", "kind": "NamespacedCloudProfile",
            "metadata": {"namespace": project.namespace(), "name": "own"},
            "spec": {"parent": {"kind": "CloudProfile", "name": "parent"}},
        });
        world.garden.apply(&[profile, namesake, own]).await?;
        let path = format!("{CORE}/namespaces/{}/namespacedcloudprofiles/own", project.namespace());
        until("the NamespacedCloudProfile to be worked on", DEADLINE, async || {
            let status = world.api().get(&path).await?.ok()?["status"].clone();
            ensure!(status["cloudProfileSpec"]["seedSelector"].is_object(), "{status}");
            Ok(())
        })
        .await?;
        let mut fit = gardener::seed(&project.seed("a"));
        fit["metadata"]["labels"] = json!({"fit": "yes"});
        project.put_seed(&fit).await?;
        let reference = json!({"spec": {"cloudProfile": {"kind": "NamespacedCloudProfile", "name": "own"}}});
        project.create_on_a_as("one", &reference).await?;
        install_extensions(&project, "b").await?;
        project.refused_directly_to("one", "b", "provider-and-labels").await?;
        let mut fit = gardener::seed(&project.seed("b"));
        fit["metadata"]["labels"] = json!({"fit": "yes"});
        project.put_seed(&fit).await?;
        install_extensions(&project, "b").await?;
        project.bind("one", "b").await?.ok().map(drop)
    });
}
