//! A garden with the operator in it, and Etcds.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use repot_tests::garden::Garden;
use repot_tests::pods::Image;
use repot_tests::wait::until;
use repot_tests::{Shared, binaries, repot, start_shared, tool};
use serde_json::{Value, json};
use tokio::process::Command;

use super::tls::ClientFiles;
pub use crate::testbed::pods::world::{DEADLINE, is_ready};
use crate::testbed::pods::world::{IMMEDIATE, TestNamespace as Pods, shared};

/// Image with everything of ours.
pub const IMAGE: &str = "repot";
pub const SYSTEM: &str = "repot-system";

static OPERATOR: Shared<()> = Shared::new(|_| start_shared(install()));

pub fn deploy(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy").join(file)
}

pub async fn apply_file(garden: &Garden, file: &str) -> Result<()> {
    let path = deploy(file).display().to_string();
    garden.kubectl(["apply", "--server-side", "-f", &path]).await?.text().map(drop)
}

async fn install() -> Result<()> {
    let world = shared()?;
    world.runner.images().add(IMAGE, image()?);
    for file in ["crds/etcds.yaml", "rbac/server.yaml", "rbac/seed.yaml", "rbac/controllers.yaml"] {
        apply_file(&world.garden, file).await?;
    }
    crd_is_served(&world.garden).await?;
    // Stores of all tests are below the directories of their beds.
    let stores = binaries::testbed_dir().join("run").display().to_string();
    start_operator(&world.garden, &["--local-store-path", &stores]).await
}

/// Everything of ours, and the programs of etcd.
pub fn image() -> Result<Image> {
    let mut image = Image::of(repot::program()?).and("/bin/sh");
    for program in ["etcd", "etcdutl", "etcdctl"] {
        image = image.and(binaries::find(program)?);
    }
    Ok(image)
}

/// Waits until kube-apiserver takes Etcds.
pub async fn crd_is_served(garden: &Garden) -> Result<()> {
    let established =
        ["wait", "--for=condition=Established", "crd/etcds.druid.gardener.cloud", "--timeout=60s"];
    garden.kubectl(established).await?.text().map(drop)
}

/// Deploys the controllers with these flags, and waits until they are ready.
pub async fn start_operator(garden: &Garden, flags: &[&str]) -> Result<()> {
    start_deployment(garden, operator(flags)).await
}

/// The same, where the controllers see a directory of their node at its own path.
pub async fn start_operator_with_directory(garden: &Garden, flags: &[&str], dir: &str) -> Result<()> {
    let mut operator = operator(flags);
    let pod = &mut operator["spec"]["template"]["spec"];
    pod["containers"][0]["volumeMounts"] = json!([{"name": "store", "mountPath": dir}]);
    pod["volumes"] = json!([{"name": "store", "hostPath": {"path": dir}}]);
    start_deployment(garden, operator).await
}

async fn start_deployment(garden: &Garden, deployment: Value) -> Result<()> {
    garden.apply(&[deployment]).await?;
    let ready = ["rollout", "status", "deployment/repot-controllers", "-n", SYSTEM, "--timeout=120s"];
    garden.kubectl(ready).await?.text().map(drop)
}

fn operator(flags: &[&str]) -> Value {
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
                "spec": {"serviceAccountName": "repot-controllers", "containers": [container]},
            },
        },
    })
}

/// A namespace of one test, with Etcds.
pub struct TestNamespace {
    pub pods: Pods,
    /// How a client reaches members with TLS.
    pub tls: Option<ClientFiles>,
}

impl TestNamespace {
    pub async fn make(namespace: &str) -> Result<Self> {
        OPERATOR.value()?;
        Ok(Self { pods: Pods::make(namespace).await?, tls: None })
    }

    /// Applies an Etcd `main`, server-side, as a person would.
    pub async fn apply(&self, spec: Value) -> Result<()> {
        self.pods.apply(&[etcd("main", spec)]).await
    }

    /// Merges into the Etcd `main`.
    pub async fn patch(&self, patch: Value) -> Result<()> {
        self.pods
            .kubectl(&["patch", "etcd", "main", "--type=merge", "-p", &patch.to_string()])
            .await
            .map(drop)
    }

    /// Waits until the status of the Etcd `main` is for what is asked for now, and as the check wants it.
    pub async fn until(&self, what: &str, check: impl Fn(&Value) -> bool) -> Result<Value> {
        self.until_of("main", what, check).await
    }

    /// The same of any Etcd.
    pub async fn until_of(&self, etcd: &str, what: &str, check: impl Fn(&Value) -> bool) -> Result<Value> {
        let current =
            |object: &Value| object["status"]["observedGeneration"] == object["metadata"]["generation"];
        self.pods.until("etcd", etcd, what, |object| current(object) && check(&object["status"])).await
    }

