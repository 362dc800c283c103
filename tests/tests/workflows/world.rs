//! A garden whose Pods run etcd and the controllers, which tests share; each has a namespace of its own.

use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use repot_tests::garden::{Garden, GardenOptions};
use repot_tests::pods::{Image, Images, PodRunner, PodRunnerOptions};
use repot_tests::repot::{Repot, program};
use repot_tests::wait::{Hopeless, until};
use repot_tests::{Shared, SharedRef, TestEnv, binaries, namespace, operator, start_shared};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::process::{Child, ChildStdout};

use crate::etcd_kinds::world::{GROUP, MERGE_PATCH, VERSION, flags};

pub use repot_tests::namespace::DEADLINE;

/// The namespace of the controllers.
pub const SYSTEM: &str = "repot-system";
pub const CONTROLLERS: &str = "repot-controllers";

pub struct World {
    pub garden: Garden,
    pub runner: PodRunner,
    /// Stores of all tests, a directory by namespace.
    pub store: PathBuf,
    /// Who changed what, as kube-apiserver writes it down; only where there are several controllers.
    pub audit: PathBuf,
    _repot: Repot,
}

static WORLD: Shared<World> = Shared::new(|env| start_shared(World::start(env, 1)));
/// With two controllers, of which one acts.
static PAIR: Shared<World> = Shared::new(|env| start_shared(World::start(env, 2)));

/// What the controllers change, whatever comes of it, and what they write into their Lease.
const AUDIT_POLICY: &str = r#"
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: Request
  users: ["system:serviceaccount:repot-system:repot-controllers"]
  verbs: [create, update, patch]
  namespaces: [repot-system]
  resources: [{group: coordination.k8s.io, resources: [leases]}]
- level: Metadata
  users: ["system:serviceaccount:repot-system:repot-controllers"]
  verbs: [create, update, patch, delete, deletecollection]
- level: None
"#;

fn deploy(part: &str) -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy").join(part).display().to_string()
}

fn images() -> Result<Images> {
    let repot = ["etcd", "etcdctl", "etcdutl"].iter().try_fold(Image::of(program()?), |image, name| {
        Ok::<_, anyhow::Error>(image.and(binaries::find(name)?))
    });
    Ok(Images::default()
        .with("repot", repot?)
        .with("kube-apiserver", Image::of(binaries::find("kube-apiserver")?)))
}

impl World {
    /// With so many controllers.
    async fn start(env: &TestEnv, controllers: u32) -> Result<Self> {
        let (policy, audit) = (env.path().join("audit-policy.yaml"), env.path().join("audit.log"));
        std::fs::write(&policy, AUDIT_POLICY)?;
        let audited = [("audit-policy-file", &policy), ("audit-log-path", &audit)];
        let apiserver_flags = match controllers {
            1 => Vec::new(),
            _ => audited.map(|(name, path)| format!("--{name}={}", path.display())).to_vec(),
        };
        let options = GardenOptions { controller_manager: true, apiserver_flags, ..GardenOptions::default() };
        let garden = Garden::start_with(env, options).await?;
        let flags = [flags(env)?, vec!["--serve=seed".to_owned()]].concat();
        let repot = Repot::behind(env, &garden, &[(GROUP, VERSION)], flags).await?;
        let store = operator::make_store(env)?;
        let options = PodRunnerOptions { images: images()?, ..PodRunnerOptions::default() };
        let runner = PodRunner::start(env, &garden, options).await?;
        let classes =
            ["slow", "fast"].map(|name| PodRunner::storage_class(name, "WaitForFirstConsumer", "Delete"));
        garden.apply(&classes).await?;
        let mut limited = PodRunner::storage_class("limited", "Immediate", "Delete");
        limited["parameters"] = json!({"quota": "enforced"});
        garden.apply(&[limited]).await?;
        for file in ["crds/etcds.yaml", "rbac/controllers.yaml"] {
            garden.kubectl(["apply", "--server-side", "-f", &deploy(file)]).await?.text()?;
        }
        let crd = ["wait", "--for=condition=Established", "crd/etcds.druid.gardener.cloud", "--timeout=60s"];
        garden.kubectl(crd).await?.text()?;
        let world = Self { garden, runner, store, audit, _repot: repot };
        world.garden.apply(&[world.controllers(controllers), service()]).await?;
        let rolled = ["rollout", "status", "-n", SYSTEM, "deployment/repot-controllers", "--timeout=120s"];
        world.garden.kubectl(rolled).await?.text()?;
        Ok(world)
    }

