//! One hosted etcd as kube-apiserver has it, and what follows from that without asking anybody else.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::{
    apps::v1::{Deployment, StatefulSet},
    core::v1::{PersistentVolumeClaim, Pod},
};
use kube::{
    Api, Client, Resource, ResourceExt,
    api::ListParams,
    core::{NamespaceResourceScope, ObjectMeta},
};
use repot_etcd_core::volumes::VolumeSet;
use repot_plan::etcd::{
    Notes,
    observed::{self, Deployed, Settings, Targets},
};
use serde::de::DeserializeOwned;

use crate::etcd::{
    api::{Etcd, FENCE},
    names::{COMPONENT, PART_OF},
};

use super::{
    api::{EtcdRef, HostedEtcd, HostedEtcdSpec, Reference},
    error::{Error, Result},
};

/// The HostedEtcd and the objects that belong to it, as kube-apiserver has them.
#[derive(Clone, Debug)]
pub struct ControlPlane {
    /// The HostedEtcd; where it does not exist any more, no more than what it referred to.
    pub hosted: HostedEtcd,
    /// The Deployment of the API servers.
    pub deployment: Option<Deployment>,
    /// Pods that the Deployment selects by labels; empty where there is no Deployment.
    pub servers: Vec<Pod>,
    /// The Etcd, where the HostedEtcd refers to one and it exists.
    pub etcd: Option<Etcd>,
    /// The StatefulSet of the members.
    pub set: Option<StatefulSet>,
    /// Pods of the members of the etcd.
    pub members: Vec<Pod>,
    /// Their claims, of all sets of volumes.
    pub claims: Vec<PersistentVolumeClaim>,
}

/// How a list of objects is selected by labels.
fn selector(labels: &BTreeMap<String, String>) -> String {
    labels.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(",")
}

async fn read<K>(client: &Client, namespace: &str, name: &str) -> Result<Option<K>>
where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>
        + Clone
        + DeserializeOwned
        + std::fmt::Debug,
{
    let got = Api::<K>::namespaced(client.clone(), namespace).get_opt(name).await;
    got.map_err(|source| Error::Read { what: format!("{} {namespace}/{name}", K::kind(&())), source })
}

async fn list<K>(client: &Client, namespace: &str, labels: &str) -> Result<Vec<K>>
where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>
        + Clone
        + DeserializeOwned
        + std::fmt::Debug,
{
    let got =
        Api::<K>::namespaced(client.clone(), namespace).list(&ListParams::default().labels(labels)).await;
    let got =
        got.map_err(|source| Error::Read { what: format!("{}s of {namespace}", K::kind(&())), source })?;
    Ok(got.items)
}

impl ControlPlane {
    /// Reads all of it, from kube-apiserver itself.
    ///
    /// # Errors
    /// [`Error::Read`].
    pub async fn read(client: &Client, hosted: HostedEtcd) -> Result<Self> {
        let namespace = hosted.namespace().unwrap_or_default();
        let Targets { etcd: name, api } = targets(&hosted);
        let etcd =
            async { if is_etcd(&hosted) { read::<Etcd>(client, &namespace, &name).await } else { Ok(None) } };
        let (deployment, etcd, set) = futures::try_join!(
            read::<Deployment>(client, &namespace, &api),
            etcd,
            read::<StatefulSet>(client, &namespace, &name),
        )?;
        let of_api = deployment.as_ref().and_then(|d| d.spec.as_ref()?.selector.match_labels.clone());
        let of_members = match set.as_ref().and_then(|set| set.spec.as_ref()?.selector.match_labels.clone()) {
            Some(labels) if !is_etcd(&hosted) => selector(&labels),
            _ => format!("{PART_OF}={name},{COMPONENT}=etcd"),
        };
        let servers = async {
            match of_api {
                Some(labels) => list::<Pod>(client, &namespace, &selector(&labels)).await,
                None => Ok(Vec::new()),
            }
        };
        let (servers, members, claims) = futures::try_join!(
            servers,
            list::<Pod>(client, &namespace, &of_members),
            list::<PersistentVolumeClaim>(client, &namespace, &of_members),
        )?;
        Ok(Self { hosted, deployment, servers, etcd, set, members, claims })
    }

    /// What the HostedEtcd refers to.
    #[must_use]
    pub fn targets(&self) -> Targets {
        targets(&self.hosted)
    }

    /// Whether the Etcd exists and stays.
    #[must_use]
    pub fn is_etcd_declared(&self) -> bool {
        self.etcd.as_ref().is_some_and(|etcd| etcd.metadata.deletion_timestamp.is_none())
    }

    /// Namespace of the HostedEtcd; empty where it has none.
    #[must_use]
    pub fn namespace(&self) -> String {
        self.hosted.namespace().unwrap_or_default()
    }

