//! `repot storage`: what depends on which key, and how it comes under a new one.

use anyhow::{Context, Result, ensure};
use repot_tests::encryption::provider;
use repot_tests::repot::program;
use repot_tests::{run, tool};
use tokio::process::Command;

use super::world::World;

/// Runs a task beside the server, with its configuration.
async fn storage(world: &World, task: &[&str]) -> Result<String> {
    let mut command = Command::new(program()?);
    command.arg("storage").args(task).args(&world.storage_flags);
    command.arg(format!("--encryption-provider-config={}", world.replicas[0].file.display()));
    tool::run(command, b"").await?.text()
}

#[test]
fn an_operator_sees_when_an_old_key_may_go() {
    run(async |env| {
        let (old, new) = (provider("aesgcm", "old")?, provider("secretbox", "new")?);
        let world = World::start(env, 1, &[&old], "10ms").await?;
        let replica = &world.replicas[0];
        let names: Vec<String> = (0..7).map(|n| format!("state-{n}")).collect();
        for name in &names {
            replica.create(name).await?;
        }
        replica.reconfigure(&[&new, &old]).await?;
        ensure!(replica.write_back(&names[0]).await?, "stale data is written again though it is equal");
        let status = storage(&world, &["status"]).await?;
        let line = |key: &str| {
            let line = status.lines().find(|line| line.contains(key)).unwrap_or_default();
            line.split_whitespace().map(str::to_owned).collect::<Vec<_>>()
        };
        ensure!(line("old") == ["shootstates.core.gardener.cloud", "aesgcm", "old", "6", "6"], "{status}");
        ensure!(line("new") == ["shootstates.core.gardener.cloud", "secretbox", "new", "1", "0"], "{status}");

        let done = storage(&world, &["rewrite", "--rate=1000"]).await?;
        ensure!(done == "7 objects seen, 6 written again, 0 failed\n", "{done}");
        let again = storage(&world, &["rewrite"]).await?;
        ensure!(again == "7 objects seen, 0 written again, 0 failed\n", "{again}");
        let status = storage(&world, &["status"]).await?;
        let (keys, namespaces) = status.split_once("\n\n").context("one table")?;
        ensure!(keys.lines().count() == 2 && !keys.contains("old"), "{status}");
        let usage = namespaces.lines().nth(1).context("no namespace")?;
        let usage: Vec<_> = usage.split_whitespace().collect();
        ensure!(usage[..3] == ["default", "shootstates.core.gardener.cloud", "7"], "{status}");
        ensure!(usage[3].parse::<u64>()? > 700, "{status}");
        replica.reconfigure(&[&new]).await?;
        world.read_all(&names).await
    });
}