    /// The controllers, as an operator deploys them; they see the stores of `Local` where Pods of the node do.
    fn controllers(&self, replicas: u32) -> Value {
        // Where there are several, tests freeze one of them, and wait for what it does afterwards.
        let failures = if replicas > 1 { 1000 } else { 3 };
        let labels = json!({"app": CONTROLLERS});
        let container = json!({
            "name": "controllers", "image": "repot",
            "command": ["repot", "controllers", "--image=repot", "--leader-elect", "--local-store-path", self.store],
            "env": [{"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
            "volumeMounts": [{"name": "store", "mountPath": self.store}],
            "livenessProbe": {"httpGet": {"path": "/healthz", "port": 8081}, "periodSeconds": 5, "failureThreshold": failures},
            "readinessProbe": {"httpGet": {"path": "/readyz", "port": 8081}, "periodSeconds": 1},
        });
        let spec = json!({
            "serviceAccountName": CONTROLLERS, "securityContext": operator::pod_security(), "containers": [container],
            "volumes": [{"name": "store", "hostPath": {"path": self.store}}],
        });
        json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": CONTROLLERS, "namespace": SYSTEM},
            "spec": {
                "replicas": replicas, "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels}, "spec": spec},
            },
        })
    }
}

/// The headless Service by which tests reach the controllers' health and metrics.
fn service() -> Value {
    json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": CONTROLLERS, "namespace": SYSTEM},
        "spec": {"selector": {"app": CONTROLLERS}, "clusterIP": "None", "ports": [{"port": 8081}]},
    })
}

/// A namespace of one test.
pub struct TestNamespace {
    pub world: SharedRef<World>,
    namespace: namespace::TestNamespace,
}

impl Deref for TestNamespace {
    type Target = namespace::TestNamespace;

    fn deref(&self) -> &namespace::TestNamespace {
        &self.namespace
    }
}

impl TestNamespace {
    pub async fn make(namespace: &str) -> Result<Self> {
        Self::make_in(WORLD.value()?, namespace).await
    }

    /// Makes one in a garden with two controllers.
    pub async fn make_with_two(namespace: &str) -> Result<Self> {
        Self::make_in(PAIR.value()?, namespace).await
    }

    async fn make_in(world: SharedRef<World>, namespace: &str) -> Result<Self> {
        let namespace = namespace::TestNamespace::make(&world.garden, namespace).await?;
        Ok(Self { world, namespace })
    }

    /// Gives an object, as [`namespace::TestNamespace::get`] does, without starting a kubectl: tests ask for objects many times a second.
    pub async fn get(&self, kind: &str, name: &str) -> Result<Value> {
        let path = format!("{}/{name}", collection(kind, &self.namespace.namespace)?);
        self.world.garden.api().get(&path).await?.ok()
    }

    /// Merges a patch into an object.
    pub async fn merge(&self, kind: &str, name: &str, patch: Value) -> Result<Value> {
        let path = format!("{}/{name}", collection(kind, &self.namespace.namespace)?);
        self.world.garden.api().patch(&path, MERGE_PATCH, &patch).await?.ok()
    }

    /// Gives all objects of a kind that have these labels.
    pub async fn list(&self, kind: &str, labels: &str) -> Result<Vec<Value>> {
        let path = format!("{}?labelSelector={labels}", collection(kind, &self.namespace.namespace)?);
        let listed = self.world.garden.api().get(&path).await?.ok()?;
        listed["items"].as_array().cloned().context("no list")
    }

    /// Waits until an object is as the check wants it, and gives it.
    pub async fn until(
        &self,
        kind: &str,
        name: &str,
        what: &str,
        check: impl Fn(&Value) -> bool,
    ) -> Result<Value> {
        until(&format!("{kind} {name}: {what}"), DEADLINE, async || {
            let object = self.get(kind, name).await?;
            ensure!(check(&object), "it is {}", object["status"]);
            Ok(object)
        })
        .await
    }

