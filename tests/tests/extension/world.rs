//! A seed, a cloud in memory, and a provider whose state names what it made there.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::ObjectMeta;
use kube::{Client, Config, ResourceExt};
use parking_lot::Mutex;
use repot_extension::backoff::Backoff;
use repot_extension::crds;
use repot_extension::kinds::{Infrastructure, InfrastructureSpec};
use repot_extension::ownership::{Ownership, WatchdogTiming};
use repot_extension::request::{Progress, Request};
use repot_extension::status::{ErrorCode, OperationState, OperationType};
use repot_extension::{Context, ExtensionController, Failure, Outcome, Provider, Settings, State};
use repot_tests::garden::Garden;
use repot_tests::wait::until;
use repot_tests::{Shared, SharedRef, TestEnv, start_shared};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

pub const DEADLINE: Duration = Duration::from_secs(60);
pub const FINALIZER: &str = "extensions.gardener.cloud/infrastructure";
/// As short as tests may have it, so that several checks fit into one test.
pub const CHECK_INTERVAL: Duration = Duration::from_millis(50);

/// State like terraform's, with what JSON parsers change: numbers, order and repetition of keys, white space, escapes.
pub const TERRAFORM: &str = "{\r\n  \"version\": 4,\n\t\"serial\": 1.0, \"huge\": 1e400, \"z\": -0, \"a\": 12345678901234567890,\n  \
                             \"z\": \"<&>\\u00e9\\/\u{2028}\u{0}\"\n}\n";

static SEED: Shared<Garden> = Shared::new(|env| start_shared(start_seed(env)));

/// A seed that tests share: each has its own namespace and provider type.
pub fn shared_seed() -> Result<SharedRef<Garden>> {
    SEED.value()
}

/// A kube-apiserver with the extension kinds.
pub async fn start_seed(env: &TestEnv) -> Result<Garden> {
    let seed = Garden::start(env).await?;
    seed.apply(&crds::definitions()).await?;
    seed.kubectl(["wait", "--for=condition=Established", "crd", "--all", "--timeout=60s"]).await?.text()?;
    Ok(seed)
}

/// What a provider did in the cloud, and when it may go on.
pub struct Cloud {
    calls: Mutex<Vec<String>>,
    networks: AtomicUsize,
    dropped: AtomicUsize,
    failures: AtomicUsize,
    misreports: AtomicBool,
    pub gate: watch::Sender<bool>,
    state_form: fn(usize) -> Vec<u8>,
}

impl Cloud {
    pub fn new() -> Arc<Self> {
        Self::with_state(|network| format!("network {network}: {TERRAFORM}").into_bytes())
    }

    /// A cloud whose provider keeps other bytes as its state.
    pub fn with_state(state_form: fn(usize) -> Vec<u8>) -> Arc<Self> {
        let none = || AtomicUsize::new(0);
        Arc::new(Self {
            calls: Mutex::default(),
            networks: none(),
            dropped: none(),
            failures: none(),
            misreports: AtomicBool::new(false),
            gate: watch::channel(true).0,
            state_form,
        })
    }

    /// Names of the functions that were called, each with the object.
    pub fn calls(&self) -> Vec<String> {
        self.calls.lock().clone()
    }

    /// How many networks exist.
    pub fn networks(&self) -> usize {
        self.networks.load(Ordering::SeqCst)
    }

    /// Operations that were dropped before their end.
    pub fn dropped(&self) -> usize {
        self.dropped.load(Ordering::SeqCst)
    }

    /// Operations wait in their middle while the gate is closed.
    pub fn set_gate(&self, open: bool) {
        self.gate.send_replace(open);
    }

    /// Lets so many operations fail.
    pub fn fail_next(&self, count: usize) {
        self.failures.store(count, Ordering::SeqCst);
    }

    /// Lets outcomes have a value that the API server refuses.
    pub fn misreport(&self, on: bool) {
        self.misreports.store(on, Ordering::SeqCst);
    }

    pub async fn until_calls(&self, expected: &[&str]) -> Result<()> {
        until("calls of the provider", DEADLINE, async || {
            let calls = self.calls();
            ensure!(calls == expected, "they are {calls:?}, not {expected:?}");
            Ok(())
        })
        .await
    }

    async fn pass(&self) -> Result<(), Failure> {
        let mut open = self.gate.subscribe();
        let guard = CountDrop(&self.dropped);
        open.wait_for(|open| *open).await.map_err(|_| Failure::new("the cloud is gone"))?;
        std::mem::forget(guard);
        let left = |n: usize| n.checked_sub(1);
        match self.failures.fetch_update(Ordering::SeqCst, Ordering::SeqCst, left) {
            Ok(_) => Err(Failure::new("the quota is exhausted").code(ErrorCode::InfraQuotaExceeded)),
            Err(_) => Ok(()),
        }
    }
}

