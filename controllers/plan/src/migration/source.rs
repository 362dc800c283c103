//! Rows of the source: its state is exported, its controllers, API servers and members are stopped, its ownership ends.

use std::time::Duration;

use repot_apimachinery::time::Time;

use super::{
    context::{Context, none_left, source},
    effect::Effect,
    notes::Notes,
    observed::{ExtensionOperation, Extensions, OwnerId, OwnerRecord, Replicas, SourceFacts, Workloads},
    step::Step,
};
use crate::ledger::Check;

/// TTL of the DNS record of the API during a migration: clients find the destination after this time.
pub const LOW_TTL: Duration = Duration::from_secs(10);

pub(crate) fn is_state_synced(context: &Context) -> Check {
    source(context, |facts| match facts.unsynced {
        None => {
            Check::waiting("StateUnreadable", "the state of the source, or its ShootState, cannot be read")
        }
        Some(0) => Check::Met("the ShootState holds the state of the source".to_owned()),
        Some(entries) => {
            Check::waiting("StateDiffers", format!("{entries} entries of the ShootState are being written"))
        }
    })
}

pub(crate) fn sync_state(_: &Context) -> Vec<Effect> {
    vec![Effect::SyncState]
}

pub(crate) fn note_etcd(context: &Context, notes: &mut Notes) {
    notes.changed = true;
    if let Some(facts) = context.at_source() {
        notes.etcd_replicas.get_or_insert(facts.etcd.members);
    }
}

pub(crate) fn is_etcd_awake(context: &Context) -> Check {
    source(context, |facts| match (facts.etcd.wanted, facts.etcd.revision) {
        (None, _) => Check::blocked("EtcdMissing", "there is no Etcd at the source"),
        (Some(_), Some(revision)) => Check::Met(format!("a quorum answers at revision {revision}")),
        (Some(_), None) => Check::waiting("EtcdStarting", "no quorum of the etcd answers"),
    })
}

pub(crate) fn wake_etcd(context: &Context) -> Vec<Effect> {
    scale_etcd(context, context.notes.etcd_replicas.unwrap_or_default(), context.forward_fence())
}

pub(crate) fn scale_etcd(context: &Context, replicas: u32, fence: String) -> Vec<Effect> {
    let Some(facts) = context.at_source().filter(|facts| facts.etcd.wanted.is_some()) else {
        return Vec::new();
    };
    vec![Effect::EnsureEtcdReplicas { replicas, volumes: facts.etcd.volumes.clone(), fence }]
}

pub(crate) fn note_ttl(context: &Context, notes: &mut Notes) {
    notes.changed = true;
    if let Some(facts) = context.at_source() {
        notes.api_ttl_seconds.get_or_insert(facts.api_ttl.as_secs());
    }
}

pub(crate) fn is_ttl_low(context: &Context) -> Check {
    source(context, |facts| {
        if facts.api_ttl <= LOW_TTL {
            Check::Met(format!("the TTL is {} s", facts.api_ttl.as_secs()))
        } else {
            Check::waiting("LoweringTTL", "the DNS record of the API is being written")
        }
    })
}

pub(crate) fn lower_ttl(context: &Context) -> Vec<Effect> {
    vec![Effect::EnsureApiTtl { ttl: LOW_TTL, fence: context.forward_fence() }]
}

/// Longest time for which a resolver may keep the record with its former TTL.
pub(crate) fn former_ttl(context: &Context) -> Duration {
    context.notes.api_ttl().unwrap_or_default()
}

pub(crate) fn has_former_ttl_expired(context: &Context) -> Check {
    let (former, passed) = (former_ttl(context), context.since(Step::ApiTtlLowered).unwrap_or_default());
    if passed > former {
        Check::Met(format!("the former TTL of {} s has passed", former.as_secs()))
    } else {
        Check::waiting(
            "FormerTTLCached",
            format!("resolvers may keep the former record for {} s", former.as_secs()),
        )
    }
}

pub(crate) fn note_controllers(context: &Context, notes: &mut Notes) {
    notes.changed = true;
    note_api(context, notes);
    if let Some(facts) = context.at_source() {
        notes.controllers.get_or_insert_with(|| facts.controllers.wanted.clone());
        notes.etcd_replicas.get_or_insert(facts.etcd.members);
    }
}

fn are_stopped(workloads: &Workloads, fence: &str, what: &str) -> Check {
    // Where workloads exist, they are written once by this fence. Another migration may have deleted them.
    let is_fenced = workloads.wanted.is_empty() || workloads.fence == fence;
    if workloads.is_stopped() && is_fenced {
        Check::Met(format!("no {what} is left"))
    } else {
        Check::waiting("Stopping", format!("{} Pods of {what}s are left", workloads.pods))
    }
}

pub(crate) fn are_controllers_stopped(context: &Context) -> Check {
    source(context, |facts| are_stopped(&facts.controllers, &context.forward_fence(), "controller"))
}

