//! `repot isolate` for several Shoots, and `repot preflight isolate` for a zone of their seed.

use anyhow::{Context as _, Result, ensure};
use futures::future::try_join_all;
use repot_tests::landscape::ControlPlaneOptions;
use repot_tests::repot::program;
use repot_tests::tool::{self, Output};
use serde_json::{Value, json};
use tokio::process::Command;

use super::{MERGE, ZONE, ZONES, in_three_zones, machines};
use crate::migration::story::{garden_of, shoot_path};
use crate::migration::world::{SEEDS, World, run};

const NAMES: [&str; 2] = ["first", "second"];
/// Label of the Shoots that are meant.
const LABEL: &str = "left=together";

#[test]
#[ignore = "minutes, in make soak"]
fn zone_of_several_shoots_is_left_and_used_again_by_one_command_each_and_never_two_at_once() {
    run(async |env| {
        let mut worlds = Vec::new();
        for name in NAMES {
            let options = ControlPlaneOptions { pools: vec![("worker-a".to_owned(), 2)], ..in_three_zones() };
            worlds
                .push(World::create(env, name, ControlPlaneOptions { zones: two_zones(), ..options }).await?);
        }
        for world in &worlds {
            let labels = json!({"metadata": {"labels": {"left": "together"}}});
            garden_of(world)?.cluster.api().patch(&shoot_path(world), MERGE, &labels).await?.ok()?;
        }
        let asked = isolate(&worlds[0], &[]).await?;
        ensure!(asked.code == 3 && text(&asked).contains("first   not begun"), "{asked:?}");
        ensure!(asked.stderr.contains("nothing was changed; --yes changes 2 Shoots"), "{asked:?}");

        let left = isolate(&worlds[0], &["--yes", "--max-parallel", "1"]).await?;
        ensure_done(&left)?;
        ensure_one_after_the_other(&left)?;
        for all in try_join_all(worlds.iter().map(machines)).await? {
            ensure!(all.len() == 2 && all.iter().all(|(_, zone)| zone != "z2"), "{all:?}");
        }
        ensure_done(&isolate(&worlds[0], &["--yes"]).await?)?;

        let back = isolate(&worlds[0], &["--yes", "--undo", "--max-parallel", "1"]).await?;
        ensure_done(&back)?;
        ensure_one_after_the_other(&back)?;
        let cluster = &worlds[0].landscape.providers.networks;
        let cut_off = worlds.iter().filter_map(|world| cluster.isolated_of(&world.name().technical_id()));
        ensure!(cut_off.count() == 0, "networks are cut off");
        ensure_zone_of_seed_is_read(&worlds[0]).await?;
        for world in worlds {
            world.stop(SEEDS.0).await?;
        }
        Ok(())
    });
}

fn two_zones() -> Vec<String> {
    ZONES[..2].iter().map(|zone| (*zone).to_owned()).collect()
}

async fn isolate(world: &World, more: &[&str]) -> Result<Output> {
    let mut command = Command::new(program()?);
    command.args(["isolate", "--zone", ZONE.0, "-n", &world.name().project_namespace(), "-l", LABEL]);
    command
        .arg("--kubeconfig")
        .arg(garden_of(world)?.cluster.kubeconfig())
        .args(more)
        .env_remove("KUBECONFIG");
    let output = tool::run(command, b"").await?;
    println!("repot isolate {}\n{}{}", more.join(" "), output.stderr, text(&output));
    Ok(output)
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn ensure_done(output: &Output) -> Result<()> {
    let expected = "garden-dev/first   done\ngarden-dev/second  done\n2 of 2 Shoots are done\n";
    ensure!(output.code == 0 && text(output) == expected, "{output:?}");
    Ok(())
}

/// The second begins when the first one is done.
fn ensure_one_after_the_other(output: &Output) -> Result<()> {
    let at = |line: &str| output.stderr.find(line).with_context(|| format!("no {line} in {}", output.stderr));
    let (done, begun) = (at("garden-dev/first done")?, at("garden-dev/second on its way")?);
    ensure!(done < begun, "{}", output.stderr);
    Ok(())
}

/// Each control plane has one member and one API server: whoever has them in the zone loses both.
async fn ensure_zone_of_seed_is_read(world: &World) -> Result<()> {
    let seed = world.landscape.seed(SEEDS.0)?;
    let nodes = seed.cluster.api().get("/api/v1/nodes").await?.ok()?;
    let zones = nodes["items"].as_array().into_iter().flatten();
    let zones = zones.filter_map(|node| node["metadata"]["labels"]["topology.kubernetes.io/zone"].as_str());
    let mut members = 0;
    for zone in zones {
        let mut command = Command::new(program()?);
        command.args(["preflight", "isolate", "--zone", zone, "--output", "json", "--kubeconfig"]);
        command.arg(seed.cluster.kubeconfig()).env_remove("KUBECONFIG");
        let found = tool::run(command, b"").await?;
        let here: Value = serde_json::from_slice(&found.stdout).with_context(|| format!("{found:?}"))?;
        let touched = here["controlPlanes"].as_array().map(Vec::as_slice).unwrap_or_default();
        ensure!(found.code == if touched.is_empty() { 0 } else { 3 }, "{found:?}");
        let own = touched.iter().filter(|one| one["namespace"] == world.name().technical_id());
        members += own.flat_map(|one| one["etcds"].as_array()).flatten().count();
    }
    // That of events has a member of its own.
    ensure!(members == 2, "{members} members are in the zones of the seed");
    Ok(())
}
