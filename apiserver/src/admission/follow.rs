//! The webhooks of the cluster, followed by two watches. Until both have been listed once nobody can say which webhooks
//! there are, so the server is not ready, and a write that comes in spite of that is sent away.

use std::{
    collections::BTreeMap,
    fmt::Debug,
    hash::Hash,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
};

use arc_swap::ArcSwapOption;
use futures::StreamExt;
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration,
};
use kube::{
    Api, Client, Resource,
    runtime::{WatchStreamExt, watcher},
};
use serde::de::DeserializeOwned;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::{call::Services, hook, hook::Hook, quota::Quotas};
use crate::status::Status;

/// In the order in which they are asked.
pub type Hooks = Vec<Arc<Hook>>;

/// Admission as this server does it.
#[derive(Clone, Default)]
pub struct Admission(Option<Arc<Cluster>>);

/// What is known of a cluster.
pub struct Cluster {
    mutating: ArcSwapOption<Hooks>,
    validating: ArcSwapOption<Hooks>,
    /// Told whenever something became known.
    news: watch::Sender<()>,
    /// What there is room for.
    quotas: OnceLock<Quotas>,
    quotas_known: AtomicBool,
    /// Finds the addresses of Services that webhooks are reached by.
    pub services: Services,
    /// The largest question, in bytes.
    pub max_review_bytes: usize,
}

impl Admission {
    /// There is no cluster, and so nobody to ask.
    #[must_use]
    pub fn none() -> Self {
        Self(None)
    }

    /// Follows the configurations of a cluster until `stop`. `max_review_bytes`: a question longer than this counts as a
    /// failure of the webhook.
    #[must_use]
    pub fn follow(client: &Client, max_review_bytes: usize, stop: &CancellationToken) -> Self {
        let cluster = Arc::new(Cluster {
            mutating: ArcSwapOption::empty(),
            validating: ArcSwapOption::empty(),
            news: watch::Sender::new(()),
            quotas: OnceLock::new(),
            quotas_known: AtomicBool::new(false),
            services: Services::new(client.clone()),
            max_review_bytes,
        });
        let (one, two) = (cluster.clone(), cluster.clone());
        let api: Api<MutatingWebhookConfiguration> = Api::all(client.clone());
        spawn(api, hook::mutating, stop.clone(), move |hooks| one.learn(&one.mutating, hooks));
        let api: Api<ValidatingWebhookConfiguration> = Api::all(client.clone());
        spawn(api, hook::validating, stop.clone(), move |hooks| two.learn(&two.validating, hooks));
        let known = cluster.clone();
        let quotas = Quotas::follow(client.clone(), stop.clone(), move || {
            known.quotas_known.store(true, Ordering::Release);
            known.news.send_replace(());
        });
        let _ = cluster.quotas.set(quotas);
        Self(Some(cluster))
    }

    /// What is known of the cluster, where there is one.
    #[must_use]
    pub fn cluster(&self) -> Option<&Arc<Cluster>> {
        self.0.as_ref()
    }

    /// Whether all configurations are known.
    #[must_use]
    pub fn is_synced(&self) -> bool {
        self.0.as_ref().is_none_or(|cluster| {
            let hooks = cluster.mutating.load().is_some() && cluster.validating.load().is_some();
            hooks && cluster.quotas_known.load(Ordering::Acquire)
        })
    }

    /// Returns when all configurations are known.
    pub async fn synced(&self) {
        let Some(cluster) = &self.0 else { return };
        let mut news = cluster.news.subscribe();
        while !self.is_synced() {
            if news.changed().await.is_err() {
                return;
            }
        }
    }
}

impl Cluster {
    fn learn(&self, place: &ArcSwapOption<Hooks>, hooks: Hooks) {
        place.store(Some(Arc::new(hooks)));
        self.news.send_replace(());
    }

    /// The webhooks that may change objects.
    ///
    /// # Errors
    /// 503 until they are known.
    pub fn mutating(&self) -> Result<Arc<Hooks>, Status> {
        self.mutating.load_full().ok_or_else(not_yet)
    }

    /// The quotas.
    ///
    /// # Errors
    /// 503 until they are known.
    pub fn quotas(&self) -> Result<&Quotas, Status> {
        let known = self.quotas_known.load(Ordering::Acquire);
        self.quotas.get().filter(|_| known).ok_or_else(not_yet)
    }

    /// The webhooks that may only judge.
    ///
    /// # Errors
    /// 503 until they are known.
    pub fn validating(&self) -> Result<Arc<Hooks>, Status> {
        self.validating.load_full().ok_or_else(not_yet)
    }
}

fn not_yet() -> Status {
    Status::unavailable("not yet ready to handle request: admission is not synced", 1)
}

/// What is known of configurations of one type, by name: each with its version and its webhooks.
type KnownConfigurations = BTreeMap<String, (Option<String>, Hooks)>;

fn spawn<K>(
    api: Api<K>,
    read: fn(&K) -> Vec<Hook>,
    stop: CancellationToken,
    publish: impl Fn(Hooks) + Send + 'static,
) where
    K: Resource + Clone + Debug + DeserializeOwned + Send + 'static,
    K::DynamicType: Default + Eq + Hash + Clone,
{
    tokio::spawn(async move {
        let (mut known, mut listed) = (KnownConfigurations::new(), KnownConfigurations::new());
        let mut events = Box::pin(watcher(api, watcher::Config::default()).default_backoff());
        while let Some(Some(event)) = stop.run_until_cancelled(events.next()).await {
            match event {
                Err(error) => {
                    tracing::warn!(%error, "watch of webhook configurations failed, trying again");
                    continue;
                }
                Ok(watcher::Event::Init) => {
                    listed.clear();
                    continue;
                }
                Ok(watcher::Event::InitApply(object)) => {
                    adopt(&mut listed, &known, &object, read);
                    continue;
                }
                Ok(watcher::Event::InitDone) => known = std::mem::take(&mut listed),
                Ok(watcher::Event::Apply(object)) => {
                    let before = known.clone();
                    adopt(&mut known, &before, &object, read);
                }
                Ok(watcher::Event::Delete(object)) => {
                    known.remove(object.meta().name.as_deref().unwrap_or_default());
                }
            }
            // By name, as kube-apiserver does: the order in which webhooks see each other's changes is part of the contract.
            publish(known.values().flat_map(|(_, hooks)| hooks.iter().cloned()).collect());
        }
    });
}

/// Reads a configuration, or keeps what was read of the same version: its webhooks have clients with open connections.
fn adopt<K: Resource>(
    into: &mut KnownConfigurations,
    before: &KnownConfigurations,
    object: &K,
    read: fn(&K) -> Vec<Hook>,
) {
    let meta = object.meta();
    let (name, version) = (meta.name.clone().unwrap_or_default(), meta.resource_version.clone());
    let kept = before.get(&name).filter(|(known, _)| *known == version);
    let hooks =
        kept.map_or_else(|| read(object).into_iter().map(Arc::new).collect(), |(_, hooks)| hooks.clone());
    into.insert(name, (version, hooks));
}
