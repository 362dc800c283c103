//! A command of the operator takes the credentials of a dead seed away.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use parking_lot::Mutex;
use repot_tests::TestEnv;
use repot_tests::landscape::controllers::{self, GardenControllers};
use repot_tests::wait::until;
use serde_json::json;

use super::forced::{Frozen, force, until_state_is_stored};
use super::story::{self, DEADLINE, garden_of};
use super::world::{SEEDS, World, run, small};

/// A command that revokes only when the file `allowed` is there, and logs how it is called.
fn command(dir: &Path) -> Result<String> {
    let script = "#!/bin/sh
cd \"$(dirname \"$0\")\" && echo \"$@\" >>calls
case $1 in
  revoke) test -f allowed || { echo 'the vault does not answer' >&2; exit 1; }; touch \"revoked-$2\";;
  check) test -f \"revoked-$2\";;
esac
";
    let path = dir.join("quarantine");
    fs::write(&path, script)?;
    fs::set_permissions(&path, fs::Permissions::from_mode(0o700))?;
    Ok(path.display().to_string())
}

/// The shared controllers of the garden run with other flags until this is dropped, however a test ends.
struct OtherFlags<'a> {
    shared: &'a Mutex<GardenControllers>,
    usual: Option<GardenControllers>,
}

impl<'a> OtherFlags<'a> {
    async fn start(env: &TestEnv, world: &'a World, flags: &[String]) -> Result<Self> {
        let shared = world.landscape.controllers.as_ref().context("there is no garden")?;
        shared.lock().process.kill();
        match controllers::start_in_garden(env, garden_of(world)?, flags).await {
            Ok(other) => {
                let usual = std::mem::replace(&mut *shared.lock(), other);
                Ok(Self { shared, usual: Some(usual) })
            }
            Err(error) => {
                shared.lock().process.restart()?;
                Err(error)
            }
        }
    }
}

impl Drop for OtherFlags<'_> {
    fn drop(&mut self) {
        let Some(mut usual) = self.usual.take() else { return };
        let mut shared = self.shared.lock();
        shared.process.kill();
        if let Err(error) = usual.process.restart() {
            println!("failed to start the controllers of the garden: {error:#}");
        }
        *shared = usual;
    }
}

#[test]
#[ignore = "minutes, in make soak"]
fn machines_are_restored_without_a_confirmation_once_the_command_has_revoked_the_credentials() {
    run(async |env| {
        let world = World::create(env, "quarantine", small()).await?;
        let dir = env.make_dir("quarantine")?;
        let flags = [format!("--quarantine-command={}", command(&dir)?)];
        let controllers = OtherFlags::start(env, &world, &flags).await?;
        migrate(&world, &dir).await?;
        drop(controllers);
        world.stop(SEEDS.1).await
    });
}

async fn migrate(world: &World, dir: &Path) -> Result<()> {
    let before = world.workload().await?;
    until_state_is_stored(world).await?;
    let frozen = Frozen::new(world.landscape.seed(SEEDS.0)?.cluster.apiserver_process());
    force(world, "move", SEEDS).await?;
    // The command fails: Machines wait, the API does not, and the status says why.
    story::until_started(world, "move", ("destination", "SourceControllersFenced")).await?;
    story::until_started(world, "move", ("destination", "NodeLeasesRenewed")).await?;
    until("the words of the command", DEADLINE, async || {
        let step = story::step(world, "move", ("garden", "SourceQuarantined")).await?;
        ensure!(step.to_string().contains("the vault does not answer"), "{step}");
        Ok(())
    })
    .await?;
    let restored = story::step(world, "move", ("destination", "InfrastructureRestored")).await?;
    ensure!(restored.is_null(), "it did not wait: {restored}");

    // A node that joined after the ShootState was stored for the last time: its VM would be deleted as an orphan.
    let node = json!({
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": "late"}, "spec": {"providerID": "counting:///late"},
    });
    world.api()?.post("/api/v1/nodes", &node).await?.ok()?;
    fs::write(dir.join("allowed"), "")?;
    until("a Node without a Machine", DEADLINE, async || {
        let step = story::step(world, "move", ("destination", "MachinesUnchanged")).await?;
        ensure!(step.to_string().contains("Node late has no Machine"), "{step}");
        Ok(())
    })
    .await?;
    let started = story::step(world, "move", ("destination", "ControllersStarted")).await?;
    ensure!(started.is_null(), "controllers were started: {started}");
    world.api()?.delete("/api/v1/nodes/late").await?.ok()?;
    story::until_success(world, "move", SEEDS.1).await?;
    let calls = fs::read_to_string(dir.join("calls"))?;
    let is_known = |line: &str| line == "check seed-a" || line == "revoke seed-a";
    ensure!(calls.lines().all(is_known), "{calls}");
    ensure!(world.workload().await? == before, "the workload has changed");
    drop(frozen);
    until("the source to be removed", DEADLINE, async || world.ensure_gone(SEEDS.0).await).await?;
    ensure!(world.workload().await? == before, "the workload has changed when the source was removed");
    Ok(())
}
