//! Gardens with gardener-apiserver and the shipped webhooks, and a project with two seeds for each test.

use std::time::Duration;

use anyhow::{Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use repot_api::names::{MIGRATION_GROUP, V1ALPHA1};
use repot_rules::watch::Place as Cluster;
use repot_tests::garden::{Garden, GardenOptions};
use repot_tests::gardener::{self, Gardener, GardenerOptions, operation};
use repot_tests::http::{Answer, Api};
use repot_tests::repot::{Repot, write_encryption_config};
use repot_tests::wait::until;
use repot_tests::{Bed, Shared, start_shared};
use repot_webhook::manifests::{Reach, render};
use serde_json::{Value, json};

use crate::webhook::world::{NAMESPACE, SERVICE, deploy, webhook};

const KNOWN_DEADLINE: Duration = Duration::from_secs(60);
const MERGE: &str = "application/merge-patch+json";
const CORE: &str = "/apis/core.gardener.cloud/v1beta1";
/// Of the ShootStates that Repot serves beside Gardener's.
pub const STATES: &str = "/apis/migration.gardener.cloud/v1alpha1";

/// A garden with all that is installed on it.
pub struct World {
    pub garden: Garden,
    pub webhook: Repot,
    _gardener: Gardener,
    _apiserver: Repot,
}

static GATE_ON: Shared<World> = Shared::new(|bed| start_shared(World::start(bed, true)));
static GATE_OFF: Shared<World> = Shared::new(|bed| start_shared(World::start(bed, false)));

/// The garden that tests share, with the feature gate LiveControlPlaneMigration on or off.
pub fn shared(live_migration: bool) -> Result<&'static World> {
    if live_migration { GATE_ON.value() } else { GATE_OFF.value() }
}

impl World {
    pub async fn start(bed: &Bed, live_migration: bool) -> Result<Self> {
        let options = GardenOptions { controller_manager: true, ..GardenOptions::default() };
        let garden = Garden::start_with(bed, options).await?;
        let gardener = Gardener::start(bed, &garden, GardenerOptions { live_migration }).await?;
        let named = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}});
        garden.apply(&[named, access_for_seeds()]).await?;
        for file in ["rbac/webhook.yaml", "webhooks/distances.yaml"] {
            garden.kubectl(["apply", "-f", &deploy(file).display().to_string()]).await?.text()?;
        }
        let flags = [
            format!("--storage=embedded:{}", bed.make_dir("store")?.display()),
            format!("--encryption-provider-config={}", write_encryption_config(bed.path())?.display()),
            "--serve=garden".to_owned(),
            format!("--shootstate-group={MIGRATION_GROUP}"),
        ];
        let apiserver = Repot::behind(bed, &garden, &[(MIGRATION_GROUP, V1ALPHA1)], flags).await?;
        let webhook = webhook(bed, &garden, &bed.make_dir("webhook")?, &[]).await?;
        let world = Self { garden, webhook, _gardener: gardener, _apiserver: apiserver };
        world.register().await?;
        Ok(world)
    }

    /// Registers the webhooks by URL: gardener-apiserver would look a Service up in DNS.
    async fn register(&self) -> Result<()> {
        let reach = Reach {
            namespace: NAMESPACE.into(),
            service: SERVICE.into(),
            url: Some(self.webhook.url().to_owned()),
            ca_bundle: STANDARD.encode(self.garden.pki().serving.pem()),
            ..Reach::default()
        };
        self.garden.apply(&render(Cluster::Garden, &reach)).await?;
        self.garden.apply(&gardener::project("probe")).await?;
        until("all webhooks to be asked", KNOWN_DEADLINE, async || {
            let mut shoot = gardener::shoot("probe", "probe");
            shoot["metadata"]["annotations"] = json!({"shoot.gardener.cloud/isolated-zone": "No Zone"});
            let path = format!("{CORE}/namespaces/garden-probe/shoots?dryRun=All");
            let answer = self.api().post(&path, &shoot).await?;
            ensure!(answer.to_string().contains("(zone-form)"), "Shoots are not judged yet: {answer}");
            let path = format!("{STATES}/namespaces/garden-probe/shootstates?dryRun=All");
            let answer = self.api().post(&path, &state("garden-probe", "probe")).await?.ok()?;
            let time = &answer["metadata"]["annotations"]["gardener.cloud/timestamp"];
            ensure!(time.is_string(), "ShootStates are not filled in yet: {answer}");
            Ok(())
        })
        .await
    }

    pub fn api(&self) -> &Api {
        self.garden.api()
    }
}

