//! Rows of a live migration on the tunnel from the control plane to its Shoot: webhooks, `exec`, `logs` and aggregated APIs need one at each
//! side that serves.
//!
//! Clients in the Shoot dial the name of the API, so DNS alone chooses the seed, and before it is switched nobody dials the destination. A
//! temporary client does, by a name of its own: a copy of the usual one, made before the first kube-apiserver of the destination starts. It
//! goes when the usual client has reconnected.

use crate::{
    flow::{OnFailure, Proof, Row, Timeout},
    ledger::Check,
    migration::{
        MigrationFlow, Notes, Side, Step,
        context::{Context, destination, source},
        effect::Effect,
        observed::{Facts, Replicas, TunnelClient},
        rows::day_long,
        tunnel,
    },
};

/// The servers at the source, as they were noted; `None` where there is no tunnel.
fn noted_servers<'a>(context: &'a Context) -> Option<&'a Replicas> {
    let notes = match context.observed.facts {
        Facts::Source(_) => Some(context.notes),
        Facts::Garden(_) | Facts::Destination(_) => context.source_notes(),
    };
    notes.map(|notes| &notes.tunnel_servers).filter(|servers| !servers.is_empty())
}

fn has_tunnel(context: &Context) -> bool {
    noted_servers(context).is_some()
}

/// Noted when the members of the source are exposed.
pub(super) fn note_servers(context: &Context, notes: &mut Notes) {
    if let Some(facts) = context.at_source() {
        notes.tunnel_servers.clone_from(&facts.tunnel.servers.wanted);
    }
}

fn is_exposed(context: &Context) -> Check {
    let wanted = noted_servers(context);
    destination(context, |facts| {
        let (servers, fence) = (&facts.tunnel.servers, context.forward_fence());
        match &facts.tunnel.unexposed {
            _ if wanted != Some(&servers.wanted) || servers.fence != fence || servers.pods == 0 => {
                Check::waiting("TunnelStarting", "servers of the tunnel are being started")
            }
            Some(why) => Check::waiting("TunnelNotExposed", why.clone()),
            None => Check::Met("clients find the servers of the tunnel by the temporary name".to_owned()),
        }
    })
}

fn expose(context: &Context) -> Vec<Effect> {
    let servers = noted_servers(context).cloned();
    let ensure = servers.map(|replicas| Effect::EnsureTunnel { replicas, fence: context.forward_fence() });
    ensure.into_iter().chain([Effect::ExposeTunnel]).collect()
}

fn is_client_started(context: &Context) -> Check {
    source(context, |facts| match (&facts.tunnel.temporary_client, &facts.tunnel.client) {
        (TunnelClient::Unknown(why), _) | (_, TunnelClient::Unknown(why)) => {
            Check::waiting("ShootUnreadable", format!("clients of the tunnel cannot be read: {why}"))
        }
        (TunnelClient::Ready, _) => Check::Met("the temporary client of the tunnel is ready".to_owned()),
        (TunnelClient::Absent, TunnelClient::Absent) => Check::blocked(
            "TunnelClientMissing",
            "the Shoot has no Deployment of the name in the annotation of the tunnel",
        ),
        (TunnelClient::Absent | TunnelClient::Starting, _) => {
            Check::waiting("TunnelClientStarting", "the temporary client of the tunnel is not ready")
        }
    })
}

fn is_reached(context: &Context) -> Check {
    destination(context, |facts| match &facts.tunnel.unreached {
        Some(why) => Check::waiting("TunnelNotConnected", why.clone()),
        None => {
            Check::Met("kube-apiservers of the destination reach the Shoot through the tunnel".to_owned())
        }
    })
}

fn is_temporary_client_gone(context: &Context) -> Check {
    source(context, |facts| match &facts.tunnel.temporary_client {
        TunnelClient::Absent => Check::Met("the temporary client of the tunnel is gone".to_owned()),
        TunnelClient::Unknown(why) => {
            Check::waiting("ShootUnreadable", format!("clients of the tunnel cannot be read: {why}"))
        }
        TunnelClient::Starting | TunnelClient::Ready => {
            Check::waiting("Removing", "the temporary client of the tunnel is being deleted")
        }
    })
}

pub(super) const TUNNEL_EXPOSED: Row<MigrationFlow> = Row {
    does: "Servers of the tunnel run at the destination, and clients in the Shoot find them by a temporary DNS name.",
    guard: has_tunnel,
    advice: "see in the Service of the tunnel and in its DNSRecord why there is no address",
    effects: expose,
    ..Row::new(Side::Destination, Step::TunnelExposed, is_exposed)
};

pub(super) const TEMPORARY_CLIENT_STARTED: Row<MigrationFlow> = Row {
    does: "A temporary client of the tunnel is ready in the Shoot. It dials the destination, by the temporary name.",
    guard: has_tunnel,
    advice: "see in the logs of the temporary client in the Shoot why it is not ready",
    effects: |_| vec![Effect::EnsureTemporaryClient],
    ..Row::new(Side::Source, Step::TemporaryClientStarted, is_client_started)
};

pub(super) const TUNNEL_SERVES: Row<MigrationFlow> = Row {
    does: "kube-apiservers of the destination reach the Shoot through the tunnel: they read the log of the temporary client.",
    guard: has_tunnel,
    proof: Proof::HeldUntil(Step::SourceControllersStopped),
    advice: "see in the logs of the servers of the tunnel at the destination, and of the temporary client, why they are not connected",
    ..Row::new(Side::Destination, Step::TunnelServes, is_reached)
};

pub(super) const TUNNEL_MOVED: Row<MigrationFlow> = Row { guard: has_tunnel, ..tunnel::TUNNEL_MOVED };

pub(super) const TEMPORARY_CLIENT_REMOVED: Row<MigrationFlow> = Row {
    does: "The temporary client of the tunnel is gone.",
    guard: has_tunnel,
    on_failure: OnFailure::Skip,
    timeout: Timeout::Steps(2),
    advice: "delete the temporary client in the Shoot by hand",
    effects: |_| vec![Effect::RemoveTemporaryClient],
    ..day_long(Side::Source, Step::TemporaryClientRemoved, is_temporary_client_gone)
};
