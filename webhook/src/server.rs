//! What is served at which path, within which limits.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use bytes::{Bytes, BytesMut};
use http::{HeaderValue, Method, Request, Response, StatusCode, Version, header};
use http_body_util::{BodyExt, Full};
use hyper::body::{Body, Incoming};
use repot_certs::{
    tls::Serving,
    unread::{self, RequestBody},
};
use repot_rules::{
    facts::Facts,
    judge,
    watch::{WATCHES, Watch},
};
use repot_telemetry::{
    ParentTrust, RequestSampler,
    request::{self, RequestAttributes},
};
use tokio::sync::{Semaphore, SemaphorePermit};
use tracing::{Instrument, Span};

use crate::{
    clients::{Authorities, Peer},
    facts::{self, World},
    metrics::Metrics,
    review::Question,
};

/// Reviews beyond this size are read and judged beside the threads that serve connections.
const LARGE: usize = 256 << 10;
/// Opened, an object takes several times its size.
const LARGE_AT_ONCE: usize = 8;
/// What kube-apiserver waits where the request does not say.
const TIMEOUT: Duration = Duration::from_secs(10);
/// The longest that it may be told to wait.
const LONGEST: Duration = Duration::from_secs(30);
/// The way back takes a part of the time.
const MARGIN: Duration = Duration::from_millis(100);
/// Facts that take longer come too late for the person who waits, whatever kube-apiserver would grant.
const FACTS: Duration = Duration::from_secs(3);
/// A body that is more than this many times too large is not read and discarded to its end.
const DISCARDED: u64 = 4;
/// kube-apiserver sends a review at once. One that comes more slowly must not keep memory from others.
const BODY: Duration = Duration::from_secs(10);
/// A permit of the memory for bodies.
const UNIT: usize = 1 << 10;

/// How much is taken in.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The largest body, in bytes.
    pub review_bytes: usize,
    /// All bodies that are held at once, in bytes; further ones wait.
    pub held_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { review_bytes: 32 << 20, held_bytes: 256 << 20 }
    }
}

/// HTTP server that answers AdmissionReviews, probes and metrics.
pub struct Server {
    world: World,
    authorities: Option<Arc<Authorities>>,
    limits: Limits,
    room: Semaphore,
    large: Semaphore,
    metrics: Metrics,
    sampler: RequestSampler,
    stopping: AtomicBool,
    paths: Vec<(String, &'static Watch)>,
}

type Answer = Response<Full<Bytes>>;

/// Why a review is not answered as one: kube-apiserver then does what the webhook's failurePolicy says.
struct Failure(StatusCode, String);

impl Server {
    /// A server of all webhooks.
    ///
    /// # Errors
    /// When metrics collide.
    pub fn new(
        world: World,
        authorities: Option<Arc<Authorities>>,
        limits: Limits,
    ) -> prometheus::Result<Self> {
        let room = Semaphore::new(
            (limits.held_bytes.max(limits.review_bytes) / UNIT).min(Semaphore::MAX_PERMITS) + 1,
        );
        let paths = WATCHES.iter().map(|watch| (watch.path(), *watch)).collect();
        let large = Semaphore::new(LARGE_AT_ONCE);
        let stopping = AtomicBool::new(false);
        let (metrics, sampler) = (Metrics::new()?, RequestSampler::off());
        Ok(Self { world, authorities, limits, room, large, metrics, sampler, stopping, paths })
    }

    /// The same server, with traces of the reviews that the sampler chooses.
    #[must_use]
    pub fn with_sampler(self, sampler: RequestSampler) -> Self {
        Self { sampler, ..self }
    }

    /// From now on it says that it is not ready.
    pub fn set_stopping(&self) {
        self.stopping.store(true, Ordering::Release);
    }

    /// Whose client certificates are believed, where they are asked for.
    #[must_use]
    pub fn authorities(&self) -> Option<&Arc<Authorities>> {
        self.authorities.as_ref()
    }

    /// How much is read and discarded of requests that are answered early.
    #[must_use]
    pub fn unread(&self) -> unread::Limits {
        let bytes = DISCARDED.saturating_mul(self.limits.review_bytes as u64);
        unread::Limits { bytes, request: LONGEST, ..unread::Limits::default() }
    }

    /// What is not known yet, if anything.
    #[must_use]
    pub fn missing(&self) -> Vec<&'static str> {
        self.world.missing()
    }

    /// Tells when the serving certificate ends, among the metrics.
    pub(crate) fn count_certificate(&self, serving: &Arc<Serving>) {
        self.metrics.count_certificate(serving.clone());
    }

