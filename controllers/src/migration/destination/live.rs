//! The Etcd of the destination of a live migration: its members are exposed, join that of the source, and are alone later.

use kube::{Client, ResourceExt};
use repot_plan::migration::{
    Step,
    observed::{ExposedMember, Exposure, Facts, MigrationMode, MigrationRequest, OwnerId},
};
use serde_json::{Value, json};

use super::objects::Objects;
use crate::{
    etcd::api::{Etcd, FENCE},
    migration::{
        error::{Error, Result},
        overall::Ledger,
        pass::Pass,
        seed::{
            exposure::{self, Exposer, Exposing},
            owner, scale,
        },
    },
};

/// What members of the destination join.
pub struct Join<'a> {
    /// Name of the set of volumes.
    pub volumes: &'a str,
    /// The owner ID that members check.
    pub owner: &'a OwnerId,
    /// The owner ID of the source.
    pub joined: &'a OwnerId,
    /// The members of the source.
    pub members: &'a [ExposedMember],
    /// Replicas of the Etcd.
    pub replicas: u32,
}

/// Makes what other seeds reach the members by, before these run.
///
/// # Errors
/// [`Error`]. The next pass goes on.
pub async fn expose(pass: &Pass<'_>, objects: &Objects) -> Result<()> {
    let (request, etcd) = (&pass.facts.request, objects.etcds.need_main()?);
    let like = objects.zone_record.as_ref();
    let like = like.ok_or_else(|| Error::Missing("a DNSRecord of the zone".to_owned()))?;
    let exposing = Exposing {
        etcd,
        seed: &request.destination_seed,
        members: members(pass)?,
        migration: &request.uid,
        exposer: &pass.context.exposer,
    };
    objects.exposed.ensure(pass.context.own_client(), &exposing, like).await
}

/// As many as were observed to be exposed.
fn members(pass: &Pass<'_>) -> Result<u32> {
    let Facts::Destination(facts) = &pass.facts.facts else { return Ok(0) };
    u32::try_from(facts.exposure.members.len())
        .ok()
        .filter(|members| *members > 0)
        .ok_or_else(|| Error::Missing("names of members".to_owned()))
}

/// Lets the members join the etcd of the source.
///
/// # Errors
/// [`Error::Write`].
pub async fn join(pass: &Pass<'_>, objects: &Objects, join: &Join<'_>, fence: &str) -> Result<()> {
    let etcd = objects.etcds.need_main()?;
    let Facts::Destination(facts) = &pass.facts.facts else { return Ok(()) };
    let is_written = etcd.annotations().get(FENCE).map(String::as_str) == Some(fence)
        && etcd.volumes() == join.volumes
        && etcd.spec.replicas == join.replicas;
    if is_written {
        return Ok(());
    }
    let mut members = exposure::advertised(&facts.exposure.members);
    for (field, value) in exposure::relaxed(etcd).as_object().into_iter().flatten() {
        members[field] = value.clone();
    }
    let existing = |member: &ExposedMember| json!({"name": member.name, "peerUrls": [member.peer_url]});
    members["bootstrapWithExistingCluster"] = json!({
        "members": join.members.iter().map(existing).collect::<Vec<_>>(),
        "clientEndpoints": join.members.iter().map(|member| &member.client_url).collect::<Vec<_>>(),
    });
    let owner_check = json!({"id": owner::text(join.owner), "joinedID": owner::text(join.joined)});
    let patch = json!({
        "metadata": {"annotations": exposure::annotations(etcd, fence)},
        "spec": {
            "volumeClaimTemplate": join.volumes, "replicas": join.replicas, "etcd": members,
            "backup": {"ownerCheck": owner_check},
        },
    });
    scale::write(pass.context.own_client(), etcd, patch, "let the members join by").await
}

/// Removes the members of the source from the etcd.
///
/// # Errors
/// [`Error::Write`].
pub async fn remove_source_members(pass: &Pass<'_>, objects: &Objects, fence: &str) -> Result<()> {
    let etcd = objects.etcds.need_main()?;
    if etcd.spec.etcd.bootstrap_with_existing_cluster.is_none() {
        return Ok(());
    }
    let patch = json!({
        "metadata": {"annotations": {FENCE: fence}},
        "spec": {"etcd": {"bootstrapWithExistingCluster": Value::Null}},
    });
    scale::write(pass.context.own_client(), etcd, patch, "remove the members of the source by").await
}

