//! The row on clients of the tunnel, which live and forced migrations have in common: the usual client has reconnected, and no temporary
//! one is left in the Shoot.

use std::time::Duration;

use super::{
    context::{Context, destination},
    effect::Effect,
    flow::MigrationFlow,
    observed::TunnelClient,
    step::{Side, Step},
};
use crate::{
    flow::{OnFailure, Row, Timeout},
    ledger::Check,
};

/// Longer than it takes until the Shoot says that a client is not connected: three probes, ten seconds apart, and the status after them.
const RECONNECTED_WITHIN: Duration = Duration::from_secs(60);

pub(crate) const TUNNEL_MOVED: Row<MigrationFlow> = Row {
    does: "The usual client of the tunnel has reconnected to the destination, and no temporary one is left in the Shoot.",
    on_failure: OnFailure::Skip,
    timeout: Timeout::Steps(2),
    advice: "see in the logs of the usual client why it does not connect; then delete the temporary one in the Shoot",
    effects: remove_temporary_client,
    ..Row::new(Side::Destination, Step::TunnelMoved, is_moved)
};

/// Servers of the source have ended before, so the usual client cannot be connected to them any more.
pub(crate) fn is_moved(context: &Context) -> Check {
    destination(context, |facts| match (&facts.tunnel.client, &facts.tunnel.temporary_client) {
        (TunnelClient::Unknown(why), _) | (_, TunnelClient::Unknown(why)) => {
            Check::waiting("ShootUnreadable", format!("clients of the tunnel cannot be read: {why}"))
        }
        (TunnelClient::Ready, TunnelClient::Absent) => {
            Check::Met("the usual client is connected, and there is no temporary one".to_owned())
        }
        (TunnelClient::Ready, _) if has_reconnected(context) => {
            Check::waiting("Removing", "the temporary client of the tunnel is being deleted")
        }
        _ => Check::waiting("TunnelClientReconnecting", "the usual client of the tunnel is reconnecting"),
    })
}

fn has_reconnected(context: &Context) -> bool {
    let is_ready = context.at_destination().is_some_and(|facts| facts.tunnel.client == TunnelClient::Ready);
    is_ready && context.since_start(Step::TunnelMoved).unwrap_or_default() >= RECONNECTED_WITHIN
}

fn remove_temporary_client(context: &Context) -> Vec<Effect> {
    has_reconnected(context).then_some(Effect::RemoveTemporaryClient).into_iter().collect()
}
