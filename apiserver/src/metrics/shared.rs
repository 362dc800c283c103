//! Counters of parts that are made before the server: one process has one of each.

use std::sync::LazyLock;

use prometheus::{HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, Opts, core::Collector};

fn counters(name: &str, help: &str, labels: &[&str]) -> IntCounterVec {
    // Names and labels are constants: the tests of this file make them all.
    #[expect(clippy::expect_used, reason = "constants, proved by a test")]
    IntCounterVec::new(Opts::new(name, help), labels).expect("a valid name")
}

fn counter(name: &str, help: &str) -> IntCounter {
    #[expect(clippy::expect_used, reason = "constants, proved by a test")]
    IntCounter::new(name, help).expect("a valid name")
}

fn seconds(name: &str, help: &str) -> HistogramVec {
    let opts = HistogramOpts::new(name, help).buckets(vec![0.25, 0.5, 0.7, 1.0, 1.5, 3.0, 5.0, 10.0]);
    #[expect(clippy::expect_used, reason = "constants, proved by a test")]
    HistogramVec::new(opts, &["code"]).expect("a valid name")
}

/// Events written to the audit log.
pub static AUDIT_EVENTS: LazyLock<IntCounter> =
    LazyLock::new(|| counter("apiserver_audit_event_total", "Audit events written."));
/// Events that were lost.
pub static AUDIT_ERRORS: LazyLock<IntCounterVec> = LazyLock::new(|| {
    counters("apiserver_audit_error_total", "Audit events that could not be written.", &["plugin"])
});
/// Events that were lost, by whose they were.
pub static AUDIT_DROPPED: LazyLock<IntCounterVec> = LazyLock::new(|| {
    let help = "Audit events that were lost: of authenticated requests, and of those that were anonymous, got 401 or got 429.";
    counters("repot_audit_dropped_events_total", help, &["requests"])
});
/// Requests that failed because the log did.
pub static AUDIT_REJECTED: LazyLock<IntCounter> = LazyLock::new(|| {
    let help = "Requests that were rejected because their arrival could not be recorded.";
    counter("apiserver_audit_requests_rejected_total", help)
});
/// Requests by how much of them is recorded.
pub static AUDIT_LEVELS: LazyLock<IntCounterVec> =
    LazyLock::new(|| counters("apiserver_audit_level_total", "Requests by audit level.", &["level"]));
/// Counter of TLS handshakes that failed or took too long.
pub static HANDSHAKE_ERRORS: LazyLock<IntCounter> =
    LazyLock::new(|| counter("apiserver_tls_handshake_errors_total", "TLS handshakes that failed."));
/// Requests that were turned away by a limit: which one, whose (`user`, `unauthenticated`), and why (`concurrency-limit`: all is
/// taken; `share-limit`: the flow has its share).
pub static REJECTED_REQUESTS: LazyLock<IntCounterVec> = LazyLock::new(|| {
    counters(
        "apiserver_flowcontrol_rejected_requests_total",
        "Requests rejected by limits on what is served at once.",
        &["priority_level", "flow_schema", "reason"],
    )
});
/// Connections without credentials that were ended to make room for newer ones.
pub static EVICTED_CONNECTIONS: LazyLock<IntCounter> = LazyLock::new(|| {
    counter(
        "repot_unauthenticated_connections_evicted_total",
        "Connections without credentials ended to make room for newer ones.",
    )
});
/// TokenReviews sent, by HTTP code or `<error>`.
pub static TOKEN_REVIEWS: LazyLock<IntCounterVec> = LazyLock::new(|| {
    counters("apiserver_delegated_authn_request_total", "TokenReviews sent, by HTTP code.", &["code"])
});
/// How long TokenReviews took, in seconds, by HTTP code.
pub static TOKEN_REVIEW_SECONDS: LazyLock<HistogramVec> = LazyLock::new(|| {
    seconds("apiserver_delegated_authn_request_duration_seconds", "Time of TokenReviews, by HTTP code.")
});
/// SubjectAccessReviews sent, by HTTP code or `<error>`.
pub static ACCESS_REVIEWS: LazyLock<IntCounterVec> = LazyLock::new(|| {
    counters("apiserver_delegated_authz_request_total", "SubjectAccessReviews sent, by HTTP code.", &["code"])
});
/// How long SubjectAccessReviews took, in seconds, by HTTP code.
pub static ACCESS_REVIEW_SECONDS: LazyLock<HistogramVec> = LazyLock::new(|| {
    seconds(
        "apiserver_delegated_authz_request_duration_seconds",
        "Time of SubjectAccessReviews, by HTTP code.",
    )
});
/// Pods of other API servers that this one has marked as not ready, because they did not answer.
pub static PEERS_MARKED: LazyLock<IntCounter> = LazyLock::new(|| {
    let help =
        "Pods of other API servers that this one has marked as not ready, because they did not answer.";
    counter("repot_peers_marked_unready_total", help)
});
/// Other ready API servers that do not answer now.
pub static PEERS_UNREACHABLE: LazyLock<IntGauge> = LazyLock::new(|| {
    let help = "Other API servers that are ready and have not answered for three seconds.";
    #[expect(clippy::expect_used, reason = "constants, proved by a test")]
    IntGauge::new("repot_peers_unreachable", help).expect("a valid name")
});

/// All of them, for a registry.
pub(super) fn all() -> Vec<Box<dyn Collector>> {
    let mut all = repot_telemetry::metrics::collectors();
    all.extend::<Vec<Box<dyn Collector>>>(vec![
        Box::new(AUDIT_EVENTS.clone()),
        Box::new(AUDIT_ERRORS.clone()),
        Box::new(AUDIT_LEVELS.clone()),
        Box::new(AUDIT_DROPPED.clone()),
        Box::new(AUDIT_REJECTED.clone()),
        Box::new(HANDSHAKE_ERRORS.clone()),
        Box::new(REJECTED_REQUESTS.clone()),
        Box::new(EVICTED_CONNECTIONS.clone()),
        Box::new(TOKEN_REVIEWS.clone()),
        Box::new(TOKEN_REVIEW_SECONDS.clone()),
        Box::new(ACCESS_REVIEWS.clone()),
        Box::new(ACCESS_REVIEW_SECONDS.clone()),
        Box::new(PEERS_MARKED.clone()),
        Box::new(PEERS_UNREACHABLE.clone()),
    ]);
    all
}

#[cfg(test)]
mod tests {
    #[test]
    fn all_can_be_made() {
        assert_eq!(super::all().len(), 16);
    }
}
