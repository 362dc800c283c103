//! A garden with the webhooks registered as they are shipped, which tests share; a namespace with seeds of its own for each test.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use repot_api::names::{MIGRATION_GROUP, V1ALPHA1};
use repot_rules::watch::HomeCluster;
use repot_tests::access::{Access, Credential};
use repot_tests::garden::Garden;
use repot_tests::kubectl::Kubectl;
use repot_tests::process::Spec;
use repot_tests::repot::{Repot, program, write_encryption_config};
use repot_tests::wait::until;
use repot_tests::{Shared, SharedRef, TestEnv, start_shared};
use repot_webhook::manifests::{Reach, render};
use serde_json::{Value, json};

pub const NAMESPACE: &str = "repot-system";
pub const SERVICE: &str = "repot-webhook";
const KNOWN_DEADLINE: Duration = Duration::from_secs(60);
pub const VERSION: &str = "core.gardener.cloud/v1beta1";
/// Of Repot's own kinds.
pub const OURS: &str = "migration.gardener.cloud/v1alpha1";

pub struct World {
    pub garden: Garden,
    /// A person who may do everything that RBAC can allow, and is no administrator.
    pub person: Kubectl,
    pub url: String,
    _webhook: Repot,
    /// Serves Repot's own kinds, and asks the webhooks about them itself.
    _apiserver: Repot,
}

static WORLD: Shared<World> = Shared::new(|env| start_shared(World::start(env)));

pub fn shared() -> Result<SharedRef<World>> {
    WORLD.value()
}

pub fn crds(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("crds").join(file)
}

pub fn deploy(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy").join(file)
}

/// The way in of the webhooks: their ServiceAccount, with what is shipped for it and nothing else.
pub async fn service_account(garden: &Garden) -> Result<Access> {
    let token = garden.kubectl(["create", "token", SERVICE, "-n", NAMESPACE]).await?.text()?;
    Ok(garden.admin().with(Credential::Token(token.trim().to_owned())))
}

/// A garden with the small kinds of others, and a person in it. No webhook is registered.
pub async fn garden(env: &TestEnv) -> Result<(Garden, Kubectl)> {
    let garden = Garden::start(env).await?;
    for file in [crds("garden.yaml"), crds("seed.yaml"), deploy("crds/etcds.yaml")] {
        garden.kubectl(["apply", "-f", &file.display().to_string()]).await?.text()?;
    }
    let all = ["wait", "--for=condition=Established", "crd", "--all", "--timeout=60s"];
    garden.kubectl(all).await?.text()?;
    let rbac = "rbac.authorization.k8s.io";
    let binding = json!({
        "apiVersion": format!("{rbac}/v1"), "kind": "ClusterRoleBinding", "metadata": {"name": "people"},
        "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [
            {"apiGroup": rbac, "kind": "Group", "name": "people"},
            {"apiGroup": rbac, "kind": "Group", "name": "gardener.cloud:system:seeds"},
        ],
    });
    let named = |name: &str| json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
    let service = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"namespace": NAMESPACE, "name": SERVICE},
        "spec": {"type": "ExternalName", "externalName": "localhost"},
    });
    garden.apply(&[named(NAMESPACE), named("garden"), service, binding]).await?;
    for file in ["rbac/webhook.yaml", "webhooks/distances.yaml"] {
        garden.kubectl(["apply", "-f", &deploy(file).display().to_string()]).await?.text()?;
    }
    let person = garden.kubectl_tool().with(garden.user_kubeconfig("mallory", &["people"])?);
    Ok((garden, person))
}

/// Starts `repot webhook` for a garden; `dir` gets its certificate.
pub async fn webhook(env: &TestEnv, garden: &Garden, dir: &Path, args: &[String]) -> Result<Repot> {
    let (cert, key) = garden.pki().serve(NAMESPACE, SERVICE)?.write(dir, "serving")?;
    let kubeconfig = service_account(garden).await?.write(dir.join("kubeconfig"))?;
    let mut own = vec![
        "--bind-address=127.0.0.1".to_owned(),
        "--secure-port=0".to_owned(),
        "--serve=all".to_owned(),
        format!("--tls-cert-file={}", cert.display()),
        format!("--tls-private-key-file={}", key.display()),
    ];
    if !args.iter().any(|arg| arg.starts_with("--facts") || arg.starts_with("--kubeconfig")) {
        own.push(format!("--kubeconfig={}", kubeconfig.display()));
    }
    own.extend_from_slice(args);
    let spec = Spec::new("repot-webhook", program()?).arg("webhook").args(own);
    Repot::start_program(env, spec).await
}

