//! The rollback table: the destination stops, and the source serves again from its final snapshot.
//!
//! Once the deletion of the owner record was requested, the members of the source may have lost ownership. Their volumes never serve
//! again, so the etcd is restored to new volumes, with an owner record of a new epoch.

use std::time::Duration;

use crate::{
    flow::{Proof, Row, Timeout},
    ledger::Check,
    migration::{
        MigrationFlow, Notes, Side, Step,
        context::{Context, source},
        destination::{has_stopped, is_stopped, stop},
        effect::Effect,
        going_back as back,
        observed::{ExtensionOperation, OwnerId, OwnerRecord},
        rows::day_long,
        source::{delete_owner, epoch_of, is_etcd_stopped, is_final_snapshot_taken, note_final_snapshot},
    },
};

/// Rows in their order; each stands behind those that it waits for.
pub(crate) static ROLLBACK: &[Row<MigrationFlow>] = &[
    Row {
        does: "kube-apiservers, members and standby of the destination are stopped, by their Pods.",
        proof: Proof::HeldUntil(Step::DestinationRemoved),
        advice: "delete Pods on nodes of the destination that do not answer, once these nodes are surely off",
        effects: stop,
        ..day_long(Side::Destination, Step::DestinationStopped, is_stopped)
    },
    Row {
        does: "The members of the source store their final snapshot and are stopped.",
        guard: |context| context.notes.ownership_ended,
        proof: Proof::HeldUntil(Step::SourceEtcdRestored),
        advice: "see in the logs of the members why the final snapshot cannot be stored",
        effects: end_ownership,
        on_done: note_final_snapshot,
        ..day_long(Side::Source, Step::SourceOwnershipEnded, is_ownership_ended)
    },
    Row {
        after: &[Step::SourceOwnershipEnded],
        does: "The owner record names the source, with the next epoch.",
        guard: |context| context.notes.ownership_ended,
        advice: "see whether the DNS servers of the zone take updates",
        on_start: note_epoch,
        effects: restore_owner,
        ..day_long(Side::Source, Step::OwnerRecordRestored, is_owner_restored)
    },
    Row {
        after: &[Step::OwnerRecordRestored],
        does: "The members of the destination are stopped, or have lost ownership for as long as they may believe in it.",
        guard: |context| context.notes.ownership_ended,
        timeout: Timeout::Computed {
            text: "TTL + check interval + grace, and an hour",
            limit: |context| owner_wait(context) + Duration::from_secs(3600),
        },
        advice: "wait: the members of the destination end when they see the owner record",
        ..day_long(Side::Source, Step::DestinationFenced, is_destination_fenced)
    },
    Row {
        after: &[Step::DestinationFenced],
        does: "The etcd of the source serves what the final snapshot holds, from new volumes.",
        guard: |context| context.notes.ownership_ended,
        proof: Proof::HeldUntil(Step::SourceApiRestored),
        advice: "see in the logs of the members why the final snapshot cannot be restored",
        on_start: note_volumes,
        effects: restore_etcd,
        ..day_long(Side::Source, Step::SourceEtcdRestored, is_etcd_restored)
    },
    Row { after: &[Step::SourceEtcdRestored], ..back::SOURCE_API_RESTORED },
    Row {
        after: &[Step::DestinationFenced],
        does: "The DNSRecords of the source report a restore that succeeded.",
        guard: |context| context.notes.dns_records_migrated,
        advice: "see in the DNSRecords what their controller reports",
        effects: |_| vec![Effect::RequestDnsRecords { operation: ExtensionOperation::Restore }],
        ..day_long(Side::Source, Step::DnsRecordsRestored, back::are_dns_records_restored)
    },
    Row { after: &[Step::SourceApiRestored], ..back::SOURCE_CONTROLLERS_RESTORED },
    Row {
        after: &[Step::SourceControllersRestored],
        does: "The etcd of a hibernated Shoot has no replicas.",
        guard: |context| context.is_hibernated() && context.notes.etcd_replicas.is_some(),
        advice: "scale the Etcd of the source to zero",
        effects: hibernate_etcd,
        ..day_long(Side::Source, Step::SourceEtcdAsleep, is_etcd_asleep)
    },
    Row { after: &[Step::DnsRecordsRestored], ..back::API_TTL_RESTORED },
    Row { after: &[Step::DestinationStopped, Step::SourceControllersRestored], ..back::DESTINATION_REMOVED },
    Row { after: &[Step::SourceControllersRestored], ..back::SEED_NAME_RESTORED },
];

fn is_ownership_ended(context: &Context) -> Check {
    match is_final_snapshot_taken(context) {
        Check::Met(evidence) => match is_etcd_stopped(context) {
            Check::Met(_) => Check::Met(evidence),
            open => open,
        },
        open => open,
    }
}