/// Stops the members of an Etcd that shares the etcd of the source, without removing them from it: it may have no quorum for that. Others
/// are stopped as usual.
///
/// # Errors
/// [`Error::Write`].
pub async fn abandon(seed: &Client, etcd: &Etcd, fence: &str) -> Result<()> {
    let Some(joined) = given_up(etcd) else { return scale::etcd(seed, etcd, 0, fence).await };
    let is_fenced = etcd.annotations().get(FENCE).map(String::as_str) == Some(fence);
    let is_abandoned = etcd.spec.etcd.bootstrap_with_existing_cluster.as_ref().is_some_and(|it| it.abandoned);
    if is_fenced && is_abandoned && etcd.spec.replicas == 0 {
        return Ok(());
    }
    let patch = json!({
        "metadata": {"annotations": {FENCE: fence}},
        "spec": {"replicas": 0, "etcd": {"bootstrapWithExistingCluster": joined}},
    });
    scale::write(seed, etcd, patch, "give up the joined Etcd by").await
}

/// What `bootstrapWithExistingCluster` becomes; nothing where members share no etcd. The field is gone where members of the source were
/// to leave, and needs both of its lists.
fn given_up(etcd: &Etcd) -> Option<Value> {
    if etcd.spec.etcd.bootstrap_with_existing_cluster.is_some() {
        return Some(json!({"abandoned": true}));
    }
    let joined = etcd.status.as_ref()?.bootstrap_with_existing_cluster.as_ref()?;
    let given_up =
        || json!({"abandoned": true, "members": joined.members, "clientEndpoints": joined.client_endpoints});
    (!joined.released).then(given_up)
}

/// Lets members be known by the addresses of their own seed, and removes what other seeds reach them by.
///
/// # Errors
/// [`Error::Write`].
pub async fn hide(pass: &Pass<'_>, objects: &Objects, fence: &str) -> Result<()> {
    let (seed, etcd) = (pass.context.own_client(), objects.etcds.need_main()?);
    let Facts::Destination(facts) = &pass.facts.facts else { return Ok(()) };
    match facts.etcd.is_exposed {
        true => exposure::hide(seed, etcd, facts.etcd.is_settled, fence).await,
        false if facts.etcd.is_settled => {
            let uid = &pass.facts.request.uid;
            objects.exposed.of(uid).remove(seed, &objects.namespace, uid).await
        }
        false => Ok(()),
    }
}

/// How far the exposure is. Asked until the members are alone, and not in a rollback: it removes what it finds.
pub async fn exposure(
    exposer: &Exposer,
    objects: &Objects,
    request: &MigrationRequest,
    ledger: &Ledger,
    source: &Ledger,
) -> Exposure {
    let members = source.notes.etcd_replicas;
    match (objects.etcds.main(), members) {
        (Some(etcd), Some(members)) if request.mode == MigrationMode::Live && !is_over(ledger) => {
            let exposing = exposure::Exposing {
                etcd,
                seed: &request.destination_seed,
                members,
                migration: &request.uid,
                exposer,
            };
            objects.exposed.facts(&exposing).await
        }
        _ => Exposure { missing: vec!["members that were not asked for".to_owned()], ..Exposure::default() },
    }
}

fn is_over(ledger: &Ledger) -> bool {
    ledger.phase.is_rollback() || ledger.is_settled(Step::DestinationMembersHidden)
}

/// Differs from that of all members that the etcd has had: a carried prefix stays for life.
pub fn member_name_prefix(request: &MigrationRequest) -> String {
    /// A prefix has 63 characters at most (CRD).
    const LONGEST_SEED: usize = 54;
    let seed: String = request.destination_seed.chars().take(LONGEST_SEED).collect();
    format!("{seed}-{}", exposure::short(&request.uid))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_give_up_the_etcd_they_share_whether_they_join_it_or_are_to_be_left_alone() {
        let members = json!([{"name": "etcd-main-0", "peerUrls": ["https://a.example.com:2380"]}]);
        let endpoints = json!(["https://a.example.com:2379"]);
        let lists = json!({"members": members, "clientEndpoints": endpoints});
        let joined =
            |released| json!({"members": members, "clientEndpoints": endpoints, "released": released});
        let found = |existing: Value, status: Value| {
            let etcd = json!({
                "metadata": {"name": "etcd-main"},
                "spec": {"replicas": 3, "etcd": {"bootstrapWithExistingCluster": existing}},
                "status": {"bootstrapWithExistingCluster": status},
            });
            given_up(&serde_json::from_value(etcd).expect("an Etcd"))
        };
        assert_eq!(found(lists.clone(), joined(false)), Some(json!({"abandoned": true})));
        let mut whole = lists;
        whole["abandoned"] = true.into();
        assert_eq!(found(Value::Null, joined(false)), Some(whole));
        assert_eq!(found(Value::Null, joined(true)), None);
        assert_eq!(found(Value::Null, Value::Null), None);
    }
}