    /// Waits until so many members of the Etcd `main` are ready, on volumes of this name.
    pub async fn until_members(&self, members: u32, volumes: &str) -> Result<Value> {
        self.until(&format!("{members} members on {volumes}"), |status| {
            status["readyReplicas"] == members
                && status["bootstrapped"]["volumes"] == volumes
                && holds(status, "AllMembersReady") == Some(true)
                && holds(status, "ScaleOperationComplete") == Some(true)
        })
        .await
    }

    /// Waits until nothing of the Etcd `main` runs.
    pub async fn until_stopped(&self) -> Result<()> {
        self.until("stopped", |status| reason(status, "Ready") == "Stopped").await?;
        self.pods.until_gone("statefulset", "main").await?;
        self.pods.until_gone("pod", "main-0").await
    }

    /// Names of what there is of a kind.
    pub async fn names(&self, kind: &str) -> Result<Vec<String>> {
        let out = self.pods.kubectl(&["get", kind, "-o", "jsonpath={.items[*].metadata.name}"]).await?;
        Ok(out.split_whitespace().map(str::to_owned).collect())
    }

    /// etcdctl at one member of the Etcd `main`.
    pub async fn member(&self, ordinal: u32) -> Result<Member> {
        self.member_of("main", ordinal).await
    }

    /// The same of any Etcd.
    pub async fn member_of(&self, etcd: &str, ordinal: u32) -> Result<Member> {
        let name = format!("{etcd}-{ordinal}.{etcd}-peer.{}.svc", self.pods.namespace);
        let port = self.pods.world.runner.publish(&name, 2379).await?;
        Ok(Member { program: binaries::find("etcdctl")?, port, tls: self.tls.clone() })
    }
}

pub fn etcd(name: &str, spec: Value) -> Value {
    json!({"apiVersion": "druid.gardener.cloud/v1alpha1", "kind": "Etcd", "metadata": {"name": name}, "spec": spec})
}

/// What nearly all tests want: volumes of a class that is there at once, and no waiting for disks.
pub fn spec(replicas: u32) -> Value {
    json!({
        "replicas": replicas, "storageClass": IMMEDIATE, "storageCapacity": "1Gi",
        "etcd": {"extraFlags": {"unsafe-no-fsync": "true"}},
    })
}

fn condition<'a>(status: &'a Value, kind: &str) -> Option<&'a Value> {
    status["conditions"].as_array()?.iter().find(|condition| condition["type"] == kind)
}

pub fn holds(status: &Value, kind: &str) -> Option<bool> {
    match condition(status, kind)?["status"].as_str()? {
        "True" => Some(true),
        "False" => Some(false),
        _ => None,
    }
}

pub fn reason(status: &Value, kind: &str) -> String {
    let found = condition(status, kind).and_then(|condition| condition["reason"].as_str());
    found.unwrap_or_default().to_owned()
}

pub struct Member {
    program: PathBuf,
    pub port: u16,
    tls: Option<ClientFiles>,
}

impl Member {
    pub async fn ctl(&self, args: &[&str]) -> Result<String> {
        let mut command = Command::new(&self.program);
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        let endpoint = format!("{scheme}://127.0.0.1:{}", self.port);
        command.args(["--endpoints", &endpoint, "--command-timeout", "3s"]).args(args);
        if let Some(tls) = &self.tls {
            command
                .arg("--cacert")
                .arg(&tls.ca)
                .arg("--cert")
                .arg(&tls.certificate)
                .arg("--key")
                .arg(&tls.key);
        }
        tool::run(command, b"").await?.text()
    }

    /// Writes as soon as it can.
    pub async fn put(&self, key: &str, value: &str) -> Result<()> {
        until(&format!("{key}={value} to be written"), DEADLINE, async || {
            self.ctl(&["put", key, value]).await.map(drop)
        })
        .await
    }

    /// The value that a linearizable read gives; empty where there is none.
    pub async fn read(&self, key: &str) -> Result<String> {
        let mut read = String::new();
        until(&format!("an answer for {key}"), DEADLINE, async || {
            read = self.ctl(&["get", key, "--print-value-only"]).await?;
            Ok(())
        })
        .await?;
        Ok(read.trim().to_owned())
    }

    /// Names of members that are started, in order.
    pub async fn members(&self) -> Result<Vec<String>> {
        let out: Value = serde_json::from_str(&self.ctl(&["member", "list", "-w", "json"]).await?)?;
        let members = out["members"].as_array().context("no members")?;
        ensure!(!members.is_empty(), "no members");
        let mut names: Vec<String> =
            members.iter().filter_map(|member| member["name"].as_str().map(str::to_owned)).collect();
        names.sort();
        Ok(names)
    }
}