struct CountDrop<'a>(&'a AtomicUsize);

impl Drop for CountDrop<'_> {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// The provider: one network per object, which its state names.
pub struct LocalProvider {
    pub cloud: Arc<Cloud>,
    /// Whether it keeps a state.
    pub stateful: bool,
}

impl LocalProvider {
    fn record(&self, function: &str, object: &Infrastructure) {
        self.cloud.calls.lock().push(format!("{function} {}", object.name_any()));
    }
}

impl Provider for LocalProvider {
    type Object = Infrastructure;

    async fn reconcile(
        &self,
        object: &Infrastructure,
        context: &Context<Infrastructure>,
    ) -> Result<Outcome, Failure> {
        self.record("reconcile", object);
        if !self.stateful {
            self.cloud.pass().await?;
            return Ok(Outcome::new());
        }
        let state = match context.state()? {
            Some(state) => state,
            None => {
                let network = self.cloud.networks.fetch_add(1, Ordering::SeqCst);
                let state = State::bytes((self.cloud.state_form)(network));
                context.save_state(&state).await?;
                state
            }
        };
        self.cloud.pass().await?;
        let outcome = Outcome::new().state(&state)?;
        if self.cloud.misreports.load(Ordering::SeqCst) {
            return Ok(outcome.field("nodesCIDR", &7)?);
        }
        Ok(outcome.field("nodesCIDR", "10.0.0.0/16")?)
    }

    async fn restore(
        &self,
        object: &Infrastructure,
        context: &Context<Infrastructure>,
    ) -> Result<Outcome, Failure> {
        self.record("restore", object);
        let Some(State::Bytes(bytes)) = context.state()? else { return Err(Failure::new("no bytes")) };
        self.cloud.calls.lock().push(format!("state {}", hash(&bytes)));
        self.cloud.pass().await?;
        Ok(Outcome::new().state(&State::bytes(bytes))?)
    }

    async fn migrate(
        &self,
        object: &Infrastructure,
        _: &Context<Infrastructure>,
    ) -> Result<Outcome, Failure> {
        self.record("migrate", object);
        self.cloud.pass().await?;
        Ok(Outcome::new())
    }

    async fn delete(&self, object: &Infrastructure, _: &Context<Infrastructure>) -> Result<Outcome, Failure> {
        self.record("delete", object);
        self.cloud.networks.fetch_sub(1, Ordering::SeqCst);
        self.cloud.pass().await?;
        Ok(Outcome::new())
    }
}

