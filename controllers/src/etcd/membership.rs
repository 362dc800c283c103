//! Members of a cluster that exists: one change of membership a pass, by [`crate::members`], and what is seen on the way.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, PoisonError},
    time::{Duration, Instant},
};

use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::{Client, ResourceExt};
use repot_api::conditions::Reason;
use repot_etcd::link;
use repot_etcd_core::{
    agent::http::AgentStatus,
    members::{Desired, Side},
};
use tokio::sync::Mutex;

use super::{
    Result, access, agents,
    api::Etcd,
    gateways, names,
    observe::{Observed, is_ready},
    status::UnknownMember,
};
use crate::{
    members::{DesiredMembership, Driver, HttpGateways, Limits, MemberSlot, Outcome, Pass, Seen},
    term::LeaseDeadline,
};

/// Drivers of all Etcds, by UID: what they have seen of connections is worth keeping from pass to pass.
pub struct Memberships {
    links: std::sync::Mutex<BTreeMap<String, Arc<Mutex<Link>>>>,
    term: LeaseDeadline,
}

/// The ways to one etcd, made from certificates of one version.
struct Link {
    versions: Vec<String>,
    driver: Driver,
    gateways: Option<Arc<HttpGateways>>,
    http: reqwest::Client,
    /// The member that is being left for its Pod to be replaced, and since when.
    leaving: Option<(String, Instant)>,
}

/// A Pod is replaced after this time, although clients are still at its member.
const LEAVE_LIMIT: Duration = Duration::from_secs(60);

impl Link {
    /// Whether it can be kept.
    fn is_for(&self, etcd: &Etcd, versions: &[String]) -> bool {
        self.versions == versions && self.gateways.is_some() == etcd.spec.etcd.gateway.is_some()
    }
}

/// What was seen of the members, and what became of them.
#[derive(Clone, Debug)]
pub struct MembershipStatus {
    /// By the members themselves; nothing where none answered, or none was asked.
    pub seen: Option<Seen>,
    /// What was done or is waited for.
    pub outcome: Option<Outcome>,
    /// What agents say, by place.
    pub said: Vec<Option<AgentStatus>>,
}

impl MembershipStatus {
    /// Pods that the members of this Etcd need, by a list that was read behind every change; nothing where there is none. Where there
    /// are members that are nobody's, as after a change of peer URLs, some of them may be ours.
    #[must_use]
    pub fn pods(&self, own: Side) -> Option<u32> {
        let seen = self.seen.as_ref().filter(|seen| seen.settled && seen.obstacle().is_none())?;
        let places = seen.members.iter().filter(|member| member.side == own).map(|member| member.ordinal + 1);
        let pods = places.max().unwrap_or_default();
        // An etcd has members; only one that is elsewhere can have none here.
        (pods > 0 || own == Side::Destination).then_some(pods)
    }

    /// Whether members of this Etcd are all that the etcd has, by a list that was read behind every change.
    #[must_use]
    pub fn are_alone(&self) -> bool {
        let seen = self.seen.as_ref().filter(|seen| seen.settled && seen.obstacle().is_none());
        seen.is_some_and(|seen| !seen.members.iter().any(|member| member.side == Side::Source))
    }

    /// How many members the etcd that was joined has of its own, by a list that was read behind every change.
    #[must_use]
    pub fn others(&self) -> Option<usize> {
        let seen = self.seen.as_ref().filter(|seen| seen.settled)?;
        Some(seen.members.iter().filter(|member| member.side == Side::Source).count())
    }

    /// Whether members are to get other peer URLs.
    #[must_use]
    pub fn are_moving(&self) -> bool {
        self.seen.as_ref().is_some_and(|seen| seen.members.iter().any(|one| one.moved))
    }

    /// Whether all members are well, those elsewhere included.
    #[must_use]
    pub fn are_well(&self) -> bool {
        self.seen.as_ref().is_some_and(|seen| seen.settled && seen.members.iter().all(|one| one.healthy))
    }
}

