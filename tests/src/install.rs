//! A cluster whose Pods kube-apiserver reaches, and helm with the charts.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::garden::{Garden, GardenOptions};
use crate::oci::{self, Archive};
use crate::pods::{Egress, Image, PodRunner, PodRunnerOptions};
use crate::{TestEnv, binaries, repot, tool};
use anyhow::{Result, ensure};
use serde_json::json;
use tokio::process::Command;

/// Namespace of the releases.
pub const NAMESPACE: &str = "repot-system";
/// Long enough for volumes, certificates and the images of a cluster that has just begun.
const WAIT: &str = "--timeout=180s";

/// A cluster for charts. Everything ends when it is dropped.
pub struct World<'a> {
    env: &'a TestEnv,
    /// Its kube-apiserver and kube-controller-manager.
    pub garden: Garden,
    /// Its nodes and what runs on them.
    pub runner: PodRunner,
}

/// Where images of Repot come from.
#[derive(Clone, Debug)]
pub enum ImageSource {
    /// The programs that tests run, in the root directories of the images.
    Programs,
    /// The archives that `make image` has written into this directory.
    Archives(PathBuf),
}

/// Names of the images, and what they have beside the program itself.
const IMAGES: [(&str, &[&str]); 2] = [("repot", &[]), ("repot-etcd", &["etcd", "etcdctl", "etcdutl"])];

impl ImageSource {
    /// An image as containers see it.
    ///
    /// Errors: when the archive is not what its digests say, or a program is missing.
    async fn image(&self, env: &TestEnv, name: &str, beside: &[&str]) -> Result<Image> {
        let dir = env.make_dir(&format!("image-{name}"))?;
        match self {
            Self::Archives(archives) => {
                let archive = archives.join(format!("{name}.oci.tar"));
                Archive::open(&archive, dir.join("layout")).await?.unpack(&dir.join("root")).await
            }
            Self::Programs => {
                let mut programs = vec![repot::program()?];
                for name in beside {
                    programs.push(binaries::find(name)?);
                }
                oci::around(&programs, &dir.join("root")).await
            }
        }
    }
}

/// A directory below `deploy/charts`.
pub fn chart(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/charts").join(name)
}

impl<'a> World<'a> {
    /// Nodes in a zone each. Pods have to pass the restricted standard in the namespace of Repot.
    pub async fn start(env: &'a TestEnv, nodes: usize) -> Result<Self> {
        Self::start_with(env, nodes, &ImageSource::Programs).await
    }

    /// The same with images of a source.
    pub async fn start_with(env: &'a TestEnv, nodes: usize, source: &ImageSource) -> Result<Self> {
        let world = Self::start_bare(env, nodes, source).await?;
        let labels = json!({"pod-security.kubernetes.io/enforce": "restricted"});
        let metadata = json!({"name": NAMESPACE, "labels": labels});
        world.garden.apply(&[json!({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})]).await?;
        Ok(world)
    }

    /// The same without the namespace of Repot.
    pub async fn start_bare(env: &'a TestEnv, nodes: usize, source: &ImageSource) -> Result<Self> {
        let egress = Egress::prepare(env)?;
        let options = GardenOptions {
            controller_manager: true,
            apiserver_flags: egress.flags.to_vec(),
            ..GardenOptions::default()
        };
        let garden = Garden::start_with(env, options).await?;
        let zone = |node: usize| {
            let labels = [("topology.kubernetes.io/zone".to_owned(), format!("zone-{node}"))];
            (format!("node-{node}"), BTreeMap::from(labels))
        };
        let options = PodRunnerOptions {
            nodes: (0..nodes).map(zone).collect(),
            service_proxy: true,
            ..PodRunnerOptions::default()
        };
        let runner = PodRunner::start(env, &garden, options).await?;
        runner.serve_egress(egress)?;
        for (name, beside) in IMAGES {
            runner.images().add(&format!("{name}:0.1.0"), source.image(env, name, beside).await?);
        }
        let garden_namespace =
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "garden"}});
        let class = PodRunner::storage_class("standard", "WaitForFirstConsumer", "Delete");
        garden.apply(&[garden_namespace, class]).await?;
        Ok(Self { env, garden, runner })
    }

    /// Makes the kinds of Gardener that webhooks and controllers read, as small CRDs.
    pub async fn apply_gardener_kinds(&self) -> Result<()> {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("crds/garden.yaml");
        self.kubectl(&["apply", "-f", &file.display().to_string()]).await?;
        self.kubectl(&["wait", "--for=condition=Established", "crd", "--all", "--timeout=60s"])
            .await
            .map(drop)
    }

    /// Runs helm in the namespace of Repot.
    pub async fn helm(&self, args: &[&str]) -> Result<String> {
        self.helm_in(NAMESPACE, args).await
    }

    /// Runs helm in another namespace.
    pub async fn helm_in(&self, namespace: &str, args: &[&str]) -> Result<String> {
        let mut command = Command::new(binaries::find("helm")?);
        command.args(args).args(["--namespace", namespace]).current_dir(self.env.path());
        command.env("HOME", self.env.path()).env("KUBECONFIG", self.garden.kubeconfig());
        tool::run(command, b"").await?.text()
    }

    /// `helm <verb> <release> <chart> --wait`, with further arguments.
    pub async fn deploy(&self, verb: &str, release: &str, rest: &[&str]) -> Result<String> {
        let chart = chart(release).display().to_string();
        let said = self.helm(&[&[verb, release, &chart, "--wait", WAIT], rest].concat()).await;
        match said {
            Ok(said) => Ok(said),
            Err(error) => {
                let pods = self.kubectl(&["get", "pods", "-n", NAMESPACE, "-o", "wide"]).await;
                Err(error.context(format!("{}\n{}", pods.unwrap_or_default(), self.conditions().await)))
            }
        }
    }

    /// Why containers of Repot do not run.
    async fn conditions(&self) -> String {
        let path = "{range .items[*]}{.metadata.name}: {.status.containerStatuses[*].state}{\"\\n\"}{end}";
        self.kubectl(&["get", "pods", "-n", NAMESPACE, "-o", &format!("jsonpath={path}")])
            .await
            .unwrap_or_default()
    }

    /// Stores a ShootState of 12 MiB, and gives what kubectl lists then.
    pub async fn store_example(&self) -> Result<String> {
        let mut example = Command::new(repot::program()?);
        example.args(["example", "shootstate", "--bytes", "12MiB", "--name", "big"]);
        let example = tool::run(example, b"").await?.text()?;
        let file = self.write("big.json", &example)?;
        self.kubectl(&["create", "-f", &file]).await?;
        self.kubectl(&["get", "shootstates.core.gardener.cloud", "-A", "-o", "wide"]).await
    }

    /// Runs kubectl as the administrator.
    pub async fn kubectl(&self, args: &[&str]) -> Result<String> {
        self.garden.kubectl(args).await?.text()
    }

    /// The directory of the test.
    pub fn path(&self) -> &Path {
        self.env.path()
    }

    /// A file of the test's own.
    pub fn write(&self, name: &str, text: &str) -> Result<String> {
        let file = self.env.path().join(name);
        std::fs::write(&file, text)?;
        Ok(file.display().to_string())
    }

    /// Waits until kube-apiserver passes on what the APIService says.
    pub async fn until_available(&self, api: &str) -> Result<()> {
        let name = format!("apiservice/{api}");
        let said = self.kubectl(&["wait", "--for=condition=Available", &name, "--timeout=90s"]).await?;
        ensure!(said.contains("condition met"), "{said}");
        Ok(())
    }
}
