//! The garden of a landscape: Gardener's API server and controllers, Repot's API server and its webhooks.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use repot_api::names::{MIGRATION_GROUP, STORE_PROVIDER, V1ALPHA1};
use repot_rules::watch::HomeCluster;
use repot_webhook::manifests::{Reach, render};
use serde_json::{Value, json};

use super::control_plane::ControlPlaneOptions;
use super::shoot::ShootName;
use crate::access::Credential;
use crate::garden::{Garden, GardenOptions};
use crate::gardener::{self, Gardener, GardenerOptions, operation};
use crate::gardener_controllers::{self, Controllers};
use crate::operator::apply_file;
use crate::process::Spec;
use crate::repot::{self, Repot, write_encryption_config};
use crate::test_env::TestEnv;
use crate::wait::until;

const NAMESPACE: &str = "repot-system";
const WEBHOOK: &str = "repot-webhook";
/// The path of the group of Shoots and Seeds.
pub const CORE: &str = "/apis/core.gardener.cloud/v1beta1";
const MERGE: &str = "application/merge-patch+json";
/// Admission plugins of Gardener look at caches, which learn of new objects a little later.
const KNOWN_DEADLINE: Duration = Duration::from_secs(60);
/// gardener-controller-manager looks at the extensions of a seed every half minute at the latest.
const READY_DEADLINE: Duration = Duration::from_secs(120);

/// A running garden with Gardener and Repot. Everything in it ends when it is dropped.
pub struct GardenCluster {
    /// Runs gardener-controller-manager with all its controllers.
    pub controllers: Controllers,
    /// `repot webhook`, registered for the garden.
    pub webhook: Repot,
    /// `repot apiserver`, which serves ShootStates in the group of Repot.
    pub apiserver: Repot,
    /// gardener-apiserver, which stores in the etcd of the garden.
    pub gardener: Gardener,
    /// The cluster of the garden.
    pub cluster: Garden,
}

