//! What the controller of a seed observes of an etcd there, and of how other seeds reach its members.

use serde::{Deserialize, Serialize};

/// The etcd of a control plane at one seed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EtcdFacts {
    /// `spec.replicas` of the Etcd; `None` where there is no Etcd.
    pub wanted: Option<u32>,
    /// Members that it has while the Shoot is not hibernated.
    pub members: u32,
    /// Name of the set of volumes that the Etcd uses.
    pub volumes: String,
    /// Pods of members that exist, whatever their volumes.
    pub pods: u32,
    /// Members that are ready.
    pub ready: u32,
    /// Whether members have gateways, which take connections before the etcd serves, and hold writes while members restart.
    pub has_gateway: bool,
    /// Revision that a quorum answers with; `None` where no quorum answers.
    pub revision: Option<u64>,
    /// Epoch of the owner ID that the members check.
    pub epoch: u64,
    /// Who wrote the Etcd last.
    pub fence: String,
    /// Whether a member of the etcd that its members have joined was removed from it: from then on its own members are a quorum.
    pub is_being_left: bool,
    /// Whether it has had no quorum for a while, by what its operator says.
    pub has_lost_quorum: bool,
    /// Members of the etcd that are not its own, nor of one that it joins.
    pub unknown_members: u32,
    /// How far its members are on their way into the etcd of another one.
    pub joining: Joining,
    /// Whether anything of it is as an exposure of its members needs it.
    pub is_exposed: bool,
    /// Whether its members are known by addresses that other seeds reach, and by no others.
    pub is_advertised: bool,
    /// Whether all its members are ready and run as the Etcd says now.
    pub is_settled: bool,
}

/// How far the members of an Etcd are on their way into the etcd of another one, and how far those of the other one are on their way out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Joining {
    /// They have joined none, or not all of them have yet.
    #[default]
    Apart,
    /// All have joined, beside those of the other one.
    Joined,
    /// All have joined, and those of the other one are removed.
    Released,
}

/// A member of an etcd, as other seeds reach it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ExposedMember {
    /// Its name in etcd.
    pub name: String,
    /// Where other members reach it.
    pub peer_url: String,
    /// Where clients reach it.
    pub client_url: String,
}

/// How other seeds reach the members of an etcd.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Exposure {
    /// All members that the Etcd is to have.
    pub members: Vec<ExposedMember>,
    /// What is not there yet, in words; empty where other seeds reach all members.
    pub missing: Vec<String>,
    /// Objects that exist for it.
    pub left: Vec<String>,
}
