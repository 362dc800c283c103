//! One cluster that is garden and seed at once: Repot's API server on etcd, an object store and a key management service, its webhooks,
//! its controllers, and an etcd with backups.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use repot_api::names::{MIGRATION_GROUP, V1ALPHA1};
use repot_extension::crds;
use repot_tests::TestEnv;
use repot_tests::access::{Access, Credential};
use repot_tests::encryption::{Plugin, config, write_config};
use repot_tests::etcd::EtcdCluster;
use repot_tests::garden::{Garden, GardenOptions};
use repot_tests::http::Api;
use repot_tests::operator::{self, IMAGE, SYSTEM, apply_file};
use repot_tests::pods::{Images, PodRunner, PodRunnerOptions};
use repot_tests::port;
use repot_tests::process::{Process, Spec};
use repot_tests::repot::{self, Repot};
use repot_tests::s3::S3Server;
use repot_tests::wait::until;
use serde_json::{Value, json};

use super::prometheus::{Job, Tls};
use crate::webhook::world::{SERVICE as WEBHOOK, registrations, webhook};

pub const DEADLINE: Duration = Duration::from_secs(180);
/// The Seed of the one Shoot, which is this cluster.
pub const SEED: &str = "seed-a";
/// The namespace of the Shoot in the garden.
pub const PROJECT: &str = "garden-dev";
/// The namespace of its control plane.
pub const CONTROL_PLANE: &str = "shoot--dev--alpha";
const APISERVER: &str = "repot-apiserver";
const CONTROLLERS: &str = "repot-controllers";
const CERTS: &str = "repot-certs";
/// Namespace of the accounts of seeds, as `deploy/rbac/garden-migrations.yaml` has it.
const SEEDS: &str = "repot-seeds";
const STORAGE_CLASS: &str = "immediate";
const AGENT_PORT: u16 = 8080;

/// What runs. It ends when this is dropped.
pub struct World {
    pub garden: Garden,
    pub apiserver: Repot,
    pub webhook: Repot,
    /// `repot certs manage`, and the port of its metrics.
    certs: (Process, u16),
    runner: PodRunner,
    /// The directory of backups, which Pods see at the same path.
    backups: PathBuf,
    _store: (EtcdCluster, S3Server, Plugin),
}

impl World {
    /// Starts everything, and waits until the etcd has all its members.
    pub async fn start(env: &TestEnv) -> Result<Self> {
        let options = GardenOptions { controller_manager: true, ..GardenOptions::default() };
        let garden = Garden::start_with(env, options).await?;
        prepare(&garden).await?;
        let store =
            (EtcdCluster::start(env, 1).await?, S3Server::start(env).await?, Plugin::start(env).await?);
        let apiserver = start_apiserver(env, &garden, &store).await?;
        let webhook = webhook(env, &garden, &env.make_dir("webhook")?, &[]).await?;
        garden.apply(&registrations(&garden, webhook.port()?)).await?;
        let certs = start_certs(env, &garden)?;
        let images = Images::default().with(IMAGE, operator::image()?);
        let runner =
            PodRunner::start(env, &garden, PodRunnerOptions { images, ..Default::default() }).await?;
        let backups = operator::make_store(env)?;
        let world = Self { garden, apiserver, webhook, certs, runner, backups, _store: store };
        world.start_controllers().await?;
        world.make_etcd().await?;
        world.make_shoot().await?;
        Ok(world)
    }

