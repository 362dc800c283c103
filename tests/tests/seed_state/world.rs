//! A garden and a seed that tests share, and a Shoot of each test with a namespace of its own.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use http::Method;
use http_body::Body as _;
use kube::client::{Body, ClientBuilder};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use parking_lot::Mutex;
use repot_controllers::metrics::Metrics;
use repot_controllers::shootstate::controller::{self, Context};
use repot_controllers::shootstate::metrics::StateMetrics;
use repot_controllers::shootstate::queue::Timing;
use repot_controllers::shootstate::{ShootKey, State, read};
use repot_extension::crds;
use repot_tests::garden::Garden;
use repot_tests::http::Api;
use repot_tests::repot::{Repot, write_encryption_config};
use repot_tests::wait::until;
use repot_tests::{Shared, SharedRef, TestEnv, start_shared};
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tower::util::MapRequestLayer;

/// Long, since other tests may take most of the processors.
pub const DEADLINE: Duration = Duration::from_secs(120);
const MERGE_PATCH: &str = "application/merge-patch+json";

static CLUSTERS: Shared<Clusters> = Shared::new(|env| start_shared(start(env)));

/// A garden with ShootStates and Shoots, and a seed with the kinds of extensions and machines.
pub struct Clusters {
    garden: Garden,
    seed: Garden,
    _repot: Repot,
}

async fn start(env: &TestEnv) -> Result<Clusters> {
    let (garden, seed) = (Garden::start(env).await?, Garden::start(env).await?);
    let crds = Path::new(env!("CARGO_MANIFEST_DIR")).join("crds");
    for (cluster, file) in [(&garden, "garden.yaml"), (&seed, "machines.yaml")] {
        let file = crds.join(file).display().to_string();
        cluster.kubectl(["apply", "--server-side", "-f", &file]).await?.text()?;
    }
    seed.apply(&crds::definitions()).await?;
    for cluster in [&garden, &seed] {
        cluster
            .kubectl(["wait", "--for=condition=Established", "crd", "--all", "--timeout=60s"])
            .await?
            .text()?;
    }
    let keys = write_encryption_config(env.path())?;
    let flags = [
        format!("--storage=embedded:{}", env.make_dir("store")?.display()),
        format!("--encryption-provider-config={}", keys.display()),
    ];
    let repot = Repot::behind(env, &garden, &[("core.gardener.cloud", "v1alpha1")], flags).await?;
    Ok(Clusters { garden, seed, _repot: repot })
}

/// A write that a client sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Write {
    pub method: Method,
    pub path: String,
    pub bytes: u64,
}

/// Writes of ShootStates, and reads of Shoots, that clients of a world have sent.
#[derive(Clone, Default)]
pub struct Writes(Arc<Mutex<Vec<Write>>>, Arc<AtomicUsize>);

impl Writes {
    /// The writes since the last call.
    pub fn take(&self) -> Vec<Write> {
        std::mem::take(&mut self.0.lock())
    }

    /// How often a Shoot was read: each synchronization begins so.
    pub fn looks(&self) -> usize {
        self.1.load(Ordering::SeqCst)
    }

    fn record(&self, request: &http::Request<Body>) {
        let path = request.uri().path().to_owned();
        if request.method() != Method::GET && path.contains("/shootstates") {
            let bytes = request.body().size_hint().exact().unwrap_or_default();
            self.0.lock().push(Write { method: request.method().clone(), path, bytes });
        } else if path.ends_with("/shoots/s") {
            self.1.fetch_add(1, Ordering::SeqCst);
        }
    }
}

/// One Shoot: in the garden and, as its control plane, in the seed.
pub struct World {
    pub garden: Client,
    pub seed: Client,
    pub garden_api: Api,
    pub seed_api: Api,
    pub shoot: ShootKey,
    pub seed_name: String,
    pub writes: Writes,
    clusters: SharedRef<Clusters>,
}

