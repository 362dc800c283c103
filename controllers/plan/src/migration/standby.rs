//! Rows of the destination on its etcd: a standby member that follows the source, and the start.

use super::{
    context::{Context, destination},
    destination::{is_awake, own_id},
    effect::Effect,
    notes::Notes,
    observed::{EtcdFacts, OwnerId, OwnerRecord},
    step::Step,
};
use crate::ledger::Check;

/// Whether a standby member can shorten the outage.
pub(crate) fn is_offered(context: &Context) -> bool {
    is_awake(context) && context.at_destination().is_none_or(|facts| facts.offers_standby)
}

/// Whether a standby member has followed, so the rest of a restore is one delta.
pub(crate) fn has_followed(context: &Context) -> bool {
    context.is_reached(Step::StandbyFollows)
}

/// Whether kube-apiservers may be started before the etcd: where nothing takes their connections, they exit after 20 s.
pub(crate) fn lets_api_start(context: &Context) -> bool {
    has_followed(context) && context.at_destination().is_none_or(|facts| facts.etcd.has_gateway)
}

/// Volumes of its own, so that an ordinary restore can begin on others.
pub(crate) fn note(context: &Context, notes: &mut Notes) {
    notes.volumes.get_or_insert_with(|| format!("{}-standby", context.observed.request.uid));
}

pub(crate) fn does_follow(context: &Context) -> Check {
    destination(context, |facts| match (facts.standby, facts.copied) {
        (Some(standby), Some(copied)) if standby >= copied => {
            Check::Met(format!("a member holds revision {standby} and follows"))
        }
        (standby, _) => {
            let revision = standby.unwrap_or_default();
            Check::waiting("StandbyBehind", format!("the standby member holds revision {revision}"))
        }
    })
}

pub(crate) fn ensure(context: &Context) -> Vec<Effect> {
    let Some(facts) = context.at_destination() else { return Vec::new() };
    // The record is read again and again: its servers do not always answer.
    let (OwnerRecord::Present(owner), Some(volumes)) = (&facts.owner, context.notes.volumes.clone()) else {
        return Vec::new();
    };
    let owner =
        OwnerId { seed: context.observed.request.destination_identity.clone(), epoch: owner.epoch + 1 };
    let replicas = facts.etcd.members.min(1);
    vec![Effect::EnsureStandby { volumes, owner, replicas, fence: context.forward_fence() }]
}

pub(crate) fn is_removed(context: &Context) -> Check {
    destination(context, |facts| match (facts.etcd.wanted, facts.etcd.pods) {
        (None | Some(0), 0) => Check::Met("no standby runs".to_owned()),
        (_, pods) => Check::waiting("StandbyStopping", format!("{pods} members are left")),
    })
}

pub(crate) fn remove(context: &Context) -> Vec<Effect> {
    let volumes = context.at_destination().map(|facts| facts.etcd.volumes.clone());
    let fence = context.forward_fence();
    volumes
        .into_iter()
        .map(|volumes| Effect::EnsureEtcdReplicas { replicas: 0, volumes, fence: fence.clone() })
        .collect()
}

/// Without a standby, other volumes than those of one that did not come to its end.
pub(crate) fn note_start(context: &Context, notes: &mut Notes) {
    notes.final_snapshot = context.source_notes().and_then(|source| source.final_snapshot.clone());
    if !has_followed(context) {
        notes.volumes = Some(format!("{}-destination", context.observed.request.uid));
    }
}

pub(crate) fn does_etcd_serve(context: &Context) -> Check {
    match &context.notes.final_snapshot {
        Some(from) => does_serve_from(context, "final", from.revision),
        None => Check::waiting("NoFinalSnapshot", "the final snapshot is not recorded"),
    }
}

/// Whether a quorum serves from the volumes of this migration, at least the revision of the snapshot that they were filled from. `which`
/// says for people which one that is.
pub(crate) fn does_serve_from(context: &Context, which: &str, least: u64) -> Check {
    destination(context, |facts| {
        let etcd = &facts.etcd;
        let is_ours = is_ours(context, etcd);
        // It is scaled up when the Shoot wakes, and restores its volumes then.
        if is_ours && context.is_hibernated() && etcd.wanted == Some(0) {
            return Check::Met("the Etcd exists without replicas".to_owned());
        }
        match etcd.revision.filter(|_| is_ours) {
            Some(revision) if revision < least => Check::blocked(
                "RevisionWentBack",
                format!("the etcd serves revision {revision}, and the {which} snapshot holds {least}"),
            ),
            Some(revision) => Check::Met(format!("a quorum answers at revision {revision}")),
            None => {
                Check::waiting("EtcdRestoring", format!("{} members run, and no quorum answers", etcd.pods))
            }
        }
    })
}

/// Whether an Etcd has the volumes and the owner of this migration.
fn is_ours(context: &Context, etcd: &EtcdFacts) -> bool {
    Some(&etcd.volumes) == context.notes.volumes.as_ref() && Some(etcd.epoch) == context.notes.owner_epoch
}

/// The Etcd of a hibernated Shoot fills its volumes when the Shoot wakes, so nothing else would show that it is not as it was written.
fn is_kept(context: &Context) -> Check {
    destination(context, |facts| match facts.etcd.wanted.filter(|_| is_ours(context, &facts.etcd)) {
        Some(_) => Check::Met("the Etcd exists, and is filled when the Shoot wakes".to_owned()),
        None => Check::waiting("EtcdMissing", "there is no Etcd as this migration has written it"),
    })
}

pub(crate) fn is_complete(context: &Context) -> Check {
    if context.is_hibernated() {
        return is_kept(context);
    }
    let wanted = context.replica_notes().and_then(|notes| notes.etcd_replicas);
    destination(context, |facts| match (facts.etcd.ready, wanted) {
        (ready, Some(wanted)) if ready >= wanted => Check::Met(format!("{ready} members are ready")),
        (ready, _) => Check::waiting("EtcdGrowing", format!("{ready} members are ready")),
    })
}

/// A member that has followed takes over by itself as soon as it has read that it is the owner. It stays the only one until a
/// kube-apiserver serves: those that join read all data from it, and would do so in the outage.
pub(crate) fn take_over(context: &Context) -> Vec<Effect> {
    let wanted = context.replica_notes().and_then(|notes| notes.etcd_replicas);
    if !has_followed(context) {
        return ensure_etcd(context, wanted);
    }
    let mut effects = ensure_etcd(context, wanted.map(|members| members.min(1)));
    effects.push(Effect::CheckOwner);
    effects
}

pub(crate) fn complete_etcd(context: &Context) -> Vec<Effect> {
    ensure_etcd(context, context.replica_notes().and_then(|notes| notes.etcd_replicas))
}

fn ensure_etcd(context: &Context, replicas: Option<u32>) -> Vec<Effect> {
    let notes = context.notes;
    let (Some(volumes), Some(from), Some(owner), Some(replicas)) =
        (notes.volumes.clone(), notes.final_snapshot.clone(), own_id(context), replicas)
    else {
        return Vec::new();
    };
    let replicas = if context.is_hibernated() { 0 } else { replicas };
    let (standby, fence) = (has_followed(context), context.forward_fence());
    vec![Effect::EnsureEtcd { standby, volumes, from, owner, replicas, fence }]
}
