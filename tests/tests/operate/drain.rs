//! `repot drain`: no more at once than may, the highest priority first, a stop after failures, and a second run that goes on.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use repot_tests::landscape::garden::CORE;
use repot_tests::run;
use repot_tests::wait::until;
use serde_json::{Value, json};

use super::world::{PROJECT, World, text};

const DEADLINE: Duration = Duration::from_secs(60);
const MERGE: &str = "application/merge-patch+json";

#[test]
fn seed_is_drained_some_shoots_at_a_time() {
    run(async |env| {
        let world = World::start(env, &["a", "b", "c"]).await?;
        prefer(&world, "c").await?;
        let plan = world.repot(["drain", "seed-a", "--dry-run"]).await?;
        ensure!(plan.code == 0 && text(&plan).contains("garden-dev/c  -> seed-b, Classic"), "{plan:?}");
        ensure!(world.migrations().await?.is_empty(), "a dry run has created something");
        let unasked = world.repot(["drain", "seed-a"]).await?;
        ensure!(unasked.code == 2 && unasked.stderr.contains("3 Shoots leave seed seed-a"), "{unasked:?}");
        let unknown = world.repot(["drain", "seed-x", "--yes"]).await?;
        ensure!(unknown.code == 2 && unknown.stderr.contains("there is no seed seed-x"), "{unknown:?}");
        one_fails(&world).await?;
        others_go(&world).await
    });
}

async fn prefer(world: &World, shoot: &str) -> Result<()> {
    let patch = json!({"metadata": {"annotations": {"migration.gardener.cloud/drain-priority": "5"}}});
    let path = format!("{CORE}/namespaces/{PROJECT}/shoots/{shoot}");
    world.garden.cluster.api().patch(&path, MERGE, &patch).await?.ok().map(drop)
}

/// The first one fails, and so no other one begins.
async fn one_fails(world: &World) -> Result<()> {
    let drain = world.repot(["drain", "seed-a", "--yes", "--max-parallel", "1", "--max-failures", "1"]);
    let fail = async {
        let one = unfinished(world, 1).await?.remove(0);
        ensure!(one["spec"]["shootRef"]["name"] == "c", "the first one is {one}");
        let name = one["metadata"]["name"].as_str().context("no name")?.to_owned();
        world.report(&name, &json!({"phase": "RolledBack", "message": "no capacity"})).await
    };
    let (output, failed) = tokio::join!(drain, fail);
    let output = output?;
    failed?;
    ensure!(output.code == 3, "{output:?}");
    let report = text(&output);
    ensure!(
        report.contains("garden-dev/c  its migration has ended without success")
            && report.contains("no capacity"),
        "{report}"
    );
    ensure!(
        report.contains("garden-dev/a  not begun") && report.contains("0 of 3 Shoots have left"),
        "{report}"
    );
    ensure!(world.migrations().await?.len() == 1, "another one was created");
    Ok(())
}

/// All move, two at once, also the one that had failed.
async fn others_go(world: &World) -> Result<()> {
    let args = ["drain", "seed-a", "--yes", "--retry-failed", "--max-parallel", "2", "--output", "json"];
    let drain = world.repot(args);
    let carry = async {
        let mut moved = BTreeSet::new();
        while moved.len() < 3 {
            let wanted = 2.min(3 - moved.len());
            let under_way = unfinished(world, wanted).await?;
            ensure!(under_way.len() <= 2, "{} are under way", under_way.len());
            moved.insert(carry_out(world, &under_way[0]).await?);
        }
        anyhow::Ok(moved)
    };
    let (output, moved) = tokio::join!(drain, carry);
    let (output, moved) = (output?, moved?);
    ensure!(moved.into_iter().collect::<Vec<_>>() == ["a", "b", "c"], "others were moved");
    ensure!(output.code == 0, "{output:?}");
    let report: Value = serde_json::from_slice(&output.stdout).with_context(|| text(&output))?;
    let shoots = report["shoots"].as_array().context("no Shoots")?;
    ensure!(shoots.iter().all(|one| one["state"] == "Done" && one["to"] == "seed-b"), "{report}");
    Ok(())
}

async fn unfinished(world: &World, count: usize) -> Result<Vec<Value>> {
    until("migrations to be created", DEADLINE, async || {
        let all = world.migrations().await?;
        let open: Vec<Value> = all.into_iter().filter(|one| one["status"]["phase"].is_null()).collect();
        ensure!(open.len() >= count, "only {} are under way", open.len());
        Ok(open)
    })
    .await
}

/// As the controllers end a migration: the Shoot is at its destination.
async fn carry_out(world: &World, migration: &Value) -> Result<String> {
    let shoot = migration["spec"]["shootRef"]["name"].as_str().context("no Shoot")?.to_owned();
    let path = format!("{CORE}/namespaces/{PROJECT}/shoots/{shoot}");
    let api = world.garden.cluster.api();
    api.patch(&format!("{path}/binding"), MERGE, &json!({"spec": {"seedName": "seed-b"}})).await?.ok()?;
    api.patch(&format!("{path}/status"), MERGE, &json!({"status": {"seedName": "seed-b"}})).await?.ok()?;
    let name = migration["metadata"]["name"].as_str().context("no name")?;
    world.report(name, &json!({"phase": "Succeeded"})).await?;
    Ok(shoot)
}
