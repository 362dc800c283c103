//! The audit trail: who did what, in events of `audit.k8s.io/v1`, as much of it as a policy says. Never payload: see
//! [`redact`]. By default a request waits until its events are written, as in kube-apiserver: see [`delivery::Mode`].

mod completion;
pub mod delivery;
mod event;
pub mod log;
pub mod policy;
mod queue;
pub mod redact;
pub mod rotation;
mod slots;

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use axum::body::Body;
use bytes::Bytes;
use futures::StreamExt;
use http::Response;
use parking_lot::Mutex;
use serde_json::json;

pub(crate) use self::completion::{Completion, hold};
pub use self::event::{AuditedRequest, Facts};
use self::{
    event::{Event, Head, Outcome},
    log::Log,
    policy::{Decision, Level, Policy, Stage},
    queue::Share,
};
use crate::{metrics, resource::Resource, shares::Flow, status::Status};

/// Bodies up to this size are kept for the log until it has redacted them.
const MOST_KEPT: usize = 16 << 20;
/// The code of a request whose client went away before it was answered.
const ABANDONED: u16 = 499;
/// A request stops to wait for the log so long before its own time is up, to be answered within it.
const MARGIN: Duration = Duration::from_secs(2);

/// Decides by a policy what is recorded of a request, and writes it to the audit log.
pub struct Auditor {
    policy: Policy,
    log: Option<Arc<Log>>,
}

impl Auditor {
    /// By this policy into this log; without a log nothing is recorded.
    #[must_use]
    pub fn new(policy: Policy, log: Option<Log>) -> Self {
        Self { policy, log: log.map(Arc::new) }
    }

    /// An auditor without a log, which records nothing.
    #[must_use]
    pub fn off() -> Self {
        Self::new(Policy::default(), None)
    }

    /// Begins the trail of a request whose user is known, and records that it came; `None`: it leaves no trail.
    /// `left`: how much of its time the request has left; `request_timeout`: the most that a request has.
    ///
    /// # Errors
    /// 500 in strict mode, when this is not in the log.
    pub async fn begin(
        &self,
        request: &AuditedRequest<'_>,
        resource: Option<&Resource>,
        left: Duration,
        request_timeout: Duration,
    ) -> Result<Option<Trail>, Status> {
        let Some(log) = self.log.clone() else { return Ok(None) };
        let decision = self.policy.decide(request.user, request.info);
        metrics::AUDIT_LEVELS.with_label_values(&[decision.level.name()]).inc();
        if decision.level == Level::None {
            return Ok(None);
        }
        let schema = resource.map(|resource| resource.kind.schema);
        let head = Arc::new(Head::of(request, &decision, schema));
        let patience = left.saturating_sub(MARGIN).max(left / 2);
        let deadline = (!request.info.long_running()).then(|| Instant::now() + patience);
        let (flow, answered) = (request.user.flow(), Arc::default());
        let trail =
            Trail { log, decision, head, sent: None, answered, flow, deadline, patience: request_timeout };
        if !trail.received().await && trail.log.is_strict() {
            metrics::AUDIT_REJECTED.inc();
            return Err(Status::internal("failed to store audit event"));
        }
        Ok(Some(trail))
    }

    /// Writes what is queued; nothing is recorded any more.
    pub async fn close(&self) {
        if let Some(log) = &self.log {
            log.close().await;
        }
    }
}

/// The share of an event: of a request with this code, where it has one, of this user.
fn share_of(flow: &Flow, code: Option<u16>) -> Share {
    match (flow, code) {
        (Flow::Unauthenticated, _) | (_, Some(401)) => Share::Refused,
        (Flow::User(_), Some(429)) => Share::Throttled,
        (Flow::User(_), _) => Share::Known,
    }
}

/// The trail of one request.
pub struct Trail {
    log: Arc<Log>,
    decision: Decision,
    head: Arc<Head>,
    sent: Option<Bytes>,
    answered: Arc<Mutex<Option<Vec<Bytes>>>>,
    /// Who asks.
    flow: Flow,
    /// Until when the request waits for the log; `None`: it runs for long, and waits for `patience` each time.
    deadline: Option<Instant>,
    patience: Duration,
}