    /// Answers a request: an AdmissionReview by POST, a probe, or `/metrics`. Other paths get 404.
    pub async fn serve(&self, request: Request<RequestBody<Incoming>>, peer: &Peer) -> Answer {
        let path = request.uri().path();
        match (request.method(), path) {
            (&Method::GET, "/livez" | "/healthz") => text(StatusCode::OK, "ok"),
            (&Method::GET, "/readyz") => self.ready(),
            (&Method::GET, "/metrics") => self.metrics(),
            _ => match self.paths.iter().find(|(own, _)| own == path) {
                Some((path, watch)) if request.method() == Method::POST => {
                    self.timed(path, watch, request, peer).await
                }
                Some(_) => text(StatusCode::METHOD_NOT_ALLOWED, "reviews come by POST"),
                None => text(StatusCode::NOT_FOUND, "there is nothing at this path"),
            },
        }
    }

    fn ready(&self) -> Answer {
        let missing = self.world.missing();
        if self.stopping.load(Ordering::Acquire) {
            text(StatusCode::SERVICE_UNAVAILABLE, "stopping")
        } else if missing.is_empty() {
            text(StatusCode::OK, "ok")
        } else {
            text(StatusCode::SERVICE_UNAVAILABLE, &format!("not known yet: {}", missing.join(", ")))
        }
    }

    fn metrics(&self) -> Answer {
        let mut answer = Response::new(Full::new(self.metrics.render().into()));
        let kind = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
        answer.headers_mut().insert(header::CONTENT_TYPE, kind);
        answer
    }

    /// Within the time that kube-apiserver waits.
    async fn timed(
        &self,
        path: &str,
        watch: &'static Watch,
        request: Request<RequestBody<Incoming>>,
        peer: &Peer,
    ) -> Answer {
        let began = Instant::now();
        self.metrics.inflight.inc();
        let limit = timeout(request.uri().query().unwrap_or_default());
        let span = self.span(path, &request, peer, began);
        let reviewed = tokio::time::timeout(limit, self.review(watch, request, peer, limit));
        let reviewed = reviewed.instrument(span.clone()).await;
        self.metrics.inflight.dec();
        let late = || Err(Failure(StatusCode::GATEWAY_TIMEOUT, "the facts did not come in time".to_owned()));
        let (answer, verdict) = match reviewed.unwrap_or_else(|_| late()) {
            Ok((body, verdict)) => (json(body), verdict),
            Err(Failure(code, why)) => {
                tracing::warn!(watch = watch.name, code = code.as_u16(), why, "a review failed");
                (text(code, &why), "failed")
            }
        };
        request::answered(&span, answer.status());
        self.metrics.answered(path, answer.status().as_u16(), verdict, began.elapsed());
        answer
    }

    /// The span of a review, if it is traced. kube-apiserver mostly shows no certificate, so without `--client-ca-file` any client may
    /// ask for a trace, up to a number of reviews in a second.
    fn span<B>(&self, path: &str, request: &Request<B>, peer: &Peer, began: Instant) -> Span {
        let attributes = RequestAttributes {
            method: request.method().as_str(),
            route: Some(path),
            protocol: if request.version() == Version::HTTP_2 { "2" } else { "1.1" },
            ..RequestAttributes::default()
        };
        let trust = || match &self.authorities {
            Some(authorities) if peer.is_trusted(authorities) => ParentTrust::Full,
            Some(_) => ParentTrust::Ignored,
            None => ParentTrust::Limited,
        };
        self.sampler.begin(request.headers(), began, trust, &attributes)
    }

    async fn review(
        &self,
        watch: &'static Watch,
        request: Request<RequestBody<Incoming>>,
        peer: &Peer,
        limit: Duration,
    ) -> Result<(Vec<u8>, &'static str), Failure> {
        if let Some(authorities) = &self.authorities
            && !peer.is_trusted(authorities)
        {
            return Err(Failure(
                StatusCode::UNAUTHORIZED,
                "reviews are taken from known clients only".to_owned(),
            ));
        }
        let (body, _held) = self.body(request).await?;
        let large = body.len() > LARGE;
        let _turn = if large { self.large.acquire().await.ok() } else { None };
        let read = move || Question::read(&body, watch);
        let question =
            aside(large, read).await?.map_err(|error| Failure(StatusCode::BAD_REQUEST, error.to_string()))?;
        // Less than all of the time, so that lateness is seen here and counts for the circuit.
        let limit = FACTS.min(limit * 3 / 4);
        let gathering = self.world.gather(watch, &question.change, limit);
        let facts = gathering.instrument(tracing::trace_span!("gather facts")).await.map_err(|error| {
            tracing::warn!(error = &error as &dyn std::error::Error, "facts are missing");
            let code = match error {
                facts::Error::Late { .. } => StatusCode::GATEWAY_TIMEOUT,
                _ => StatusCode::SERVICE_UNAVAILABLE,
            };
            Failure(code, error.to_string())
        })?;
        let (answer, verdict, findings) = aside(large, move || decide(watch, question, &facts)).await?;
        self.metrics.found(&findings);
        Ok((answer, verdict))
    }

