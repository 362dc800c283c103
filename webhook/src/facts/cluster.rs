//! Facts from a cluster. What decides whether a seed may be chosen is read at the moment of the question: a seed that fell ill or
//! began to go a second ago is not chosen any more. What changes rarely, and what would take long to list, is followed.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};
use std::time::{Duration, Instant};

use futures::future::{try_join, try_join_all, try_join3};
use kube::{
    Api, Client,
    api::ListParams,
    core::{ApiResource, DynamicObject, GroupVersionKind},
    runtime::watcher,
};
use repot_api::names::{CORE_GROUP, GARDEN_NAMESPACE, MIGRATION_GROUP, PURPOSE, V1ALPHA1};
use repot_apimachinery::value::text_at;
use repot_rules::{
    change::Change,
    facts::{Distances, Facts, Profile, RequiredFacts},
    region_config,
};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::{
    Error, access,
    brief::{self, OnSeeds},
    circuit::Circuit,
    follow::Followed,
};

/// Version of Gardener's kinds.
const V1BETA1: &str = "v1beta1";
/// How often the cluster is asked whether it has `shoots/binding`.
const DISCOVERY: Duration = Duration::from_secs(60);
/// The same until it has answered once.
const DISCOVERY_FIRST: Duration = Duration::from_secs(1);

/// Which kinds a cluster has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Serve {
    /// Shoots and Seeds.
    Garden,
    /// Etcds and workflows.
    Seed,
    /// Both.
    All,
}

/// A cluster that is followed.
pub struct Cluster {
    client: Client,
    circuit: Circuit,
    garden: Option<Garden>,
}

struct Garden {
    shoots: Arc<Followed<OnSeeds>>,
    seeds: Arc<Followed<Arc<Value>>>,
    cloud_profiles: Arc<Followed<Arc<Value>>>,
    projects: Arc<Followed<Arc<Value>>>,
    distances: Arc<Followed<Distances>>,
    binding: Arc<Binding>,
}

#[derive(Default)]
struct Binding {
    known: AtomicBool,
    served: AtomicBool,
}

impl Cluster {
    /// Follows a cluster until `stop`.
    #[must_use]
    pub fn follow(client: Client, serve: Serve, stop: &CancellationToken) -> Arc<Self> {
        let garden = (serve != Serve::Seed).then(|| Garden::follow(&client, stop));
        Arc::new(Self { client, circuit: Circuit::default(), garden })
    }

