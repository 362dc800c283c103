//! The source is given up, because kube-apiservers of the destination do not come up on the etcd of both seeds.

use std::time::Duration;

use anyhow::{Result, ensure};
use repot_tests::wait::until;
use serde_json::{Value, json};

use super::whole::highly_available;
use crate::migration::prober::Prober;
use crate::migration::story::{self, DEADLINE};
use crate::migration::world::{SEEDS, World, run};

/// Longer than kube-apiserver waits for an answer of etcd when it is asked whether it is ready.
const TOO_FAR: Duration = Duration::from_secs(3);

#[test]
#[ignore = "minutes, in make soak"]
fn destination_serves_on_its_own_members_when_the_source_is_given_up() {
    run(async |env| {
        let world = World::create(env, "shrunk", highly_available()).await?;
        let before = world.workload().await?;
        let prober = Prober::start(world.api()?);
        story::create_live(&world, "move", SEEDS).await?;
        story::until_started(&world, "move", ("destination", "ApiServes")).await?;
        let apart = world.landscape.wide.set_apart(TOO_FAR);
        ensure!(prober.outage().is_zero(), "nobody had to wait before that: {:?}", prober.outage());
        story::change(&world, "move", &json!({"spec": {"forceShrinkEtcd": true}})).await?;
        until_given_up(&world).await?;
        let migration = story::until_success(&world, "move", SEEDS.1).await?;
        println!("{}", story::timeline(&migration).join("\n"));
        println!("the API was away for {:?}", prober.outage());
        drop(apart);
        world.ensure_moved(&before, SEEDS).await?;
        world.stop(SEEDS.1).await
    });
}

/// Waits until all members of the source have left, and says whether that was before the destination served.
async fn until_given_up(world: &World) -> Result<()> {
    until("members of the source to leave", DEADLINE, async || {
        let left = story::step(world, "move", ("destination", "SourceMembersRemoved")).await?;
        ensure!(left["state"] == "Succeeded", "{left}");
        Ok(())
    })
    .await?;
    let time = |step: &Value| step["completionTime"].as_str().map(str::to_owned);
    let left = time(&story::step(world, "move", ("destination", "SourceMembersRemoved")).await?);
    let serves = time(&story::step(world, "move", ("destination", "ApiServes")).await?);
    ensure!(serves.is_none() || serves >= left, "the destination served at {serves:?}, before {left:?}");
    Ok(())
}