/// Bytes as hexadecimal digits: tests compare all of them.
pub fn hash(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A running controller, which ends when this is dropped, as if its process was killed.
pub struct Running(JoinHandle<()>);

impl Running {
    /// Kills the controller and waits until nothing of it runs.
    pub async fn kill(mut self) -> Result<()> {
        self.0.abort();
        let ended = tokio::time::timeout(DEADLINE, &mut self.0).await?;
        ensure!(ended.is_err_and(|error| error.is_cancelled()), "it ended by itself");
        Ok(())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// A namespace of one test in a seed, which is also the name of its Shoot and of its provider type.
pub struct World {
    pub client: Client,
    pub name: &'static str,
    provider_type: &'static str,
    pub infrastructures: Api<Infrastructure>,
}

impl World {
    /// Makes the namespace and its Cluster.
    pub async fn make(seed: &Garden, name: &'static str) -> Result<Self> {
        Self::make_of_type(seed, name, name).await
    }

    /// The same for objects of another world's provider type.
    pub async fn make_of_type(
        seed: &Garden,
        name: &'static str,
        provider_type: &'static str,
    ) -> Result<Self> {
        let file = Kubeconfig::read_from(seed.kubeconfig())?;
        let config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await?;
        let client = Client::try_from(config)?;
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        seed.apply(&[namespace, cluster(name, "Succeeded")]).await?;
        Ok(Self { infrastructures: Api::namespaced(client.clone(), name), client, name, provider_type })
    }

    pub fn settings(&self) -> Settings {
        let millis = Duration::from_millis;
        let timing = WatchdogTiming { interval: CHECK_INTERVAL, timeout: DEADLINE, unknown_limit: DEADLINE };
        Settings {
            backoff: Backoff { initial: millis(50), max: Duration::from_secs(1) },
            watchdog: timing,
            deadline: DEADLINE,
            ..Settings::new(self.provider_type)
        }
    }

    /// Starts a controller of this test's objects.
    pub fn start(&self, cloud: &Arc<Cloud>) -> Running {
        self.start_with(self.settings(), cloud, true)
    }

    pub fn start_with(&self, settings: Settings, cloud: &Arc<Cloud>, stateful: bool) -> Running {
        let provider = LocalProvider { cloud: cloud.clone(), stateful };
        let controller = ExtensionController::new(self.client.clone(), provider, settings);
        Running(tokio::spawn(controller.run(CancellationToken::new())))
    }

    pub fn start_owned(&self, cloud: &Arc<Cloud>, ownership: impl Ownership) -> Running {
        let provider = LocalProvider { cloud: cloud.clone(), stateful: true };
        let controller = ExtensionController::new(self.client.clone(), provider, self.settings());
        Running(tokio::spawn(controller.with_ownership(ownership).run(CancellationToken::new())))
    }

    /// Creates an Infrastructure with these annotations.
    pub async fn create(&self, name: &str, annotations: &[(&str, &str)]) -> Result<Infrastructure> {
        let annotations: BTreeMap<String, String> =
            annotations.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        let metadata = ObjectMeta {
            name: Some(name.to_owned()),
            namespace: Some(self.name.to_owned()),
            annotations: Some(annotations),
            ..ObjectMeta::default()
        };
        let spec: InfrastructureSpec = serde_json::from_value(
            json!({"type": self.provider_type, "region": "r", "secretRef": {"name": "s", "namespace": self.name}}),
        )?;
        Ok(self.infrastructures.create(&PostParams::default(), &Infrastructure::new(metadata, spec)).await?)
    }

    pub async fn get(&self, name: &str) -> Result<Infrastructure> {
        Ok(self.infrastructures.get(name).await?)
    }

    pub async fn annotate(&self, name: &str, annotations: &BTreeMap<String, String>) -> Result<()> {
        let patch = Patch::Merge(json!({"metadata": {"annotations": annotations}}));
        self.infrastructures.patch(name, &PatchParams::default(), &patch).await?;
        Ok(())
    }

    pub async fn ask(&self, name: &str, request: &Request) -> Result<()> {
        self.annotate(name, &request.annotations()).await
    }

    /// Waits until an operation that began after the request succeeded.
    pub async fn until_done(&self, name: &str, request: &Request) -> Result<Infrastructure> {
        until("the operation", DEADLINE, async || {
            let object = self.get(name).await?;
            let progress = request.progress(&object);
            ensure!(progress == Progress::Done, "it is {progress:?}");
            Ok(object)
        })
        .await
    }

    /// Waits until the last operation is of this type and in this state, and no operation annotation is left.
    pub async fn until_last(
        &self,
        name: &str,
        kind: OperationType,
        state: OperationState,
    ) -> Result<Infrastructure> {
        until("the last operation", DEADLINE, async || {
            let object = self.get(name).await?;
            let last = object.status.as_ref().and_then(|status| status.last_operation.as_ref());
            let last = last.context("there is none")?;
            ensure!(last.summary() == (&kind, &state), "it is {last:?}");
            let busy = state == OperationState::Succeeded
                && object.annotations().keys().any(|key| key.ends_with("/operation"));
            ensure!(!busy, "it has {:?}", object.annotations());
            Ok(object)
        })
        .await
    }

    pub async fn delete(&self, name: &str) -> Result<()> {
        self.infrastructures.delete(name, &DeleteParams::default()).await?;
        Ok(())
    }

    pub async fn confirm_deletion(&self, name: &str) -> Result<()> {
        let confirmed = ("confirmation.gardener.cloud/deletion".to_owned(), "true".to_owned());
        self.annotate(name, &BTreeMap::from([confirmed])).await
    }

    pub async fn until_gone(&self, name: &str) -> Result<()> {
        until("the object to be gone", DEADLINE, async || {
            let found = self.infrastructures.get_opt(name).await?;
            ensure!(found.is_none(), "it is {found:?}");
            Ok(())
        })
        .await
    }

    /// Waits until the controller has handled all events that came before: a further object is reconciled after them.
    pub async fn until_quiet(&self, marker: &str) -> Result<()> {
        self.create(marker, &[("gardener.cloud/operation", "reconcile")]).await?;
        self.until_last(marker, OperationType::Create, OperationState::Succeeded).await.map(drop)
    }
}

/// A Cluster whose Shoot is ignored by gardenlet and whose last operation is in this state.
pub fn cluster(name: &str, state: &str) -> Value {
    json!({
        "apiVersion": "extensions.gardener.cloud/v1alpha1", "kind": "Cluster", "metadata": {"name": name},
        "spec": {
            "cloudProfile": {}, "seed": {},
            "shoot": {
                "metadata": {"annotations": {"shoot.gardener.cloud/ignore": "true"}},
                "status": {"lastOperation": {"type": "Reconcile", "state": state}},
            },
        },
    })
}