    /// State of the API servers, by their Deployment and its Pods.
    #[must_use]
    pub fn api(&self) -> observed::Api {
        let spec = self.deployment.as_ref().and_then(|deployment| deployment.spec.as_ref());
        let meta = self.deployment.as_ref().map(|deployment| &deployment.metadata);
        let runs = |pod: &&Pod| {
            let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
            !matches!(phase, Some("Succeeded" | "Failed"))
        };
        let ready = self.servers.iter().filter(|pod| is_ready(pod)).count();
        observed::Api {
            exists: meta.is_some_and(|meta| meta.deletion_timestamp.is_none()),
            wanted: spec.map_or(0, |spec| spec.replicas.unwrap_or(1).try_into().unwrap_or_default()),
            pods: count(self.servers.iter().filter(runs).count()),
            ready: count(ready),
            generation: meta.and_then(|meta| meta.generation?.try_into().ok()).unwrap_or_default(),
            fence: meta.and_then(|meta| meta.annotations.as_ref()?.get(FENCE).cloned()).unwrap_or_default(),
        }
    }

    /// The StatefulSet as it is asked for of the operator, or as it still exists.
    #[must_use]
    pub fn deployed(&self) -> Option<Deployed> {
        let asked = self.etcd.as_ref().filter(|etcd| etcd.spec.replicas > 0);
        match asked {
            Some(etcd) => Some(Deployed {
                volumes: self.template()?,
                settings: self.etcd_settings()?,
                fence: etcd.annotations().get(FENCE).cloned().unwrap_or_default(),
            }),
            None => self.set.as_ref().and_then(of_set),
        }
    }

    /// The volumes that the Etcd names.
    #[must_use]
    pub fn template(&self) -> Option<VolumeSet> {
        let etcd = self.etcd.as_ref()?;
        let named = etcd.spec.volume_claim_template.clone().filter(|name| !name.is_empty());
        Some(VolumeSet(named.unwrap_or_else(|| etcd.name_any())))
    }

    fn etcd_settings(&self) -> Option<Settings> {
        let spec = &self.etcd.as_ref()?.spec;
        Some(Settings {
            replicas: spec.replicas,
            size: spec.storage_capacity.clone().map(|size| size.0).unwrap_or_default(),
            storage_class: spec.storage_class.clone().unwrap_or_default(),
        })
    }

    /// `spec.settings` of the HostedEtcd; what is left out is what runs, or ran before it was deleted by this workflow.
    #[must_use]
    pub fn settings(&self, notes: &Notes) -> Settings {
        let mut runs = self.etcd_settings().or_else(|| Some(self.deployed()?.settings)).unwrap_or_default();
        if runs.replicas == 0 {
            let before = notes.old.as_ref().map(|(_, settings)| settings.replicas);
            runs.replicas = before.or_else(|| Some(self.deployed()?.settings.replicas)).unwrap_or_default();
        }
        // After a restore the Etcd has the new settings, which are in the HostedEtcd too.
        self.hosted.spec.settings.wanted().over(&runs)
    }

    /// Pods of members, by the volumes that they mount.
    #[must_use]
    pub fn pods(&self) -> BTreeMap<VolumeSet, u32> {
        let mut pods = BTreeMap::new();
        for pod in &self.members {
            *pods.entry(mounted(pod)).or_default() += 1;
        }
        pods
    }

    /// Members on these volumes that are ready.
    pub fn ready<'a>(&'a self, volumes: &'a VolumeSet) -> impl Iterator<Item = &'a Pod> {
        self.members.iter().filter(move |pod| is_ready(pod) && mounted(pod) == *volumes)
    }

    /// Claims by the set that they belong to; the number at the end of their names, and whether they stay.
    fn sets(&self) -> BTreeMap<VolumeSet, Vec<(u32, bool)>> {
        let name = etcd_name(&self.hosted);
        let mut sets: BTreeMap<VolumeSet, Vec<(u32, bool)>> = BTreeMap::new();
        for claim in &self.claims {
            if let Some((set, ordinal)) = set_of(&claim.name_any(), name) {
                sets.entry(set).or_default().push((ordinal, claim.metadata.deletion_timestamp.is_none()));
            }
        }
        sets
    }

    /// Sets of volumes that exist wholly and stay. One that is being released counts until nothing of it is left.
    #[must_use]
    pub fn volumes(&self, notes: &Notes, released: Option<&VolumeSet>) -> BTreeSet<VolumeSet> {
        let deployed = self.deployed();
        let members = |set: &VolumeSet| {
            let deployed = deployed.iter().map(|d| (&d.volumes, d.settings.replicas));
            let old = notes.old.iter().map(|(set, settings)| (set, settings.replicas));
            old.chain(deployed).find(|(other, _)| *other == set).map_or(1, |(_, replicas)| replicas)
        };
        let is_whole = |set: &VolumeSet, claims: &[(u32, bool)]| {
            if released == Some(set) {
                return claims.iter().any(|(_, stays)| *stays);
            }
            (0..members(set)).all(|ordinal| claims.contains(&(ordinal, true)))
        };
        let sets = self.sets().into_iter();
        sets.filter(|(set, claims)| is_whole(set, claims)).map(|(set, _)| set).collect()
    }

