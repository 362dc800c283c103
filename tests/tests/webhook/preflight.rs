//! `repot preflight`: the same rules, asked before there is anything to ask about.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Result, ensure};
use repot_tests::access::{Access, Credential};
use repot_tests::http::Api;
use repot_tests::port;
use repot_tests::repot::{Dev, program};
use repot_tests::tool::{self, Output};
use repot_tests::wait::until;
use repot_tests::{TestEnv, run};
use serde_json::{Value, json};
use tokio::process::Command;

use super::questions::review;
use super::world::{TestNamespace, mk_seed, mk_shoot};

const KNOWN: Duration = Duration::from_secs(60);

pub async fn preflight(args: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Result<Output> {
    let mut command = Command::new(program()?);
    command.arg("preflight").args(args).env_remove("KUBECONFIG");
    tool::run(command, b"").await
}

fn write(dir: &Path, name: &str, objects: &[Value]) -> Result<PathBuf> {
    let path = dir.join(name);
    let text: Vec<String> = objects.iter().map(|object| format!("---\n{object}\n")).collect();
    fs::write(&path, text.concat())?;
    Ok(path)
}

/// A landscape of three seeds in files, one of them far.
fn landscape(env: &TestEnv) -> Result<(PathBuf, PathBuf)> {
    let dir = env.make_dir("facts")?;
    let mut far = mk_seed("far");
    far["spec"]["provider"]["region"] = json!("us");
    write(&dir, "seeds.yaml", &[mk_seed("a"), mk_seed("b"), far])?;
    let profile = json!({"apiVersion": "core.gardener.cloud/v1beta1", "kind": "CloudProfile", "metadata": {"name": "profile"}, "spec": {"regions": [{"name": "eu"}]}});
    write(&dir, "profile.yaml", &[profile])?;
    fs::write(
        dir.join("regions.yaml"),
        "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: regions\n  namespace: garden\n  labels:\n    \
         scheduling.gardener.cloud/purpose: region-config\n  annotations:\n    scheduling.gardener.cloud/cloudprofiles: profile\n    \
         migration.gardener.cloud/inter-region-distance-threshold: \"180\"\ndata:\n  eu: |\n    us: 200\n    no: 12\n",
    )?;
    let shoot = write(env.path(), "shoot.yaml", &[mk_shoot("garden-p", "one", "a")])?;
    Ok((dir, shoot))
}

#[test]
fn files_say_whether_a_shoot_may_move_and_how_far_it_is() {
    run(async |env| {
        let (facts, shoot) = landscape(env)?;
        let ask = async |to: &str, more: &[&str]| {
            let (shoot, facts) = (shoot.display().to_string(), facts.display().to_string());
            let own = ["--shoot", &shoot, "--to", to, "--facts", &facts, "--output", "json"];
            preflight(own.iter().chain(more)).await
        };
        let near = ask("b", &["--live"]).await?;
        ensure!(near.json()? == json!({"allowed": true, "findings": [], "distance": 0}));
        let far = ask("far", &["--live"]).await?;
        ensure!(far.code == 3, "{far:?}");
        let said: Value = serde_json::from_slice(&far.stdout)?;
        ensure!(said["allowed"] == false && said["distance"] == 200, "{said}");
        ensure!(
            said["findings"][0]["rule"] == "live-distance" && said["findings"][0]["field"] == "spec.seedName",
            "{said}"
        );
        ensure!(ask("far", &[]).await?.code == 0, "with downtime it may go anywhere");
        ensure!(ask("nowhere", &[]).await?.code == 3, "there is no such seed");
        ensure!(ask("a", &[]).await?.code == 3, "it is there already");
        Ok(())
    });
}

#[test]
fn exit_codes_tell_refusal_from_bad_usage_from_failure() {
    run(async |env| {
        let (facts, shoot) = landscape(env)?;
        let (facts, shoot) = (facts.display().to_string(), shoot.display().to_string());
        ensure!(preflight(["--to", "b"]).await?.code == 2, "no Shoot is named");
        let other = write(env.path(), "other.yaml", &[mk_seed("a")])?.display().to_string();
        ensure!(
            preflight(["--shoot", &other, "--to", "b", "--facts", &facts]).await?.code == 2,
            "no Shoot in the file"
        );
        ensure!(
            preflight(["--shoot", "/nowhere", "--to", "b", "--facts", &facts]).await?.code == 1,
            "no file"
        );
        let text = preflight(["--shoot", &shoot, "--to", "far", "--live", "--facts", &facts]).await?;
        let said = String::from_utf8_lossy(&text.stdout).into_owned();
        ensure!(text.code == 3, "{said}");
        ensure!(said.starts_with("Shoot garden-p/one may not move from seed a to seed far, live.\nDistance: 200\n  refused  spec.seedName: the distance"), "{said}");
        Ok(())
    });
}

#[test]
fn a_cluster_gives_the_same_answer_as_its_webhook() {
    run(async |env| {
        let place = TestNamespace::make("preflight").await?;
        place.put(&place.shoot("one")).await?;
        let shoot = write(env.path(), "shoot.yaml", &[place.get("one").await?])?.display().to_string();
        let kubeconfig = place.world.garden.kubeconfig().display().to_string();
        let ask = async |to: &str| {
            preflight(["--shoot", &shoot, "--to", to, "--kubeconfig", &kubeconfig, "--output", "json"]).await
        };
        let mut ill = place.seed("b");
        ill["spec"]["backup"] = Value::Null;
        place.put(&ill).await?;
        let out = ask("preflight-b").await?;
        let said: Value = serde_json::from_slice(&out.stdout)?;
        ensure!(out.code == 3 && said["findings"][0]["rule"] == "backup-configured", "{said}");
        let denied = place
            .refuses("one", &json!({"spec": {"seedName": "preflight-b"}}), &["backup-configured"])
            .await?;
        let message = said["findings"][0]["message"].as_str().unwrap_or_default();
        ensure!(denied.contains(message), "{denied}");
        let dry_run = said["dryRun"]["message"].as_str().unwrap_or_default();
        ensure!(said["dryRun"]["verdict"] == "denied" && dry_run.contains(message), "{said}");
        place.put(&place.seed("b")).await?;
        let said = ask("preflight-b").await?.json()?;
        ensure!(said["allowed"] == true && said["dryRun"]["verdict"] == "accepted", "it may go: {said}");
        let moved = place.get("one").await?;
        ensure!(moved["spec"]["seedName"] == "preflight-a", "a dry run changed the Shoot: {moved}");
        place.allows("one", &json!({"spec": {"seedName": "preflight-b"}})).await?;
        Ok(())
    });
}

#[test]
fn a_user_without_rights_is_told_so_at_once() {
    run(async |env| {
        let place = TestNamespace::make("strangers").await?;
        let shoot = write(env.path(), "shoot.yaml", &[place.shoot("one")])?.display().to_string();
        let garden = &place.world.garden;
        let kubeconfig = garden.user_kubeconfig("stranger", &["strangers"])?.display().to_string();
        let out = preflight(["--shoot", &shoot, "--to", "strangers-b", "--kubeconfig", &kubeconfig]).await?;
        ensure!(out.code == 1, "{out:?}");
        let lines: Vec<&str> = out.stderr.lines().collect();
        ensure!(lines.len() == 1 && lines[0].starts_with("repot: forbidden: "), "{out:?}");
        ensure!(lines[0].contains("https://") && lines[0].contains("stranger"), "{out:?}");
        Ok(())
    });
}

#[test]
fn a_laptop_serves_webhooks_with_facts_from_files() {
    run(async |env| {
        let (facts, _) = landscape(env)?;
        let port = port::reserve()?;
        let args = [format!("--facts={}", facts.display()), format!("--webhook-port={port}")];
        let mut dev = Dev::start(env, args).await?;
        let ca_pem = fs::read_to_string(dev.data_dir().join("pki/ca.crt"))?;
        let server = format!("https://127.0.0.1:{port}");
        let api = Api::new(&Access { server, ca_pem, credential: Credential::Anonymous })?;
        let mut moved = mk_shoot("garden-p", "one", "a");
        moved["spec"]["seedName"] = json!("nowhere");
        let answer = api
            .post("/validate-seed-change", &review(moved, mk_shoot("garden-p", "one", "a")))
            .await?
            .ok()?;
        let said = answer["response"]["status"]["message"].as_str().unwrap_or_default();
        ensure!(said.contains("there is no seed \"nowhere\""), "{answer}");
        dev.repot().stop().await
    });
}

#[test]
fn a_laptop_serves_webhooks_with_facts_from_a_cluster() {
    run(async |env| {
        let place = TestNamespace::make("laptop").await?;
        place.put(&place.shoot("one")).await?;
        let port = port::reserve()?;
        let kubeconfig = place.world.garden.kubeconfig().display().to_string();
        let args = [format!("--garden-kubeconfig={kubeconfig}"), format!("--webhook-port={port}")];
        let mut dev = Dev::start(env, args).await?;
        let ca_pem = fs::read_to_string(dev.data_dir().join("pki/ca.crt"))?;
        let server = format!("https://127.0.0.1:{port}");
        let api = Api::new(&Access { server, ca_pem, credential: Credential::Anonymous })?;
        until("the facts", KNOWN, async || {
            let ready = api.get("/readyz").await?;
            ensure!(ready.status == 200, "{ready}");
            Ok(())
        })
        .await?;
        let ask = async |seed: &str| {
            let mut moved = place.get("one").await?;
            moved["spec"]["seedName"] = json!(seed);
            api.post("/validate-seed-change", &review(moved, place.get("one").await?)).await?.ok()
        };
        let there = ask("laptop-b").await?;
        ensure!(there["response"]["allowed"] == true, "{there}");
        let nowhere = ask("nowhere").await?;
        let said = nowhere["response"]["status"]["message"].as_str().unwrap_or_default();
        ensure!(said.contains("there is no seed \"nowhere\""), "{nowhere}");
        dev.repot().stop().await
    });
}
