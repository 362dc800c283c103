//! The controllers of a seed as a Deployment, for a garden whose Pods run.

use std::path::{Path, PathBuf};

use anyhow::Result;
use serde_json::{Value, json};

use crate::garden::Garden;
use crate::pods::Image;
use crate::{TestEnv, binaries, repot};

/// Image with Repot, a shell and the programs of etcd.
pub const IMAGE: &str = "repot";
/// Namespace of the controllers.
pub const SYSTEM: &str = "repot-system";
const FILES: [&str; 4] = ["crds/etcds.yaml", "rbac/server.yaml", "rbac/seed.yaml", "rbac/controllers.yaml"];

/// User and group of the Pods of Repot, as in its charts.
const USER: u32 = 65532;

/// Makes a directory for stores of the type Local, which Pods of Repot may write.
pub fn make_store(env: &TestEnv) -> Result<PathBuf> {
    let dir = env.make_dir("store")?;
    std::os::unix::fs::chown(&dir, Some(USER), Some(USER))?;
    Ok(dir)
}

/// The security context of Pods of the charts.
pub fn pod_security() -> Value {
    json!({"runAsNonRoot": true, "runAsUser": USER, "runAsGroup": USER, "fsGroup": USER})
}

/// A file below `deploy/`.
pub fn deploy(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy").join(file)
}

/// Applies a file below `deploy/`.
pub async fn apply_file(garden: &Garden, file: &str) -> Result<()> {
    let path = deploy(file).display().to_string();
    garden.kubectl(["apply", "--server-side", "-f", &path]).await?.text().map(drop)
}

/// What the name [`IMAGE`] has to stand for in a pod runner.
///
/// Errors: when a program is missing.
pub fn image() -> Result<Image> {
    let mut image = Image::of(repot::program()?).and("/bin/sh");
    for program in ["etcd", "etcdutl", "etcdctl"] {
        image = image.and(binaries::find(program)?);
    }
    Ok(image)
}

/// Applies what is shipped for the controllers, and waits until kube-apiserver takes Etcds.
pub async fn prepare(garden: &Garden) -> Result<()> {
    for file in FILES {
        apply_file(garden, file).await?;
    }
    crd_is_served(garden).await
}

/// Waits until kube-apiserver takes Etcds.
pub async fn crd_is_served(garden: &Garden) -> Result<()> {
    let established =
        ["wait", "--for=condition=Established", "crd/etcds.druid.gardener.cloud", "--timeout=60s"];
    garden.kubectl(established).await?.text().map(drop)
}

/// Deploys the controllers with these flags, and waits until they are ready.
pub async fn start(garden: &Garden, flags: &[&str]) -> Result<()> {
    start_deployment(garden, deployment(flags)).await
}

/// Applies a Deployment of the controllers, and waits until it is ready.
pub async fn start_deployment(garden: &Garden, deployment: Value) -> Result<()> {
    garden.apply(&[deployment]).await?;
    let ready = ["rollout", "status", "deployment/repot-controllers", "-n", SYSTEM, "--timeout=120s"];
    garden.kubectl(ready).await?.text().map(drop)
}

/// The Deployment of the controllers with these flags.
pub fn deployment(flags: &[&str]) -> Value {
    let labels = json!({"app": "repot-controllers"});
    let command = ["repot", "controllers", "--image", IMAGE, "--log-level", "info,repot_controllers=debug"];
    let command = [&command[..], flags].concat();
    let container = json!({
        "name": "controllers", "image": IMAGE, "command": command,
        "readinessProbe": {"httpGet": {"path": "/readyz", "port": 8081}, "periodSeconds": 1},
    });
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"namespace": SYSTEM, "name": "repot-controllers"},
        "spec": {
            "replicas": 1, "strategy": {"type": "Recreate"}, "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {
                    "serviceAccountName": "repot-controllers", "securityContext": pod_security(), "containers": [container],
                },
            },
        },
    })
}
