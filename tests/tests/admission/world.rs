//! A garden with Repot behind it that all tests here share, and a namespace with webhooks of its own for each test.

use std::time::Duration;

use anyhow::{Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use repot_tests::garden::{Garden, GardenOptions};
use repot_tests::http::{Answer, Api};
use repot_tests::repot::{Repot, write_encryption_config};
use repot_tests::wait::until;
use repot_tests::webhook::WebhookServer;
use repot_tests::{Shared, SharedRef, TestEnv, start_shared};
use serde_json::{Value, json};

pub const GROUP: &str = "core.gardener.cloud";
pub const VERSION: &str = "v1alpha1";
pub const MERGE: &str = "application/merge-patch+json";
const HOOKS: &str = "hooks";
const KNOWN_DEADLINE: Duration = Duration::from_secs(30);

pub struct World {
    pub garden: Garden,
    _repot: Repot,
}

static WORLD: Shared<World> = Shared::new(|env| start_shared(start(env)));

/// Another server on the same kube-apiserver, reached directly.
pub struct Other {
    pub api: Api,
    _repot: Repot,
}

impl World {
    /// Starts another server, with a store of its own.
    pub async fn another(&self, env: &TestEnv) -> Result<Other> {
        // All kinds: some may be replaced without a version.
        let flags = [&flags(env)?[..], &["--serve=all".to_owned()]].concat();
        let repot = Repot::behind(env, &self.garden, &[], flags).await?;
        let mut access = self.garden.admin().clone();
        access.server = repot.url().to_owned();
        Ok(Other { api: Api::new(&access)?, _repot: repot })
    }
}

fn flags(env: &TestEnv) -> Result<[String; 3]> {
    let keys = write_encryption_config(env.path())?;
    Ok([
        format!("--storage=embedded:{}", env.make_dir("store")?.display()),
        format!("--encryption-provider-config={}", keys.display()),
        format!("--max-admission-review-bytes={}", 24 << 20),
    ])
}

async fn start(env: &TestEnv) -> Result<World> {
    // A quota that is made before the controller knows our kind is counted at the next of these rounds.
    let rounds = vec!["--resource-quota-sync-period=5s".to_owned()];
    let options = GardenOptions {
        controller_manager: true,
        controller_manager_flags: rounds,
        ..GardenOptions::default()
    };
    let garden = Garden::start_with(env, options).await?;
    let repot = Repot::behind(env, &garden, &[(GROUP, VERSION)], flags(env)?).await?;
    Ok(World { garden, _repot: repot })
}

/// A namespace of one test, and the webhooks that look at nothing else.
pub struct TestNamespace {
    pub world: SharedRef<World>,
    pub api: Api,
    pub namespace: String,
    pub server: WebhookServer,
}

impl TestNamespace {
    /// Makes namespace and webhook server. Must be called inside a runtime.
    pub async fn make(namespace: &str) -> Result<Self> {
        let world = WORLD.value()?;
        let server = WebhookServer::start(&world.garden.pki().serve(HOOKS, namespace)?).await?;
        let named = |name: &str| json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        let service = json!({
            "apiVersion": "v1", "kind": "Service", "metadata": {"namespace": HOOKS, "name": namespace},
            "spec": {"type": "ExternalName", "externalName": "localhost"},
        });
        world.garden.apply(&[named(namespace), named(HOOKS), service]).await?;
        let api = Api::new(world.garden.admin())?;
        Ok(Self { world, api, namespace: namespace.to_owned(), server })
    }

    /// A webhook at a path of this test's server, for all writes of ShootStates in this namespace. `change` overrides.
    pub fn hook(&self, path: &str, change: &Value) -> Value {
        let ca = STANDARD.encode(self.world.garden.pki().serving.pem());
        let service =
            json!({"namespace": HOOKS, "name": self.namespace, "port": self.server.port(), "path": path});
        let mut hook = json!({
            "name": format!("{}.example.com", path.trim_start_matches('/').replace('/', "-")),
            "admissionReviewVersions": ["v1"], "sideEffects": "None",
            "clientConfig": {"service": service, "caBundle": ca},
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": self.namespace}},
            "rules": [{
                "operations": ["*"], "apiGroups": [GROUP], "apiVersions": [VERSION], "resources": ["shootstates"],
            }],
        });
        for (key, value) in change.as_object().into_iter().flatten() {
            hook[key] = value.clone();
        }
        hook
    }

    /// Registers webhooks, and waits until Repot asks them: one more, for labelled objects only, tells when.
    pub async fn register(&self, kind: &str, name: &str, hooks: &[Value]) -> Result<()> {
        let marker = format!("/marker/{kind}/{name}").to_lowercase();
        let only = json!({"objectSelector": {"matchLabels": {"marker": name}}});
        let mut hooks = hooks.to_vec();
        hooks.insert(0, self.hook(&marker, &only));
        let configuration = json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": kind,
            "metadata": {"name": name}, "webhooks": hooks,
        });
        self.world.garden.apply(&[configuration]).await?;
        let mut probe = self.object(&format!("probe-{name}"));
        probe["metadata"]["labels"] = json!({"marker": name});
        until("Repot to know the webhooks", KNOWN_DEADLINE, async || {
            self.api.post(&format!("{}?dryRun=All", self.collection()), &probe).await?;
            ensure!(!self.server.asked(&marker).is_empty(), "the marker was not asked yet");
            Ok(())
        })
        .await
    }

    pub async fn mutating(&self, name: &str, hooks: &[Value]) -> Result<()> {
        self.register("MutatingWebhookConfiguration", name, hooks).await
    }

    pub async fn validating(&self, name: &str, hooks: &[Value]) -> Result<()> {
        self.register("ValidatingWebhookConfiguration", name, hooks).await
    }

    /// What webhooks were asked at a path about an object of this name, without the probes.
    pub fn asked_about(&self, path: &str, name: &str) -> Vec<Value> {
        let asked = self.server.asked(path).into_iter().map(|asked| asked.review["request"].clone());
        let about = |request: &Value| {
            let of = |side: &str| request[side]["metadata"]["name"] == name;
            request["name"] == name || of("object") || of("oldObject")
        };
        asked.filter(about).collect()
    }

    pub fn collection(&self) -> String {
        format!("/apis/{GROUP}/{VERSION}/namespaces/{}/shootstates", self.namespace)
    }

    pub fn path(&self, name: &str) -> String {
        format!("{}/{name}", self.collection())
    }

    /// A small ShootState of this name.
    pub fn object(&self, name: &str) -> Value {
        json!({
            "apiVersion": format!("{GROUP}/{VERSION}"), "kind": "ShootState",
            "metadata": {"name": name, "namespace": self.namespace},
            "spec": {"extensions": [{"kind": "Worker", "name": "w", "state": {"n": 1}}]},
        })
    }

    pub async fn create(&self, name: &str) -> Result<Answer> {
        self.api.post(&self.collection(), &self.object(name)).await
    }

    /// Whether an object rests.
    pub async fn exists(&self, name: &str) -> Result<bool> {
        let answer = self.api.get(&self.path(name)).await?;
        ensure!(matches!(answer.status, 200 | 404), "{answer}");
        Ok(answer.status == 200)
    }
}

/// The message of a failure, with its code.
pub fn failure(answer: &Answer) -> Result<(u16, String)> {
    let status = answer.json()?;
    ensure!(status["kind"] == "Status" && status["code"] == answer.status, "{answer}");
    Ok((answer.status, status["message"].as_str().unwrap_or_default().to_owned()))
}

/// The texts of the `Warning` headers.
pub fn warnings(answer: &Answer) -> Vec<String> {
    let values = answer.headers.get_all("warning").into_iter();
    values.filter_map(|value| value.to_str().ok().map(str::to_owned)).collect()
}