fn end_ownership(context: &Context) -> Vec<Effect> {
    let Some(facts) = context.at_source() else { return Vec::new() };
    if matches!(is_final_snapshot_taken(context), Check::Met(_)) {
        let volumes = facts.etcd.volumes.clone();
        return vec![Effect::EnsureEtcdReplicas { replicas: 0, volumes, fence: context.rollback_fence() }];
    }
    let mut effects = delete_owner(context);
    // Somebody has stopped the members before they stored the final snapshot, and only they can do it.
    if facts.etcd.wanted == Some(0) {
        effects.extend(wake_etcd(context));
    }
    effects
}

fn wake_etcd(context: &Context) -> Option<Effect> {
    let (facts, replicas) = (context.at_source()?, context.notes.etcd_replicas?);
    let volumes = facts.etcd.volumes.clone();
    Some(Effect::EnsureEtcdReplicas { replicas, volumes, fence: context.rollback_fence() })
}

/// Higher than any epoch that either side has seen or requested.
fn note_epoch(context: &Context, notes: &mut Notes) {
    let destination = context.side(Side::Destination).and_then(|ledger| ledger.notes.owner_epoch);
    let seen = context.at_source().map(epoch_of);
    let highest = [destination, seen, notes.owner_epoch].into_iter().flatten().max().unwrap_or_default();
    notes.owner_epoch = Some(highest + 1);
}

fn own_id(context: &Context) -> Option<OwnerId> {
    let epoch = context.notes.owner_epoch?;
    Some(OwnerId { seed: context.observed.request.source_identity.clone(), epoch })
}

fn is_owner_restored(context: &Context) -> Check {
    // Until the row is started, the notes have the epoch that has ended.
    let own = own_id(context).filter(|_| context.ledger.is_started(Step::OwnerRecordRestored));
    source(context, |facts| match (&facts.owner, &own) {
        (OwnerRecord::Present(owner), Some(own)) if owner == own => {
            Check::Met(format!("the owner record names {} with epoch {}", own.seed, own.epoch))
        }
        _ => Check::waiting("TakingOwnership", "the owner record is being written"),
    })
}

fn restore_owner(context: &Context) -> Vec<Effect> {
    own_id(context).into_iter().map(|owner| Effect::EnsureOwner { owner }).collect()
}

fn owner_wait(context: &Context) -> Duration {
    context.at_source().map(|facts| facts.owner_wait).unwrap_or_default()
}

fn is_destination_fenced(context: &Context) -> Check {
    let has_ended = context
        .side(Side::Destination)
        .is_none_or(|ledger| ledger.phase.is_end() && ledger.phase.is_rollback());
    if has_stopped(context) || has_ended {
        return Check::Met("no member is left at the destination".to_owned());
    }
    let (wait, passed) = (owner_wait(context), context.since(Step::OwnerRecordRestored).unwrap_or_default());
    if passed > wait {
        Check::Met(format!("the owner record has named the source for {} s", passed.as_secs()))
    } else {
        Check::waiting(
            "DestinationMayServe",
            format!("members of the destination may believe in their ownership for {} s", wait.as_secs()),
        )
    }
}

fn note_volumes(context: &Context, notes: &mut Notes) {
    notes.volumes = Some(format!("{}-source", context.observed.request.uid));
}

fn is_etcd_restored(context: &Context) -> Check {
    let notes = context.notes;
    source(context, |facts| {
        let etcd = &facts.etcd;
        let is_ours = notes.volumes.as_ref() == Some(&etcd.volumes) && notes.owner_epoch == Some(etcd.epoch);
        let least = notes.final_snapshot.as_ref().map_or(0, |snapshot| snapshot.revision);
        match etcd.revision.filter(|_| is_ours) {
            Some(revision) if revision < least => Check::blocked(
                "RevisionWentBack",
                format!("the etcd serves revision {revision}, and the final snapshot holds {least}"),
            ),
            Some(revision) => Check::Met(format!("a quorum answers at revision {revision}")),
            None => {
                Check::waiting("EtcdRestoring", format!("{} members run, and no quorum answers", etcd.pods))
            }
        }
    })
}

fn restore_etcd(context: &Context) -> Vec<Effect> {
    let notes = context.notes;
    let (Some(volumes), Some(from), Some(owner), Some(replicas)) =
        (notes.volumes.clone(), notes.final_snapshot.clone(), own_id(context), notes.etcd_replicas)
    else {
        return Vec::new();
    };
    let (standby, fence) = (false, context.rollback_fence());
    vec![Effect::EnsureEtcd { standby, volumes, from, owner, replicas, fence }]
}

/// Written once by this fence, so that a request to wake it that is still on its way is refused.
fn is_etcd_asleep(context: &Context) -> Check {
    match is_etcd_stopped(context) {
        Check::Met(_)
            if context.at_source().is_some_and(|facts| facts.etcd.fence != context.rollback_fence()) =>
        {
            Check::waiting("Hibernating", "the Etcd is being scaled to zero")
        }
        check => check,
    }
}

fn hibernate_etcd(context: &Context) -> Vec<Effect> {
    let facts = context.at_source().into_iter();
    facts
        .map(|facts| Effect::EnsureEtcdReplicas {
            replicas: 0,
            volumes: facts.etcd.volumes.clone(),
            fence: context.rollback_fence(),
        })
        .collect()
}
