//! Rows of the destination on the DNS record of the API.

use std::time::Duration;

use repot_apimachinery::time::Time;

use super::{
    context::{Context, destination},
    effect::Effect,
    notes::Notes,
};
use crate::ledger::Check;

pub(crate) fn is_dns_switched(context: &Context) -> Check {
    destination(context, |facts| {
        if facts.api_dns_here {
            Check::Met("the servers of the zone answer with the destination".to_owned())
        } else {
            Check::waiting("SwitchingDNS", "the DNS record of the API is being written")
        }
    })
}

pub(crate) fn note_written(context: &Context, notes: &mut Notes) {
    let written = context.at_destination().and_then(|facts| facts.api_dns_written);
    notes.api_dns_written_time = written.map(Time::to_rfc3339);
}

pub(crate) fn switch_dns(_: &Context) -> Vec<Effect> {
    vec![Effect::SwitchApiDns]
}

/// The TTL before the migration; `None` where nothing has changed it.
fn former_ttl(context: &Context) -> Option<Duration> {
    context.source_notes().and_then(Notes::api_ttl)
}

pub(crate) fn is_ttl_raised(context: &Context) -> Check {
    let former = former_ttl(context);
    destination(context, |facts| match former {
        Some(former) if facts.api_ttl != former => {
            Check::waiting("RaisingTTL", format!("the TTL is {} s", facts.api_ttl.as_secs()))
        }
        _ => Check::Met(format!("the TTL is {} s", facts.api_ttl.as_secs())),
    })
}

pub(crate) fn raise_ttl(context: &Context) -> Vec<Effect> {
    let ttl = former_ttl(context).into_iter();
    ttl.map(|ttl| Effect::EnsureApiTtl { ttl, fence: context.forward_fence() }).collect()
}
