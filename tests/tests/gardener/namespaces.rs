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
        let project = Project::make(shared(true)?, "ns-delete").await?;
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

        // The Shoots go first, as Gardener wants it; then nothing keeps the namespace.
        let arrived = json!({
            "seedName": project.seed("b"), "lastOperation": repot_tests::gardener::operation("Restore", "Succeeded"),
        });
        project.set_status("one", &arrived).await?;
        for name in SHOOTS {
            project.annotate(name, &json!({"confirmation.gardener.cloud/deletion": "true"})).await?.ok()?;
            project.world.api().delete(&format!("{}/{name}", project.shoots())).await?.ok()?;
        }
        until("the namespace to be gone", DEADLINE, async || {
            let answer = project.world.api().get(&path).await?;
            ensure!(answer.status == 404, "{answer}");
            Ok(())
        })
        .await
    });
}
