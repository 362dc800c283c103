//! What there is of an Etcd, read from kube-apiserver itself: what is created or deleted by an older view could be two members of
//! one name.

use std::{collections::BTreeMap, fmt::Debug};

use k8s_openapi::api::{
    apps::v1::StatefulSet,
    batch::v1::Job,
    core::v1::{PersistentVolumeClaim, Pod},
};
use kube::{Api, Client, Resource, ResourceExt, api::ListParams, core::NamespaceResourceScope};
use repot_etcd_core::{
    members::Side,
    operator::{Cluster, Seen, Set, Source},
    volumes::VolumeSet,
};
use serde::de::DeserializeOwned;

use super::{
    Error, Result,
    api::{Etcd, Existing, MEMBERSHIP, RESTORE_FROM},
    copy, names,
    status::{CopyProgress, Status},
};

/// The Etcd and its Kubernetes objects, as they were read in one pass.
#[derive(Clone, Debug)]
pub struct Observed {
    /// The Etcd itself, with the status of the last pass.
    pub etcd: Etcd,
    /// StatefulSet of the Etcd; `None` where it does not exist.
    pub set: Option<StatefulSet>,
    /// Pods of members, and of members that were.
    pub pods: Vec<Pod>,
    /// Claims of all sets of volumes.
    pub claims: Vec<PersistentVolumeClaim>,
    /// The Job that copies snapshots, where one is needed.
    pub copy: Option<Job>,
    /// Jobs that copy what was asked for earlier.
    pub stale_copies: Vec<Job>,
    /// How far the Job is, as its Pod tells, or told a while ago.
    pub progress: Option<CopyProgress>,
}

/// Reads everything; nothing where there is no Etcd.
///
/// # Errors
/// [`Error::Read`].
pub async fn observe(client: &Client, namespace: &str, name: &str) -> Result<Option<Observed>> {
    let Some(etcd) = read::<Etcd>(client, namespace, name).await? else { return Ok(None) };
    let selector = names::selector(name);
    let copies = async {
        match copy::name(&etcd) {
            Some(_) => list::<Job>(client, namespace, &copy::selector(name)).await,
            None => Ok(Vec::new()),
        }
    };
    let (set, pods, claims, mut copies) = futures::try_join!(
        read::<StatefulSet>(client, namespace, name),
        list::<Pod>(client, namespace, &selector),
        list::<PersistentVolumeClaim>(client, namespace, &selector),
        copies,
    )?;
    let wanted = copy::name(&etcd);
    let copy = copies.iter().position(|job| Some(job.name_any()) == wanted).map(|at| copies.remove(at));
    let is_stale = |job: &Job| is_ours(&etcd, job) && job.metadata.deletion_timestamp.is_none();
    let stale_copies = copies.into_iter().filter(is_stale).collect();
    // A StatefulSet of somebody else under the same name is left alone: nothing of it is adopted.
    if let Some(set) = &set
        && !is_ours(&etcd, set)
    {
        return Err(Error::Foreign { kind: "StatefulSet", name: name.to_owned() });
    }
    let pods = pods.into_iter().filter(|pod| names::ordinal(&pod.name_any(), name).is_some()).collect();
    Ok(Some(Observed { etcd, set, pods, claims, copy, stale_copies, progress: None }))
}

fn is_ours(etcd: &Etcd, object: &impl Resource) -> bool {
    let uid = etcd.uid().unwrap_or_default();
    object.owner_references().iter().any(|owner| owner.controller == Some(true) && owner.uid == uid)
}

async fn read<K>(client: &Client, namespace: &str, name: &str) -> Result<Option<K>>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + DeserializeOwned + Debug,
{
    let api = Api::<K>::namespaced(client.clone(), namespace);
    let failed = |source| Error::Read { kind: K::kind(&()).into_owned(), name: name.to_owned(), source };
    api.get_opt(name).await.map_err(failed)
}