    pub(super) fn missing(&self) -> Vec<&'static str> {
        let Some(garden) = &self.garden else { return Vec::new() };
        let known = [
            ("shoots", garden.shoots.is_synced()),
            ("seeds", garden.seeds.is_synced()),
            ("cloudprofiles", garden.cloud_profiles.is_synced()),
            ("projects", garden.projects.is_synced()),
            ("region-config", garden.distances.is_synced()),
            ("binding", garden.binding.known.load(Ordering::Acquire)),
        ];
        known.into_iter().filter(|(_, known)| !known).map(|(what, _)| what).collect()
    }

    /// Facts within `limit`. A cluster that is late several times is left alone for a while.
    ///
    /// # Errors
    /// [`Error::NotSynced`], [`Error::Late`], [`Error::CircuitOpen`], [`Error::Live`].
    pub(super) async fn gather(
        &self,
        needs: &RequiredFacts,
        change: &Change,
        facts: Facts,
        limit: Duration,
    ) -> Result<Facts, Error> {
        if !self.missing().is_empty() {
            return Err(Error::NotSynced);
        }
        if !self.circuit.admits(Instant::now()) {
            return Err(Error::CircuitOpen);
        }
        let gathered = tokio::time::timeout(limit, self.read(needs, change, facts)).await;
        let gathered = gathered.unwrap_or(Err(Error::Late { limit }));
        self.circuit.record(Instant::now(), !gathered.as_ref().is_err_and(Error::is_late));
        gathered
    }

    async fn read(&self, needs: &RequiredFacts, change: &Change, facts: Facts) -> Result<Facts, Error> {
        let seeds = try_join_all(needs.seeds.iter().map(|name| self.seed(name, needs.choice)));
        let asked = try_join(
            access::bastions(&self.client, needs),
            access::may_force(&self.client, needs, &change.user),
        );
        let objects = try_join3(self.shoot(needs), self.etcd(needs), self.hosted_etcds(needs));
        let (seeds, ((shoot, etcd, hosted_etcds), (bastions, may_force))) =
            try_join(seeds, try_join(objects, asked)).await?;
        let (hosted_etcd, workflows) = etcd;
        let facts = Facts {
            seeds: needs.seeds.iter().cloned().zip(seeds).collect(),
            shoot,
            bastions,
            may_force,
            hosted_etcd,
            hosted_etcds,
            workflows,
            ..facts
        };
        match &self.garden {
            Some(garden) => Ok(garden.complete(needs, change, facts, self.profile(needs).await?)),
            None => Ok(facts),
        }
    }

    /// A seed as it was a moment ago, if it was there.
    pub(super) fn followed_seed(&self, name: &str) -> Option<Arc<Value>> {
        self.garden.as_ref()?.seeds.get("", name)
    }

    async fn seed(&self, name: &str, choice: bool) -> Result<Option<Arc<Value>>, Error> {
        // One that is not known yet may be new.
        let known = self.followed_seed(name).filter(|_| !choice);
        if known.is_some() {
            return Ok(known);
        }
        self.live(Api::all_with(self.client.clone(), &core("Seed", "seeds")), "seed", name).await
    }

    async fn shoot(&self, needs: &RequiredFacts) -> Result<Option<Arc<Value>>, Error> {
        let Some((namespace, name)) = &needs.shoot else { return Ok(None) };
        let api = Api::namespaced_with(self.client.clone(), namespace, &core("Shoot", "shoots"));
        self.live(api, "shoot", name).await
    }

    /// The followed CloudProfile; one that is not known yet may be new. NamespacedCloudProfiles are few and are not followed.
    async fn profile(&self, needs: &RequiredFacts) -> Result<Option<Arc<Value>>, Error> {
        let (Some(profile), Some(garden)) = (&needs.cloud_profile, &self.garden) else { return Ok(None) };
        match profile {
            Profile::Cluster(name) => match garden.cloud_profiles.get("", name) {
                Some(known) => Ok(Some(known)),
                None => {
                    let api = Api::all_with(self.client.clone(), &core("CloudProfile", "cloudprofiles"));
                    self.live(api, "cloudprofile", name).await
                }
            },
            Profile::Namespaced(namespace, name) => {
                let kind = core("NamespacedCloudProfile", "namespacedcloudprofiles");
                let api = Api::namespaced_with(self.client.clone(), namespace, &kind);
                let found = self.live(api, "namespacedcloudprofile", name).await?;
                Ok(found.as_deref().and_then(Profile::flattened).map(Arc::new))
            }
        }
    }

    async fn etcd(&self, needs: &RequiredFacts) -> Result<(Option<Arc<Value>>, Vec<Arc<Value>>), Error> {
        let Some((namespace, name)) = &needs.hosted_etcd else { return Ok((None, Vec::new())) };
        let api = |kind: &str, plural: &str| self.ours(namespace, kind, plural);
        let kinds = [
            ("EtcdBackup", "etcdbackups"),
            ("EtcdRestore", "etcdrestores"),
            ("EtcdMigration", "etcdmigrations"),
        ];
        let lists = kinds.into_iter().map(|(kind, plural)| {
            let api = api(kind, plural);
            async move {
                let list = api.list(&ListParams::default()).await;
                let list =
                    list.map_err(|source| Error::Live { what: plural.to_owned(), source: Box::new(source) })?;
                // Items of a list do not tell their kind.
                Ok(list.items.into_iter().map(move |object| {
                    let mut value = plain(object);
                    value["kind"] = kind.into();
                    Arc::new(value)
                }))
            }
        });
        let etcd = self.live(api("HostedEtcd", "hostedetcds"), "hostedetcd", name);
        let (etcd, lists) = try_join(etcd, try_join_all(lists)).await?;
        Ok((etcd, lists.into_iter().flatten().collect()))
    }

    /// All HostedEtcds of a namespace; none where the cluster does not serve them.
    async fn hosted_etcds(&self, needs: &RequiredFacts) -> Result<Vec<Arc<Value>>, Error> {
        let Some(namespace) = &needs.hosted_etcds_of else { return Ok(Vec::new()) };
        match self.ours(namespace, "HostedEtcd", "hostedetcds").list(&ListParams::default()).await {
            Ok(list) => Ok(list.items.into_iter().map(plain).map(Arc::new).collect()),
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(Vec::new()),
            Err(source) => Err(Error::Live { what: "hostedetcds".to_owned(), source: Box::new(source) }),
        }
    }

    fn ours(&self, namespace: &str, kind: &str, plural: &str) -> Api<DynamicObject> {
        let resource = resource(MIGRATION_GROUP, V1ALPHA1, kind, plural);
        Api::namespaced_with(self.client.clone(), namespace, &resource)
    }

    async fn live(
        &self,
        api: Api<DynamicObject>,
        kind: &str,
        name: &str,
    ) -> Result<Option<Arc<Value>>, Error> {
        if name.is_empty() {
            return Ok(None);
        }
        let failed = |source| Error::Live { what: format!("{kind} {name:?}"), source: Box::new(source) };
        Ok(api.get_opt(name).await.map_err(failed)?.map(plain).map(Arc::new))
    }
}