    /// Claims of a set.
    pub fn claims_of(&self, volumes: &VolumeSet) -> impl Iterator<Item = &PersistentVolumeClaim> {
        let name = etcd_name(&self.hosted);
        let of_set = move |claim: &&PersistentVolumeClaim| {
            set_of(&claim.name_any(), name).is_some_and(|(set, _)| set == *volumes)
        };
        self.claims.iter().filter(of_set)
    }
}

fn count(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

/// What a HostedEtcd refers to.
#[must_use]
pub fn targets(hosted: &HostedEtcd) -> Targets {
    Targets { etcd: etcd_name(hosted).to_owned(), api: hosted.spec.api_server_ref.name.clone() }
}

/// Stands for a HostedEtcd that does not exist any more: it refers to the same Etcd and Deployment, and is never written.
#[must_use]
pub fn stand_in(namespace: &str, name: &str, targets: &Targets) -> HostedEtcd {
    let metadata = ObjectMeta {
        name: Some(name.to_owned()),
        namespace: Some(namespace.to_owned()),
        ..ObjectMeta::default()
    };
    let spec = HostedEtcdSpec {
        etcd_ref: EtcdRef { kind: None, name: targets.etcd.clone() },
        api_server_ref: Reference { name: targets.api.clone() },
        ..HostedEtcdSpec::default()
    };
    HostedEtcd { metadata, spec, ..HostedEtcd::default() }
}

/// Name of the Etcd or StatefulSet.
#[must_use]
pub fn etcd_name(hosted: &HostedEtcd) -> &str {
    &hosted.spec.etcd_ref.name
}

/// Whether the members are run from an Etcd, and not by a StatefulSet of somebody else.
#[must_use]
pub fn is_etcd(hosted: &HostedEtcd) -> bool {
    hosted.spec.etcd_ref.kind.as_deref().is_none_or(|kind| kind == "Etcd")
}

fn of_set(set: &StatefulSet) -> Option<Deployed> {
    let spec = set.spec.as_ref()?;
    let template = spec.volume_claim_templates.as_ref()?.first()?;
    let claim = template.spec.as_ref();
    let size = claim.and_then(|claim| claim.resources.as_ref()?.requests.as_ref()?.get("storage").cloned());
    Some(Deployed {
        volumes: VolumeSet(template.name_any()),
        settings: Settings {
            replicas: spec.replicas.unwrap_or(1).try_into().unwrap_or_default(),
            size: size.map(|size| size.0).unwrap_or_default(),
            storage_class: claim.and_then(|claim| claim.storage_class_name.clone()).unwrap_or_default(),
        },
        fence: set.annotations().get(FENCE).cloned().unwrap_or_default(),
    })
}

/// The volumes that a Pod of a StatefulSet mounts: the name of its claim without its own.
fn mounted(pod: &Pod) -> VolumeSet {
    let end = format!("-{}", pod.name_any());
    let volumes = pod.spec.as_ref().and_then(|spec| spec.volumes.as_ref());
    let mut claims = volumes.into_iter().flatten().filter_map(|v| v.persistent_volume_claim.as_ref());
    let set = claims.find_map(|claim| claim.claim_name.strip_suffix(&end));
    VolumeSet(set.unwrap_or_default().to_owned())
}

/// `<set>-<etcd>-<ordinal>`.
fn set_of(claim: &str, etcd: &str) -> Option<(VolumeSet, u32)> {
    let (rest, ordinal) = claim.rsplit_once('-')?;
    let set = rest.strip_suffix(etcd)?.strip_suffix('-')?;
    Some((VolumeSet(set.to_owned()), ordinal.parse().ok()?))
}

/// Whether a Pod is ready and stays.
#[must_use]
pub fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_ref());
    let ready = conditions.into_iter().flatten().any(|c| c.type_ == "Ready" && c.status == "True");
    ready && pod.metadata.deletion_timestamp.is_none()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stands_for_a_hosted_etcd_refers_to_the_same() {
        let expected = Targets { etcd: "main".to_owned(), api: "kube-apiserver".to_owned() };
        let hosted = stand_in("shoot", "cluster", &expected);
        assert_eq!((targets(&hosted), is_etcd(&hosted)), (expected, true));
        assert_eq!((hosted.namespace().as_deref(), hosted.uid()), (Some("shoot"), None));
    }

    #[test]
    fn claims_are_told_apart() {
        let set = |claim, etcd| set_of(claim, etcd).map(|(set, ordinal)| (set.0, ordinal));
        assert_eq!(set("data-main-0", "main"), Some(("data".to_owned(), 0)));
        assert_eq!(set("20261121-x-main-12", "main"), Some(("20261121-x".to_owned(), 12)));
        assert_eq!(set("data-other-0", "main"), None);
        assert_eq!(set("main-0", "main"), None);
        assert_eq!(set("data-main", "main"), None);
    }
}