    async fn start_controllers(&self) -> Result<()> {
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": {"namespace": SYSTEM, "name": "garden"},
            "stringData": {"kubeconfig": self.garden_kubeconfig().await?},
        });
        let service = json!({
            "apiVersion": "v1", "kind": "Service", "metadata": {"namespace": SYSTEM, "name": CONTROLLERS},
            "spec": {"selector": {"app": CONTROLLERS}, "clusterIP": "None", "ports": [{"port": 8081}]},
        });
        self.garden.apply(&[secret, service]).await?;
        let (seed, backups) = (format!("--seed-name={SEED}"), self.backups.display().to_string());
        let flags = [
            "--leader-elect",
            &seed,
            "--garden-kubeconfig=/etc/garden/kubeconfig",
            "--local-store-path",
            &backups,
        ];
        let mut deployment = operator::deployment(&flags);
        let pod = &mut deployment["spec"]["template"]["spec"];
        pod["volumes"] = json!([
            {"name": "garden", "secret": {"secretName": "garden"}},
            {"name": "backups", "hostPath": {"path": backups}},
        ]);
        pod["containers"][0]["volumeMounts"] = json!([
            {"name": "garden", "mountPath": "/etc/garden"}, {"name": "backups", "mountPath": backups},
        ]);
        operator::start_deployment(&self.garden, deployment).await
    }

    /// A kubeconfig of this cluster for Pods, as the account of the seed.
    async fn garden_kubeconfig(&self) -> Result<String> {
        let account = json!({
            "apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"namespace": SEEDS, "name": SEED},
        });
        self.garden.apply(&[account]).await?;
        let token = self.garden.kubectl(["create", "token", SEED, "-n", SEEDS]).await?.text()?;
        let access = self.garden.admin().with(Credential::Token(token.trim().to_owned()));
        let (_, port) = access.server.rsplit_once(':').context("the URL of the garden has no port")?;
        let address = self.runner.expose(port.parse()?)?;
        let mut kubeconfig: Value = serde_json::from_str(&access.to_kubeconfig())?;
        let cluster = &mut kubeconfig["clusters"][0]["cluster"];
        cluster["server"] = format!("https://{address}").into();
        cluster["tls-server-name"] = "localhost".into();
        Ok(kubeconfig.to_string())
    }

    async fn make_etcd(&self) -> Result<()> {
        let store = json!({"provider": "Local", "container": self.backups, "prefix": "alpha"});
        let role = json!({"gardener.cloud/role": "shoot"});
        let etcd = json!({
            "apiVersion": "druid.gardener.cloud/v1alpha1", "kind": "Etcd",
            "metadata": {"namespace": CONTROL_PLANE, "name": "main"},
            "spec": {
                "replicas": 3, "storageClass": STORAGE_CLASS, "storageCapacity": "1Gi",
                "etcd": {"extraFlags": {"unsafe-no-fsync": "true"}},
                "backup": {"store": store, "deltaSnapshotPeriod": "2s"},
            },
        });
        let hosted = ours(
            "HostedEtcd",
            "main",
            json!({
                "etcdRef": {"name": "main"}, "apiServerRef": {"name": "kube-apiserver"}, "backupStore": store,
            }),
        );
        self.garden.apply(&[namespace(CONTROL_PLANE, &role), etcd, hosted]).await?;
        until("all members to be ready", DEADLINE, async || {
            let path = format!("/apis/druid.gardener.cloud/v1alpha1/namespaces/{CONTROL_PLANE}/etcds/main");
            let etcd = self.garden.api().get(&path).await?.ok()?;
            ensure!(etcd["status"]["readyReplicas"] == 3, "{}", etcd["status"]);
            Ok(())
        })
        .await
    }

    /// A Shoot whose control plane is in this cluster, so that its ShootState is kept up to date.
    async fn make_shoot(&self) -> Result<()> {
        let api = self.garden.api();
        let shoot = json!({
            "apiVersion": "core.gardener.cloud/v1beta1", "kind": "Shoot",
            "metadata": {
                "namespace": PROJECT, "name": "alpha", "labels": {format!("name.seed.gardener.cloud/{SEED}"): "true"},
            },
            "spec": {"seedName": SEED},
        });
        let collection = format!("/apis/core.gardener.cloud/v1beta1/namespaces/{PROJECT}/shoots");
        let created =
            until("the Shoot to be created", DEADLINE, async || api.post(&collection, &shoot).await?.ok());
        let created = created.await?;
        let status = json!({"status": {
            "seedName": SEED, "technicalID": CONTROL_PLANE, "lastOperation": {"type": "Reconcile", "state": "Succeeded"},
        }});
        let path = format!("{collection}/alpha/status");
        api.patch(&path, "application/merge-patch+json", &status).await?.ok()?;
        let cluster = json!({
            "apiVersion": "extensions.gardener.cloud/v1alpha1", "kind": "Cluster", "metadata": {"name": CONTROL_PLANE},
            "spec": {"cloudProfile": {}, "seed": {}, "shoot": created},
        });
        self.garden.apply(&[cluster]).await
    }

    /// What Prometheus has to scrape.
    pub async fn jobs(&self) -> Result<Vec<Job>> {
        let tls = |service: &str, token: String| {
            let server_name = format!("{service}.{SYSTEM}.svc");
            Some(Tls { ca_pem: self.garden.pki().serving.pem(), server_name, token })
        };
        let job = |name, targets, tls| Job { name, namespace: SYSTEM.to_owned(), targets, tls };
        let port = self.runner.publish(&format!("{CONTROLLERS}.{SYSTEM}.svc"), 8081).await?;
        let mut agents = Vec::new();
        for at in 0..3 {
            let name = format!("main-{at}.main-peer.{CONTROL_PLANE}.svc");
            agents.push((format!("main-{at}"), self.runner.publish(&name, AGENT_PORT).await?));
        }
        let etcd = Job { namespace: CONTROL_PLANE.to_owned(), ..job("repot-etcd", agents, None) };
        let token = self.prometheus_token().await?;
        Ok(vec![
            job(APISERVER, vec![(format!("{APISERVER}-0"), self.apiserver.port()?)], tls(APISERVER, token)),
            job(WEBHOOK, vec![(format!("{WEBHOOK}-0"), self.webhook.port()?)], tls(WEBHOOK, String::new())),
            job(CONTROLLERS, vec![(format!("{CONTROLLERS}-0"), port)], None),
            job(CERTS, vec![(format!("{CERTS}-0"), self.certs.1)], None),
            etcd,
        ])
    }

    /// A new token of Prometheus' account, which may read metrics.
    pub async fn prometheus_token(&self) -> Result<String> {
        let token = self.garden.kubectl(["create", "token", "prometheus", "-n", SYSTEM]).await?.text()?;
        Ok(token.trim().to_owned())
    }

    /// The API server itself, not by way of kube-apiserver, for whoever has this token.
    pub fn direct(&self, token: String) -> Result<Api> {
        let server = format!("https://127.0.0.1:{}", self.apiserver.port()?);
        Api::new(&Access { server, ..self.garden.admin().with(Credential::Token(token)) })
    }
}

