//! Rules of ShootStates beside gardener-apiserver.

use anyhow::{Context, Result, ensure};
use repot_tests::TestEnv;
use repot_tests::http::Api;
use serde_json::json;

use crate::gardener::world::{Project, STATES, refused_by, shared, state};

pub async fn states_are_written_by_gardenlets_of_both_seeds_and_deleted_on_confirmation(
    _: &TestEnv,
    gate: bool,
) -> Result<()> {
    let shared = shared(gate)?;
    let project = Project::make(&shared, "rules-st").await?;
    project.create_on_a("one").await?;
    let gardenlet = |seed: &str| {
        let user = format!("gardener.cloud:system:seed:{seed}");
        Api::new(&project.world.garden.user(&user, &["gardener.cloud:system:seeds"])?)
    };
    let (states, body) = (
        format!("{STATES}/namespaces/{}/shootstates", project.namespace()),
        state(&project.namespace(), "one"),
    );
    refused_by(&gardenlet("elsewhere")?.post(&states, &body).await?, &["state-writer"])?;
    gardenlet(&project.seed("a"))?.post(&states, &body).await?.ok().context("the source saves its state")?;
    project.bind("one", "b").await?.ok()?;
    let one = format!("{states}/one");
    let data = json!({"spec": {"gardener": [{"name": "x", "type": "secret", "data": {}}]}});
    let merge = "application/merge-patch+json";
    gardenlet(&project.seed("b"))?.patch(&one, merge, &data).await?.ok().context("the destination writes")?;
    let other = json!({"spec": {"gardener": [{"name": "y", "type": "secret", "data": {}}]}});
    refused_by(&gardenlet("elsewhere")?.patch(&one, merge, &other).await?, &["state-writer"])?;

    let of_shoot = |name: &str| {
        let user = format!("gardener.cloud:system:shoot:{}:{name}", project.namespace());
        Api::new(&project.world.garden.user(&user, &["gardener.cloud:system:shoots"])?)
    };
    refused_by(&of_shoot("two")?.patch(&one, merge, &other).await?, &["state-writer"])?;
    of_shoot("one")?
        .patch(&one, merge, &other)
        .await?
        .ok()
        .context("a self-hosted Shoot saves its own state")?;

    let person = project.world.api();
    refused_by(&person.delete(&one).await?, &["state-deletion-confirmed"])?;
    let confirmed = json!({"metadata": {"annotations": {"confirmation.gardener.cloud/deletion": "true"}}});
    person.patch(&one, merge, &confirmed).await?.ok()?;
    person.delete(&one).await?.ok()?;
    ensure!(person.get(&one).await?.status == 404, "the state is still there");
    Ok(())
}