impl Garden {
    fn follow(client: &Client, stop: &CancellationToken) -> Self {
        let all = |kind, plural| Api::all_with(client.clone(), &core(kind, plural));
        let whole = |object| Some(Arc::new(plain(object)));
        let any = watcher::Config::default;
        let maps = Api::namespaced_with(
            client.clone(),
            GARDEN_NAMESPACE,
            &resource("", "v1", "ConfigMap", "configmaps"),
        );
        let labelled = any().labels(&format!("{}={}", PURPOSE.0, PURPOSE.1));
        let binding = Arc::new(Binding::default());
        tokio::spawn(binding.clone().discover(client.clone(), stop.clone()));
        Self {
            shoots: Followed::start(
                Api::all_with(client.clone(), &core("Shoot", "shoots")),
                any(),
                brief::on_seeds,
                stop.clone(),
            ),
            seeds: Followed::start(all("Seed", "seeds"), any(), whole, stop.clone()),
            cloud_profiles: Followed::start(all("CloudProfile", "cloudprofiles"), any(), whole, stop.clone()),
            projects: Followed::start(all("Project", "projects"), any(), whole, stop.clone()),
            distances: Followed::start(maps, labelled, |map| region_config::read(&plain(map)), stop.clone()),
            binding,
        }
    }

    fn complete(
        &self,
        needs: &RequiredFacts,
        change: &Change,
        facts: Facts,
        cloud_profile: Option<Arc<Value>>,
    ) -> Facts {
        let target = &change.target;
        let on = |seed: &String| {
            let here = |(key, seeds): &(&(String, String), &OnSeeds)| {
                // The Shoot that is asked about does not take room from itself.
                let other =
                    (key.0.as_str(), key.1.as_str()) != (target.namespace.as_str(), target.name.as_str());
                other && seeds.iter().flatten().any(|own| **own == **seed)
            };
            self.shoots.all(|all| all.filter(here).count() as u64)
        };
        let mut distances = self.distances.all(|all| all.map(|(_, one)| one.clone()).collect::<Vec<_>>());
        distances.sort_by(|a, b| a.name.cmp(&b.name));
        let project = needs.project_of.as_ref();
        let project = project.and_then(|namespace| {
            self.projects.find(|_, p| text_at(p, "/spec/namespace") == Some(namespace))
        });
        let chosen = needs.seeds.iter().filter(|_| needs.choice);
        Facts {
            shoots_on: chosen.map(|seed| (seed.clone(), on(seed))).collect(),
            cloud_profile,
            distances: Arc::new(distances),
            project,
            binding: self.binding.served.load(Ordering::Acquire),
            ..facts
        }
    }
}

impl Binding {
    async fn discover(self: Arc<Self>, client: Client, stop: CancellationToken) {
        let version = format!("{CORE_GROUP}/{V1BETA1}");
        loop {
            match client.list_api_group_resources(&version).await {
                Ok(list) => {
                    let served = list.resources.iter().any(|resource| resource.name == "shoots/binding");
                    self.served.store(served, Ordering::Release);
                    self.known.store(true, Ordering::Release);
                }
                Err(error) => {
                    tracing::warn!(%error, "failed to ask whether shoots/binding is served, trying again")
                }
            }
            let pause = if self.known.load(Ordering::Acquire) { DISCOVERY } else { DISCOVERY_FIRST };
            if stop.run_until_cancelled(tokio::time::sleep(pause)).await.is_none() {
                return;
            }
        }
    }
}

/// Without managedFields, which no rule looks at and which are often half of an object.
fn plain(mut object: DynamicObject) -> Value {
    object.metadata.managed_fields = None;
    serde_json::to_value(object).unwrap_or_default()
}

fn core(kind: &str, plural: &str) -> ApiResource {
    resource(CORE_GROUP, V1BETA1, kind, plural)
}

fn resource(group: &str, version: &str, kind: &str, plural: &str) -> ApiResource {
    ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, kind), plural)
}
