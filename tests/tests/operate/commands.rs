//! A migration from its plan to its evidence, as an operator sees and steers it.

use std::fs;

use anyhow::{Context, Result, ensure};
use repot_tests::run;
use repot_tests::tool;
use serde_json::{Value, json};
use tokio::process::Command;

use super::world::World;

fn has(text: &str, parts: &[&str]) -> Result<()> {
    for part in parts {
        ensure!(text.contains(part), "no {part:?} in:\n{text}");
    }
    Ok(())
}

#[test]
fn migration_is_planned_started_steered_and_explained() {
    run(async |env| {
        let world = World::start(env, &["alpha"]).await?;
        plan(&world).await?;
        start(&world).await?;
        steer(&world).await?;
        explain(&world, env.path()).await
    });
}

async fn plan(world: &World) -> Result<()> {
    let plan = world.expect(0, &["plan", "alpha", "--to", "seed-b", "--live"]).await?;
    has(
        &plan,
        &["garden-dev/alpha: seed-a -> seed-b, Live", "none: both seeds serve", "may move", "accepted"],
    )?;
    let refused = world.expect(3, &["plan", "alpha", "--to", "seed-a"]).await?;
    has(&refused, &["may not move", "name another seed"])?;
    let none = world.expect(1, &["plan", "beta", "--to", "seed-b"]).await?;
    has(&none, &["there is no Shoot garden-dev/beta", "--from"])?;
    let wrong = world.expect(2, &["plan", "a b", "--to", "seed-b"]).await?;
    has(&wrong, &["RFC 1123"])?;
    let object = world.repot(["plan", "alpha", "--to", "seed-b", "-n", "garden-dev", "-o", "json"]).await?;
    let object: Value = serde_json::from_slice(&object.stdout).context("no JSON")?;
    ensure!(object["preflight"]["allowed"] == true && object["rows"].as_array().is_some(), "{object}");
    ensure!(world.migrations().await?.is_empty(), "a plan has created something");
    Ok(())
}

async fn start(world: &World) -> Result<()> {
    let unasked = world.expect(2, &["migrate", "alpha", "--to", "seed-b"]).await?;
    has(&unasked, &["Its API is away for a while", "--yes"])?;
    world.expect(0, &["migrate", "alpha", "--to", "seed-b", "--dry-run"]).await?;
    world.expect(3, &["migrate", "alpha", "--to", "seed-a", "--yes"]).await?;
    ensure!(world.migrations().await?.is_empty(), "something was created");
    let started =
        world.expect(0, &["migrate", "alpha", "--to", "seed-b", "--yes", "--name", "alpha-1"]).await?;
    has(&started, &["ControlPlaneMigration garden-dev/alpha-1 is created"])?;
    let again = ["migrate", "alpha", "--to", "seed-b", "--yes", "--name", "alpha-1", "--ignore-rules"];
    has(&world.expect(3, &again[..again.len() - 1]).await?, &["migration alpha-1 is under way"])?;
    has(&world.expect(1, &again).await?, &["already exists"])?;
    has(&world.expect(0, &["status"]).await?, &["alpha-1", "Classic", "Pending"])
}

async fn steer(world: &World) -> Result<()> {
    has(&world.expect(0, &["pause", "alpha"]).await?, &["no further step starts"])?;
    ensure!(world.migrations().await?[0]["spec"]["paused"] == true, "it is not paused");
    has(&world.expect(3, &["pause", "alpha"]).await?, &["is paused already"])?;
    world.expect(0, &["resume", "alpha"]).await?;
    has(&world.expect(3, &["retry", "alpha"]).await?, &["has not failed"])?;
    has(&world.expect(3, &["force-shrink", "alpha", "--yes"]).await?, &["this is for live migrations"])?;
    has(&world.expect(2, &["abort", "alpha"]).await?, &["This cannot be taken back", "--yes"])?;
    let failed = json!({"phase": "Failed", "message": "destination: EtcdServes: no quorum", "source": {"phase": "Failed"}});
    world.report("alpha-1", &failed).await?;
    has(&world.expect(3, &["status", "alpha"]).await?, &["Failed", "no quorum", "Possible now: retry"])?;
    world.expect(0, &["retry", "alpha"]).await?;
    ensure!(world.migrations().await?[0]["spec"]["retry"] == 1, "nothing was asked for");
    world.report("alpha-1", &json!({"phase": "Running", "source": {"phase": "Running"}})).await?;
    world.expect(0, &["abort", "alpha", "--yes"]).await?;
    ensure!(world.migrations().await?[0]["spec"]["abort"] == "Abort", "nothing was asked for");
    Ok(())
}

