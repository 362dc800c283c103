//! The audit trail: who did what, in events of `audit.k8s.io/v1`, as much of it as a policy says. Never payload: see
//! [`redact`]. A request never waits for the log: events that find no room in its queue are counted and lost.

mod event;
pub mod log;
pub mod policy;
pub mod redact;

use std::sync::Arc;

use axum::body::Body;
use bytes::Bytes;
use futures::StreamExt;
use http::Response;
use parking_lot::Mutex;

use self::{
    event::{Event, Head, Outcome},
    log::Log,
    policy::{Decision, Level, Policy, Stage},
};
use crate::{call::Call, metrics, resource::Resource, status::Status};

/// Bodies up to this size are kept for the log until it has redacted them.
const MOST_KEPT: usize = 16 << 20;

/// Writes the trail.
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

    /// Records nothing.
    #[must_use]
    pub fn off() -> Self {
        Self::new(Policy::default(), None)
    }

    /// Begins the trail of a request whose user is known; `None`: it leaves none.
    #[must_use]
    pub fn begin(&self, call: &Call, resource: Option<&Resource>) -> Option<Trail> {
        let log = self.log.clone()?;
        let decision = self.policy.decide(&call.user, &call.info);
        metrics::AUDIT_LEVELS.with_label_values(&[decision.level.name()]).inc();
        if decision.level == Level::None {
            return None;
        }
        let schema = resource.map(|resource| resource.kind.schema);
        let head = Arc::new(Head::of(call, &decision, schema));
        let trail = Trail { log, decision, head, sent: None, answered: Arc::default() };
        trail.record(Stage::RequestReceived, call, None);
        Some(trail)
    }

    /// Writes what is queued; nothing is recorded any more.
    pub async fn close(&self) {
        if let Some(log) = self.log.clone() {
            // An error means that the log's thread is gone, which it has said itself.
            let _ = tokio::task::spawn_blocking(move || log.close()).await;
        }
    }
}

/// The trail of one request.
pub struct Trail {
    log: Arc<Log>,
    decision: Decision,
    head: Arc<Head>,
    sent: Option<Bytes>,
    answered: Arc<Mutex<Option<Vec<Bytes>>>>,
}

impl Trail {
    /// Keeps the body of the request, where the policy wants it.
    pub fn keep_sent(&mut self, body: &Bytes) {
        if self.decision.level >= Level::Request && body.len() <= MOST_KEPT {
            self.sent = Some(body.clone());
        }
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

    /// Records a moment. `status`: the failure, where there is one.
    pub fn record(&self, stage: Stage, call: &Call, outcome: Option<(u16, Option<&Status>)>) {
        if self.decision.omit_stages.contains(&stage) {
            return;
        }
        let outcome = outcome.map(|(code, status)| Outcome { code, status: status.cloned() });
        let mut annotations = call.annotations.clone();
        annotations.extend(call.notes.lock().annotations.iter().cloned());
        let done = matches!(stage, Stage::ResponseComplete | Stage::Panic);
        let event = Event {
            head: self.head.clone(),
            stage,
            at: jiff::Timestamp::now(),
            outcome,
            created: call.notes.lock().created.clone(),
            sent: self.sent.clone().filter(|_| done),
            answered: if done { self.answered.lock().take() } else { None },
            annotations,
        };
        self.log.write(event);
    }
}