impl World {
    /// Makes a Shoot of this name, whose control plane is on a seed of its own.
    pub async fn make(name: &str) -> Result<Self> {
        let clusters = CLUSTERS.value()?;
        let writes = Writes::default();
        let (namespace, seed_namespace) = (format!("garden-{name}"), format!("shoot--{name}--s"));
        let seed_name = format!("seed-{name}");
        clusters.garden.apply(&[namespace_object(&namespace, &json!({}))]).await?;
        let shoot = json!({
            "apiVersion": "core.gardener.cloud/v1beta1", "kind": "Shoot",
            "metadata": {
                "name": "s", "namespace": namespace,
                "labels": {format!("name.seed.gardener.cloud/{seed_name}"): "true"},
            },
            "spec": {"seedName": seed_name},
        });
        let collection = format!("/apis/core.gardener.cloud/v1beta1/namespaces/{namespace}/shoots");
        let created = clusters.garden.api().post(&collection, &shoot).await?.ok()?;
        let uid = created["metadata"]["uid"].as_str().context("a uid")?.to_owned();
        let shoot = ShootKey { namespace, name: "s".to_owned(), uid, seed_namespace };
        let world = Self {
            garden: connect(&clusters.garden, &writes).await?,
            seed: connect(&clusters.seed, &writes).await?,
            garden_api: clusters.garden.api().clone(),
            seed_api: clusters.seed.api().clone(),
            shoot,
            seed_name,
            writes,
            clusters,
        };
        let status = json!({
            "seedName": world.seed_name, "technicalID": world.shoot.seed_namespace,
            "lastOperation": {"type": "Reconcile", "state": "Succeeded"},
        });
        world.set_status(&status).await?;
        let role = json!({"gardener.cloud/role": "shoot"});
        let cluster = json!({
            "apiVersion": "extensions.gardener.cloud/v1alpha1", "kind": "Cluster",
            "metadata": {"name": world.shoot.seed_namespace},
            "spec": {"cloudProfile": {}, "seed": {}, "shoot": created},
        });
        world.apply(&[namespace_object(&world.shoot.seed_namespace, &role), cluster]).await?;
        Ok(world)
    }

    /// Applies objects in the seed, those without a namespace in that of the control plane.
    pub async fn apply(&self, objects: &[Value]) -> Result<()> {
        let kinds = ["Namespace", "Cluster"];
        let placed: Vec<Value> = objects
            .iter()
            .cloned()
            .map(|mut object| {
                if !kinds.contains(&object["kind"].as_str().unwrap_or_default()) {
                    object["metadata"]["namespace"] = self.shoot.seed_namespace.as_str().into();
                }
                object
            })
            .collect();
        self.clusters.seed.apply(&placed).await
    }

    /// Applies objects in a namespace of the seed.
    pub async fn apply_raw(&self, objects: &[Value]) -> Result<()> {
        self.clusters.seed.apply(objects).await
    }

    /// Deletes an object of the control plane in the seed, by `<plural>.<group>` and name.
    pub async fn delete(&self, resource: &str, name: &str) -> Result<()> {
        let args = ["delete", resource, name, "-n", &self.shoot.seed_namespace];
        self.clusters.seed.kubectl(args).await?.text().map(drop)
    }

    /// Writes `status` of an object of the control plane.
    pub async fn set_extension_status(&self, plural: &str, name: &str, status: &Value) -> Result<()> {
        let namespace = &self.shoot.seed_namespace;
        let path =
            format!("/apis/extensions.gardener.cloud/v1alpha1/namespaces/{namespace}/{plural}/{name}/status");
        self.seed_api.patch(&path, MERGE_PATCH, &json!({"status": status})).await?.ok().map(drop)
    }

    /// Sets fields of the Shoot's status.
    pub async fn set_status(&self, status: &Value) -> Result<()> {
        let path = format!("{}/status", self.shoot_path());
        self.garden_api.patch(&path, MERGE_PATCH, &json!({"status": status})).await?.ok().map(drop)
    }

    /// Sets fields of the Shoot's spec.
    pub async fn set_spec(&self, spec: &Value) -> Result<()> {
        self.garden_api.patch(&self.shoot_path(), MERGE_PATCH, &json!({"spec": spec})).await?.ok().map(drop)
    }

    fn shoot_path(&self) -> String {
        format!("/apis/core.gardener.cloud/v1beta1/namespaces/{}/shoots/s", self.shoot.namespace)
    }

    /// The ShootState as the garden has it.
    pub async fn stored(&self) -> Result<Value> {
        let namespace = &self.shoot.namespace;
        let path = format!("/apis/core.gardener.cloud/v1alpha1/namespaces/{namespace}/shootstates/s");
        self.garden_api.get(&path).await?.ok()
    }

    /// The same as types.
    pub async fn state(&self) -> Result<State> {
        read(&self.garden, &self.shoot).await?.context("there is no ShootState")
    }

    /// Waits until the ShootState is as it should be.
    pub async fn until_state(&self, what: &str, check: impl Fn(&State) -> bool) -> Result<State> {
        until(what, DEADLINE, async || {
            let state = self.state().await?;
            ensure!(check(&state), "it is {state:?}");
            Ok(state)
        })
        .await
    }