/// Gardenlets, whose rights are those of an administrator here: only admission stands in their way.
fn access_for_seeds() -> Value {
    let rbac = "rbac.authorization.k8s.io";
    json!({
        "apiVersion": format!("{rbac}/v1"), "kind": "ClusterRoleBinding", "metadata": {"name": "gardenlets"},
        "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"apiGroup": rbac, "kind": "Group", "name": "gardener.cloud:system:seeds"}],
    })
}

/// A ShootState in Repot's group.
pub fn state(namespace: &str, name: &str) -> Value {
    json!({
        "apiVersion": "migration.gardener.cloud/v1alpha1", "kind": "ShootState",
        "metadata": {"namespace": namespace, "name": name}, "spec": {},
    })
}

/// A project of one test, and two seeds that only this test uses: `<name>-a` and `<name>-b`.
pub struct Project<'a> {
    pub world: &'a World,
    pub name: String,
}

impl<'a> Project<'a> {
    pub async fn make(world: &'a World, name: &str) -> Result<Self> {
        let project = Self { world, name: name.to_owned() };
        world.garden.apply(&gardener::project(name)).await?;
        for seed in ["a", "b"] {
            project.put_seed(&gardener::seed(&project.seed(seed))).await?;
        }
        Ok(project)
    }

    /// The full name of a seed of this project.
    pub fn seed(&self, name: &str) -> String {
        format!("{}-{name}", self.name)
    }

    pub fn namespace(&self) -> String {
        format!("garden-{}", self.name)
    }

    /// Puts a Seed in place, with its status.
    pub async fn put_seed(&self, seed: &Value) -> Result<()> {
        let (mut spec, name) = (seed.clone(), seed["metadata"]["name"].as_str().unwrap_or_default());
        spec.as_object_mut().map(|seed| seed.remove("status"));
        self.world.garden.apply(&[spec]).await?;
        let status = json!({"status": seed["status"]});
        self.world.api().patch(&format!("{CORE}/seeds/{name}/status"), MERGE, &status).await?.ok().map(drop)
    }

    /// Makes a Shoot that has no seed yet.
    pub async fn create(&self, name: &str) -> Result<Answer> {
        // Plugins of gardener-apiserver look at caches, which may not have the project yet.
        until("the project to be known", KNOWN_DEADLINE, async || {
            let answer = self.world.api().post(&self.shoots(), &gardener::shoot(&self.name, name)).await?;
            ensure!(answer.status == 201, "{answer}");
            Ok(answer)
        })
        .await
    }

    /// Makes a Shoot that a gardenlet has created on seed `a`.
    pub async fn create_on_a(&self, name: &str) -> Result<()> {
        self.create(name).await?;
        self.bind(name, "a").await?.ok()?;
        let status = json!({
            "seedName": self.seed("a"), "technicalID": format!("shoot--{}--{name}", self.name), "uid": name,
            "clusterIdentity": name, "lastOperation": operation("Reconcile", "Succeeded"),
        });
        self.set_status(name, &status).await
    }

    /// Writes a part of the status, as a gardenlet would.
    pub async fn set_status(&self, name: &str, status: &Value) -> Result<()> {
        self.patch(&format!("{name}/status"), &json!({"status": status})).await?.ok().map(drop)
    }

    /// Binds a Shoot to a seed of this project.
    pub async fn bind(&self, shoot: &str, seed: &str) -> Result<Answer> {
        let patch = json!({"spec": {"seedName": self.seed(seed)}});
        self.patch(&format!("{shoot}/binding"), &patch).await
    }

    /// A merge patch; `path` is the name of a Shoot, with a subresource if need be.
    pub async fn patch(&self, path: &str, patch: &Value) -> Result<Answer> {
        self.world.api().patch(&format!("{}/{path}", self.shoots()), MERGE, patch).await
    }

    /// Sets annotations through a path.
    pub async fn annotate(&self, path: &str, annotations: &Value) -> Result<Answer> {
        self.patch(path, &json!({"metadata": {"annotations": annotations}})).await
    }

    pub async fn get(&self, name: &str) -> Result<Value> {
        self.world.api().get(&format!("{}/{name}", self.shoots())).await?.ok()
    }

    pub fn shoots(&self) -> String {
        format!("{CORE}/namespaces/{}/shoots", self.namespace())
    }
}

/// The write is refused by these rules of Repot.
pub fn refused_by(answer: &Answer, rules: &[&str]) -> Result<()> {
    let said = answer.to_string();
    ensure!(answer.status == 403 && said.contains("denied the request"), "{said}");
    for rule in rules {
        ensure!(said.contains(&format!("({rule})")), "{rule} is not among the reasons: {said}");
    }
    Ok(())
}
