//! Rows on the kube-apiservers of the destination, their watch caches, and the DNS name that leads to them.
//!
//! A kube-apiserver that starts reads all objects from the etcd. Those of a large Shoot keep the etcd busy, so kube-apiservers start one
//! after the other. A client that changes sides watches on from the version that it has. Where that is older than the watch cache, it is
//! told that its version has expired, and lists everything anew; all clients would do so at once.

use std::time::Duration;

use crate::{
    flow::{OnFailure, Row, Timeout},
    ledger::Check,
    migration::{
        MigrationFlow, Side, Step, api_dns,
        context::{Context, destination},
        destination as to,
        effect::Effect,
        observed::Replicas,
        shared,
    },
};

/// Longer than from one bookmark to the next: kube-apiserver sends one to each watch every minute, so no client has an older version.
const FILLED_AFTER: Duration = Duration::from_secs(75);
/// Nothing but time can be missing.
const MARGIN: Duration = Duration::from_secs(600);

/// Replicas of the kube-apiservers before the migration, without those of the tunnel; `None` before this side knows both.
fn wanted(context: &Context) -> Option<Replicas> {
    let facts = context.at_destination()?;
    let all = context.replica_notes()?.api_servers.clone()?;
    let is_tunnel = |name: &String| facts.tunnel.servers.wanted.contains_key(name);
    Some(all.into_iter().filter(|(name, _)| !is_tunnel(name)).collect())
}

/// One Pod more each time that all are ready, up to the replicas before the migration.
fn serve_by_turns(context: &Context) -> Vec<Effect> {
    let (Some(facts), Some(servers)) = (context.at_destination(), wanted(context)) else { return Vec::new() };
    let fence = context.forward_fence();
    let started = |name: &String| facts.api.wanted.get(name).filter(|_| facts.api.fence == fence).copied();
    let mut effects = to::serve_api(context);
    for effect in &mut effects {
        let Effect::EnsureApi { replicas, .. } = effect else { continue };
        for (name, count) in replicas.iter_mut().filter(|(name, _)| servers.contains_key(*name)) {
            *count = (*count).min(started(name).unwrap_or_default().max(facts.api.ready + 1));
        }
    }
    effects
}

/// Clients come: where a kube-apiserver was not waited for any more, the others have been started as well.
fn is_dns_switched(context: &Context) -> Check {
    let wanted = wanted(context).unwrap_or_default();
    destination(context, |facts| {
        let is_started = |(name, count): (&String, &u32)| facts.api.wanted.get(name) >= Some(count);
        match wanted.iter().all(is_started) {
            true => api_dns::is_dns_switched(context),
            false => Check::waiting("ApiServersStarting", "not all kube-apiservers are started"),
        }
    })
}

fn switch_dns(context: &Context) -> Vec<Effect> {
    [to::serve_api(context), api_dns::switch_dns(context)].concat()
}

fn are_started(context: &Context) -> Check {
    let wanted = wanted(context).map_or(0, |servers| servers.values().sum());
    destination(context, |facts| match &facts.uncached {
        _ if facts.api.ready < wanted => {
            let (ready, reason) = (facts.api.ready, "ApiServersStarting");
            Check::waiting(reason, format!("{ready} of {wanted} kube-apiservers are ready"))
        }
        Some(why) => Check::waiting("WatchCachesStarting", why.clone()),
        None => Check::Met(format!("{} kube-apiservers watch all kinds", facts.api.ready)),
    })
}

fn are_filled(context: &Context) -> Check {
    let passed = context.since(Step::WatchCachesStarted).unwrap_or_default();
    if passed >= FILLED_AFTER {
        Check::Met(format!("watch caches were started {} s ago", passed.as_secs()))
    } else {
        let wait = FILLED_AFTER.as_secs();
        Check::waiting("WatchCachesFilling", format!("clients may have versions that are up to {wait} s old"))
    }
}

pub(super) const API_SERVES: Row<MigrationFlow> = Row { effects: serve_by_turns, ..shared::API_SERVES };

pub(super) const API_DNS_SWITCHED: Row<MigrationFlow> = Row {
    does: "The servers of the zone answer with the destination for the name of the API, while the source still serves.",
    advice: "see in the DNSRecord what its controller reports; both sides serve",
    effects: switch_dns,
    on_done: api_dns::note_written,
    ..Row::new(Side::Destination, Step::ApiDnsSwitched, is_dns_switched)
};

pub(super) const WATCH_CACHES_STARTED: Row<MigrationFlow> = Row {
    does: "The other kube-apiservers of the destination are started one by one, and each watches all kinds of the Shoot in the etcd, custom \
           resources included.",
    // A kind that nobody can list is no reason to go back: its clients list anew, or fail, as before. Nor is a kube-apiserver that does not
    // become ready, as long as another one serves.
    on_failure: OnFailure::Skip,
    timeout: Timeout::Steps(2),
    effects: serve_by_turns,
    advice: "see in the logs of the kube-apiserver that is named why it does not answer",
    ..Row::new(Side::Destination, Step::WatchCachesStarted, are_started)
};

pub(super) const WATCH_CACHES_FILLED: Row<MigrationFlow> = Row {
    does: "They have done so for 75 s, so that clients that change sides watch on where they are, and list nothing anew.",
    timeout: Timeout::Computed {
        text: "75 s and 10 minutes",
        limit: |_| FILLED_AFTER.saturating_add(MARGIN),
    },
    advice: "wait",
    ..Row::new(Side::Destination, Step::WatchCachesFilled, are_filled)
};
