//! What becomes of one request: forwarded, or refused in words.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use futures::future::select_all;
use http::{Request, Response, StatusCode, request::Parts};
use http_body_util::{BodyExt, LengthLimitError, Limited, combinators::UnsyncBoxBody};
use hyper::body::Incoming;
use kube::Client;
use repot_certs::{connections::Answering, unread::RequestBody};
use tokio::{sync::Semaphore, time::timeout};
use tokio_util::sync::CancellationToken;

use super::{
    exceptions::{self, Exception},
    forward,
    metrics::{Outcome, ProxyMetrics},
    names,
    owner::{NotOwner, OwnerRecord},
    owners::Owners,
    reply::Failure,
    target::{Target, target},
};
use crate::errors::causes;

/// Reads and watches at a time: each has a connection to kube-apiserver.
const READS: usize = 2000;
/// Writes at a time, each with its whole body in memory.
const WRITES: usize = 64;
/// The largest body of a write, in bytes. kube-apiserver takes 3 MiB.
const BODY_BYTES: usize = 4 << 20;
/// How long a write waits for one of [`WRITES`], and how long its body may take.
const WRITE_TURN: Duration = Duration::from_secs(10);
const BODY_DEADLINE: Duration = Duration::from_secs(60);
/// How long a read of objects may take that decides about an exception.
const EXCEPTION_DEADLINE: Duration = Duration::from_secs(10);

/// The body of an answer.
pub type ReplyBody = UnsyncBoxBody<Bytes, kube::Error>;

/// Namespace and record of each owner that has to be this seed for a write.
type Records = Vec<(String, Arc<OwnerRecord>)>;

/// Forwards requests of one controller.
pub struct Proxy {
    /// With the credentials of the controller; without retries.
    client: Client,
    owners: Arc<Owners>,
    /// Plural names of the extension kinds of the controller.
    kinds: Vec<String>,
    metrics: Arc<ProxyMetrics>,
    reads: Arc<Semaphore>,
    writes: Arc<Semaphore>,
    stop: CancellationToken,
}

impl Proxy {
    /// For a controller of these extension kinds, by their plural names. `client` must not retry.
    #[must_use]
    pub fn new(
        client: Client,
        owners: Arc<Owners>,
        kinds: Vec<String>,
        metrics: Arc<ProxyMetrics>,
        stop: CancellationToken,
    ) -> Self {
        let (reads, writes) = (Arc::new(Semaphore::new(READS)), Arc::new(Semaphore::new(WRITES)));
        Self { client, owners, kinds, metrics, reads, writes, stop }
    }

    /// Answers a request of the controller.
    pub async fn answer(
        &self,
        request: Request<RequestBody<Incoming>>,
        answering: Answering,
    ) -> Response<ReplyBody> {
        let (parts, body) = request.into_parts();
        let answer = match self.target(&parts) {
            Ok(Target::Read) => self.read(&parts, answering).await.map(|answer| (Outcome::Read, answer)),
            Ok(target) => self.write(&parts, body, target, answering).await,
            Err(failure) => Err((Outcome::NotForwarded, failure)),
        };
        match answer {
            Ok((outcome, response)) => {
                self.metrics.count(outcome);
                response
            }
            Err((outcome, failure)) => {
                self.metrics.count(outcome);
                reply(&failure)
            }
        }
    }

    fn target(&self, parts: &Parts) -> Result<Target, Failure> {
        if let Some(header) = forward::refused_header(&parts.headers) {
            let why = format!("requests with the header {header} are not forwarded by the watchdog proxy");
            return Err(Failure::new(StatusCode::FORBIDDEN, "Forbidden", why));
        }
        target(&parts.method, parts.uri.path())
            .map_err(|why| Failure::new(StatusCode::FORBIDDEN, "Forbidden", format!("watchdog proxy: {why}")))
    }