    /// Waits until a workflow is over, and gives it; what it ended as has to be this.
    pub async fn ends(&self, kind: &str, name: &str, phase: &str) -> Result<Value> {
        self.ends_within(kind, name, phase, DEADLINE).await
    }

    /// The same with a deadline of its own.
    pub async fn ends_within(
        &self,
        kind: &str,
        name: &str,
        phase: &str,
        deadline: Duration,
    ) -> Result<Value> {
        let over = ["Succeeded", "RolledBack", "Failed", "Cancelled"];
        let what = format!("{kind} {name} to end");
        let ended = until(&what, deadline, async || {
            let object = self.get(kind, name).await?;
            let is = object["status"]["phase"].as_str().unwrap_or_default().to_owned();
            match over.contains(&is.as_str()) {
                true if is == phase => Ok(object),
                true => bail!(Hopeless(format!("it ended as {}", object["status"]))),
                false => bail!("it is at {}", object["status"]),
            }
        });
        ended.await
    }

    /// Follows what kubectl shows, from now on.
    pub fn watch(&self, args: &[&str]) -> Result<Watch> {
        let all = args.iter().copied().chain(["-n", &self.namespace.namespace]);
        let mut command = self.world.garden.kubectl_tool().command(all);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).kill_on_drop(true);
        let mut child = command.spawn()?;
        let out = child.stdout.take().context("no output")?;
        Ok(Watch { child, out: BufReader::new(out) })
    }

    /// The directory of what a test keeps on the node: the store of its etcd, and what its writer notes.
    pub fn dir(&self) -> PathBuf {
        self.world.store.join(&self.namespace.namespace)
    }

    /// Where the backups of an etcd lie.
    pub fn backups(&self) -> PathBuf {
        self.dir().join("main/backups")
    }

    /// `spec.backupStore` of the HostedEtcd of this namespace.
    pub fn backup_store(&self) -> Value {
        let prefix = format!("{}/main", self.namespace.namespace);
        json!({"provider": "Local", "container": self.world.store, "prefix": prefix})
    }

    /// A port on 127.0.0.1 that leads to a port of a name of this namespace.
    pub async fn publish(&self, host: &str, port: u16) -> Result<u16> {
        self.world.runner.publish(&format!("{host}.{}.svc", self.namespace.namespace), port).await
    }
}

/// The path of all objects of a kind in a namespace.
fn collection(kind: &str, namespace: &str) -> Result<String> {
    let ours = format!("{GROUP}/{VERSION}");
    let (group, resource) = match kind {
        "pod" | "service" | "persistentvolumeclaim" | "serviceaccount" => ("api/v1", format!("{kind}s")),
        "deployment" | "statefulset" => ("apis/apps/v1", format!("{kind}s")),
        "job" => ("apis/batch/v1", "jobs".to_owned()),
        "etcd" => ("apis/druid.gardener.cloud/v1alpha1", "etcds".to_owned()),
        "hostedetcd" | "etcdbackup" | "etcdrestore" | "etcdmigration" => {
            (&*format!("apis/{ours}"), format!("{kind}s"))
        }
        other => bail!("the path of {other} is not known here"),
    };
    Ok(format!("/{group}/namespaces/{namespace}/{resource}"))
}

/// A kubectl that watches.
pub struct Watch {
    child: Child,
    out: BufReader<ChildStdout>,
}

impl Watch {
    /// Ends it, and gives all that it has shown.
    pub async fn text(&mut self) -> Result<String> {
        self.child.start_kill()?;
        let mut text = String::new();
        self.out.read_to_string(&mut text).await?;
        Ok(text)
    }

    /// The next line that it shows.
    pub async fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        ensure!(self.out.read_line(&mut line).await? > 0, "kubectl has ended");
        Ok(line)
    }
}

/// An object of ours in the namespace of a test.
pub fn object(kind: &str, name: &str, spec: Value) -> Value {
    json!({"apiVersion": format!("{GROUP}/{VERSION}"), "kind": kind, "metadata": {"name": name}, "spec": spec})
}
