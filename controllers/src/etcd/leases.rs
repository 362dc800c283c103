//! A Lease for each member, as etcd-druid has them: who it is, what it is, and when it was last seen to follow the leader. Members ask
//! nothing of kube-apiserver, so the operator writes them.

use k8s_openapi::{
    api::coordination::v1::{Lease, LeaseSpec},
    apimachinery::pkg::apis::meta::v1::MicroTime,
};
use kube::{Api, Client, ResourceExt, api::ListParams};
use repot_etcd_core::members::Role;
use serde_json::{Value, json};

use super::{Error, Result, act, membership::MembershipStatus, names, observe::Observed, render::metadata};
use crate::members::{Seen, SeenMember};

/// Whether members talk by TLS.
const TLS: &str = "member.etcd.gardener.cloud/tls-enabled";
/// After so long without another look a Lease says nothing.
const SECONDS: i32 = 60;

/// A Lease that says the same is written again after so long.
const RENEW: i32 = 10;

/// Renews those of members that are well, and deletes those of places that nobody has any more.
///
/// # Errors
/// [`Error::Apply`], [`Error::Read`], [`Error::Delete`].
pub async fn renew(
    client: &Client,
    observed: &Observed,
    members: u32,
    known: Option<&MembershipStatus>,
) -> Result<()> {
    let Some(seen) = known.and_then(|known| known.seen.as_ref()) else { return Ok(()) };
    let own = observed.side();
    let there = list(client, observed).await?;
    for member in seen.members.iter().filter(|member| member.side == own && member.healthy) {
        let name = names::member(&observed.etcd, member.ordinal);
        let (holder, found) = (holder(seen, member), there.iter().find(|lease| lease.name_any() == name));
        if !found.is_some_and(|lease| is_fresh(lease, &holder)) {
            act::apply_as::<Lease>(client, &observed.etcd, &lease(observed, member, holder)).await?;
        }
    }
    let wanted: Vec<String> = (0..members).map(|at| names::member(&observed.etcd, at)).collect();
    for lease in there.iter().filter(|lease| !wanted.contains(&lease.name_any())) {
        act::delete(client, lease).await?;
    }
    Ok(())
}

fn is_fresh(lease: &Lease, holder: &str) -> bool {
    let Some(spec) = &lease.spec else { return false };
    let age = spec.renew_time.as_ref().map(|renewed| jiff::Timestamp::now().duration_since(renewed.0));
    let young = |age: jiff::SignedDuration| (0..i64::from(RENEW)).contains(&age.as_secs());
    spec.holder_identity.as_deref() == Some(holder) && age.is_some_and(young)
}

async fn list(client: &Client, observed: &Observed) -> Result<Vec<Lease>> {
    let etcd = &observed.etcd;
    let selector = names::selector(&etcd.name_any());
    let api = Api::<Lease>::namespaced(client.clone(), &etcd.namespace().unwrap_or_default());
    let failed = |source| Error::Read { kind: "Lease".to_owned(), name: selector.clone(), source };
    let all = api.list(&ListParams::default().labels(&selector)).await.map_err(failed)?;
    let uid = etcd.uid();
    let is_ours =
        |lease: &Lease| lease.owner_references().iter().any(|owner| Some(&owner.uid) == uid.as_ref());
    Ok(all.items.into_iter().filter(is_ours).collect())
}

/// `<id of the member>:<id of the cluster>:<role>`.
fn holder(seen: &Seen, member: &SeenMember) -> String {
    let role = match member.role {
        _ if seen.leader == Some(member.id) => "Leader",
        Role::Voter => "Member",
        Role::Learner { .. } => "Learner",
    };
    format!("{:x}:{:x}:{role}", member.id.0, seen.cluster)
}

fn lease(observed: &Observed, member: &SeenMember, holder: String) -> Value {
    let etcd = &observed.etcd;
    let spec = LeaseSpec {
        holder_identity: Some(holder),
        lease_duration_seconds: Some(SECONDS),
        renew_time: Some(MicroTime(jiff::Timestamp::now())),
        ..LeaseSpec::default()
    };
    let mut metadata = metadata(etcd, &names::member(etcd, member.ordinal));
    metadata["annotations"] = json!({TLS: etcd.spec.etcd.peer_url_tls.is_some().to_string()});
    json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": spec})
}