impl Trail {
    /// Keeps the body of the request, where the policy wants it.
    pub fn keep_sent(&mut self, body: &Bytes) {
        if self.decision.level >= Level::Request && body.len() <= MOST_KEPT {
            self.sent = Some(body.clone());
        }
    }

    /// Bytes of the body of the request that are kept.
    pub(crate) fn kept_bytes(&self) -> u64 {
        self.sent.as_ref().map_or(0, |sent| sent.len() as u64)
    }

    /// Keeps what is answered, where the policy wants it.
    #[must_use]
    pub fn keep_answered(&self, response: Response<Body>) -> Response<Body> {
        if self.decision.level < Level::RequestResponse || self.head.long_running {
            return response;
        }
        *self.answered.lock() = Some(Vec::new());
        let (answered, mut length) = (self.answered.clone(), 0);
        let exact = http_body::Body::size_hint(response.body()).exact();
        response.map(|body| {
            let pieces = body.into_data_stream().map(move |piece| {
                length += piece.as_ref().map_or(MOST_KEPT + 1, Bytes::len);
                let mut kept = answered.lock();
                match (&piece, kept.as_mut()) {
                    (Ok(piece), Some(kept)) if length <= MOST_KEPT => kept.push(piece.clone()),
                    // Half a document is of no use.
                    _ => *kept = None,
                }
                piece
            });
            crate::wire::body_of(pieces, exact)
        })
    }

    /// Records that the request came, and waits as the mode says. False: it is not in the log.
    async fn received(&self) -> bool {
        let event = self.event(Stage::RequestReceived, Facts::default(), None);
        // In this order: the event is handed over before anything is awaited.
        let stored = event.map(|event| self.store(event));
        match stored {
            Some(stored) => stored.await,
            None => true,
        }
    }

    /// What is recorded when the request is over.
    pub(crate) fn ends(self, stage: Stage, facts: Facts, code: u16, failure: Option<&Status>) -> Completion {
        Completion::new(self, stage, facts, Outcome { code, status: failure.cloned() })
    }

    /// The request ends here: its client has gone, and nobody goes on with it.
    pub(crate) fn abandon(self, facts: Facts) {
        let status = Status::verbatim(
            ABANDONED,
            json!({
                "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": ABANDONED,
                "message": "the client went away before it was answered; a write may have happened",
            }),
        );
        drop(self.ends(Stage::ResponseComplete, facts, ABANDONED, Some(&status)));
    }

    /// `None`: the policy leaves the stage out.
    fn event(&self, stage: Stage, facts: Facts, outcome: Option<Outcome>) -> Option<Event> {
        if self.decision.omit_stages.contains(&stage) {
            return None;
        }
        let done = matches!(stage, Stage::ResponseComplete | Stage::Panic);
        Some(Event {
            head: self.head.clone(),
            stage,
            at: jiff::Timestamp::now(),
            outcome,
            created: facts.created,
            sent: self.sent.clone().filter(|_| done),
            answered: if done { self.answered.lock().take() } else { None },
            annotations: facts.annotations,
        })
    }

    /// Hands an event to the log at once; see [`Log::store`].
    fn store(&self, event: Event) -> impl Future<Output = bool> + Send + use<> {
        let share = share_of(&self.flow, event.outcome.as_ref().map(|outcome| outcome.code));
        let source = (share, self.flow.clone());
        self.log.store(event, source, self.deadline.unwrap_or_else(|| Instant::now() + self.patience))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_of_users_never_share_places_with_those_of_strangers() {
        let alice = Flow::User("alice".into());
        for (flow, code, share) in [
            (&alice, None, Share::Known),
            (&alice, Some(200), Share::Known),
            (&alice, Some(403), Share::Known),
            (&alice, Some(429), Share::Throttled),
            (&alice, Some(401), Share::Refused),
            (&Flow::Unauthenticated, None, Share::Refused),
            (&Flow::Unauthenticated, Some(429), Share::Refused),
        ] {
            assert_eq!(share_of(flow, code), share, "{flow:?} {code:?}");
        }
    }
}
