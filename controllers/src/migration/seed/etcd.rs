//! The Etcds of a control plane: the main one, and that of events.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Pod;
use kube::{Client, ResourceExt};
use repot_etcd::{digest, link};
use repot_etcd_core::timing::epoch;
use repot_plan::migration::observed::{EtcdFacts, Joining};
use tokio::time::timeout;

use super::{exposure, read::list, scale::members, workloads};
use crate::{
    errors::causes,
    etcd::{
        access, agents,
        api::{Etcd, FENCE},
        names::{COMPONENT, PART_OF, peer_service},
        status::{Condition, UnknownMember},
    },
    migration::{
        error::{Error, Result},
        names::MAIN_ETCD,
    },
};

/// Conditions of an Etcd.
const JOINED: &str = "BootstrappedWithExistingCluster";
const UPDATED: &str = "AllMembersUpdated";
const READY: &str = "AllMembersReady";
const SCALED: &str = "ScaleOperationComplete";

/// How long the quorum has to be lost before anything is concluded from that.
const LEAST_LOSS: SignedDuration = SignedDuration::from_mins(1);

/// How long a quorum may take for its answer.
const ANSWER: Duration = Duration::from_secs(3);

async fn ask_agents(client: &Client, etcd: &Etcd, agents: &[String]) -> Result<()> {
    let (_, access) = access::access(client, etcd).await?;
    agents::check_owner(&access::agent_client(&access)?, agents).await;
    Ok(())
}

/// How far members have joined another etcd, by what the operator of the Etcd says.
fn joining(etcd: &Etcd) -> Joining {
    let joined = etcd.status.as_ref().and_then(|status| status.bootstrap_with_existing_cluster.as_ref());
    match joined {
        Some(joined) if joined.released => Joining::Released,
        Some(_) if holds(etcd, JOINED) => Joining::Joined,
        Some(_) | None => Joining::Apart,
    }
}

/// Whether all members are ready, run as the Etcd says now, and are known by the URLs that it says.
fn is_settled(etcd: &Etcd) -> bool {
    let observed = etcd.status.as_ref().and_then(|status| status.observed_generation);
    observed == etcd.metadata.generation && [UPDATED, READY, SCALED].iter().all(|kind| holds(etcd, kind))
}

fn holds(etcd: &Etcd, kind: &str) -> bool {
    conditions(etcd).any(|condition| condition.kind == kind && condition.status == "True")
}

fn is_being_left(etcd: &Etcd) -> bool {
    let joined = etcd.status.as_ref().and_then(|status| status.bootstrap_with_existing_cluster.as_ref());
    joined.is_some_and(|joined| joined.being_left)
}

/// Whether the operator has seen no quorum for longer than an election, or the restart of a few members, takes.
fn has_lost_quorum(etcd: &Etcd, now: Timestamp) -> bool {
    let is_long =
        |since: &str| since.parse::<Timestamp>().is_ok_and(|since| now.duration_since(since) >= LEAST_LOSS);
    conditions(etcd)
        .any(|it| it.kind == "Ready" && it.reason == "QuorumLost" && is_long(&it.last_transition_time))
}

/// Members of the etcd that are not its own, nor of one that it joins.
#[must_use]
pub fn unknown_members(etcd: &Etcd) -> &[UnknownMember] {
    let unknown = etcd.status.as_ref().and_then(|status| status.unknown_members.as_ref());
    unknown.map_or(&[], |unknown| &unknown.members)
}

fn conditions(etcd: &Etcd) -> impl Iterator<Item = &Condition> {
    etcd.status.iter().flat_map(|status| &status.conditions)
}

/// The Etcds of a namespace and the Pods of their members.
#[derive(Clone, Debug, Default)]
pub struct Etcds {
    /// All Etcds of the namespace.
    pub all: Vec<Etcd>,
    members: Vec<Pod>,
}

impl Etcds {
    /// Reads them.
    ///
    /// # Errors
    /// [`Error::Read`].
    pub async fn read(client: &Client, namespace: &str) -> Result<Self> {
        let labels = format!("{COMPONENT}=etcd");
        let (all, members) =
            futures::try_join!(list::<Etcd>(client, namespace, ""), list::<Pod>(client, namespace, &labels))?;
        Ok(Self { all, members })
    }

    /// The Etcd that holds all but events.
    #[must_use]
    pub fn main(&self) -> Option<&Etcd> {
        self.all.iter().find(|etcd| etcd.name_any() == MAIN_ETCD)
    }

    /// The main Etcd.
    ///
    /// # Errors
    /// [`Error::Missing`] where there is none.
    pub fn need_main(&self) -> Result<&Etcd> {
        self.main().ok_or_else(|| Error::Missing(format!("Etcd {MAIN_ETCD}")))
    }

