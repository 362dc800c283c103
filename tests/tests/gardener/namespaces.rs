//! The controller that empties a namespace, and the ShootStates in it.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use repot_tests::http::Api;
use repot_tests::run;
use repot_tests::wait::until;
use serde_json::{Value, json};

use super::world::{Project, STATES, shared, state};

const DEADLINE: Duration = Duration::from_secs(120);
const SHOOTS: [&str; 3] = ["one", "two", "three"];

fn states(project: &Project<'_>) -> String {
    format!("{STATES}/namespaces/{}/shootstates", project.namespace())
}

/// Why the namespace is still there, as its conditions say.
async fn explained(project: &Project<'_>) -> Result<String> {
    let namespace: Value =
        project.world.api().get(&format!("/api/v1/namespaces/{}", project.namespace())).await?.ok()?;
    Ok(namespace["status"]["conditions"].to_string())
}

#[test]
fn a_namespace_that_is_deleted_keeps_the_states_of_its_shoots() {
    run(async |_| {
        let shared = shared(true)?;
        let project = Project::make(&shared, "ns-delete").await?;
        let user = format!("gardener.cloud:system:seed:{}", project.seed("a"));
        let gardenlet = Api::new(&project.world.garden.user(&user, &["gardener.cloud:system:seeds"])?)?;
        for name in SHOOTS {
            project.create_on_a(name).await?;
            let made = state(&project.namespace(), name);
            gardenlet.post(&states(&project), &made).await?.ok().context("a gardenlet saves a state")?;
        }
        // One of them moves.
        project.bind("one", "b").await?.ok()?;
        let path = format!("/api/v1/namespaces/{}", project.namespace());
        project.world.api().delete(&path).await?.ok()?;
        until("the namespace to say why it stays", DEADLINE, async || {
            let why = explained(&project).await?;
            ensure!(why.contains("state-deletion-confirmed"), "{why}");
            Ok(())
        })
        .await?;
        let left = project.world.api().get(&states(&project)).await?.ok()?;
        ensure!(left["items"].as_array().map(Vec::len) == Some(SHOOTS.len()), "{left}");

        // Nobody is locked out: a state whose deletion is confirmed goes with its namespace.
        let confirm = json!({"metadata": {"annotations": {"confirmation.gardener.cloud/deletion": "true"}}});
        let two = format!("{}/two", states(&project));
        project.world.api().patch(&two, "application/merge-patch+json", &confirm).await?.ok()?;
        until("the confirmed state to be gone", DEADLINE, async || {
            let answer = project.world.api().get(&two).await?;
            ensure!(answer.status == 404, "{answer}");
            Ok(())
        })
        .await?;
        let left = project.world.api().get(&states(&project)).await?.ok()?;
        ensure!(left["items"].as_array().map(Vec::len) == Some(SHOOTS.len() - 1), "{left}");
        Ok(())
    });
}