    async fn read(
        &self,
        parts: &Parts,
        answering: Answering,
    ) -> Result<Response<ReplyBody>, (Outcome, Failure)> {
        let failed = |failure| (Outcome::Failed, failure);
        let permit = self.reads.clone().try_acquire_owned();
        let busy = |_| failed(Failure::busy("the watchdog proxy has too many reads and watches at a time"));
        let permit = permit.map_err(busy)?;
        let active = self.metrics.active_read();
        let response = forward::send(&self.client, parts, None).await.map_err(failed)?;
        let is_watch = parts.uri.query().is_some_and(|query| query.contains("watch="))
            || parts.uri.path().contains("/watch/");
        let stop = is_watch.then(|| self.stop.clone());
        Ok(forward::streamed(response, stop, (permit, active, succeeded(answering)))
            .map(BodyExt::boxed_unsync))
    }

    async fn write(
        &self,
        parts: &Parts,
        body: RequestBody<Incoming>,
        target: Target,
        answering: Answering,
    ) -> Result<(Outcome, Response<ReplyBody>), (Outcome, Failure)> {
        let failed = |failure| (Outcome::Failed, failure);
        let busy = || failed(Failure::busy("the watchdog proxy has too many writes at a time"));
        let permit = timeout(WRITE_TURN, self.writes.clone().acquire_owned()).await;
        let permit = permit.ok().and_then(Result::ok).ok_or_else(busy)?;
        // The whole body first: nothing of a write reaches kube-apiserver before it is known who owns the Shoot.
        let body = collect(body).await.map_err(failed)?;
        let records = self.records(&target, &body)?;
        let (outcome, active, response) = match self.check(&records).await {
            Ok(()) => {
                let active = self.metrics.active_write();
                (Outcome::Written, active, self.send_while_owner(parts, body, &records).await?)
            }
            Err((namespace, why)) => {
                let exception = self.exception(&target, &why).await?;
                if exception.is_none() {
                    self.metrics.log_refusal(&parts.method, parts.uri.path(), &namespace, &why);
                    return Err((Outcome::Refused, refusal(&namespace, &why)));
                }
                let active = self.metrics.active_write();
                let sent = forward::send(&self.client, parts, Some(body)).await;
                (Outcome::Exception, active, sent.map_err(failed)?)
            }
        };
        let response = forward::streamed(response, None, (permit, active, succeeded(answering)));
        Ok((outcome, response.map(BodyExt::boxed_unsync)))
    }

    /// The owner records that have to name this seed; none for what belongs to no Shoot.
    fn records(&self, target: &Target, body: &Bytes) -> Result<Records, (Outcome, Failure)> {
        if !self.owners.is_synced() {
            let why = "the watchdog proxy has not listed the Etcds of the seed yet, so no owner is known";
            let failure = Failure::new(StatusCode::SERVICE_UNAVAILABLE, "ServiceUnavailable", why);
            return Err((Outcome::Refused, failure));
        }
        Ok(match target {
            Target::Read | Target::Review => Vec::new(),
            Target::Namespace { namespace, .. } => self.owners.of_namespace(namespace),
            Target::Cluster(name) => self.owners.of_name(name),
            Target::NewInCluster => {
                let names = names::names(body).map_err(|why| {
                    let code = StatusCode::UNSUPPORTED_MEDIA_TYPE;
                    let why = format!("watchdog proxy: {why}");
                    (Outcome::NotForwarded, Failure::new(code, "UnsupportedMediaType", why))
                })?;
                names.iter().flat_map(|name| self.owners.of_name(name)).collect()
            }
        })
    }

    async fn check(&self, records: &Records) -> Result<(), (String, NotOwner)> {
        if records.is_empty() {
            return Ok(());
        }
        let _timer = self.metrics.checks.start_timer();
        for (namespace, record) in records {
            record.check().await.map_err(|why| (namespace.clone(), why))?;
        }
        Ok(())
    }

