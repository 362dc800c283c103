//! A garden whose Pods run etcd and the controllers, which tests share; each has a namespace of its own.

use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use etcd_client::Client;
use repot_tests::garden::{Garden, GardenOptions};
use repot_tests::pods::{Image, Images, PodRunner, PodRunnerOptions};
use repot_tests::repot::{Repot, program};
use repot_tests::wait::{Hopeless, until};
use repot_tests::{Bed, Shared, binaries, place, start_shared};
use serde_json::{Value, json};
use tokio::io::AsyncReadExt;
use tokio::process::Child;

use crate::etcd_kinds::world::{GROUP, VERSION, flags};

pub use repot_tests::place::DEADLINE;

/// The namespace of the controllers.
pub const SYSTEM: &str = "repot-system";
pub const CONTROLLERS: &str = "repot-controllers";

pub struct World {
    pub garden: Garden,
    pub runner: PodRunner,
    /// Stores of all tests, a directory by namespace.
    pub store: PathBuf,
    _repot: Repot,
}

static WORLD: Shared<World> = Shared::new(|bed| start_shared(World::start(bed)));

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
    async fn start(bed: &Bed) -> Result<Self> {
        let options = GardenOptions { controller_manager: true, ..GardenOptions::default() };
        let garden = Garden::start_with(bed, options).await?;
        let flags = [flags(bed)?, vec!["--serve=seed".to_owned()]].concat();
        let repot = Repot::behind(bed, &garden, &[(GROUP, VERSION)], flags).await?;
        let store = bed.make_dir("backups")?;
        let options = PodRunnerOptions { images: images()?, ..PodRunnerOptions::default() };
        let runner = PodRunner::start(bed, &garden, options).await?;
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
        let world = Self { garden, runner, store, _repot: repot };
        world.garden.apply(&[world.controllers()]).await?;
        let rolled = ["rollout", "status", "-n", SYSTEM, "deployment/repot-controllers", "--timeout=120s"];
        world.garden.kubectl(rolled).await?.text()?;
        Ok(world)
    }

    /// The controllers, as an operator deploys them; they see the stores of `Local` where Pods of the node do.
    fn controllers(&self) -> Value {
        let labels = json!({"app": CONTROLLERS});
        let container = json!({
            "name": "controllers", "image": "repot",
            "command": ["repot", "controllers", "--image=repot", "--leader-elect"],
            "env": [{"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
            "volumeMounts": [{"name": "store", "mountPath": self.store}],
            "livenessProbe": {"httpGet": {"path": "/healthz", "port": 8081}, "periodSeconds": 5},
            "readinessProbe": {"httpGet": {"path": "/readyz", "port": 8081}, "periodSeconds": 1},
        });
        let spec = json!({
            "serviceAccountName": CONTROLLERS, "containers": [container],
            "volumes": [{"name": "store", "hostPath": {"path": self.store}}],
        });
        json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": CONTROLLERS, "namespace": SYSTEM},
            "spec": {
                "replicas": 1, "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels}, "spec": spec},
            },
        })
    }
}

/// A namespace of one test.
pub struct Place {
    pub world: &'static World,
    place: place::Place,
}

impl Deref for Place {
    type Target = place::Place;

    fn deref(&self) -> &place::Place {
        &self.place
    }
}

impl Place {
    pub async fn make(namespace: &str) -> Result<Self> {
        let world = WORLD.value()?;
        Ok(Self { world, place: place::Place::make(&world.garden, namespace).await? })
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
        let all = args.iter().copied().chain(["-n", &self.namespace]);
        let mut command = self.world.garden.kubectl_tool().command(all);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).kill_on_drop(true);
        Ok(Watch(command.spawn()?))
    }

    /// Where the backups of an etcd lie.
    pub fn backups(&self) -> PathBuf {
        self.world.store.join(&self.namespace).join("main/backups")
    }

    /// `spec.backupStore` of the HostedEtcd of this place.
    pub fn backup_store(&self) -> Value {
        json!({"provider": "Local", "container": self.world.store, "prefix": format!("{}/main", self.namespace)})
    }

    /// A client of a member.
    pub async fn client(&self, host: &str) -> Result<Client> {
        let name = format!("{host}.{}.svc", self.namespace);
        let port = self.world.runner.publish(&name, 2379).await?;
        let connected = Client::connect([format!("http://127.0.0.1:{port}")], None).await;
        connected.context("no client")
    }
}

/// A kubectl that watches.
pub struct Watch(Child);

impl Watch {
    /// Ends it, and gives all that it has shown.
    pub async fn text(&mut self) -> Result<String> {
        self.0.start_kill()?;
        let mut text = String::new();
        let mut out = self.0.stdout.take().context("it was asked before")?;
        out.read_to_string(&mut text).await?;
        Ok(text)
    }
}

/// An object of ours in the namespace of a test.
pub fn object(kind: &str, name: &str, spec: Value) -> Value {
    json!({"apiVersion": format!("{GROUP}/{VERSION}"), "kind": kind, "metadata": {"name": name}, "spec": spec})
}