pub(super) async fn list<K>(client: &Client, namespace: &str, selector: &str) -> Result<Vec<K>>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + DeserializeOwned + Debug,
{
    let api = Api::<K>::namespaced(client.clone(), namespace);
    let failed = |source| Error::Read { kind: K::kind(&()).into_owned(), name: selector.to_owned(), source };
    Ok(api.list(&ListParams::default().labels(selector)).await.map_err(failed)?.items)
}

impl Observed {
    /// The status of the last pass.
    #[must_use]
    pub fn status(&self) -> Status {
        self.etcd.status.clone().unwrap_or_default()
    }

    /// Whether the Etcd is being deleted.
    #[must_use]
    pub fn is_ending(&self) -> bool {
        self.etcd.metadata.deletion_timestamp.is_some()
    }

    /// Whether it is kept until its members have left the etcd that goes on elsewhere.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.etcd.finalizers().iter().any(|finalizer| finalizer == MEMBERSHIP)
    }

    /// How many members are wanted.
    #[must_use]
    pub fn wanted(&self) -> u32 {
        if self.is_ending() { 0 } else { self.etcd.spec.replicas }
    }

    /// Whether there is a cluster on the volumes that are wanted.
    #[must_use]
    pub fn is_bootstrapped(&self) -> bool {
        self.status().bootstrapped.is_some_and(|bootstrapped| bootstrapped.has(&self.etcd.volumes()))
    }

    /// The etcd that the members join, or have joined, while members of it are left.
    #[must_use]
    pub fn existing(&self) -> Option<Existing> {
        let asked = self.etcd.spec.etcd.bootstrap_with_existing_cluster.clone();
        let joined = self.status().bootstrap_with_existing_cluster.filter(|joined| !joined.released);
        let joined = joined.map(|joined| Existing {
            members: joined.members,
            client_endpoints: joined.client_endpoints,
            abandoned: false,
        });
        asked.or(joined).filter(|existing| !existing.abandoned)
    }

    /// Whether the members stop without being removed from the etcd that they have joined.
    #[must_use]
    pub fn is_abandoned(&self) -> bool {
        let asked = self.etcd.spec.etcd.bootstrap_with_existing_cluster.as_ref();
        self.wanted() == 0 && asked.is_some_and(|asked| asked.abandoned)
    }

    /// Where the members are: at the destination where they join, or have joined, another etcd that they are to follow.
    #[must_use]
    pub fn side(&self) -> Side {
        if self.existing().is_some() { Side::Destination } else { Side::Source }
    }

    /// Whether members join a cluster and never found one.
    #[must_use]
    pub fn is_founded(&self) -> bool {
        self.is_bootstrapped() || self.existing().is_some()
    }

    /// How many places of members were ever taken: by Pods that are to be, or by claims.
    #[must_use]
    pub fn places(&self) -> u32 {
        let volumes = self.etcd.volumes();
        let set = self.set.as_ref().map(set).filter(|set| set.volumes.0 == volumes);
        self.claims_from(&volumes).max(set.map_or(0, |set| set.replicas))
    }

    /// Claims of the volumes that are wanted at places from this one on, those that are being deleted included.
    #[must_use]
    pub fn claims_beyond(&self, places: u32) -> Vec<(u32, &PersistentVolumeClaim)> {
        let before = format!("{}-{}", self.etcd.volumes(), self.etcd.name_any());
        let all =
            self.claims.iter().filter_map(|claim| Some((names::ordinal(&claim.name_any(), &before)?, claim)));
        all.filter(|(at, _)| *at >= places).collect()
    }

    /// How many Pods the StatefulSet is to have on the volumes that are wanted; nothing where it has others, or ends.
    #[must_use]
    pub fn running(&self) -> Option<u32> {
        let set = self.set.as_ref().map(set)?;
        (set.volumes.0 == self.etcd.volumes() && !set.deleting).then_some(set.replicas)
    }

    /// How many members began to found a cluster on the volumes that are wanted.
    #[must_use]
    pub fn founders(&self) -> Option<u32> {
        let founding = self.status().founding.filter(|founding| founding.volumes == self.etcd.volumes());
        founding.map(|founding| founding.members)
    }

    /// Whether the etcd is founded, or was, by one member that follows the snapshots of another etcd. A founding that has begun stays
    /// what it is.
    #[must_use]
    pub fn stands_by(&self) -> bool {
        let backup = &self.etcd.spec.backup;
        let begun = self.status().founding.filter(|founding| founding.volumes == self.etcd.volumes());
        let asked = backup.standby && backup.source_store.is_some() && !self.is_founded();
        let restores = self.etcd.annotations().get(RESTORE_FROM).is_some_and(|name| !name.is_empty());
        begun.map_or(asked && !restores, |founding| founding.standby)
    }

    /// What is decided on. `members`: see [`Cluster::Founded`]; `needed`: see [`Seen::needed`].
    #[must_use]
    pub fn seen(&self, members: Option<u32>, source: Source, needed: bool) -> Seen {
        let cluster = if self.is_founded() {
            Cluster::Founded { members, claims: self.claims_from(&self.etcd.volumes()) }
        } else {
            Cluster::New { founders: self.founders() }
        };
        let alone = self.stands_by() && !self.is_founded();
        Seen {
            volumes: VolumeSet(self.etcd.volumes()),
            replicas: if alone { self.wanted().min(1) } else { self.wanted() },
            set: self.set.as_ref().map(set),
            pods: self.pods_by_volumes(),
            cluster,
            source,
            leaves: self.existing().is_some(),
            held: self.is_held(),
            needed: needed && self.is_ending(),
        }
    }

    /// One more than the greatest place of which a claim of this set exists.
    fn claims_from(&self, volumes: &str) -> u32 {
        let before = format!("{volumes}-{}", self.etcd.name_any());
        let kept = self.claims.iter().filter(|claim| claim.metadata.deletion_timestamp.is_none());
        kept.filter_map(|claim| names::ordinal(&claim.name_any(), &before)).max().map_or(0, |last| last + 1)
    }

    fn pods_by_volumes(&self) -> BTreeMap<VolumeSet, u32> {
        let mut found = BTreeMap::new();
        for pod in &self.pods {
            *found.entry(VolumeSet(self.volumes_of(pod))).or_default() += 1;
        }
        found
    }

    /// The set whose claim a Pod mounts; empty where it mounts none.
    fn volumes_of(&self, pod: &Pod) -> String {
        let ordinal = names::ordinal(&pod.name_any(), &self.etcd.name_any()).unwrap_or_default();
        let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
        let mut mounted = volumes.filter_map(|volume| {
            let claim = &volume.persistent_volume_claim.as_ref()?.claim_name;
            (*claim == names::claim(&volume.name, &self.etcd.name_any(), ordinal))
                .then(|| volume.name.clone())
        });
        mounted.next().unwrap_or_default()
    }

    /// The Pod of a place, on the volumes that are wanted.
    #[must_use]
    pub fn pod(&self, ordinal: u32) -> Option<&Pod> {
        let name = names::pod(&self.etcd.name_any(), ordinal);
        let volumes = self.etcd.volumes();
        self.pods.iter().find(|pod| pod.name_any() == name && self.volumes_of(pod) == volumes)
    }
}

/// Whether a Pod is ready and stays.
#[must_use]
pub fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let ready =
        conditions.into_iter().any(|condition| condition.type_ == "Ready" && condition.status == "True");
    ready && pod.metadata.deletion_timestamp.is_none()
}

/// The name of the only claim template.
#[must_use]
pub fn template(set: &StatefulSet) -> String {
    let templates = set.spec.iter().flat_map(|spec| spec.volume_claim_templates.iter().flatten());
    templates.into_iter().next().map(ResourceExt::name_any).unwrap_or_default()
}

fn set(set: &StatefulSet) -> Set {
    let replicas = set.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or_default();
    Set {
        volumes: VolumeSet(template(set)),
        replicas: u32::try_from(replicas).unwrap_or_default(),
        deleting: set.metadata.deletion_timestamp.is_some(),
    }
}