impl GardenCluster {
    /// Starts a garden, and waits until Gardener's and Repot's kinds are served.
    pub async fn start(env: &TestEnv) -> Result<Self> {
        let options = GardenOptions { controller_manager: true, ..GardenOptions::default() };
        let cluster = Garden::start_with(env, options).await?;
        let gardener = Gardener::start(env, &cluster, GardenerOptions { live_migration: true }).await?;
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}});
        cluster.apply(&[namespace, rights_of_gardenlets()]).await?;
        for file in [
            "rbac/webhook.yaml",
            "webhooks/distances.yaml",
            "rbac/garden.yaml",
            "rbac/garden-migrations.yaml",
        ] {
            apply_file(&cluster, file).await?;
        }
        let flags = [
            format!("--storage=embedded:{}", env.make_dir("garden-store")?.display()),
            format!("--encryption-provider-config={}", write_encryption_config(env.path())?.display()),
            "--serve=garden".to_owned(),
            format!("--shootstate-group={MIGRATION_GROUP}"),
        ];
        let apiserver = Repot::behind(env, &cluster, &[(MIGRATION_GROUP, V1ALPHA1)], flags).await?;
        let webhook = start_webhook(env, &cluster).await?;
        register_webhooks(&cluster, &webhook).await?;
        let controllers = Controllers::start(env, &cluster, &gardener).await?;
        Ok(Self { controllers, webhook, apiserver, gardener, cluster })
    }

    /// Makes the Seed, the Lease of its gardenlet, its BackupBucket and the Secret of the bucket, as a gardenlet and an operator do.
    /// `data` is what the Secret has: credentials and address of the bucket.
    pub async fn register_seed(&self, name: &str, data: &Value) -> Result<()> {
        let mut seed = gardener::seed(name);
        seed["spec"]["dns"]["internal"]["domain"] = super::dns::ZONE.into();
        // The local provider does not tell what its buckets are.
        seed["metadata"]["annotations"] = json!({STORE_PROVIDER: "S3"});
        let status = json!({"status": seed["status"]});
        seed.as_object_mut().map(|seed| seed.remove("status"));
        let credentials = &mut seed["spec"]["backup"]["credentialsRef"];
        credentials["name"] = backup_credentials(name).into();
        let credentials = credentials.clone();
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret", "stringData": data,
            "metadata": {"namespace": credentials["namespace"], "name": credentials["name"]},
        });
        self.cluster.apply(&[secret, seed, gardener_controllers::lease(name)]).await?;
        self.patch(&format!("{CORE}/seeds/{name}/status"), &status).await?;
        let bucket = json!({
            "apiVersion": gardener::VERSION, "kind": "BackupBucket", "metadata": {"name": self.bucket_of(name).await?},
            "spec": {
                "provider": {"type": gardener::PROFILE, "region": "eu"}, "credentialsRef": credentials, "seedName": name,
            },
        });
        // kubectl would insist on a status, which clients do not write.
        self.cluster.api().post(&format!("{CORE}/backupbuckets"), &bucket).await?.ok()?;
        let path = format!("{CORE}/backupbuckets/{}/status", self.bucket_of(name).await?);
        self.patch(&path, &created()).await?;
        self.install_extensions(name).await
    }

    /// Says of the ControllerInstallations of a seed that they are installed, and waits until the Seed is ready.
    async fn install_extensions(&self, seed: &str) -> Result<()> {
        let condition = |kind: &str, status: &str| {
            let time = "2026-01-01T00:00:00Z";
            json!({
                "type": kind, "status": status, "reason": "Fine", "message": "fine", "lastTransitionTime": time,
                "lastUpdateTime": time,
            })
        };
        let conditions =
            [("Valid", "True"), ("Installed", "True"), ("Healthy", "True"), ("Progressing", "False")]
                .map(|(kind, status)| condition(kind, status));
        let status = json!({"status": {"conditions": conditions}});
        let path = format!("{CORE}/controllerinstallations");
        until("the Seed to be ready", READY_DEADLINE, async || {
            let all = self.cluster.api().get(&path).await?.ok()?;
            let of_seed = all["items"].as_array().into_iter().flatten();
            for one in of_seed.filter(|one| one["spec"]["seedRef"]["name"] == seed && is_new(one)) {
                let name = one["metadata"]["name"].as_str().unwrap_or_default();
                self.patch(&format!("{path}/{name}/status"), &status).await?;
            }
            let seed = self.cluster.api().get(&format!("{CORE}/seeds/{seed}")).await?.ok()?;
            let conditions = seed["status"]["conditions"].as_array().context("the Seed has no conditions")?;
            let has_extensions = conditions.iter().any(|one| one["type"] == "ExtensionsReady");
            let ready = conditions.iter().all(|one| one["status"] == "True");
            ensure!(has_extensions && ready, "{conditions:?}");
            Ok(())
        })
        .await
    }

    /// The name of the BackupBucket of a seed: the UID of the Seed.
    pub async fn bucket_of(&self, seed: &str) -> Result<String> {
        let seed = self.cluster.api().get(&format!("{CORE}/seeds/{seed}")).await?.ok()?;
        let uid = seed["metadata"]["uid"].as_str().context("the Seed has no UID")?;
        Ok(uid.to_owned())
    }

    /// Makes the Project, the Shoot in a seed and its BackupEntry, with the status that a gardenlet writes after creation.
    pub async fn create_shoot(
        &self,
        shoot: &ShootName,
        seed: &str,
        options: &ControlPlaneOptions,
    ) -> Result<()> {
        self.cluster.apply(&gardener::project(&shoot.project)).await?;
        let mut object = gardener::shoot(&shoot.project, &shoot.name);
        let pools = &options.pools;
        let workers = pools.iter().map(|(pool, machines)| worker(pool, *machines, &options.zones));
        object["spec"]["provider"]["workers"] = workers.collect::<Vec<_>>().into();
        if pools.is_empty() {
            object["spec"]["networking"] = json!({});
            object["spec"].as_object_mut().map(|spec| spec.remove("credentialsBindingName"));
        }
        let shoots = format!("{CORE}/namespaces/{}/shoots", shoot.project_namespace());
        until("the Project to be known", KNOWN_DEADLINE, async || {
            let answer = self.cluster.api().post(&shoots, &object).await?;
            ensure!(answer.status == 201, "{answer}");
            Ok(())
        })
        .await?;
        let path = format!("{shoots}/{}", shoot.name);
        until("the Shoot to be bound", KNOWN_DEADLINE, async || {
            self.patch(&format!("{path}/binding"), &json!({"spec": {"seedName": seed}})).await
        })
        .await?;
        // As a gardenlet does that has reconciled it.
        let generation = self.cluster.api().get(&path).await?.ok()?["metadata"]["generation"].clone();
        let status = json!({"status": {
            "observedGeneration": generation, "seedName": seed, "technicalID": shoot.technical_id(), "uid": shoot.name,
            "clusterIdentity": shoot.technical_id(), "lastOperation": operation("Create", "Succeeded"),
        }});
        self.patch(&format!("{path}/status"), &status).await?;
        self.wait_for_label(&path).await?;
        self.observe_shoot(shoot).await?;
        self.create_backup_entry(shoot, seed).await
    }

    /// Until gardener-controller-manager has labelled a Shoot by its status, which it does once. With each write the API server sets what
    /// is missing in the spec, such as a domain where the Project was not known to it before, and then there is a new generation.
    async fn wait_for_label(&self, path: &str) -> Result<()> {
        until("the Shoot to be labelled", KNOWN_DEADLINE, async || {
            let found = self.cluster.api().get(path).await?.ok()?;
            let label = &found["metadata"]["labels"]["shoot.gardener.cloud/status"];
            ensure!(label == "healthy", "its label is {label}");
            Ok(())
        })
        .await
    }

    /// Says of a Shoot that its newest generation was reconciled, as a gardenlet does; where it is ignored, nothing is said.
    pub async fn observe_shoot(&self, shoot: &ShootName) -> Result<()> {
        let path = format!("{CORE}/namespaces/{}/shoots/{}", shoot.project_namespace(), shoot.name);
        let found = self.cluster.api().get(&path).await?.ok()?;
        let (generation, observed) =
            (&found["metadata"]["generation"], &found["status"]["observedGeneration"]);
        let is_ignored = found["metadata"]["annotations"]["shoot.gardener.cloud/ignore"] == "true";
        if is_ignored || generation == observed {
            return Ok(());
        }
        self.patch(&format!("{path}/status"), &json!({"status": {"observedGeneration": generation}})).await
    }

    async fn create_backup_entry(&self, shoot: &ShootName, seed: &str) -> Result<()> {
        let name = shoot.backup_entry();
        let entry = json!({
            "apiVersion": gardener::VERSION, "kind": "BackupEntry",
            "metadata": {"namespace": shoot.project_namespace(), "name": name},
            "spec": {"bucketName": self.bucket_of(seed).await?, "seedName": seed},
        });
        let path = format!("{CORE}/namespaces/{}/backupentries", shoot.project_namespace());
        self.cluster.api().post(&path, &entry).await?.ok()?;
        let mut status = created();
        status["status"]["seedName"] = seed.into();
        self.patch(&format!("{path}/{name}/status"), &status).await
    }

    /// The `spec` of the Cluster of a Shoot in a seed: the Shoot, the Seed and the CloudProfile, as they are now.
    pub async fn cluster_of(&self, shoot: &ShootName, seed: &str) -> Result<Value> {
        let read = async |path: &str| self.cluster.api().get(&format!("{CORE}/{path}")).await?.ok();
        let path = format!("namespaces/{}/shoots/{}", shoot.project_namespace(), shoot.name);
        let (profile, seed) = (format!("cloudprofiles/{}", gardener::PROFILE), format!("seeds/{seed}"));
        Ok(json!({
            "shoot": read(&path).await?, "seed": read(&seed).await?, "cloudProfile": read(&profile).await?,
        }))
    }

    async fn patch(&self, path: &str, patch: &Value) -> Result<()> {
        self.cluster.api().patch(path, MERGE, patch).await?.ok().map(drop)
    }
}