async fn explain(world: &World, dir: &std::path::Path) -> Result<()> {
    let step = |name: &str, from: &str, to: &str| {
        json!({"name": name, "state": "Succeeded", "attempts": 1, "reason": "Reached", "message": "seen",
               "startTime": format!("2026-11-28T05:{from}Z"), "completionTime": format!("2026-11-28T05:{to}Z")})
    };
    let status = json!({
        "phase": "Succeeded", "message": "", "pointOfNoReturn": "2026-11-28T05:15:05Z",
        "apiOutage": {"from": "2026-11-28T05:15:00Z", "to": "2026-11-28T05:15:07Z", "seconds": 7},
        "garden": {"phase": "Succeeded", "steps": [step("TurnTaken", "14:02", "14:04")]},
        "source": {"phase": "Succeeded", "steps": [step("SourceApiStopped", "15:00", "15:02")]},
        "destination": {"phase": "Succeeded", "steps": [step("ApiDnsSwitched", "15:06", "15:07")]},
    });
    world.report("alpha-1", &status).await?;
    let timeline = world.expect(0, &["timeline", "alpha", "--ascii"]).await?;
    has(&timeline, &["Succeeded in 1m05s, API outage 7s", "source      SourceApiStopped", "API outage"])?;
    let svg = dir.join("alpha.svg");
    world.expect(0, &["timeline", "alpha", "--svg", &svg.display().to_string()]).await?;
    has(&fs::read_to_string(&svg)?, &["<svg ", "ApiDnsSwitched"])?;
    has(&world.expect(0, &["history", "alpha"]).await?, &["alpha-1  Classic  seed-a -> seed-b  Succeeded"])?;
    has(
        &world.expect(0, &["plan", "alpha", "--to", "seed-b"]).await?,
        &["7s as a rule, 7s at most, in 1 migrations"],
    )?;
    evidence(world, dir).await
}

/// What was exported is valid, and what was changed since is not.
async fn evidence(world: &World, dir: &std::path::Path) -> Result<()> {
    let path = |name: &str| dir.join(name).display().to_string();
    let openssl = async |args: &[&str]| {
        let mut command = Command::new("openssl");
        command.args(args);
        tool::run(command, b"").await?.text()
    };
    let (key, public, file) = (path("key.pem"), path("key.pub.pem"), path("evidence"));
    openssl(&["genpkey", "-algorithm", "ed25519", "-out", &key]).await?;
    openssl(&["pkey", "-in", &key, "-pubout", "-out", &public]).await?;
    world.expect(0, &["history", "export", "alpha-1", "--key", &key, "--file", &file]).await?;
    has(
        &world.expect(1, &["history", "export", "alpha-1", "--key", &key, "--file", &file]).await?,
        &["exists"],
    )?;
    let verify = async |file: &str| {
        let mut command = Command::new(repot_tests::repot::program()?);
        command.args(["history", "verify", file, "--public-key", &public]).env_remove("KUBECONFIG");
        tool::run(command, b"").await
    };
    let valid = verify(&file).await?;
    ensure!(valid.code == 0 && String::from_utf8_lossy(&valid.stdout).contains("valid"), "{valid:?}");
    let mut changed: Value = serde_json::from_str(&fs::read_to_string(&file)?)?;
    let payload = changed["payload"].as_str().context("no payload")?.to_owned();
    let at = payload.len() / 2;
    let other = if &payload[at..=at] == "A" { "B" } else { "A" };
    changed["payload"] = json!(format!("{}{other}{}", &payload[..at], &payload[at + 1..]));
    fs::write(&file, changed.to_string())?;
    let invalid = verify(&file).await?;
    ensure!(invalid.code == 3, "{invalid:?}");
    Ok(())
}
