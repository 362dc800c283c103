//! Rows of a live migration on the members of the etcd: other seeds reach them, those of the destination join, those of the source leave.

use std::time::Duration;

use super::tunnel;
use crate::{
    ledger::Check,
    migration::{
        Notes, Step,
        context::{Context, destination, none_left, source},
        destination::own_id,
        effect::Effect,
        observed::{EtcdFacts, Exposure, Joining, OwnerId},
        source::{self as from, LOW_TTL, note_controllers},
    },
};

/// Beyond the TTL: clients resolve the name again when a connection ends, and servers of a zone agree after a while.
const DNS_MARGIN: Duration = Duration::from_secs(10);

/// Longer than from one look of the operator of an Etcd at its members to the next.
const LISTED_WITHIN: Duration = Duration::from_secs(60);

/// Fewer members than these would be without a quorum while one of them restarts.
const LEAST_MEMBERS: u32 = 3;

/// As in a classic migration, of a control plane that can go on while a part of it restarts.
pub(super) fn does_source_serve(context: &Context) -> Check {
    if context.is_hibernated() {
        return Check::blocked("Hibernated", "the Shoot is hibernated; migrate it in mode Classic");
    }
    source(context, |facts| match facts.etcd.wanted {
        Some(members) if members < LEAST_MEMBERS => {
            let message = format!(
                "the etcd has {members} members, and not {LEAST_MEMBERS}; migrate the Shoot in mode Classic"
            );
            Check::blocked("NotHighlyAvailable", message)
        }
        Some(_) if !facts.etcd.has_gateway => {
            let message = "the Etcd has no gateway, so writes would fail while its members restart; set spec.etcd.gateway to {}, or \
                           migrate the Shoot in mode Classic";
            Check::blocked("NoGateway", message)
        }
        Some(_) if facts.tunnel.invalid.is_some() => {
            Check::blocked("TunnelInvalid", facts.tunnel.invalid.clone().unwrap_or_default())
        }
        _ => from::does_source_serve(context),
    })
}

fn are_reached(exposure: &Exposure) -> Check {
    let what = "other seeds do not reach the members";
    none_left(&exposure.missing, "MembersNotReached", what, "other seeds reach all members")
}

pub(super) fn are_exposed_at_source(context: &Context) -> Check {
    source(context, |facts| match are_reached(&facts.exposure) {
        Check::Met(_) if !facts.etcd.is_advertised || facts.etcd.fence != context.forward_fence() => {
            Check::waiting("MembersRenamed", "members are being told the addresses by which they are known")
        }
        Check::Met(_) if !facts.etcd.is_settled => {
            Check::waiting("MembersRestarting", format!("{} members are ready", facts.etcd.ready))
        }
        check => check,
    })
}

/// Replicas are noted as early as this: the destination starts its kube-apiservers while those of the source run.
pub(super) fn note_source(context: &Context, notes: &mut Notes) {
    note_controllers(context, notes);
    tunnel::note_servers(context, notes);
    if let Some(facts) = context.at_source() {
        notes.owner_epoch.get_or_insert(facts.etcd.epoch);
    }
}

pub(super) fn note_members(context: &Context, notes: &mut Notes) {
    if let Some(facts) = context.at_source() {
        notes.members.clone_from(&facts.exposure.members);
    }
}

pub(super) fn expose(context: &Context) -> Vec<Effect> {
    vec![Effect::ExposeMembers { fence: context.forward_fence() }]
}

pub(super) fn are_exposed_at_destination(context: &Context) -> Check {
    destination(context, |facts| are_reached(&facts.exposure))
}

/// The ID by which members of the destination serve when the source has left, and the volumes that they fill.
pub(super) fn note_join(context: &Context, notes: &mut Notes) {
    let joined = joined_id(context).map(|owner| owner.epoch + 1);
    notes.owner_epoch = notes.owner_epoch.max(joined);
    notes.volumes = Some(format!("{}-destination", context.observed.request.uid));
}

fn joined_id(context: &Context) -> Option<OwnerId> {
    let epoch = context.source_notes()?.owner_epoch?;
    Some(OwnerId { seed: context.observed.request.source_identity.clone(), epoch })
}

/// Whether an Etcd has the volumes and the owner of this migration.
fn is_ours(context: &Context, etcd: &EtcdFacts) -> bool {
    Some(&etcd.volumes) == context.notes.volumes.as_ref() && Some(etcd.epoch) == context.notes.owner_epoch
}

pub(super) fn have_joined(context: &Context) -> Check {
    destination(context, |facts| {
        let etcd = &facts.etcd;
        match etcd.joining {
            Joining::Joined | Joining::Released if is_ours(context, etcd) => {
                Check::Met(format!("{} members have joined the etcd of the source", etcd.ready))
            }
            _ => Check::waiting("MembersJoining", format!("{} members are ready", etcd.ready)),
        }
    })
}