    /// Etcds that hold events and nothing else that has to survive.
    pub fn others(&self) -> impl Iterator<Item = &Etcd> {
        self.all.iter().filter(|etcd| etcd.name_any() != MAIN_ETCD)
    }

    /// The main Etcd as the plan sees it; Pods of all Etcds count. Members are asked for their revision only where `ask` says so.
    pub async fn facts(&self, client: &Client, ask: bool) -> EtcdFacts {
        // Members may be left when their Etcd is gone.
        let pods = workloads::count(self.members.iter()).0;
        let Some(main) = self.main() else { return EtcdFacts { pods, ..EtcdFacts::default() } };
        let revision = if ask { self.revision(client, main).await } else { None };
        EtcdFacts {
            wanted: Some(main.spec.replicas),
            members: members(main),
            volumes: main.volumes(),
            pods,
            ready: u32::try_from(self.ready_of(main).count()).unwrap_or(u32::MAX),
            has_gateway: main.spec.etcd.gateway.is_some(),
            revision,
            epoch: main
                .spec
                .backup
                .owner_check
                .as_ref()
                .and_then(|check| epoch(&check.id))
                .unwrap_or_default(),
            fence: main.annotations().get(FENCE).cloned().unwrap_or_default(),
            is_being_left: is_being_left(main),
            has_lost_quorum: has_lost_quorum(main, Timestamp::now()),
            unknown_members: u32::try_from(unknown_members(main).len()).unwrap_or(u32::MAX),
            joining: joining(main),
            is_exposed: exposure::is_exposed(main),
            is_advertised: exposure::is_advertised(main),
            is_settled: is_settled(main),
        }
    }

    /// The revision that a quorum answers with, by a linearizable read.
    async fn revision(&self, client: &Client, etcd: &Etcd) -> Option<u64> {
        match timeout(ANSWER, self.ask(client, etcd)).await {
            Ok(Ok(revision)) => revision,
            Ok(Err(error)) => {
                tracing::debug!(etcd = etcd.name_any(), error = causes(&error), "no quorum answers");
                None
            }
            Err(_) => None,
        }
    }

    async fn ask(&self, client: &Client, etcd: &Etcd) -> Result<Option<u64>> {
        let endpoints = self.endpoints(etcd);
        if endpoints.is_empty() {
            return Ok(None);
        }
        let (_, access) = access::access(client, etcd).await?;
        let options = link::Options { endpoints, ..access };
        let members = link::connect(&options).await.map_err(Error::Connect)?;
        let seen = digest::glance(&members).await;
        Ok(seen.ok().and_then(|seen| u64::try_from(seen.revision.0).ok()))
    }

    /// Has the members of the main Etcd query the owner record at once. Nothing depends on it but time, so nobody waits for them.
    ///
    /// # Errors
    /// [`Error::Missing`] where there is no main Etcd.
    pub fn check_owner(&self, client: &Client) -> Result<()> {
        let main = self.need_main()?.clone();
        let agents: Vec<String> = self.urls(&main, self.pods_of(&main), main.spec.agent_port()).collect();
        let client = client.clone();
        tokio::spawn(async move {
            let asked = timeout(ANSWER, ask_agents(&client, &main, &agents)).await;
            if let Ok(Err(error)) = asked {
                let etcd = main.name_any();
                tracing::debug!(
                    etcd,
                    error = causes(&error),
                    "agents are not asked to query the owner record"
                );
            }
        });
        Ok(())
    }

    /// Client URLs of members that are ready.
    fn endpoints(&self, etcd: &Etcd) -> Vec<String> {
        self.urls(etcd, self.ready_of(etcd), etcd.spec.etcd.client_port()).collect()
    }

    /// URLs of a port of Pods of an Etcd.
    fn urls<'a>(
        &self,
        etcd: &Etcd,
        pods: impl Iterator<Item = &'a Pod>,
        port: u16,
    ) -> impl Iterator<Item = String> {
        let (name, namespace) = (etcd.name_any(), etcd.namespace().unwrap_or_default());
        let scheme = if etcd.spec.etcd.client_url_tls.is_some() { "https" } else { "http" };
        let service = peer_service(&name);
        pods.map(move |pod| format!("{scheme}://{}.{service}.{namespace}.svc:{port}", pod.name_any()))
    }

    /// Pods of its members that are ready.
    fn ready_of(&self, etcd: &Etcd) -> impl Iterator<Item = &Pod> {
        self.pods_of(etcd).filter(|pod| workloads::is_ready(pod))
    }

    /// Pods of its members.
    fn pods_of(&self, etcd: &Etcd) -> impl Iterator<Item = &Pod> {
        let name = etcd.name_any();
        self.members.iter().filter(move |pod| pod.labels().get(PART_OF) == Some(&name))
    }
}
