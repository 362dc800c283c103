//! A migration that has failed past the point of no return is tried again.

use anyhow::{Context as _, Result, ensure};
use repot_tests::wait::until;
use serde_json::{Value, json};

use super::story;
use super::world::{SEEDS, World, run, small};

/// The step that fails. It is past the point of no return.
const STEP: (&str, &str) = ("destination", "EtcdComplete");

/// A step has a day before it fails, so a person writes into the status what a controller would write then. Everything after that is done
/// by the controllers.
#[test]
#[ignore = "minutes, in make soak"]
fn migration_that_has_failed_goes_on_when_it_is_tried_again() {
    run(async |env| {
        let world = World::create(env, "retried", small()).await?;
        let before = world.workload().await?;
        story::create(&world, "move", SEEDS).await?;
        story::until_started(&world, "move", STEP).await?;
        fail(&world).await?;
        until("the finalizer to go", story::DEADLINE, async || {
            let migration = story::read(&world, "move").await?;
            story::ensure_phase(&migration, "Failed")?;
            let finalizers = &migration["metadata"]["finalizers"];
            ensure!(finalizers.as_array().is_none_or(Vec::is_empty), "{finalizers}");
            Ok(())
        })
        .await?;
        story::retry(&world, "move", 1).await?;
        until("the migration to go on", story::DEADLINE, async || {
            let phase = story::read(&world, "move").await?["status"]["phase"].take();
            ensure!(phase != "Failed", "it has failed");
            Ok(())
        })
        .await?;
        let migration = story::until_success(&world, "move", SEEDS.1).await?;
        for side in ["garden", "source", "destination"] {
            ensure!(migration["status"][side]["retry"] == 1, "{side}: {}", migration["status"]);
        }
        let lowered = story::retry(&world, "move", 0).await;
        let why = lowered.err().context("spec.retry was lowered")?;
        ensure!(format!("{why:#}").contains("cannot be lowered"), "{why:#}");
        world.ensure_moved(&before, SEEDS).await?;
        world.stop(SEEDS.1).await
    });
}

/// Writes that all sides have failed, as they do when one of them has.
async fn fail(world: &World) -> Result<()> {
    until("the failure to be written", story::DEADLINE, async || {
        let mut migration = story::read(world, "move").await?;
        for side in ["garden", "source", "destination"] {
            let part = &mut migration["status"][side];
            ensure!(part["phase"] == "Running", "the {side} has ended: {part}");
            let words = json!({
                "phase": "Failed", "failedPhase": "Running", "reason": "OtherSideFailed", "message": "by the test",
                "completionTime": jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
            });
            merge(part, &words);
            let steps = part["steps"].as_array_mut().into_iter().flatten();
            for step in steps.filter(|step| side == STEP.0 && step["name"] == STEP.1) {
                step["state"] = "Failed".into();
            }
        }
        migration["status"]["phase"] = "Failed".into();
        story::write_status(world, "move", &migration).await
    })
    .await
}

fn merge(into: &mut Value, fields: &Value) {
    for (key, value) in fields.as_object().into_iter().flatten() {
        into[key] = value.clone();
    }
}