/// The shipped registrations, for a port of this machine.
pub fn registrations(garden: &Garden, port: u16) -> Vec<Value> {
    let ca_bundle = STANDARD.encode(garden.pki().serving.pem());
    let reach = Reach { namespace: NAMESPACE.into(), service: SERVICE.into(), port, url: None, ca_bundle };
    [HomeCluster::Garden, HomeCluster::Seed].into_iter().flat_map(|place| render(place, &reach)).collect()
}

impl World {
    async fn start(env: &TestEnv) -> Result<Self> {
        let (garden, person) = garden(env).await?;
        let keys = write_encryption_config(env.path())?;
        let flags = [
            format!("--storage=embedded:{}", env.make_dir("store")?.display()),
            format!("--encryption-provider-config={}", keys.display()),
            "--serve=all".to_owned(),
            format!("--shootstate-group={MIGRATION_GROUP}"),
        ];
        let apiserver = Repot::behind(env, &garden, &[(MIGRATION_GROUP, V1ALPHA1)], flags).await?;
        let webhook = webhook(env, &garden, &env.make_dir("webhook")?, &[]).await?;
        garden.apply(&registrations(&garden, webhook.port()?)).await?;
        let world =
            Self { garden, person, url: webhook.url().to_owned(), _webhook: webhook, _apiserver: apiserver };
        world.wait_until_asked().await?;
        Ok(world)
    }

    /// Webhooks are asked a little after they are registered; the last of each configuration tells when.
    pub async fn wait_until_asked(&self) -> Result<()> {
        self.garden.apply(&[owner_record("probe", "x"), mk_shoot("default", "probe", "nowhere")]).await?;
        until("all webhooks to be asked", KNOWN_DEADLINE, async || {
            let bad =
                json!({"metadata": {"annotations": {"shoot.gardener.cloud/isolated-zone": "Not A Zone"}}});
            let mut shoot = mk_shoot("default", "probe", "nowhere");
            shoot["metadata"]["annotations"] = bad["metadata"]["annotations"].clone();
            let made = self.person_applies(&shoot, &["--dry-run=server"]).await?;
            ensure!(made.contains("zone-form"), "shoots are not judged yet: {made}");
            let record = self.person_applies(&owner_record("probe", "y"), &["--dry-run=server"]).await?;
            ensure!(record.contains("owner-record"), "records are not judged yet: {record}");
            // A Shoot without the label of its seed gets it with any other change.
            let label = r#"{"metadata":{"labels":{"x":"y"}}}"#;
            let patch = ["patch", "shoot", "probe", "-n", "default", "--type=merge", "-p", label];
            let out = self.garden.kubectl(patch.iter().chain(&["--dry-run=server", "-o", "json"])).await?;
            let labels = out.json()?["metadata"]["labels"].to_string();
            ensure!(labels.contains("nowhere"), "shoots are not filled in yet: {labels}");
            let metadata = json!({"namespace": "default", "name": "probe"});
            let state = json!({"apiVersion": OURS, "kind": "ShootState", "metadata": metadata, "spec": {}});
            let stated = self.person_applies(&state, &["--dry-run=server"]).await?;
            ensure!(stated.contains("state-writer"), "states are not judged yet: {stated}");
            Ok(())
        })
        .await
    }

    /// What kubectl says when the person applies an object.
    pub async fn person_applies(&self, object: &Value, args: &[&str]) -> Result<String> {
        let all = ["apply", "--server-side", "--force-conflicts", "-f", "-"].iter().chain(args);
        let out = self.person.run_with(all, object.to_string().as_bytes()).await?;
        Ok(format!("{}{}", String::from_utf8_lossy(&out.stdout), out.stderr))
    }
}

/// A namespace of one test with a Shoot in it, and seeds that only this test uses.
pub struct TestNamespace {
    pub world: SharedRef<World>,
    pub namespace: String,
}

