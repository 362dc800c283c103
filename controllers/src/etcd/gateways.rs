//! The gateways beside the members of an Etcd: told whom to lead clients to, and asked to hold writes while the leader moves.

use std::{sync::Arc, time::Duration};

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use repot_api::names::WITHOUT_GATEWAYS;
use repot_etcd_core::agent::config::GatewayMember;
use repot_etcd_core::members::{Role, Side};

use super::{api::Etcd, names, observe::Observed};
use crate::members::{DesiredMembership, Driver, GatewayEndpoint, HttpGateways, MemberSlot, Outcome, Pass};

/// How long writes may be held. Half of it is for those that are on their way, and a leader moves within an election timeout.
const HOLD: Duration = Duration::from_secs(4);

/// Whether somebody has said that gateways hold up nothing.
#[must_use]
pub fn are_ignored(etcd: &Etcd) -> bool {
    etcd.annotations().get(WITHOUT_GATEWAYS).is_some_and(|value| value == "true")
}

/// A driver behind the gateways of an Etcd, where it has some.
pub fn place(driver: Driver, http: &reqwest::Client, asked: bool) -> (Driver, Option<Arc<HttpGateways>>) {
    if !asked {
        return (driver, None);
    }
    let gateways = Arc::new(HttpGateways::new(http.clone(), Vec::new()));
    (driver.behind(gateways.clone(), HOLD), Some(gateways))
}

/// Gateways of the Pods that run, and where each reaches members.
pub fn endpoints(observed: &Observed, wanted: &DesiredMembership) -> Vec<GatewayEndpoint> {
    let etcd = &observed.etcd;
    let (own, others) = match observed.side() {
        // Others have slots here only where they never come back.
        Side::Source => (&wanted.source, &Vec::new()),
        Side::Destination => (&wanted.destination, &wanted.source),
    };
    let member = |near| {
        move |slot: &MemberSlot| GatewayMember { name: slot.name.clone(), url: slot.client_url.clone(), near }
    };
    let members: Vec<_> = own.iter().map(member(true)).chain(others.iter().map(member(false))).collect();
    let places = (0..).take(own.len()).filter(|at| observed.pod(*at).is_some_and(runs));
    places.map(|at| GatewayEndpoint { agent: names::agent_url(etcd, at), members: members.clone() }).collect()
}

/// Whether its agent may have clients: it is ready only after that is known.
fn runs(pod: &Pod) -> bool {
    let containers = pod.status.iter().flat_map(|status| status.container_statuses.iter().flatten());
    containers.into_iter().any(|one| one.state.as_ref().is_some_and(|state| state.running.is_some()))
}

/// Where clients may just have left a member for good.
const LEAVING: [&str; 2] = ["ClientsNotGone", "OutcomeUnknown"];

/// Members of this Etcd whose Pods are ending, or are not there.
pub fn away(observed: &Observed) -> Vec<String> {
    let is_here =
        |at| observed.pod(at).is_some_and(|pod| runs(pod) && pod.metadata.deletion_timestamp.is_none());
    let away = (0..observed.places()).filter(|at| !is_here(*at));
    away.map(|at| names::member(&observed.etcd, at)).collect()
}

/// Leads clients to all members that vote but those that are `away`, by what a pass saw before it changed nothing.
pub async fn lead(gateways: &HttpGateways, pass: &Pass, away: &[String]) {
    let Some(seen) = pass.seen.as_ref().filter(|seen| seen.settled) else { return };
    match &pass.outcome {
        Outcome::Changed(_) => return,
        Outcome::Waiting(why) if LEAVING.contains(&why.reason) => return,
        Outcome::Waiting(_) | Outcome::Done | Outcome::Refused(_) => {}
    }
    let voters = seen.members.iter().filter(|member| member.role == Role::Voter && member.started);
    let voters: Vec<String> = voters.map(|member| member.slot.clone()).collect();
    let here: Vec<String> = voters.iter().filter(|slot| !away.contains(slot)).cloned().collect();
    let voters = if here.is_empty() { voters } else { here };
    if let Err(error) = gateways.set_backends(&voters).await {
        tracing::debug!(error, "a gateway was not told of the members; the next pass tells it again");
    }
}