impl MembershipStatus {
    /// Claims of places that no member has, by a list that was read behind every change, and that no Pod uses.
    #[must_use]
    pub fn claims_to_delete<'a>(&self, observed: &'a Observed) -> Vec<&'a PersistentVolumeClaim> {
        let settled = self.seen.as_ref().is_some_and(|seen| seen.settled) && observed.is_bootstrapped();
        let (Some(pods), Some(running), true) = (self.pods(observed.side()), observed.running(), settled)
        else {
            return Vec::new();
        };
        let beyond = observed.claims_beyond(pods.max(running)).into_iter();
        let idle = beyond
            .filter(|(at, claim)| observed.pod(*at).is_none() && claim.metadata.deletion_timestamp.is_none());
        idle.map(|(_, claim)| claim).collect()
    }
}

impl Memberships {
    /// None yet; members are changed while the term runs.
    #[must_use]
    pub fn new(term: LeaseDeadline) -> Self {
        Self { links: std::sync::Mutex::default(), term }
    }

    /// The same as [`Memberships::pass`]; nothing where members cannot be asked of an Etcd that goes, and that joined no other.
    ///
    /// # Errors
    /// As [`Memberships::pass`].
    pub async fn ask(&self, client: &Client, observed: &Observed) -> Result<Option<MembershipStatus>> {
        match self.pass(client, observed).await {
            Ok(known) => Ok(Some(known)),
            // Certificates may have been deleted before the Etcd, and what nobody needs has to go without them.
            Err(error) if observed.is_ending() && observed.existing().is_none() => {
                let etcd = observed.etcd.name_any();
                tracing::warn!(etcd, %error, "members are not asked whether others need them");
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Looks at the members, and makes the next change where `changes` allows it.
    ///
    /// # Errors
    /// Where certificates cannot be read or used.
    pub async fn pass(&self, client: &Client, observed: &Observed) -> Result<MembershipStatus> {
        let etcd = &observed.etcd;
        let (versions, access) = access::access(client, etcd).await?;
        let link = self.link(etcd, versions, access)?;
        // Passes of one Etcd follow each other, so nobody else waits for it.
        let mut link = link.lock().await;
        let places = places(observed);
        let agents: Vec<String> = (0..places).map(|at| names::agent_url(etcd, at)).collect();
        let said = agents::ask(&link.http, &agents).await;
        if !observed.is_founded() {
            return Ok(MembershipStatus { seen: None, outcome: None, said });
        }
        let wanted = wanted(observed, places, &said);
        let seen = match link.driver.look(&wanted).await {
            Ok(seen) => seen,
            Err(outcome) => return Ok(MembershipStatus { seen: None, outcome: Some(outcome), said }),
        };
        let known = MembershipStatus { seen: Some(seen), outcome: None, said };
        // A member that was removed must not come back on its old volume, so nobody is added before that is gone.
        let left =
            known.pods(observed.side()).map(|pods| observed.claims_beyond(pods).len()).unwrap_or_default();
        if left > 0 && observed.is_bootstrapped() && observed.wanted() > 0 {
            let message = format!("{left} volumes of members that were removed are not gone yet");
            return Ok(MembershipStatus {
                outcome: Some(Outcome::Waiting(Reason::new("VolumesEnding", message))),
                ..known
            });
        }
        let said = known.said;
        if let Some(gateways) = &link.gateways {
            gateways.set_endpoints(gateways::endpoints(observed, &wanted), gateways::are_ignored(etcd));
        }
        let pass = link.driver.pass(&wanted).await;
        if let Some(gateways) = &link.gateways {
            gateways::lead(gateways, &pass, &gateways::away(observed)).await;
        }
        let Pass { seen, outcome, .. } = pass;
        Ok(MembershipStatus { seen, outcome: Some(outcome), said })
    }

    /// Leads clients away from the member at a place, so that its Pod can be replaced. Gives why that has to wait.
    ///
    /// # Errors
    /// Where certificates cannot be read or used.
    pub async fn vacate(
        &self,
        client: &Client,
        observed: &Observed,
        known: Option<&MembershipStatus>,
        at: u32,
    ) -> Result<Option<String>> {
        let Some(known) = known.filter(|_| observed.pod(at).is_some_and(is_ready)) else { return Ok(None) };
        let Some(seen) = &known.seen else { return Ok(None) };
        let etcd = &observed.etcd;
        let (versions, access) = access::access(client, etcd).await?;
        let link = self.link(etcd, versions, access)?;
        let mut link = link.lock().await;
        let slot = names::member(etcd, at);
        let begun = match &link.leaving {
            Some((leaving, begun)) if *leaving == slot => *begun,
            _ => link.leaving.insert((slot.clone(), Instant::now())).1,
        };
        let wanted = wanted(observed, places(observed), &known.said);
        let why = match link.driver.vacate(&wanted, seen, &slot).await {
            Outcome::Done => None,
            Outcome::Changed(_) => Some(format!("{slot} leads no more")),
            Outcome::Waiting(why) | Outcome::Refused(why) => Some(why.message),
        };
        let why = why.filter(|why| {
            let is_late = begun.elapsed() >= LEAVE_LIMIT;
            if is_late {
                tracing::warn!(etcd = etcd.name_any(), slot, why, "clients are still at the member");
            }
            !is_late
        });
        if why.is_none() {
            link.leaving = None;
        }
        Ok(why)
    }

    /// Drops the driver, gateways and HTTP client that are kept for an Etcd under its UID.
    pub fn forget(&self, etcd: &Etcd) {
        let mut links = self.links.lock().unwrap_or_else(PoisonError::into_inner);
        links.remove(&etcd.uid().unwrap_or_default());
    }

    fn link(&self, etcd: &Etcd, versions: Vec<String>, access: link::Options) -> Result<Arc<Mutex<Link>>> {
        let mut links = self.links.lock().unwrap_or_else(PoisonError::into_inner);
        let uid = etcd.uid().unwrap_or_default();
        if let Some(link) = links.get(&uid)
            && link.try_lock().is_ok_and(|link| link.is_for(etcd, &versions))
        {
            return Ok(link.clone());
        }
        let http = access::agent_client(&access)?;
        let driver = Driver::new(access, Limits::default()).during(self.term.clone());
        let (driver, gateways) = gateways::place(driver, &http, etcd.spec.etcd.gateway.is_some());
        let link = Arc::new(Mutex::new(Link { versions, driver, gateways, http, leaving: None }));
        links.insert(uid, link.clone());
        Ok(link)
    }
}

/// How many places of this Etcd there are, those that are to be given up included.
fn places(observed: &Observed) -> u32 {
    observed.etcd.spec.replicas.max(observed.places())
}

/// Slots of members that are none of this Etcd, and are to be removed from it. No client ever reaches them by that.
fn never_back(observed: &Observed) -> Vec<MemberSlot> {
    let lost = &observed.etcd.spec.etcd.lost_members;
    let unknown = observed.status().unknown_members.unwrap_or_default().members;
    let slot = |member: UnknownMember| {
        let url = member.peer_urls.first()?.clone();
        let name = if member.name.is_empty() { member.id } else { member.name };
        Some(MemberSlot { name, peer_urls: member.peer_urls, client_url: url })
    };
    unknown.into_iter().filter(|member| lost.contains(&member.id)).filter_map(slot).collect()
}

fn wanted(observed: &Observed, places: u32, said: &[Option<AgentStatus>]) -> DesiredMembership {
    let etcd = &observed.etcd;
    let own: Vec<MemberSlot> = (0..places)
        .map(|at| MemberSlot {
            name: names::member(etcd, at),
            peer_urls: names::peer_urls(etcd, at),
            client_url: names::client_url(etcd, at),
        })
        .collect();
    let lost = said.iter().zip(&own).filter(|(said, _)| said.as_ref().is_some_and(|said| said.needs_rejoin));
    let lost: BTreeSet<String> = lost.map(|(_, slot)| slot.name.clone()).collect();
    let readdress = Some(observed.side());
    let replicas = usize::try_from(observed.wanted()).unwrap_or_default();
    let Some(existing) = observed.existing() else {
        let desired =
            Desired { source: replicas, destination: 0, source_before: replicas, release_source: false };
        // Those that never come back leave as members of another seed do.
        return DesiredMembership {
            source: own,
            destination: never_back(observed),
            desired,
            lost,
            readdress,
        };
    };
    let others: Vec<MemberSlot> = existing
        .endpoints()
        .map(|(member, endpoint)| MemberSlot {
            name: member.name.clone(),
            peer_urls: member.peer_urls.clone(),
            client_url: endpoint.to_owned(),
        })
        .collect();
    let before = others.len();
    let joins = etcd.spec.etcd.bootstrap_with_existing_cluster.is_some();
    // Without members here the others stay as they were: that is the way back.
    let source = if replicas == 0 { before } else { 0 };
    let desired = Desired { source, destination: replicas, source_before: before, release_source: !joins };
    DesiredMembership { source: others, destination: own, desired, lost, readdress }
}
