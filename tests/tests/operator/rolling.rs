use anyhow::{Context, Result, ensure};
use jiff::Timestamp;
use repot_tests::run;
use serde_json::{Value, json};

use super::world::{TestNamespace, holds, spec};

fn time(value: &Value) -> Result<Timestamp> {
    Ok(value.as_str().context("no time")?.parse()?)
}

/// When a Pod was made, and when it became ready.
fn life(pod: &Value) -> Result<(Timestamp, Timestamp)> {
    let conditions = pod["status"]["conditions"].as_array().context("no conditions")?;
    let ready = conditions.iter().find(|condition| condition["type"] == "Ready").context("not ready")?;
    Ok((time(&pod["metadata"]["creationTimestamp"])?, time(&ready["lastTransitionTime"])?))
}

#[test]
fn another_template_never_deletes_a_member_while_another_one_is_down() {
    run(async |_| {
        let place = TestNamespace::make("operator-rolling").await?;
        place.apply(spec(3)).await?;
        place.until_members(3, "main").await?;
        // A StatefulSet that rolls by itself would delete main-2 now.
        place.pods.world.runner.freeze("operator-rolling", "main-0", "etcd")?;
        place.until("without main-0", |status| status["readyReplicas"] == 2).await?;
        place.patch(json!({"spec": {"annotations": {"example.com/again": "1"}}})).await?;
        let updated = |status: &Value| holds(status, "AllMembersUpdated") == Some(true);
        place.until("all of the last template", updated).await?;
        place.until_members(3, "main").await?;

        let mut lives = Vec::new();
        for name in ["main-0", "main-1", "main-2"] {
            let pod = place.pods.get("pod", name).await?;
            ensure!(
                pod["metadata"]["annotations"]["example.com/again"] == "1",
                "{name}: {}",
                pod["metadata"]
            );
            lives.push((life(&pod)?, name));
        }
        lives.sort();
        ensure!(lives[0].1 == "main-0", "the one that was down is not the first: {lives:?}");
        let in_turn = lives.windows(2).all(|two| two[0].0.1 <= two[1].0.0);
        ensure!(in_turn, "one was deleted before another was ready: {lives:?}");
        Ok(())
    });
}
