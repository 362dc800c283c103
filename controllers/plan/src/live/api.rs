//! Rows on the kube-apiservers of the destination, their watch caches, and the DNS name that leads to them.
//!
//! A kube-apiserver that starts reads all objects from the etcd. In a large Shoot this keeps the etcd busy, so kube-apiservers start one
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
/// Beyond what a row waits for by itself.
const MARGIN: Duration = Duration::from_secs(600);

/// How long a kube-apiserver is waited for before the next one starts. One that reads 1 GB is ready after a minute on a busy machine.
const TURN: Duration = Duration::from_secs(240);

/// Replicas of the kube-apiservers at the source, without those of the tunnel; `None` before this side knows them.
fn noted(context: &Context) -> Option<Replicas> {
    let notes = context.source_notes()?;
    let all = notes.api_servers.clone()?.into_iter();
    Some(all.filter(|(name, _)| !notes.tunnel_servers.contains_key(name)).collect())
}

fn noted_count(context: &Context) -> u32 {
    noted(context).map_or(0, |servers| servers.values().sum())
}

/// Asks for as many as at the source, but for `most` at first; what runs is never stopped.
fn serve(context: &Context, most: u32) -> Vec<Effect> {
    let (Some(facts), Some(servers)) = (context.at_destination(), noted(context)) else { return Vec::new() };
    let mut effects = to::serve_api(context);
    for effect in &mut effects {
        let Effect::EnsureApi { replicas, .. } = effect else { continue };
        for (name, count) in replicas.iter_mut().filter(|(name, _)| servers.contains_key(*name)) {
            let asked = facts.api.wanted.get(name).copied().unwrap_or_default();
            *count = asked.max((*count).min(most));
        }
    }
    effects
}

/// One more than are ready. One that does not become ready has its turn only: then there is another one.
fn serve_by_turns(context: &Context, step: Step) -> Vec<Effect> {
    let ready = context.at_destination().map_or(0, |facts| facts.api.ready);
    let waited = context.since_start(step).unwrap_or_default();
    let turns = u32::try_from(waited.as_secs() / TURN.as_secs()).unwrap_or(u32::MAX);
    serve(context, ready.saturating_add(turns).saturating_add(1))
}

/// Where somebody stops them later, all of them start again.
fn serve_first(context: &Context) -> Vec<Effect> {
    match context.is_settled(Step::WatchCachesStarted) {
        true => serve(context, u32::MAX),
        false => serve_by_turns(context, Step::ApiServes),
    }
}

/// `WatchCachesStarted` may have been skipped: all kube-apiservers are asked for before clients come.
fn is_dns_switched(context: &Context) -> Check {
    let noted = noted(context).unwrap_or_default();
    destination(context, |facts| {
        let is_asked = |(name, count): (&String, &u32)| match facts.api.wanted.get(name) {
            Some(asked) => asked >= count,
            None => true,
        };
        match noted.iter().all(is_asked) {
            true => api_dns::is_dns_switched(context),
            false => Check::waiting(
                "ApiServersScaling",
                "not all kube-apiservers are asked for yet; where that lasts, somebody else scales their Deployment",
            ),
        }
    })
}

fn switch_dns(context: &Context) -> Vec<Effect> {
    [serve(context, u32::MAX), api_dns::switch_dns(context)].concat()
}

fn are_started(context: &Context) -> Check {
    let noted = noted_count(context);
    let is_early = context.since_start(Step::WatchCachesStarted).unwrap_or_default() < TURN * noted;
    destination(context, |facts| match &facts.uncached {
        _ if facts.api.ready < noted && is_early => {
            let ready = facts.api.ready;
            Check::waiting("ApiServersStarting", format!("{ready} of {noted} kube-apiservers are ready"))
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

pub(super) const API_SERVES: Row<MigrationFlow> = Row { effects: serve_first, ..shared::API_SERVES };

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
    timeout: Timeout::Computed {
        text: "4 minutes for each kube-apiserver, and 10 minutes",
        limit: |context| (TURN * noted_count(context)).saturating_add(MARGIN),
    },
    effects: |context| serve_by_turns(context, Step::WatchCachesStarted),
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
