//! Control planes move live at once, as many as the machine has cores.

use std::time::Duration;

use anyhow::{Result, bail};
use futures::future::try_join_all;
use repot_tests::landscape::ControlPlaneOptions;
use repot_tests::wait::until;

use super::requests::Requests;
use super::whole::{ensure_hidden, highly_available};
use crate::migration::story::{self, DEADLINE};
use crate::migration::world::{SEEDS, Workload, World, run};

/// How many control planes move at once on a machine with many cores.
const MOST: usize = 10;
/// From one request of a Shoot's client to the next.
const PERIOD: Duration = Duration::from_millis(500);

#[test]
#[ignore = "minutes, in make soak"]
fn control_planes_move_at_once_and_no_request_fails() {
    run(async |env| {
        let mut worlds = Vec::new();
        // Where more of them move than there are cores, etcds lose their quorum for want of time, and migrations roll back.
        let count = std::thread::available_parallelism()?.get().clamp(2, MOST);
        for at in 0..count {
            worlds.push(World::create(env, &format!("live-{at}"), small()).await?);
        }
        let before = try_join_all(worlds.iter().map(World::workload)).await?;
        let apis = worlds.iter().map(World::api).collect::<Result<Vec<_>>>()?;
        let requests = apis.into_iter().map(|api| Requests::start_every(PERIOD, vec![api]));
        let requests: Vec<_> = requests.collect();
        for world in &worlds {
            story::create_live(world, "move", SEEDS).await?;
        }
        let all = worlds.iter().zip(&before).zip(&requests);
        try_join_all(all.map(|((world, before), requests)| follow(world, before, requests))).await?;
        for world in worlds {
            world.stop(SEEDS.1).await?;
        }
        Ok(())
    });
}

/// One kube-apiserver each, and one more while it moves; no nodes, which would take more of the machine than the control planes do. On a few
/// cores a question for the owner record may take longer than the six seconds after which members of other tests end.
fn small() -> ControlPlaneOptions {
    ControlPlaneOptions { api_servers: 1, pools: Vec::new(), owner_check: (20, 40), ..highly_available() }
}

/// Waits until the migration has succeeded, and everything is at the destination. A client asks all the time.
async fn follow(world: &World, before: &Workload, requests: &Requests) -> Result<()> {
    let migration = until("the migration to end", 4 * DEADLINE, async || {
        let migration = story::read(world, "move").await?;
        if story::has_ended(&migration) { Ok(migration) } else { bail!("{}", migration["status"]["message"]) }
    })
    .await?;
    story::ensure_phase(&migration, "Succeeded")?;
    println!("{}: {}", world.name().name, requests.ensure_none_failed(100)?.summary());
    world.ensure_moved(before, SEEDS).await?;
    ensure_hidden(world, SEEDS.1).await
}
