//! `repot doctor`: an installation that is well, one that is not, one that may not be looked at, and the archive.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use repot_tests::garden::Garden;
use repot_tests::tool;
use repot_tests::wait::until;
use repot_tests::{TestEnv, run};
use serde_json::{Value, json};
use tokio::process::Command;

use super::{expect, has, repot};
use crate::etcd_kinds::world::{MERGE_PATCH, World, control_plane_migration, hosted_etcd, path};

/// What must not be in the archive, in several forms.
const PLANTED: [&str; 4] =
    ["hunter2-of-the-annotation", "hunter2-of-the-secret", "hunter2-of-the-url", "hunter2-of-the-state"];

#[test]
fn installation_is_examined_and_its_archive_has_no_secret() {
    run(async |env| {
        let world = World::garden(env).await?;
        let garden = world.garden.as_ref().context("no garden")?;
        let kubeconfig = garden.kubeconfig();
        kinds_are_missing(garden, kubeconfig).await?;
        is_well(kubeconfig).await?;
        may_not_be_looked_at(garden).await?;
        is_stuck(&world, kubeconfig).await?;
        archive(&world, garden, env, kubeconfig).await?;
        does_not_answer(env, garden, kubeconfig).await
    });
}

fn file(name: &str) -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name).display().to_string()
}

/// Findings of this check, each as severity, subject and text.
fn of<'a>(report: &'a Value, check: &str) -> Vec<&'a Value> {
    let findings = report["findings"].as_array().into_iter().flatten();
    findings.filter(|finding| finding["check"] == check).collect()
}

async fn report(code: i32, kubeconfig: &Path) -> Result<Value> {
    let (text, _) = expect(code, kubeconfig, &["doctor", "-o", "json"]).await?;
    Ok(serde_json::from_str(&text)?)
}

async fn kinds_are_missing(garden: &Garden, kubeconfig: &Path) -> Result<()> {
    let found = report(3, kubeconfig).await?;
    let missing: Vec<&str> = of(&found, "kinds")
        .into_iter()
        .filter(|finding| finding["severity"] == "problem")
        .filter_map(|finding| finding["where"].as_str())
        .collect();
    let wanted = ["shoots.core.gardener.cloud", "seeds.core.gardener.cloud", "etcds.druid.gardener.cloud"];
    ensure!(missing == wanted, "{missing:?}");
    for crds in ["crds/garden.yaml", "../deploy/crds/etcds.yaml"] {
        garden.kubectl(["apply", "--server-side", "-f", &file(crds)]).await?.text()?;
    }
    let established = ["wait", "--for=condition=Established", "crd", "--all", "--timeout=60s"];
    garden.kubectl(established).await?.text().map(drop)
}

async fn is_well(kubeconfig: &Path) -> Result<()> {
    // What is served is known to kube-apiserver a moment after the CRD is established.
    until("the doctor to find no problem", Duration::from_secs(60), async || {
        let output = repot(kubeconfig, &["doctor"]).await?;
        ensure!(output.code == 0, "{}", String::from_utf8_lossy(&output.stdout));
        Ok(())
    })
    .await?;
    let found = report(0, kubeconfig).await?;
    let api_services = of(&found, "apiservices");
    ensure!(api_services.len() >= 2, "{api_services:?}");
    let connection = of(&found, "connection");
    ensure!(connection.iter().all(|finding| finding["severity"] == "ok"), "{connection:?}");
    let (text, _) = expect(0, kubeconfig, &["doctor", "-o", "wide"]).await?;
    has(
        &text,
        &[
            "agrees with that of this machine",
            "no webhook of Repot is registered",
            "without them nothing is carried out",
            "you have the rights for it",
            "0 problems",
        ],
    )
}

async fn may_not_be_looked_at(garden: &Garden) -> Result<()> {
    let kubeconfig = garden.user_kubeconfig("nobody", &[])?;
    let found = report(0, &kubeconfig).await?;
    for check in ["apiservices", "webhooks", "migrations", "etcds", "seeds"] {
        let findings = of(&found, check);
        let is_forbidden = |finding: &&Value| {
            finding["severity"] == "notChecked"
                && finding["what"].as_str().is_some_and(|what| what.contains("forbidden"))
        };
        ensure!(!findings.is_empty() && findings.iter().all(is_forbidden), "{check}: {findings:?}");
    }
    let rights = of(&found, "rights");
    ensure!(
        rights.iter().all(|finding| finding["severity"] == "warning") && !rights.is_empty(),
        "{rights:?}"
    );
    Ok(())
}