    /// The body, and the room that it takes, within [`BODY`].
    async fn body(
        &self,
        request: Request<RequestBody<Incoming>>,
    ) -> Result<(Bytes, SemaphorePermit<'_>), Failure> {
        let late =
            |_| Failure(StatusCode::REQUEST_TIMEOUT, format!("the review did not come within {BODY:?}"));
        tokio::time::timeout(BODY, self.read_body(request)).await.map_err(late)?
    }

    async fn read_body(
        &self,
        request: Request<RequestBody<Incoming>>,
    ) -> Result<(Bytes, SemaphorePermit<'_>), Failure> {
        let most = self.limits.review_bytes;
        let too_large = || Failure(StatusCode::PAYLOAD_TOO_LARGE, format!("a review may have {most} bytes"));
        let told =
            request.body().size_hint().exact().map(|bytes| usize::try_from(bytes).unwrap_or(usize::MAX));
        if told.is_some_and(|bytes| bytes > most) {
            return Err(too_large());
        }
        let closed = |_| Failure(StatusCode::SERVICE_UNAVAILABLE, "stopping".to_owned());
        let mut held = self.room.acquire().await.map_err(closed)?;
        let (mut body, mut taken) = (request.into_body(), BytesMut::new());
        while let Some(frame) = body.frame().await {
            let broke = |_| Failure(StatusCode::BAD_REQUEST, "the body broke off".to_owned());
            let data = frame.map_err(broke)?.into_data().unwrap_or_default();
            if taken.len().saturating_add(data.len()) > most {
                return Err(too_large());
            }
            taken.extend_from_slice(&data);
            // What has come is counted, not what is announced: announcing costs nothing.
            let missing = (taken.len() / UNIT + 1).saturating_sub(held.num_permits());
            let missing = u32::try_from(missing).unwrap_or(u32::MAX);
            held.merge(self.room.acquire_many(missing).await.map_err(closed)?);
        }
        Ok((taken.freeze(), held))
    }
}

/// Large work off the threads that serve connections.
async fn aside<T: Send + 'static>(
    large: bool,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Failure> {
    if !large {
        return Ok(work());
    }
    let broke = |_| Failure(StatusCode::INTERNAL_SERVER_ERROR, "the review broke off".to_owned());
    tokio::task::spawn_blocking(work).await.map_err(broke)
}

fn decide(
    watch: &'static Watch,
    mut question: Question,
    facts: &Facts,
) -> (Vec<u8>, &'static str, Vec<repot_rules::finding::Finding>) {
    if watch.mutating {
        let patch = judge::mutate(watch, &mut question.change, facts);
        let verdict = if patch.is_empty() { "unchanged" } else { "patched" };
        return (question.patched(&patch), verdict, Vec::new());
    }
    let findings = judge::validate(watch, &question.change, facts);
    let allowed = judge::allows(&findings);
    if !allowed {
        let target = &question.change.target;
        let rules: Vec<&str> = findings.iter().map(|finding| finding.rule).collect();
        tracing::info!(
            watch = watch.name,
            resource = target.resource,
            namespace = target.namespace,
            name = target.name,
            uid = question.uid,
            dry_run = question.dry_run,
            ?rules,
            "refused"
        );
    }
    (question.judged(&findings), if allowed { "allowed" } else { "refused" }, findings)
}

/// `timeout=10s`, as kube-apiserver says how long it waits, less the way back.
fn timeout(query: &str) -> Duration {
    let told = query.split('&').find_map(|pair| pair.strip_prefix("timeout="));
    let parsed = told.and_then(|text| {
        let (number, unit) = text.split_at(text.find(|c: char| !c.is_ascii_digit())?);
        let number: u64 = number.parse().ok()?;
        match unit {
            "s" => Some(Duration::from_secs(number)),
            "ms" => Some(Duration::from_millis(number)),
            _ => None,
        }
    });
    let limit = parsed.unwrap_or(TIMEOUT).min(LONGEST);
    limit.checked_sub(MARGIN).filter(|left| !left.is_zero()).unwrap_or(limit)
}

fn json(body: Vec<u8>) -> Answer {
    let mut answer = Response::new(Full::new(body.into()));
    answer.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    answer
}

fn text(code: StatusCode, text: &str) -> Answer {
    let mut answer = Response::new(Full::new(Bytes::from(format!("{text}\n"))));
    *answer.status_mut() = code;
    answer.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_how_long_the_asker_waits() {
        let left = |query| timeout(query).as_millis();
        assert_eq!(left("timeout=2s"), 1900);
        assert_eq!(left("a=b&timeout=500ms"), 400);
        assert_eq!(left("timeout=3600s"), 29_900);
        for unreadable in ["", "timeout=", "timeout=abc", "timeout=1y"] {
            assert_eq!(left(unreadable), 9900, "{unreadable}");
        }
        assert_eq!(left("timeout=50ms"), 50);
    }
}