    /// A reason to let a write through all the same.
    async fn exception(
        &self,
        target: &Target,
        why: &NotOwner,
    ) -> Result<Option<Exception>, (Outcome, Failure)> {
        let Target::Namespace { namespace, part } = target else { return Ok(None) };
        let names = self.owners.record_names(namespace);
        let found = exceptions::find(&self.client, (namespace, part), &names, &self.kinds);
        let problem = match timeout(EXCEPTION_DEADLINE, found).await {
            Ok(Ok(found)) => return Ok(found),
            Ok(Err(error)) => causes(&error),
            Err(_) => format!("no answer within {EXCEPTION_DEADLINE:?}"),
        };
        let failure = refusal(namespace, why);
        let message = format!("{}; failed to see whether it is being migrated: {problem}", failure.message);
        Err((Outcome::Refused, Failure { message, ..failure }))
    }

    /// Sends a write, and breaks it off when ownership is lost before the answer begins.
    async fn send_while_owner(
        &self,
        parts: &Parts,
        body: Bytes,
        records: &Records,
    ) -> Result<Response<kube::client::Body>, (Outcome, Failure)> {
        let sent = forward::send(&self.client, parts, Some(body));
        if records.is_empty() {
            return sent.await.map_err(|failure| (Outcome::Failed, failure));
        }
        let lost = records.iter().map(|(namespace, record)| {
            Box::pin(async move { (namespace.clone(), record.until_lost().await) })
        });
        tokio::select! {
            // When both are ready, the answer counts: the write has happened.
            biased;
            sent = sent => sent.map_err(|failure| (Outcome::Failed, failure)),
            ((namespace, why), ..) = select_all(lost) => {
                self.metrics.log_refusal(&parts.method, parts.uri.path(), &namespace, &why);
                let failure = refusal(&namespace, &why);
                let message = format!("{}; this write was under way and may have happened", failure.message);
                Err((Outcome::BrokenOff, Failure { message, ..failure }))
            }
        }
    }
}

/// 503, without a header `Retry-After`: a controller requeues, and believes neither that the object is gone nor that it may not write.
fn refusal(namespace: &str, why: &NotOwner) -> Failure {
    let message = format!(
        "the watchdog proxy refuses writes for the control plane in namespace {namespace}: {why}; try again when this seed owns it"
    );
    let failure = Failure::new(StatusCode::SERVICE_UNAVAILABLE, "ServiceUnavailable", message);
    Failure { retry_after: Some(Duration::from_secs(10)), ..failure }
}

fn reply(failure: &Failure) -> Response<ReplyBody> {
    failure.response().map(|body| body.map_err(|never| match never {}).boxed_unsync())
}

/// 401 for a client without the certificate of the kubeconfig.
#[must_use]
pub fn unauthorized() -> Response<ReplyBody> {
    let why = "the watchdog proxy answers only who shows the client certificate of its kubeconfig";
    reply(&Failure::new(StatusCode::UNAUTHORIZED, "Unauthorized", why))
}

fn succeeded(answering: Answering) -> Answering {
    answering.succeeded();
    answering
}

async fn collect(body: RequestBody<Incoming>) -> Result<Bytes, Failure> {
    match timeout(BODY_DEADLINE, Limited::new(body, BODY_BYTES).collect()).await {
        Ok(Ok(body)) => Ok(body.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => {
            let why = format!("the watchdog proxy takes bodies of {BODY_BYTES} bytes at most");
            Err(Failure::new(StatusCode::PAYLOAD_TOO_LARGE, "RequestEntityTooLarge", why))
        }
        Ok(Err(error)) => {
            Err(Failure::new(StatusCode::BAD_REQUEST, "BadRequest", format!("the body ended early: {error}")))
        }
        Err(_) => {
            let why = format!("the body did not come within {BODY_DEADLINE:?}");
            Err(Failure::new(StatusCode::REQUEST_TIMEOUT, "Timeout", why))
        }
    }
}