    /// Starts a controller of this test's seed.
    pub fn start(&self) -> Result<Running> {
        let (seed, garden) = (self.seed.clone(), self.garden.clone());
        let metrics = Metrics::new()?;
        let states = StateMetrics::new(&metrics)?;
        let metrics = (metrics, states);
        let mut context = Context::new(seed, garden, self.seed_name.clone(), metrics, "test".to_owned());
        context.timing = Timing {
            quiet: Duration::from_millis(100),
            longest: Duration::from_millis(500),
            after_failure: Duration::from_millis(200),
            ..Timing::default()
        };
        let stop = CancellationToken::new();
        let task = tokio::spawn(controller::run(context, stop.clone()));
        Ok(Running { task, stop })
    }
}

/// A controller that runs in this process.
pub struct Running {
    task: JoinHandle<()>,
    stop: CancellationToken,
}

impl Running {
    /// Waits until all changes so far were looked at: then the controller reads the Shoot no more. Gives how often it has.
    pub async fn until_quiet(&self, world: &World) -> Result<usize> {
        let (mut last, mut same) = (world.writes.looks(), 0);
        until("no further synchronizations", DEADLINE, async || {
            let now = world.writes.looks();
            same = if now == last { same + 1 } else { 0 };
            last = now;
            // 50 looks in a row are a second: ten times as long as changes are gathered.
            ensure!(same > 50, "{now}");
            Ok(now)
        })
        .await
    }

    /// Waits until the Shoot was looked at again, and all changes so far were.
    pub async fn until_looked(&self, world: &World, before: usize) -> Result<usize> {
        until("a synchronization", DEADLINE, async || {
            ensure!(world.writes.looks() > before, "none");
            Ok(())
        })
        .await?;
        self.until_quiet(world).await
    }

    /// Waits until a Secret that is made now was written.
    pub async fn until_marker(&self, world: &World, marker: &str) -> Result<()> {
        world.apply(&[secret(marker, &json!({"k": "AA=="}))]).await?;
        let has = |state: &State| state.secrets.iter().any(|secret| secret.name == marker);
        world.until_state("the marker", has).await.map(drop)
    }

    /// Ends the controller as a signal does.
    pub async fn stop(self) -> Result<()> {
        self.stop.cancel();
        Ok(tokio::time::timeout(DEADLINE, self.task).await??)
    }
}

async fn connect(cluster: &Garden, writes: &Writes) -> Result<Client> {
    let file = Kubeconfig::read_from(cluster.kubeconfig())?;
    let config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await?;
    let writes = writes.clone();
    let layer = MapRequestLayer::new(move |request: http::Request<Body>| {
        writes.record(&request);
        request
    });
    Ok(ClientBuilder::try_from(config)?.with_layer(&layer).build())
}

fn namespace_object(name: &str, labels: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}})
}

/// A Secret that persists.
pub fn secret(name: &str, data: &Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Secret", "type": "Opaque", "data": data,
        "metadata": {"name": name, "labels": {"persist": "true", "name": name, "managed-by": "secrets-manager"}},
    })
}

/// An Infrastructure without status.
pub fn infrastructure(name: &str, labels: &Value) -> Value {
    json!({
        "apiVersion": "extensions.gardener.cloud/v1alpha1", "kind": "Infrastructure",
        "metadata": {"name": name, "labels": labels},
        "spec": {"type": "local", "region": "r", "secretRef": {"name": "s", "namespace": "n"}},
    })
}

/// A MachineDeployment, its MachineSet and these machines.
pub fn machines(replicas: usize, names: &[&str]) -> Vec<Value> {
    let object = |kind: &str, name: &str, owner: Value, spec: Value| {
        json!({
            "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": kind,
            "metadata": {"name": name, "labels": {"node": name}, "ownerReferences": owner}, "spec": spec,
        })
    };
    let owner = |kind: &str, name: &str| json!([{"apiVersion": "machine.sapcloud.io/v1alpha1", "kind": kind, "name": name, "uid": name}]);
    let mut objects = vec![
        object("MachineDeployment", "pool", json!([]), json!({"replicas": replicas})),
        object("MachineSet", "set", owner("MachineDeployment", "pool"), json!({"replicas": replicas})),
    ];
    objects.extend(names.iter().map(|name| {
        let spec = json!({"class": {"name": "c"}, "providerID": format!("local://{name}")});
        object("Machine", name, owner("MachineSet", "set"), spec)
    }));
    objects
}
