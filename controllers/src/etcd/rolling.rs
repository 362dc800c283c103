//! Pods of an earlier template, for the [decision](repot_etcd_core::rolling) which of them is replaced.

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use repot_etcd_core::rolling::{self, Roll};

use super::{
    membership::MembershipStatus,
    observe::{Observed, is_ready},
};

/// Label of a Pod with the revision of the template that it is made from.
const REVISION: &str = "controller-revision-hash";

/// What is done next. Nothing while the StatefulSet has not seen its template, or has another number of Pods.
#[must_use]
pub fn next(observed: &Observed, members: u32, known: Option<&MembershipStatus>) -> Roll {
    let Some(set) = &observed.set else { return Roll::Done };
    let status = set.status.clone().unwrap_or_default();
    let is_seen = status.observed_generation >= set.metadata.generation;
    let (Some(revision), true) = (status.update_revision, is_seen) else { return Roll::Done };
    if observed.running() != Some(members) {
        return Roll::Done;
    }
    let leader = leader(observed, known);
    let pod = |at: u32| {
        let pod = observed.pod(at)?;
        Some(rolling::Pod {
            outdated: pod.labels().get(REVISION) != Some(&revision),
            ready: is_ready(pod),
            ending: pod.metadata.deletion_timestamp.is_some(),
            leads: leader == Some(at),
        })
    };
    let pods: Vec<Option<rolling::Pod>> = (0..members).map(pod).collect();
    // While a cluster is founded there is nobody to ask.
    let is_well = |known: &MembershipStatus| known.are_well() && !(is_strict(observed) && known.are_moving());
    let well = !observed.is_founded() || known.is_some_and(is_well);
    rolling::decide(&pods, well)
}

/// Whether members verify from where others connect. One that does so, and that others still reach by an earlier address through a load
/// balancer, would lose these: all get their addresses first.
fn is_strict(observed: &Observed) -> bool {
    let tls = observed.etcd.spec.etcd.peer_url_tls.as_ref();
    tls.is_some_and(|tls| !tls.skip_client_san_verification)
}

/// The Pod that is replaced next, and its place.
#[must_use]
pub fn to_replace<'a>(
    observed: &'a Observed,
    members: u32,
    known: Option<&MembershipStatus>,
) -> Option<(u32, &'a Pod)> {
    match next(observed, members, known) {
        Roll::Replace(at) => {
            let at = u32::try_from(at).ok()?;
            Some((at, observed.pod(at)?))
        }
        Roll::Done | Roll::Wait(_) => None,
    }
}

fn leader(observed: &Observed, known: Option<&MembershipStatus>) -> Option<u32> {
    let seen = known?.seen.as_ref()?;
    let own = observed.side();
    let leads = seen.members.iter().find(|member| Some(member.id) == seen.leader && member.side == own);
    leads.map(|member| member.ordinal)
}