impl TestNamespace {
    pub async fn make(namespace: &str) -> Result<Self> {
        let place = Self { world: shared()?, namespace: namespace.to_owned() };
        let project = json!({
            "apiVersion": VERSION, "kind": "Project", "metadata": {"name": namespace}, "spec": {"namespace": namespace},
        });
        let named = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}});
        let profile = json!({
            "apiVersion": VERSION, "kind": "CloudProfile", "metadata": {"name": namespace},
            "spec": {"regions": [{"name": "eu", "zones": [{"name": "eu-1a", "id": "euc1-az1"}, {"name": "eu-1b"}]}]},
        });
        place.world.garden.apply(&[named, project, profile]).await?;
        place.put(&place.seed("a")).await?;
        place.put(&place.seed("b")).await?;
        Ok(place)
    }

    /// A seed of this test that is fine in every way.
    pub fn seed(&self, name: &str) -> Value {
        mk_seed(&format!("{}-{name}", self.namespace))
    }

    pub fn shoot(&self, name: &str) -> Value {
        let mut shoot = mk_shoot(&self.namespace, name, &format!("{}-a", self.namespace));
        shoot["spec"]["cloudProfile"] = json!({"name": self.namespace});
        shoot
    }

    /// Puts an object with its status in place, past all webhooks: the world as a test finds it.
    pub async fn put(&self, object: &Value) -> Result<()> {
        put(&self.world.garden, object).await
    }

    /// A merge patch of a Shoot by the person; what kubectl said, and whether it went through.
    pub async fn patch(&self, name: &str, patch: &Value, args: &[&str]) -> Result<(bool, String)> {
        let text = patch.to_string();
        let own = ["patch", "shoot", name, "-n", &self.namespace, "--type=merge", "-p", &text];
        let out = self.world.person.run(own.iter().chain(args)).await?;
        Ok((out.succeeded(), format!("{}{}", String::from_utf8_lossy(&out.stdout), out.stderr)))
    }

    pub async fn get(&self, name: &str) -> Result<Value> {
        let args = ["get", "shoot", name, "-n", &self.namespace, "-o", "json"];
        self.world.garden.kubectl(args).await?.json()
    }

    /// The write is refused, by these rules.
    pub async fn refuses(&self, name: &str, patch: &Value, rules: &[&str]) -> Result<String> {
        let (done, said) = self.patch(name, patch, &[]).await?;
        ensure!(!done, "{patch} went through: {said}");
        for rule in rules {
            ensure!(said.contains(&format!("({rule})")), "{rule} is not among the reasons: {said}");
        }
        ensure!(said.contains("denied the request"), "{said}");
        Ok(said)
    }

    /// The write goes through.
    pub async fn allows(&self, name: &str, patch: &Value) -> Result<String> {
        let (done, said) = self.patch(name, patch, &[]).await?;
        ensure!(done, "{patch} was refused: {said}");
        Ok(said)
    }
}

/// Puts an object and its status in place, as the administrator.
pub async fn put(garden: &Garden, object: &Value) -> Result<()> {
    let kind = object["kind"].as_str().context("a kind")?.to_lowercase();
    let name = object["metadata"]["name"].as_str().context("a name")?;
    let mut whole = object.clone();
    let status = whole.as_object_mut().context("an object")?.remove("status");
    garden.apply(&[whole]).await?;
    if let Some(status) = status {
        let text = json!({"status": status}).to_string();
        let mut patch = vec!["patch", &kind, name, "--subresource=status", "--type=merge", "-p", &text];
        patch.extend(object["metadata"]["namespace"].as_str().map(|n| ["-n", n]).iter().flatten());
        garden.kubectl(patch).await?.text()?;
    }
    Ok(())
}

pub fn mk_seed(name: &str) -> Value {
    let condition = |kind: &str| json!({"type": kind, "status": "True"});
    json!({
        "apiVersion": VERSION, "kind": "Seed", "metadata": {"name": name},
        "spec": {
            "provider": {"type": "local", "region": "eu", "zones": ["eu-1a", "eu-1b", "eu-1c"]},
            "backup": {"provider": "local"},
            "dns": {"internal": {"domain": "internal.example.com"}, "defaults": [{"domain": "example.com"}]},
            "networks": {"nodes": "fd00:1::/64", "pods": "fd00:2::/64", "services": "fd00:3::/64"},
        },
        "status": {
            "observedGeneration": 99, "gardener": {"version": "v1.150.0"}, "allocatable": {"shoots": "100"},
            "conditions": [
                condition("GardenletReady"), condition("SeedSystemComponentsHealthy"), condition("BackupBucketsReady"),
            ],
        },
    })
}

pub fn mk_shoot(namespace: &str, name: &str, seed: &str) -> Value {
    json!({
        "apiVersion": VERSION, "kind": "Shoot", "metadata": {"namespace": namespace, "name": name},
        "spec": {
            "seedName": seed, "region": "eu", "cloudProfile": {"name": "profile"}, "purpose": "production",
            "controlPlane": {"highAvailability": {"failureTolerance": {"type": "zone"}}},
            "provider": {"type": "local", "workers": [{"name": "w", "zones": ["eu-1a", "eu-1b"]}]},
            "networking": {"nodes": "10.1.0.0/16"},
        },
        "status": {"seedName": seed, "lastOperation": {"type": "Reconcile", "state": "Succeeded"}},
    })
}

pub fn owner_record(name: &str, value: &str) -> Value {
    json!({
        "apiVersion": "extensions.gardener.cloud/v1alpha1", "kind": "DNSRecord",
        "metadata": {"namespace": "default", "name": name},
        "spec": {"recordType": "TXT", "name": "owner.x.example.com", "type": "local", "values": [value]},
    })
}

/// Names of rules in a message.
pub fn names(said: &str) -> Vec<&str> {
    let rules = repot_rules::table::RULES.iter().map(|rule| rule.name);
    rules.filter(|rule| said.contains(&format!("({rule})"))).collect()
}