pub(super) fn join(context: &Context) -> Vec<Effect> {
    let (notes, source) = (context.notes, context.source_notes());
    let (Some(volumes), Some(owner), Some(joined), Some(source)) =
        (notes.volumes.clone(), own_id(context), joined_id(context), source)
    else {
        return Vec::new();
    };
    let Some(replicas) = source.etcd_replicas.filter(|_| !source.members.is_empty()) else {
        return Vec::new();
    };
    let (members, fence) = (source.members.clone(), context.forward_fence());
    vec![Effect::JoinEtcd { volumes, owner, joined, members, replicas, fence }]
}

/// Whether no resolver has the former address any more. The record was written before `waits` was started, whose side has one clock.
pub(super) fn has_address_expired(context: &Context, waits: Step) -> Check {
    let (wait, passed) = (LOW_TTL + DNS_MARGIN, context.since_start(waits).unwrap_or_default());
    if passed >= wait {
        Check::Met(format!("the record was written at least {} s ago", passed.as_secs()))
    } else {
        Check::waiting(
            "AddressCached",
            format!("resolvers may keep the former address for {} s", wait.as_secs()),
        )
    }
}

pub(super) fn have_source_members_left(context: &Context) -> Check {
    let wanted = context.source_notes().and_then(|notes| notes.etcd_replicas);
    destination(context, |facts| {
        let etcd = &facts.etcd;
        match etcd.joining {
            Joining::Released if Some(etcd.ready) >= wanted => {
                Check::Met(format!("the etcd has {} members, all of them here", etcd.ready))
            }
            Joining::Released => {
                Check::waiting("MembersNotReady", format!("{} members are ready", etcd.ready))
            }
            Joining::Joined | Joining::Apart => {
                Check::waiting("SourceMembersLeaving", "the members of the source are being removed")
            }
        }
    })
}

pub(super) fn note_shrunk(_: &Context, notes: &mut Notes) {
    notes.shrunk = true;
}

pub(super) fn remove_source_members(context: &Context) -> Vec<Effect> {
    vec![Effect::RemoveSourceMembers { fence: context.forward_fence() }]
}

pub(super) fn have_lost_members_left(context: &Context) -> Check {
    // A member that has just joined is listed after the next look of the operator.
    let is_fresh = context.since_start(Step::LostMembersRemoved).unwrap_or_default() >= LISTED_WITHIN;
    source(context, |facts| match facts.etcd.unknown_members {
        0 if !is_fresh => {
            Check::waiting("MembersBeingListed", "the operator looks which members the etcd has")
        }
        0 => Check::Met("the etcd has the members of the source alone".to_owned()),
        left => Check::waiting("LostMembersLeaving", format!("{left} members of the destination are left")),
    })
}

pub(super) fn remove_lost_members(context: &Context) -> Vec<Effect> {
    vec![Effect::RemoveLostMembers { fence: context.rollback_fence() }]
}

fn are_hidden(etcd: &EtcdFacts, exposure: &Exposure) -> Check {
    if etcd.is_exposed {
        return Check::waiting("MembersRenamed", "members are being told their former addresses");
    }
    if !etcd.is_settled {
        return Check::waiting("MembersRestarting", format!("{} members are ready", etcd.ready));
    }
    none_left(&exposure.left, "Removing", "left of the exposure", "no other seed reaches the members")
}

pub(super) fn are_hidden_at_destination(context: &Context) -> Check {
    destination(context, |facts| are_hidden(&facts.etcd, &facts.exposure))
}

pub(super) fn hide(context: &Context) -> Vec<Effect> {
    vec![Effect::HideMembers { fence: context.forward_fence() }]
}

/// Written once by this fence, so that a request to expose them that is still on its way is refused.
pub(super) fn are_hidden_at_source(context: &Context) -> Check {
    source(context, |facts| match are_hidden(&facts.etcd, &facts.exposure) {
        Check::Met(_) if facts.etcd.fence != context.rollback_fence() => {
            Check::waiting("MembersRenamed", "the Etcd is being written")
        }
        check => check,
    })
}

pub(super) fn hide_again(context: &Context) -> Vec<Effect> {
    vec![Effect::HideMembers { fence: context.rollback_fence() }]
}

pub(super) fn is_snapshot_stored(context: &Context) -> Check {
    destination(context, |facts| match facts.copied {
        Some(revision) => Check::Met(format!("snapshots up to revision {revision} are stored")),
        None => Check::waiting("NoSnapshot", "no snapshot of the etcd is in the bucket of the destination"),
    })
}