/// The name of the Secret with the credentials of the bucket of a seed, in the namespace `garden`.
pub fn backup_credentials(seed: &str) -> String {
    format!("backup-{seed}")
}

/// Whether nobody has said yet that a ControllerInstallation is installed.
fn is_new(installation: &Value) -> bool {
    let conditions = installation["status"]["conditions"].as_array().map(Vec::as_slice).unwrap_or_default();
    !conditions.iter().any(|one| one["type"] == "Installed" && one["status"] == "True")
}

/// The status of an object of extensions after its creation.
fn created() -> Value {
    json!({"status": {"observedGeneration": 1, "lastOperation": operation("Create", "Succeeded")}})
}

fn worker(pool: &str, machines: u32, zones: &[String]) -> Value {
    json!({
        "name": pool, "minimum": machines, "maximum": machines, "maxSurge": 1, "zones": zones,
        "machine": {"type": "local", "image": {"name": "local"}},
    })
}

/// Starts `repot webhook` as its ServiceAccount.
async fn start_webhook(env: &TestEnv, cluster: &Garden) -> Result<Repot> {
    let dir = env.make_dir("webhook")?;
    let (cert, key) = cluster.pki().serve(NAMESPACE, WEBHOOK)?.write(&dir, "serving")?;
    let token = cluster.kubectl(["create", "token", WEBHOOK, "-n", NAMESPACE]).await?.text()?;
    let access = cluster.admin().with(Credential::Token(token.trim().to_owned()));
    let kubeconfig = access.write(dir.join("kubeconfig"))?;
    let spec = Spec::new(WEBHOOK, repot::program()?)
        .args(["webhook", "--bind-address=127.0.0.1", "--secure-port=0", "--serve=garden"])
        .flag("tls-cert-file", &cert)
        .flag("tls-private-key-file", &key)
        .flag("kubeconfig", &kubeconfig);
    Repot::start_program(env, spec).await
}

/// Registers the webhooks by URL: gardener-apiserver would look a Service up in the DNS of this machine.
async fn register_webhooks(cluster: &Garden, webhook: &Repot) -> Result<()> {
    let reach = Reach {
        namespace: NAMESPACE.into(),
        service: WEBHOOK.into(),
        url: Some(webhook.url().to_owned()),
        ca_bundle: STANDARD.encode(cluster.pki().serving.pem()),
        ..Reach::default()
    };
    cluster.apply(&render(HomeCluster::Garden, &reach)).await
}

/// Gardenlets have the rights of administrators: only admission limits them.
fn rights_of_gardenlets() -> Value {
    let rbac = "rbac.authorization.k8s.io";
    json!({
        "apiVersion": format!("{rbac}/v1"), "kind": "ClusterRoleBinding", "metadata": {"name": "gardenlets"},
        "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"apiGroup": rbac, "kind": "Group", "name": "gardener.cloud:system:seeds"}],
    })
}
