//! A garden with the operator in it, and Etcds.

use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use repot_tests::garden::Garden;
pub use repot_tests::operator::{
    IMAGE, SYSTEM, apply_file, crd_is_served, deploy, image, start as start_operator,
};
use repot_tests::operator::{deployment, prepare, start_deployment};
use repot_tests::wait::until;
use repot_tests::{Shared, SharedRef, binaries, start_shared, tool};
use serde_json::{Value, json};
use tokio::process::Command;

use super::tls::ClientFiles;
pub use crate::testbed::pods::world::{DEADLINE, is_ready};
use crate::testbed::pods::world::{IMMEDIATE, TestNamespace as Pods, World as PodsWorld, shared};

static OPERATOR: Shared<SharedRef<PodsWorld>> = Shared::new(|_| start_shared(install()));

/// The cluster stays for as long as its operator.
async fn install() -> Result<SharedRef<PodsWorld>> {
    let world = shared()?;
    world.runner.images().add(IMAGE, image()?);
    prepare(&world.garden).await?;
    // Stores of all tests are below the directories of their environments.
    let stores = binaries::testbed_dir().join("run").display().to_string();
    start_operator(&world.garden, &["--local-store-path", &stores]).await?;
    Ok(world)
}

/// Deploys the controllers with these flags, where they see a directory of their node at its own path.
pub async fn start_operator_with_directory(garden: &Garden, flags: &[&str], dir: &str) -> Result<()> {
    let mut operator = deployment(flags);
    let pod = &mut operator["spec"]["template"]["spec"];
    pod["containers"][0]["volumeMounts"] = json!([{"name": "store", "mountPath": dir}]);
    pod["volumes"] = json!([{"name": "store", "hostPath": {"path": dir}}]);
    start_deployment(garden, operator).await
}

/// A namespace of one test, with Etcds.
pub struct TestNamespace {
    pub pods: Pods,
    /// How a client reaches members with TLS.
    pub tls: Option<ClientFiles>,
    _operator: SharedRef<SharedRef<PodsWorld>>,
}

impl TestNamespace {
    pub async fn make(namespace: &str) -> Result<Self> {
        let operator = OPERATOR.value()?;
        Ok(Self { pods: Pods::make(namespace).await?, tls: None, _operator: operator })
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
