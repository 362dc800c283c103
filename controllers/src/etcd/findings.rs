//! What is found of volumes, cluster ids and backups. Pure.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::ResourceExt;
use repot_etcd_core::agent::http::AgentStatus;

use super::{names, pass::Pass, status::Finding};
use crate::members::Outcome;

/// All of them that there are to be.
pub(super) fn all(pass: &Pass) -> Vec<Finding> {
    let mut all = vec![volumes(pass), cluster_ids(pass)];
    all.extend(backup(pass));
    let needs_version = pass.observed.etcd.spec.etcd.peer_url_tls.as_ref();
    if needs_version.is_some_and(|tls| tls.skip_client_san_verification) {
        all.push(version(&said(pass).collect::<Vec<_>>()));
    }
    all
}

fn said<'a>(pass: &Pass<'a>) -> impl Iterator<Item = &'a AgentStatus> {
    pass.known.into_iter().flat_map(|known| known.said.iter().flatten())
}

/// Whether each member has a volume that stays.
fn volumes(pass: &Pass) -> Finding {
    let finding =
        |holds, reason, message: String| Finding { kind: "DataVolumesReady", holds, reason, message };
    let (etcd, members) = (&pass.observed.etcd, pass.planned_members());
    if members == 0 {
        return finding(None, "NoMembers", "no member is to run".to_owned());
    }
    let claims: Vec<String> =
        (0..members).map(|at| names::claim(&etcd.volumes(), &etcd.name_any(), at)).collect();
    let of = |name: &String| pass.observed.claims.iter().find(|claim| claim.name_any() == *name);
    let missing: Vec<&str> =
        claims.iter().filter(|name| !of(name).is_some_and(is_bound)).map(String::as_str).collect();
    if missing.is_empty() {
        return finding(Some(true), "VolumesBound", format!("all {members} volumes are bound"));
    }
    let message = format!("there is no bound volume that stays for {}", missing.join(", "));
    finding(Some(false), "VolumesNotBound", message)
}

fn is_bound(claim: &PersistentVolumeClaim) -> bool {
    let phase = claim.status.as_ref().and_then(|status| status.phase.as_deref());
    phase == Some("Bound") && claim.metadata.deletion_timestamp.is_none()
}

/// Whether members are of different clusters.
fn cluster_ids(pass: &Pass) -> Finding {
    if let Some(Outcome::Refused(why)) = pass.known.and_then(|known| known.outcome.as_ref())
        && why.reason == "ForeignCluster"
    {
        let (kind, holds) = ("ClusterIDMismatch", Some(true));
        return Finding { kind, holds, reason: why.reason, message: why.message.clone() };
    }
    of_clusters(&said(pass).filter_map(|said| said.cluster.as_deref()).collect())
}

/// The same of the ids that members tell.
fn of_clusters(ids: &BTreeSet<&str>) -> Finding {
    let finding =
        |holds, reason, message: String| Finding { kind: "ClusterIDMismatch", holds, reason, message };
    let list = ids.iter().copied().collect::<Vec<_>>().join(", ");
    match ids.len() {
        0 => finding(None, "NoMemberAnswers", "no member tells its cluster".to_owned()),
        1 => finding(Some(false), "SameCluster", format!("all members that answer are of cluster {list}")),
        _ => {
            let message = format!(
                "members are of clusters {list}; stop all but those with the data that is to stay, and empty their volumes"
            );
            finding(Some(true), "DifferentClusters", message)
        }
    }
}

/// Whether etcd knows the flag of `skipClientSANVerification`. An image has no version that admission could look at, so the agents
/// ask the program, and do not start one that is too old.
fn version(said: &[&AgentStatus]) -> Finding {
    let finding = |holds, reason, message| Finding { kind: "EtcdVersionSupported", holds, reason, message };
    if let Some(said) = said.iter().find(|said| said.message.starts_with("EtcdTooOld:")) {
        return finding(Some(false), "EtcdTooOld", said.message.clone());
    }
    if said.iter().any(|said| said.phase == "Serving") {
        return finding(Some(true), "FlagsSupported", "etcd runs with the flags that it needs".to_owned());
    }
    finding(None, "NoMemberAnswers", "no member that runs tells whether etcd is late enough".to_owned())
}

/// Whether what etcd holds is in the store, as the agent knows that takes the snapshots.
fn backup(pass: &Pass) -> Option<Finding> {
    pass.observed.etcd.spec.backup.store.as_ref()?;
    let finding = |holds, reason, message: String| Finding { kind: "BackupReady", holds, reason, message };
    let Some(backup) = said(pass).filter_map(|said| said.backup.as_ref()).find(|backup| backup.leads) else {
        return Some(finding(
            None,
            "NobodyTakesSnapshots",
            "no agent says that it takes snapshots".to_owned(),
        ));
    };
    Some(match (&backup.failing, &backup.full) {
        (Some(why), _) => finding(Some(false), "SnapshotsFail", why.clone()),
        (None, None) => finding(None, "NoSnapshotYet", "no full snapshot is in the store yet".to_owned()),
        (None, Some(full)) => {
            finding(Some(true), "SnapshotsTaken", format!("the newest full snapshot is {full}"))
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn etcd_that_is_too_old_is_told_of() {
        let mk = |phase: &str, message: &str| AgentStatus {
            phase: phase.to_owned(),
            message: message.to_owned(),
            ..AgentStatus::default()
        };
        let (old, serves) = (mk("Waiting", "EtcdTooOld: etcd is 3.5"), mk("Serving", "etcd runs"));
        for (said, holds, reason) in [
            (&[][..], None, "NoMemberAnswers"),
            (&[&serves], Some(true), "FlagsSupported"),
            (&[&serves, &old], Some(false), "EtcdTooOld"),
        ] {
            let finding = version(said);
            assert_eq!((finding.holds, finding.reason), (holds, reason), "{}", finding.message);
        }
    }

    #[test]
    fn members_that_tell_different_clusters_are_told_of() {
        for (ids, holds, reason) in [
            (&[][..], None, "NoMemberAnswers"),
            (&["77c2", "77c2"], Some(false), "SameCluster"),
            (&["77c2", "8e1f", "77c2"], Some(true), "DifferentClusters"),
        ] {
            let finding = of_clusters(&ids.iter().copied().collect());
            assert_eq!((finding.holds, finding.reason), (holds, reason), "{}", finding.message);
            assert!(ids.iter().all(|id| finding.message.contains(id)), "{}", finding.message);
        }
    }
}
