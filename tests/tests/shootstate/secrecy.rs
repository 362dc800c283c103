//! Nothing of an object can be read where it rests.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use repot_tests::run;
use serde_json::{Value, json};

use super::world::{World, path, small};

/// In no file may these words stand; each object carries them in another place.
const NEEDLE: &str = "needle-in-a-haystack";

async fn hide(world: &World, file: &Path) -> Result<()> {
    let mut object: Value = small("secret", &json!({"small": NEEDLE}));
    object["metadata"]["annotations"] = json!({"example.com/note": NEEDLE});
    object["metadata"]["labels"] = json!({"label": NEEDLE});
    world.create(&object).await?;
    // Incompressible, so that no codec hides what encryption should.
    let mut long = small("long", &json!({"a": NEEDLE, "b": super::kills::noise(2 << 20), "c": NEEDLE}));
    world.create(&long).await?;
    // The annotation of a client-side apply carries the payload a second time.
    long["metadata"]["name"] = json!("applied");
    long["spec"]["extensions"][0]["state"] = json!({"a": NEEDLE});
    std::fs::write(file, long.to_string())?;
    world.kubectl.run(["apply", "-f", &file.display().to_string()]).await?.text()?;
    let applied = world.api.get(&path("applied")).await?.ok()?;
    let annotation = &applied["metadata"]["annotations"]["kubectl.kubernetes.io/last-applied-configuration"];
    ensure!(annotation.as_str().unwrap_or_default().contains(NEEDLE), "apply left no annotation");
    Ok(())
}

fn contains(haystack: &[u8], needle: &str) -> bool {
    haystack.windows(needle.len()).any(|window| window == needle.as_bytes())
}

/// Every file below a directory; gives how many bytes were searched.
fn search(dir: &Path, needles: &[&str]) -> Result<usize> {
    let mut searched = 0;
    for entry in std::fs::read_dir(dir)? {
        let path = entry?.path();
        if path.is_dir() {
            searched += search(&path, needles)?;
            continue;
        }
        let bytes = std::fs::read(&path)?;
        for needle in needles {
            ensure!(!contains(&bytes, needle), "{needle:?} stands in {}", path.display());
        }
        searched += bytes.len();
    }
    Ok(searched)
}

#[test]
fn the_embedded_store_holds_no_payload_in_clear() {
    run(async |env| {
        let mut world = World::dev(env).await?;
        hide(&world, &env.path().join("object.json")).await?;
        let super::world::Server::Dev(dev) = &world.server else { anyhow::bail!("repot dev") };
        let data = dev.data_dir().to_owned();
        let secret = small("x", &json!(1))["spec"]["gardener"][0]["data"]["data"]["ca.key"].to_string();
        let needles = [NEEDLE, secret.trim_matches('"'), "ShootState", "last-applied"];
        ensure!(search(&data.join("store"), &needles)? > 1 << 20, "there was nothing to search");
        world.repot().stop().await?;
        ensure!(search(&data.join("store"), &needles)? > 1 << 20, "there was nothing to search");
        let log = world.repot().process().log();
        ensure!(!log.contains(NEEDLE), "payload stands in the log");
        Ok(())
    });
}

#[test]
fn a_snapshot_of_etcd_holds_no_payload_in_clear() {
    run(async |env| {
        let mut world = World::garden_on_etcd(env).await?;
        hide(&world, &env.path().join("object.json")).await?;
        let file = env.path().join("snapshot.db");
        world.etcd.as_ref().context("etcd")?.save_snapshot(0, &file).await?;
        let snapshot = std::fs::read(&file)?;
        ensure!(contains(&snapshot, "/repot/registry/"), "the snapshot does not hold the objects");
        ensure!(!contains(&snapshot, NEEDLE), "payload stands in the snapshot");
        let log = world.repot().process().log();
        ensure!(!log.contains(NEEDLE), "payload stands in the log");
        Ok(())
    });
}