pub(crate) fn stop_controllers(context: &Context) -> Vec<Effect> {
    let facts = context.at_source().into_iter();
    facts
        .map(|facts| Effect::EnsureControllers {
            replicas: facts.controllers.none(),
            fence: context.forward_fence(),
        })
        .collect()
}

pub(crate) fn note_api(context: &Context, notes: &mut Notes) {
    if let Some(facts) = context.at_source() {
        notes.api_servers.get_or_insert_with(|| facts.api.wanted.clone());
    }
}

pub(crate) fn note_last_answer(context: &Context, notes: &mut Notes) {
    let answered = context.at_source().and_then(|facts| facts.api_answered);
    notes.api_answered_time = answered.map(Time::to_rfc3339).or(notes.api_answered_time.take());
}

pub(crate) fn is_api_stopped(context: &Context) -> Check {
    source(context, |facts| match are_stopped(&facts.api, &context.forward_fence(), "kube-apiserver") {
        Check::Met(_) if facts.tunnel.servers.pods > 0 => {
            let pods = facts.tunnel.servers.pods;
            Check::waiting("Stopping", format!("{pods} Pods of servers of the tunnel are left"))
        }
        check => check,
    })
}

pub(crate) fn stop_api(context: &Context) -> Vec<Effect> {
    let facts = context.at_source().into_iter();
    facts
        .map(|facts| Effect::EnsureApi { replicas: facts.api.none(), fence: context.forward_fence() })
        .collect()
}

/// One Pod less each time that as many run as are wanted. So clients of one kube-apiserver look for another one while those of the others
/// get answers, and never all at once. The last one needs the tunnel until it has ended.
pub(crate) fn stop_api_by_turns(context: &Context) -> Vec<Effect> {
    let Some(facts) = context.at_source() else { return Vec::new() };
    let is_tunnel = |name: &String| facts.tunnel.servers.wanted.contains_key(name);
    let (tunnel, mut replicas): (Replicas, Replicas) =
        facts.api.wanted.clone().into_iter().partition(|(name, _)| is_tunnel(name));
    let is_over = facts.api.pods == 0 && replicas.values().all(|left| *left == 0);
    if facts.api.pods <= replicas.values().sum() {
        replicas.values_mut().filter(|left| **left > 0).take(1).for_each(|left| *left -= 1);
    }
    replicas.extend(tunnel.into_iter().map(|(name, left)| (name, if is_over { 0 } else { left })));
    vec![Effect::EnsureApi { replicas, fence: context.forward_fence() }]
}

/// Nothing begins on a control plane that does not serve, or that another seed owns.
pub(crate) fn does_source_serve(context: &Context) -> Check {
    let identity = &context.observed.request.source_identity;
    source(context, |facts| match &facts.owner {
        OwnerRecord::Present(owner) if owner.seed != *identity => {
            Check::blocked("NotOwner", format!("the owner record names {}", owner.seed))
        }
        OwnerRecord::Unknown => {
            Check::waiting("OwnerUnknown", "the servers of the zone do not agree, or do not answer")
        }
        OwnerRecord::Absent => Check::waiting("NoOwnerRecord", "there is no owner record"),
        OwnerRecord::Present(owner) if owner.epoch != facts.etcd.epoch => Check::waiting(
            "OtherEpoch",
            format!("the owner record has epoch {}, and the members check {}", owner.epoch, facts.etcd.epoch),
        ),
        OwnerRecord::Present(_) if context.is_hibernated() => {
            Check::Met("the Shoot is hibernated".to_owned())
        }
        OwnerRecord::Present(_) if facts.etcd.revision.is_none() => {
            Check::waiting("NoQuorum", "no quorum of the etcd answers")
        }
        OwnerRecord::Present(_) if facts.api.ready == 0 => {
            Check::waiting("ApiServersNotReady", "no kube-apiserver is ready")
        }
        OwnerRecord::Present(owner) => Check::Met(format!("the source serves with epoch {}", owner.epoch)),
    })
}

/// The epoch that ends. Members know it even where DNS does not answer.
pub(crate) fn note_epoch(context: &Context, notes: &mut Notes) {
    let Some(facts) = context.at_source() else { return };
    notes.ownership_ended = true;
    notes.owner_epoch.get_or_insert(facts.etcd.epoch);
}

/// The highest epoch that the source knows of.
pub(crate) fn epoch_of(facts: &SourceFacts) -> u64 {
    match &facts.owner {
        OwnerRecord::Present(owner) => owner.epoch.max(facts.etcd.epoch),
        OwnerRecord::Unknown | OwnerRecord::Absent => facts.etcd.epoch,
    }
}

pub(crate) fn is_owner_deleted(context: &Context) -> Check {
    source(context, |facts| match &facts.owner {
        OwnerRecord::Absent => Check::Met("no server of the zone has an owner record".to_owned()),
        OwnerRecord::Present(owner) if owner.seed == context.observed.request.source_identity => {
            Check::waiting("DeletingOwnerRecord", "the owner record is being deleted")
        }
        OwnerRecord::Present(owner) => Check::Met(format!("the owner record names {}", owner.seed)),
        OwnerRecord::Unknown => {
            Check::waiting("OwnerUnknown", "the servers of the zone do not agree, or do not answer")
        }
    })
}

