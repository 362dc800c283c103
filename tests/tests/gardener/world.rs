//! Gardens with gardener-apiserver and the shipped webhooks, and a project with two seeds for each test.

use std::time::Duration;

use anyhow::{Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use repot_api::names::{MIGRATION_GROUP, V1ALPHA1};
use repot_rules::watch::HomeCluster as Cluster;
use repot_tests::access::{Access, Credential};
use repot_tests::garden::{Garden, GardenOptions};
use repot_tests::gardener::{self, Gardener, GardenerOptions, operation};
use repot_tests::http::{Answer, Api};
use repot_tests::repot::{Repot, write_encryption_config};
use repot_tests::wait::until;
use repot_tests::{Shared, SharedRef, TestEnv, start_shared};
use repot_webhook::manifests::{Reach, render};
use serde_json::{Value, json};

use crate::webhook::heard::hear;
use crate::webhook::questions::review;
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
    pub gardener: Gardener,
    _apiserver: Repot,
}

static GATE_ON: Shared<World> = Shared::new(|env| start_shared(World::start(env, true)));
static GATE_OFF: Shared<World> = Shared::new(|env| start_shared(World::start(env, false)));

/// The garden that tests share, with the feature gate LiveControlPlaneMigration on or off.
pub fn shared(live_migration: bool) -> Result<SharedRef<World>> {
    if live_migration { GATE_ON.value() } else { GATE_OFF.value() }
}

