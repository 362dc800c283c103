//! Rows of the destination: what is lost is confirmed, ownership is taken from a source that does not answer, and its etcd begins anew
//! from the bucket of the source.

use repot_api::names::CONFIRM_SOURCE_STOPPED;

use crate::{
    ledger::{Check, SOURCE_CONTROLLERS_MAY_RUN},
    migration::{
        Loss, Notes, Side, Step,
        context::{Context, destination},
        destination::{is_awake, own_id},
        effect::Effect,
        lost,
        observed::{DestinationFacts, FinalSnapshot, OwnerRecord, TunnelClient, Workloads},
        standby::does_serve_from,
        tunnel,
    },
};

/// The wait begins with the record, and DNS has to answer for it: so both are asked for before anything is done to the source.
pub(super) fn is_loss_confirmed(context: &Context) -> Check {
    let request = &context.observed.request;
    destination(context, |facts| match (&facts.source_newest, &facts.owner) {
        (None, _) => Check::waiting("NoSnapshot", "the newest snapshot of the source is not known"),
        (_, OwnerRecord::Unknown) => {
            Check::waiting("OwnerUnknown", "the servers of the zone do not agree, or do not answer")
        }
        (Some(newest), _) => {
            let confirmed = (request.confirmed, &*request.source_seed);
            lost::is_confirmed(newest, "may be lost", confirmed, context.now)
        }
    })
}

pub(super) fn note_loss(context: &Context, notes: &mut Notes) {
    let Some(facts) = context.at_destination() else { return };
    notes.loss = facts.source_newest.as_ref().map(|newest| Loss {
        snapshot: newest.name.clone(),
        revision: newest.revision,
        time: newest.created.to_rfc3339(),
        epoch: epoch_of_source(context, facts),
    });
}

/// The highest epoch that anybody else was seen to have. The Etcd was carried, so it has the epoch of the source until it is started.
fn epoch_of_source(context: &Context, facts: &DestinationFacts) -> u64 {
    let own = own_id(context);
    let recorded = match &facts.owner {
        OwnerRecord::Present(owner) if Some(owner) != own.as_ref() => owner.epoch,
        OwnerRecord::Present(_) | OwnerRecord::Unknown | OwnerRecord::Absent => 0,
    };
    let carried = if facts.etcd.fence == context.forward_fence() { 0 } else { facts.etcd.epoch };
    let garden = context.side(Side::Garden).and_then(|ledger| ledger.notes.owner_epoch);
    recorded
        .max(garden.unwrap_or_default())
        .max(carried)
        .max(facts.highest_epoch)
        .max(context.notes.loss.as_ref().map_or(0, |loss| loss.epoch))
}

/// Before anything is written: the epoch of this hand-over, and what has to run afterwards.
pub(super) fn note_take_over(context: &Context, notes: &mut Notes) {
    let Some(facts) = context.at_destination() else { return };
    notes.owner_epoch = notes.owner_epoch.max(Some(epoch_of_source(context, facts) + 1));
    // The ShootState of one that was hibernated just before may say that they run.
    let before = |workloads: &Workloads| match context.is_hibernated() {
        true => workloads.none(),
        false => workloads.former.clone(),
    };
    notes.api_servers.get_or_insert_with(|| before(&facts.api));
    notes.controllers.get_or_insert_with(|| {
        let (others, own) = (before(&facts.controllers), before(&facts.kube_controllers));
        others.into_iter().chain(own).collect()
    });
    if notes.tunnel_servers.is_empty() {
        notes.tunnel_servers = before(&facts.tunnel.servers);
    }
    notes.etcd_replicas.get_or_insert(facts.etcd.members);
    notes.volumes.get_or_insert_with(|| format!("{}-destination", context.observed.request.uid));
}

pub(super) fn is_source_fenced(context: &Context) -> Check {
    let passed = context.since(Step::OwnerRecordTaken).unwrap_or_default();
    destination(context, |facts| {
        let wait = facts.owner_wait;
        if !wait.is_zero() && passed > wait {
            Check::Met(format!("the owner record has named the destination for {} s", passed.as_secs()))
        } else {
            Check::waiting(
                "SourceMayServe",
                format!("members of the source may believe in their ownership for {} s", wait.as_secs()),
            )
        }
    })
}

/// DNS fences the etcd, and not those who act on the infrastructure by the API of their seed.
pub(super) fn are_controllers_fenced(context: &Context) -> Check {
    let request = &context.observed.request;
    if context.is_reached(Step::SourceControllersStopped) {
        return Check::Met("no controller is left at the source".to_owned());
    }
    if context.is_reached(Step::SourceQuarantined) {
        return Check::Met("the credentials of the source seed are revoked".to_owned());
    }
    if request.source_stopped {
        return Check::Met("somebody has confirmed that they are stopped".to_owned());
    }
    Check::waiting(
        SOURCE_CONTROLLERS_MAY_RUN,
        format!(
            "a machine-controller-manager of the source may run, and deletes VMs that it does not know; make sure that it cannot, and \
             confirm it by annotation {CONFIRM_SOURCE_STOPPED}={}",
            request.source_seed
        ),
    )
}

/// Whether the control plane has a tunnel to its Shoot that is awake.
pub(super) fn has_tunnel(context: &Context) -> bool {
    is_awake(context) && !context.notes.tunnel_servers.is_empty()
}

/// A usual client that is not connected holds nothing up where there is no temporary one.
pub(super) fn is_tunnel_moved(context: &Context) -> Check {
    let temporary = context.at_destination().map(|facts| &facts.tunnel.temporary_client);
    match temporary {
        Some(TunnelClient::Absent) => {
            Check::Met("no temporary client of the tunnel is in the Shoot".to_owned())
        }
        _ => tunnel::is_moved(context),
    }
}

/// Of a hibernated Shoot, once nobody writes to the bucket of the source any more.
pub(super) fn copy_snapshots(context: &Context) -> Vec<Effect> {
    if context.is_settled(Step::SourceFenced) { vec![Effect::CopySnapshots] } else { Vec::new() }
}

pub(super) fn copy_older(_: &Context) -> Vec<Effect> {
    vec![Effect::CopyOlderSnapshots]
}

pub(super) fn are_older_copied(context: &Context) -> Check {
    destination(context, |facts| match facts.older_copied {
        true => Check::Met("the bucket of the destination has all snapshots of the source".to_owned()),
        false => Check::waiting("CopyingSnapshots", "older snapshots of the source are being copied"),
    })
}

/// The members wait by themselves until the source is fenced, and until a final snapshot is stored or its time is over.
pub(super) fn does_etcd_serve(context: &Context) -> Check {
    let least = context.notes.loss.as_ref().map_or(0, |loss| loss.revision);
    does_serve_from(context, "newest", least)
}

pub(super) fn serve_etcd(context: &Context) -> Vec<Effect> {
    let notes = context.notes;
    let (Some(volumes), Some(loss), Some(owner), Some(replicas)) =
        (notes.volumes.clone(), &notes.loss, own_id(context), notes.etcd_replicas)
    else {
        return Vec::new();
    };
    let from = FinalSnapshot { name: loss.snapshot.clone(), revision: loss.revision, epoch: loss.epoch };
    let replicas = if is_awake(context) { replicas } else { 0 };
    vec![Effect::EnsureEtcd {
        standby: false,
        volumes,
        from,
        owner,
        replicas,
        fence: context.forward_fence(),
    }]
}
