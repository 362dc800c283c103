//! Rows on the watch caches of kube-apiservers of the destination. A client that changes sides watches on from the version that it has. Where
//! that is older than the watch cache, it is told that its version has expired, and lists everything anew; all clients would do so at once.

use std::time::Duration;

use crate::{
    flow::{OnFailure, Row, Timeout},
    ledger::Check,
    migration::{
        MigrationFlow, Side, Step,
        context::{Context, destination},
    },
};

/// Longer than from one bookmark to the next: kube-apiserver sends one to each watch every minute, so no client has an older version.
const FILLED_AFTER: Duration = Duration::from_secs(75);
/// Nothing but time can be missing.
const MARGIN: Duration = Duration::from_secs(600);

fn are_started(context: &Context) -> Check {
    destination(context, |facts| match &facts.uncached {
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

pub(super) const WATCH_CACHES_STARTED: Row<MigrationFlow> = Row {
    does: "Each kube-apiserver of the destination watches all kinds of the Shoot in the etcd, custom resources included.",
    // A kind that nobody can list is no reason to go back: its clients list anew, or fail, as before.
    on_failure: OnFailure::Skip,
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