/// What has to be there before Repot: kinds, rights, namespaces and a Service for the webhooks.
async fn prepare(garden: &Garden) -> Result<()> {
    let none = json!({});
    let service = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"namespace": SYSTEM, "name": WEBHOOK},
        "spec": {"type": "ExternalName", "externalName": "localhost"},
    });
    let namespaces = [SYSTEM, SEEDS, "garden", PROJECT].map(|name| namespace(name, &none));
    garden.apply(&namespaces).await?;
    garden.apply(&[service, PodRunner::storage_class(STORAGE_CLASS, "Immediate", "Delete")]).await?;
    garden.apply(&prometheus_account()).await?;
    garden.apply(&crds::definitions()).await?;
    let crds = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("crds");
    for file in ["garden.yaml", "machines.yaml"] {
        let file = crds.join(file).display().to_string();
        garden.kubectl(["apply", "--server-side", "-f", &file]).await?.text()?;
    }
    operator::prepare(garden).await?;
    for file in [
        "rbac/garden.yaml",
        "rbac/garden-migrations.yaml",
        "rbac/seed-migrations.yaml",
        "rbac/webhook.yaml",
        "webhooks/distances.yaml",
    ] {
        apply_file(garden, file).await?;
    }
    let all = ["wait", "--for=condition=Established", "crd", "--all", "--timeout=60s"];
    garden.kubectl(all).await?.text().map(drop)
}

async fn start_apiserver(
    env: &TestEnv,
    garden: &Garden,
    store: &(EtcdCluster, S3Server, Plugin),
) -> Result<Repot> {
    let (etcd, s3, plugin) = store;
    let keys = env.make_dir("keys")?.join("encryption.yaml");
    write_config(&keys, &config(&[&plugin.provider("kms")]).to_string())?;
    let flags = [
        format!("--etcd-servers={}", etcd.endpoints().join(",")),
        format!("--encryption-provider-config={}", keys.display()),
        "--encryption-provider-config-automatic-reload".to_owned(),
        // Services are asked every minute; here every three seconds.
        "--encryption-second=50ms".to_owned(),
        format!("--chunk-store={}", s3.url("chunks")),
        format!("--audit-log-path={}", env.path().join("audit.log").display()),
        "--serve=all".to_owned(),
        format!("--shootstate-group={MIGRATION_GROUP}"),
    ];
    let server = Repot::replica_with(env, garden, &flags, &s3.environment()).await?;
    repot::register(garden, &[(MIGRATION_GROUP, V1ALPHA1)], server.port()?).await?;
    Ok(server)
}

/// Starts what issues certificates. Servers of this test have others, so nobody uses them.
fn start_certs(env: &TestEnv, garden: &Garden) -> Result<(Process, u16)> {
    let port = port::reserve()?;
    let spec = Spec::new(CERTS, repot::program()?)
        .args(["certs", "manage", "--leader-elect", "--serving=repot-webhook-tls=repot-webhook"])
        .flag("kubeconfig", garden.kubeconfig())
        .arg(format!("--health-address=127.0.0.1:{port}"));
    Ok((Process::start(env, spec)?, port))
}

/// An account that may read `/metrics`, and nothing else.
fn prometheus_account() -> [Value; 3] {
    let (rbac, name) = ("rbac.authorization.k8s.io", "prometheus");
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"namespace": SYSTEM, "name": name}});
    let role = json!({
        "apiVersion": format!("{rbac}/v1"), "kind": "ClusterRole", "metadata": {"name": name},
        "rules": [{"nonResourceURLs": ["/metrics"], "verbs": ["get"]}],
    });
    let binding = json!({
        "apiVersion": format!("{rbac}/v1"), "kind": "ClusterRoleBinding", "metadata": {"name": name},
        "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": name},
        "subjects": [{"kind": "ServiceAccount", "namespace": SYSTEM, "name": name}],
    });
    [account, role, binding]
}

fn namespace(name: &str, labels: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}})
}

/// An object of Repot's kinds in the namespace of the control plane.
pub fn ours(kind: &str, name: &str, spec: Value) -> Value {
    json!({
        "apiVersion": format!("{MIGRATION_GROUP}/{V1ALPHA1}"), "kind": kind,
        "metadata": {"namespace": CONTROL_PLANE, "name": name}, "spec": spec,
    })
}
