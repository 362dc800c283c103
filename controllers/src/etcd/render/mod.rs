//! An Etcd as the objects that make it run. Pure: the same Etcd and [`Layout`] give the same objects.

mod config;
mod pod;
mod services;
mod stateful_set;

use k8s_openapi::{api::apps::v1::StatefulSet, apimachinery::pkg::apis::meta::v1::OwnerReference};
use kube::{Resource, ResourceExt};
use serde_json::{Value, json};

use super::{
    api::{Etcd, Existing},
    names,
};

pub use config::{checksum, config, record_of_owner};
pub(crate) use pod::{container_security, pod_security};
pub(super) use pod::{security, store};

/// Where things are in a container.
pub(crate) mod paths {
    /// The volume of the member.
    pub const DATA: &str = "/var/etcd/data";
    /// The configuration of the agents.
    pub const CONFIG: &str = "/var/etcd/config";
    /// Credentials of the store.
    pub const STORE: &str = "/var/etcd/store";
    /// Credentials of the store that is continued.
    pub const SOURCE: &str = "/var/etcd/source";
    /// A store that is a directory of the node.
    pub const LOCAL_STORE: &str = "/var/etcd/local-store";
    /// The same of the store that is continued.
    pub const LOCAL_SOURCE: &str = "/var/etcd/local-source";
    /// Of etcd and the agent as servers.
    pub const SERVER_TLS: &str = "/var/etcd/tls/server";
    /// Of the agent as a client.
    pub const CLIENT_TLS: &str = "/var/etcd/tls/client";
    /// Of members as servers and clients of each other.
    pub const PEER_TLS: &str = "/var/etcd/tls/peer";
}

/// What is decided beside the Etcd.
#[derive(Clone, Debug)]
pub struct Layout {
    /// Image, unless the Etcd names one.
    pub image: String,
    /// Pods, and members of this Etcd.
    pub members: u32,
    /// Whether there is a cluster, on the volumes or elsewhere: it is joined and not founded.
    pub founded: bool,
    /// The etcd that members join, while members of it are left.
    pub existing: Option<Existing>,
    /// Whether the first member follows the snapshots of another etcd until it founds this one, or did so.
    pub standby: bool,
    /// The StatefulSet, where one exists with these volumes. What cannot be changed of it is taken over.
    pub exists: Option<StatefulSet>,
}

/// An object, and where it is written.
#[derive(Clone, Debug)]
pub struct Rendered {
    /// Path below the namespace, such as `services`.
    pub kind: Kind,
    /// The object as it is applied.
    pub object: Value,
}

/// Kubernetes kind of a rendered object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// ServiceAccount.
    ServiceAccount,
    /// PodDisruptionBudget.
    DisruptionBudget,
    /// Service.
    Service,
    /// ConfigMap.
    ConfigMap,
    /// StatefulSet.
    StatefulSet,
    /// Job.
    Job,
}

/// Everything that has to be there before the StatefulSet, in this order.
#[must_use]
pub fn surroundings(etcd: &Etcd, layout: &Layout) -> Vec<Rendered> {
    let of = |kind, object| Rendered { kind, object };
    vec![
        service_account(etcd),
        of(Kind::DisruptionBudget, services::disruption_budget(etcd, layout)),
        of(Kind::Service, services::peer(etcd)),
        of(Kind::Service, services::client(etcd, layout)),
        of(Kind::ConfigMap, services::config_map(etcd, &config(etcd, layout))),
    ]
}

/// Who Pods run as.
#[must_use]
pub fn service_account(etcd: &Etcd) -> Rendered {
    Rendered { kind: Kind::ServiceAccount, object: services::service_account(etcd) }
}

/// Renders the StatefulSet of an Etcd for this layout.
#[must_use]
pub fn stateful_set(etcd: &Etcd, layout: &Layout) -> Value {
    stateful_set::stateful_set(etcd, layout)
}

/// Metadata of an object of this Etcd, which goes when the Etcd goes.
pub(super) fn metadata(etcd: &Etcd, name: &str) -> Value {
    json!({
        "name": name, "namespace": etcd.namespace(), "labels": names::labels(&etcd.name_any()),
        "ownerReferences": [owner(etcd)],
    })
}

fn owner(etcd: &Etcd) -> OwnerReference {
    OwnerReference {
        api_version: Etcd::api_version(&()).into_owned(),
        kind: Etcd::kind(&()).into_owned(),
        name: etcd.name_any(),
        uid: etcd.uid().unwrap_or_default(),
        controller: Some(true),
        block_owner_deletion: Some(true),
    }
}
