//! What rules know of the world around a change. Whoever asks them gathers it, once a request, by [`RequiredFacts`].

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use repot_api::{
    gardener::shoot::Shoot,
    names::{
        CORE_GROUP, DRUID_GROUP, FORCE_RESTORE, ISOLATED_ZONE, MIGRATION_GROUP, REGION_DISTANCE_THRESHOLD,
        SEED_DISTANCE_THRESHOLD,
    },
};
use repot_apimachinery::value::{at, text_at};
use serde_json::{Value, json};

use crate::{
    change::{Change, Operation},
    force::force_markers,
};

/// Distances between regions, from one ConfigMap of the scheduler.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Distances {
    /// Name of the ConfigMap.
    pub name: String,
    /// CloudProfiles for which it holds.
    pub profiles: Vec<String>,
    /// The greatest distance of a live migration, as annotated: the paper's spelling and the other.
    pub thresholds: [Option<String>; 2],
    /// From a region to others. An entry that cannot be read says why.
    pub from: BTreeMap<String, Result<BTreeMap<String, u64>, String>>,
}

impl Distances {
    /// The annotations, in the order of [`Distances::thresholds`].
    pub const THRESHOLDS: [&'static str; 2] = [SEED_DISTANCE_THRESHOLD, REGION_DISTANCE_THRESHOLD];
}

/// What an operator decided.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// The greatest distance where no ConfigMap has one.
    pub default_threshold: Option<u64>,
    /// Users that are controllers, beside gardenlets; `*` at the end stands for all that begin so.
    pub controllers: Vec<String>,
    /// Groups whose members are controllers.
    pub controller_groups: Vec<String>,
    /// Groups of administrators: what only controllers should do, they may do, with a warning.
    pub operator_groups: Vec<String>,
}

/// The world around one change.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// The time, in RFC 3339.
    pub now: String,
    /// Seeds that the change names; none where a seed does not exist.
    pub seeds: BTreeMap<String, Option<Arc<Value>>>,
    /// Shoots that are on these seeds or on their way there.
    pub shoots_on: BTreeMap<String, u64>,
    /// The CloudProfile of the Shoot; a NamespacedCloudProfile in the same form.
    pub cloud_profile: Option<Arc<Value>>,
    /// All distances, in the order of their names.
    pub distances: Arc<Vec<Distances>>,
    /// The Project of the namespace.
    pub project: Option<Arc<Value>>,
    /// The Shoot to which the object belongs.
    pub shoot: Option<Arc<Value>>,
    /// The HostedEtcd that a workflow is for.
    pub hosted_etcd: Option<Arc<Value>>,
    /// All HostedEtcds of the namespace, where an Etcd is deleted.
    pub hosted_etcds: Vec<Arc<Value>>,
    /// All workflows of the namespace.
    pub workflows: Vec<Arc<Value>>,
    /// Whether the user may use the verb `force-migration` on the Shoot.
    pub may_force: bool,
    /// Names of the Bastions of the Shoot.
    pub bastions: Vec<String>,
    /// Whether the cluster has the subresource `shoots/binding`.
    pub binding: bool,
    /// What an operator decided.
    pub settings: Arc<Settings>,
}

impl Facts {
    /// A seed, if it exists.
    #[must_use]
    pub fn seed(&self, name: &str) -> Option<&Value> {
        self.seeds.get(name)?.as_deref()
    }
}

/// Which profile says what a Shoot may have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Profile {
    /// A CloudProfile by name.
    Cluster(String),
    /// A NamespacedCloudProfile by namespace and name. Gardener merges it with its parent, and writes the result into its
    /// status, as `cloudProfileSpec`.
    Namespaced(String, String),
}

impl Profile {
    fn of(shoot: Shoot<'_>, namespace: &str) -> Option<Self> {
        let name = shoot.cloud_profile()?.to_owned();
        match text_at(shoot.0, "/spec/cloudProfile/kind") {
            Some("NamespacedCloudProfile") => Some(Self::Namespaced(namespace.to_owned(), name)),
            _ => Some(Self::Cluster(name)),
        }
    }

    /// A NamespacedCloudProfile in the form of a CloudProfile; none before Gardener has worked on it.
    #[must_use]
    pub fn flattened(namespaced: &Value) -> Option<Value> {
        let spec = at(namespaced, "/status/cloudProfileSpec")?;
        Some(json!({"metadata": namespaced.get("metadata"), "spec": spec}))
    }
}

/// What has to be known to judge a change.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequiredFacts {
    /// Names of the Seeds that have to be known.
    pub seeds: BTreeSet<String>,
    /// Whether the seeds are chosen among or given up: then they are read at the moment, since one that went away or fell ill
    /// must not be chosen, and room, tolerations and domains count. Zones alone are known as well from a moment ago.
    pub choice: bool,
    /// The CloudProfile of the Shoot.
    pub cloud_profile: Option<Profile>,
    /// The Project of this namespace.
    pub project_of: Option<String>,
    /// The Shoot of this namespace and name.
    pub shoot: Option<(String, String)>,
    /// Whether the user may use the verb `force-migration` on the Shoot of this namespace and name.
    pub may_force: Option<(String, String)>,
    /// The Bastions of the Shoot of this namespace and name.
    pub bastions_of: Option<(String, String)>,
    /// The HostedEtcd of this namespace and name, and all workflows beside it.
    pub hosted_etcd: Option<(String, String)>,
    /// All HostedEtcds of this namespace.
    pub hosted_etcds_of: Option<String>,
}

impl RequiredFacts {
    /// What the rules will look at.
    #[must_use]
    pub fn of(change: &Change) -> Self {
        let target = &change.target;
        match (target.group.as_str(), target.resource.as_str()) {
            (CORE_GROUP, "shoots") => Self::of_shoot(change),
            (CORE_GROUP | MIGRATION_GROUP, "shootstates") => {
                let name = change.name().unwrap_or_default().to_owned();
                Self { shoot: Some((target.namespace.clone(), name)), ..Self::default() }
            }
            (MIGRATION_GROUP, "etcdbackups" | "etcdrestores" | "etcdmigrations")
                if change.operation == Operation::Create =>
            {
                let cluster = text_at(&change.new, "/spec/clusterRef/name").unwrap_or_default();
                Self { hosted_etcd: Some((target.namespace.clone(), cluster.to_owned())), ..Self::default() }
            }
            (DRUID_GROUP, "etcds") if change.operation == Operation::Delete => {
                Self { hosted_etcds_of: Some(target.namespace.clone()), ..Self::default() }
            }
            _ => Self::default(),
        }
    }

    fn of_shoot(change: &Change) -> Self {
        let (old, new) = (Shoot(&change.old), Shoot(&change.new));
        let moves = change.operation == Operation::Update && old.spec_seed() != new.spec_seed();
        let choice = moves || change.sets(FORCE_RESTORE).is_some();
        let shoot = || (change.target.namespace.clone(), change.target.name.clone());
        let forces = force_markers(change).next().is_some();
        let may_force = forces.then(shoot);
        if !choice && change.sets(ISOLATED_ZONE).is_none() {
            return Self { may_force, ..Self::default() };
        }
        let seeds = [old.spec_seed(), old.status_seed(), new.spec_seed()];
        Self {
            may_force,
            seeds: seeds.into_iter().flatten().map(str::to_owned).collect(),
            choice,
            cloud_profile: Profile::of(new, &change.target.namespace),
            bastions_of: moves.then(shoot),
            project_of: choice.then(|| change.target.namespace.clone()),
            ..Self::default()
        }
    }

    /// Whether nothing has to be known.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}