/// A side that has recorded nothing for years, and an etcd without backups.
async fn is_stuck(world: &World, kubeconfig: &Path) -> Result<()> {
    let mut migration = control_plane_migration("stuck");
    migration["metadata"]["annotations"] = json!({"note": format!("password={}", PLANTED[0])});
    world.create("controlplanemigrations", &migration).await?;
    let status = json!({"status": {
        "phase": "Running", "message": format!("GET https://admin:{}@registry.example/v2 failed", PLANTED[2]),
        "source": {"phase": "Running", "observedTime": "2020-01-01T00:00:00Z",
                   "steps": [{"name": "StateSynced", "state": "Running", "startTime": "2020-01-01T00:00:00Z"}]},
    }});
    let path = format!("{}/status", path("controlplanemigrations", "stuck"));
    world.api.patch(&path, MERGE_PATCH, &status).await?.ok()?;
    world.create("hostedetcds", &hosted_etcd("main")).await?;
    let found = report(3, kubeconfig).await?;
    let migrations = of(&found, "migrations");
    ensure!(migrations.len() == 1 && migrations[0]["severity"] == "problem", "{migrations:?}");
    let etcds = of(&found, "etcds");
    ensure!(etcds.iter().any(|finding| finding["where"] == "HostedEtcd default/main"), "{etcds:?}");
    let (text, _) = expect(3, kubeconfig, &["doctor"]).await?;
    has(&text, &["PROBLEM", "the source has recorded nothing for more than three minutes", "-> see whether"])
}

async fn archive(world: &World, garden: &Garden, env: &TestEnv, kubeconfig: &Path) -> Result<()> {
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s", "namespace": "default"},
                        "stringData": {"password": PLANTED[1]}});
    let state = json!({"apiVersion": "core.gardener.cloud/v1alpha1", "kind": "ShootState",
                       "metadata": {"name": "alpha", "namespace": "default"},
                       "spec": {"gardener": [{"name": "ca", "type": "secret", "data": {"key": PLANTED[3]}}]}});
    garden.apply(&[secret, state]).await?;
    ensure!(world.api.get(&path("hostedetcds", "main")).await?.status == 200, "no HostedEtcd");
    let dir = env.make_dir("doctor")?;
    let bundle = dir.join("bundle.tar.gz");
    let name = bundle.display().to_string();
    let (_, told) = expect(3, kubeconfig, &["doctor", "--bundle", &name]).await?;
    has(&told, &["look into it before you send it"])?;
    ensure!(fs::metadata(&bundle)?.permissions().mode() & 0o777 == 0o600, "others may read it");
    let (_, error) = expect(1, kubeconfig, &["doctor", "--bundle", &name]).await?;
    has(&error, &["exists already; --force replaces it"])?;
    expect(3, kubeconfig, &["doctor", "--bundle", &name, "--force"]).await?;
    ensure!(fs::read_dir(&dir)?.count() == 1, "a temporary file is left");

    let mut extract = Command::new("tar");
    extract.arg("-xzf").arg(&bundle).arg("-C").arg(&dir);
    tool::run(extract, b"").await?.text()?;
    let all = texts(&dir)?;
    for planted in PLANTED {
        ensure!(!all.contains(planted), "{planted} is in the archive");
    }
    has(
        &all,
        &[
            "\"name\": \"stuck\"",
            "[REDACTED]@registry.example",
            "v1alpha1.migration.gardener.cloud",
            "certificates, valid until",
            "\"name\": \"alpha\"",
            "\"Size\": ",
        ],
    )?;
    ensure!(!all.contains("managedFields") && !all.contains("\"kind\": \"Secret\""), "{all}");
    Ok(())
}

/// All files below a directory that are texts, one behind the other.
fn texts(dir: &Path) -> Result<String> {
    let mut all = String::new();
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        if path.is_dir() {
            all.push_str(&texts(&path)?);
        } else if let Ok(text) = fs::read_to_string(&path) {
            all.push_str(&text);
        }
    }
    Ok(all)
}

/// First the server behind the APIService is gone for kube-apiserver, then kube-apiserver itself for us.
async fn does_not_answer(env: &TestEnv, garden: &Garden, kubeconfig: &Path) -> Result<()> {
    let patch = json!({"spec": {"service": {"name": "nowhere"}}}).to_string();
    let name = "v1alpha1.migration.gardener.cloud";
    garden.kubectl(["patch", "apiservice", name, "--type=merge", "-p", &patch]).await?.text()?;
    until("the doctor to see that the server is not reached", Duration::from_secs(60), async || {
        let found = report(3, kubeconfig).await?;
        let broken = of(&found, "apiservices").into_iter().find(|finding| finding["severity"] == "problem");
        let broken = broken.with_context(|| format!("no problem in {found}"))?;
        ensure!(broken["what"].as_str().is_some_and(|what| what.starts_with("not available")), "{broken}");
        Ok(())
    })
    .await?;
    let nowhere = env.path().join("nowhere.yaml");
    let mut moved: Value = serde_json::from_slice(&fs::read(kubeconfig)?)?;
    moved["clusters"][0]["cluster"]["server"] = json!("https://127.0.0.1:1");
    fs::write(&nowhere, moved.to_string())?;
    let (text, _) = expect(3, &nowhere, &["doctor"]).await?;
    has(
        &text,
        &[
            "PROBLEM",
            "https://127.0.0.1:1",
            "-> see whether this machine reaches the API server",
            "1 problems",
        ],
    )
}