impl World {
    pub async fn start(env: &TestEnv, live_migration: bool) -> Result<Self> {
        let options = GardenOptions { controller_manager: true, ..GardenOptions::default() };
        let garden = Garden::start_with(env, options).await?;
        let gardener = Gardener::start(env, &garden, GardenerOptions { live_migration }).await?;
        let named = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}});
        garden.apply(&[named, access_for_seeds()]).await?;
        for file in ["rbac/webhook.yaml", "webhooks/distances.yaml"] {
            garden.kubectl(["apply", "-f", &deploy(file).display().to_string()]).await?.text()?;
        }
        let flags = [
            format!("--storage=embedded:{}", env.make_dir("store")?.display()),
            format!("--encryption-provider-config={}", write_encryption_config(env.path())?.display()),
            "--serve=garden".to_owned(),
            format!("--shootstate-group={MIGRATION_GROUP}"),
        ];
        let apiserver = Repot::behind(env, &garden, &[(MIGRATION_GROUP, V1ALPHA1)], flags).await?;
        let webhook = webhook(env, &garden, &env.make_dir("webhook")?, &[]).await?;
        let world = Self { garden, webhook, gardener, _apiserver: apiserver };
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
    let groups = ["gardener.cloud:system:seeds", "gardener.cloud:system:shoots"];
    let groups = groups.map(|name| json!({"apiGroup": rbac, "kind": "Group", "name": name}));
    json!({
        "apiVersion": format!("{rbac}/v1"), "kind": "ClusterRoleBinding", "metadata": {"name": "gardenlets"},
        "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": groups,
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
        self.create_as(name, &json!({})).await
    }

    /// The same, with a merge patch of the Shoot.
    async fn create_as(&self, name: &str, patch: &Value) -> Result<Answer> {
        let mut shoot = gardener::shoot(&self.name, name);
        merge(&mut shoot, patch);
        // Plugins of gardener-apiserver look at caches, which may not have the project yet.
        until("the project to be known", KNOWN_DEADLINE, async || {
            let answer = self.world.api().post(&self.shoots(), &shoot).await?;
            ensure!(answer.status == 201, "{answer}");
            Ok(answer)
        })
        .await
    }

    /// Makes a Shoot that a gardenlet has created on seed `a`.
    pub async fn create_on_a(&self, name: &str) -> Result<()> {
        self.create_on_a_as(name, &json!({})).await
    }

    /// The same, with a merge patch of the Shoot.
    pub async fn create_on_a_as(&self, name: &str, patch: &Value) -> Result<()> {
        self.create_as(name, patch).await?;
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

    /// Asks for the deletion of a Shoot; its finalizers still hold it.
    pub async fn delete(&self, name: &str) -> Result<Answer> {
        self.world.api().delete(&format!("{}/{name}", self.shoots())).await
    }

    /// A merge patch of any object.
    pub async fn patch_at(&self, path: &str, patch: &Value) -> Result<Answer> {
        self.world.api().patch(path, MERGE, patch).await
    }

    /// What a webhook says of an update, asked past gardener-apiserver.
    pub async fn ask(&self, webhook: &str, old: &Value, new: &Value) -> Result<String> {
        let (server, ca_pem) = (self.world.webhook.url().to_owned(), self.world.garden.pki().serving.pem());
        let api = Api::new(&Access { server, ca_pem, credential: Credential::Anonymous })?;
        let mut question = review(new.clone(), old.clone());
        question["request"]["namespace"] = json!(self.namespace());
        question["request"]["name"] = old["metadata"]["name"].clone();
        if old["spec"]["seedName"] != new["spec"]["seedName"] {
            question["request"]["subResource"] = json!("binding");
        }
        let answer = api.post(&format!("/validate-{webhook}"), &question).await?.ok()?;
        let said = answer["response"]["status"]["message"].as_str().unwrap_or_default();
        hear(said);
        Ok(said.to_owned())
    }

    /// The webhook itself refuses a change of seed by this rule, which Gardener refuses before.
    pub async fn refused_directly_to(&self, shoot: &str, seed: &str, rule: &str) -> Result<()> {
        let (old, mut new) = (self.get(shoot).await?, self.get(shoot).await?);
        new["spec"]["seedName"] = json!(self.seed(seed));
        let said = self.ask("seed-change", &old, &new).await?;
        ensure!(said.contains(&format!("({rule})")), "{rule} does not refuse it: {said}");
        Ok(())
    }

    /// The same, once the webhook has seen a change of the CloudProfile.
    pub async fn wait_for_rule(&self, shoot: &str, seed: &str, rule: &str) -> Result<()> {
        until("the webhook to know", KNOWN_DEADLINE, async || {
            self.refused_directly_to(shoot, seed, rule).await
        })
        .await
    }

    /// The binding goes through, once all have seen a change of the CloudProfile.
    pub async fn wait_until_allowed(&self, shoot: &str, seed: &str) -> Result<()> {
        until("the binding to go through", KNOWN_DEADLINE, async || {
            self.bind(shoot, seed).await?.ok().map(drop)
        })
        .await
    }

    /// A user who may use these verbs on Shoots of this project, their status and their binding, and nothing else.
    pub async fn user(&self, name: &str, verbs: &[&str]) -> Result<Api> {
        let rbac = "rbac.authorization.k8s.io";
        let metadata = json!({"namespace": self.namespace(), "name": name});
        let role = json!({
            "apiVersion": format!("{rbac}/v1"), "kind": "Role", "metadata": metadata,
            "rules": [{
                "apiGroups": ["core.gardener.cloud"], "resources": ["shoots", "shoots/status", "shoots/binding"],
                "verbs": verbs,
            }],
        });
        let binding = json!({
            "apiVersion": format!("{rbac}/v1"), "kind": "RoleBinding", "metadata": metadata,
            "roleRef": {"apiGroup": rbac, "kind": "Role", "name": name},
            "subjects": [{"apiGroup": rbac, "kind": "User", "name": name}],
        });
        self.world.garden.apply(&[role, binding]).await?;
        Api::new(&self.world.garden.user(name, &[])?)
    }

    /// A patch goes through, once the API server knows the rights of the user.
    pub async fn wait_until_permitted(&self, user: &Api, path: &str, patch: &Value) -> Result<()> {
        until("the rights to be known", KNOWN_DEADLINE, async || {
            user.patch(path, MERGE, patch).await?.ok().map(drop)
        })
        .await
    }

    pub fn shoots(&self) -> String {
        format!("{CORE}/namespaces/{}/shoots", self.namespace())
    }
}

/// Applies a JSON merge patch (RFC 7396).
pub fn merge(target: &mut Value, patch: &Value) {
    let Some(patch) = patch.as_object() else { return *target = patch.clone() };
    if !target.is_object() {
        *target = json!({});
    }
    for (key, value) in patch {
        match value {
            Value::Null => drop(target.as_object_mut().map(|object| object.remove(key))),
            value => merge(&mut target[key], value),
        }
    }
}

/// The members of an object, each with this value.
pub fn touch(members: &Value, value: &Value) -> Value {
    members.as_object().into_iter().flatten().map(|(key, _)| (key.clone(), value.clone())).collect()
}

/// The write is refused by these rules of Repot.
pub fn refused_by(answer: &Answer, rules: &[&str]) -> Result<()> {
    let said = answer.to_string();
    ensure!(answer.status == 403 && said.contains("denied the request"), "{said}");
    hear(&said);
    for rule in rules {
        ensure!(said.contains(&format!("({rule})")), "{rule} is not among the reasons: {said}");
    }
    Ok(())
}