pub(crate) fn delete_owner(context: &Context) -> Vec<Effect> {
    let seed = &context.observed.request.source_identity;
    let epoch = context.notes.owner_epoch.into_iter();
    epoch.map(|epoch| Effect::EnsureNoOwner { owner: OwnerId { seed: seed.clone(), epoch } }).collect()
}

/// The final snapshot ends the epoch of the source, so an earlier one of the same etcd does not count.
pub(crate) fn is_final_snapshot_taken(context: &Context) -> Check {
    // What was stored stays stored, whether the bucket answers now or not.
    if let Some(stored) = &context.notes.final_snapshot {
        return Check::Met(format!(
            "{} ends epoch {} at revision {}",
            stored.name, stored.epoch, stored.revision
        ));
    }
    let epoch = context.notes.owner_epoch;
    source(context, |facts| match &facts.final_snapshot {
        Some(snapshot) if Some(snapshot.epoch) == epoch => Check::Met(format!(
            "{} ends epoch {} at revision {}",
            snapshot.name, snapshot.epoch, snapshot.revision
        )),
        // Nobody takes it any more: neither a member nor, after it was scaled up, a new one.
        _ if facts.etcd.wanted.is_none() => Check::blocked(
            "EtcdMissing",
            "there is no Etcd at the source, and no final snapshot in its bucket",
        ),
        _ => Check::waiting(
            "TakingFinalSnapshot",
            "the members have lost ownership and store the final snapshot",
        ),
    })
}

/// They do not wait for the end of their check interval.
pub(crate) fn check_owner(context: &Context) -> Vec<Effect> {
    let has_members = context.at_source().is_some_and(|facts| facts.etcd.pods > 0);
    has_members.then_some(Effect::CheckOwner).into_iter().collect()
}

pub(crate) fn note_final_snapshot(context: &Context, notes: &mut Notes) {
    if let Some(facts) = context.at_source() {
        notes.final_snapshot = notes.final_snapshot.take().or_else(|| facts.final_snapshot.clone());
    }
}

pub(crate) fn is_etcd_stopped(context: &Context) -> Check {
    source(context, |facts| {
        if facts.etcd.pods == 0 && facts.etcd.wanted.unwrap_or_default() == 0 {
            Check::Met("no member is left at the source".to_owned())
        } else {
            Check::waiting("MembersEnding", format!("{} members are left", facts.etcd.pods))
        }
    })
}

/// A rollback restores the final snapshot, so members run until it is stored.
pub(crate) fn stop_etcd(context: &Context) -> Vec<Effect> {
    match context.at_source() {
        Some(facts) if facts.is_final_full => scale_etcd(context, 0, context.forward_fence()),
        _ => Vec::new(),
    }
}

/// Of a live migration: they have left the etcd, so nothing is to be stored any more.
pub(crate) fn stop_removed_members(context: &Context) -> Vec<Effect> {
    scale_etcd(context, 0, context.forward_fence())
}

pub(crate) fn note_dns(_: &Context, notes: &mut Notes) {
    notes.dns_records_migrated = true;
}

/// Whether extension resources have done what was requested.
pub(crate) fn have_done(extensions: &Extensions, operation: ExtensionOperation) -> Check {
    if extensions.requested != Some(operation) {
        return Check::waiting("Requesting", format!("{operation:?} is being requested"));
    }
    none_left(&extensions.pending, "ExtensionsPending", "not done", "all extension resources report success")
}

pub(crate) fn are_dns_records_migrated(context: &Context) -> Check {
    source(context, |facts| have_done(&facts.dns_records, ExtensionOperation::Migrate))
}

pub(crate) fn migrate_dns_records(_: &Context) -> Vec<Effect> {
    vec![Effect::RequestDnsRecords { operation: ExtensionOperation::Migrate }]
}

pub(crate) fn are_extensions_migrated(context: &Context) -> Check {
    source(context, |facts| have_done(&facts.extensions, ExtensionOperation::Migrate))
}

pub(crate) fn migrate_extensions(_: &Context) -> Vec<Effect> {
    vec![Effect::RequestExtensions { operation: ExtensionOperation::Migrate }]
}

pub(crate) fn are_controllers_removed(context: &Context) -> Check {
    source(context, |facts| {
        if facts.controllers.wanted.is_empty() && facts.controllers.pods == 0 {
            Check::Met("no workload of a controller is left at the source".to_owned())
        } else {
            Check::waiting("Removing", format!("{} workloads are left", facts.controllers.wanted.len()))
        }
    })
}

pub(crate) fn remove_controllers(_: &Context) -> Vec<Effect> {
    vec![Effect::RemoveSourceControllers]
}

pub(crate) fn is_source_removed(context: &Context) -> Check {
    source(context, |facts| {
        none_left(&facts.left, "Removing", "left at the source", "nothing of the Shoot is left at the source")
    })
}

pub(crate) fn remove_source(_: &Context) -> Vec<Effect> {
    vec![Effect::RemoveSource]
}
