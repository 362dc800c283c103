//! The request chain, read top to bottom in the order in which a request passes it.

use std::{panic::AssertUnwindSafe, sync::Arc, time::Duration};

use axum::body::Body;
use futures::FutureExt;
use http::{HeaderValue, Method, Request, Response, StatusCode, Version, header};
use repot_telemetry::{profile, request};
use tokio::time::Instant;
use tracing::{Instrument, Span};

use crate::{
    answer::{self, Followed, Limit},
    audit::{Trail, hold, policy::Stage},
    call::Call,
    compress,
    connection_shares::Owner,
    early_response, endpoints,
    filters::{audit, authorization::PROBES, client_certificate::Peer, connection, deadline},
    metrics::Labels,
    pretty, protobuf, request_span,
    resource::Resource,
    server::{Limits, Server},
    shares::Flow,
    status::Status,
    wire,
};

/// Time that a response has at least, however late it is: also one that says that the time is up has to arrive.
const SENDING: Duration = Duration::from_secs(5);

/// The same at most for a client without credentials, and bytes of a message to it: what it does not take costs little, and
/// not for long.
const UNAUTHENTICATED_SENDING: Duration = Duration::from_secs(10);
const UNAUTHENTICATED_MESSAGE: usize = 1 << 10;

/// Answers a request, whatever happens.
pub async fn serve(server: Arc<Server>, peer: Arc<Peer>, request: Request<Body>) -> Response<Followed> {
    let busy = peer.connection.busy();
    if request.version() == Version::HTTP_2 && connection::is_chosen(server.limits.goaway_chance) {
        peer.connection.send_away();
    }
    // Head: audit id, parameters, what the request is about.
    let mut call = match Call::begin(request, peer) {
        Ok(call) => call,
        Err((status, audit_id)) => {
            let mut response = status.into_response();
            audit::stamp(&mut response, &audit_id);
            let limit = Limit::Until(Instant::now() + server.limits.request_timeout);
            return answer::follow(response, limit, (), move |_| drop(busy));
        }
    };
    // Nobody reads it: what comes of it would stay in the connection's window for as long as the request lives.
    if matches!(call.method, Method::GET | Method::HEAD) {
        *call.body.get_mut() = Body::empty();
    }
    let resource = call.info.target.as_ref().and_then(|target| server.resource(target));
    let labels = Labels::of(&call.info, resource);
    let serving = server.metrics.serving(&call.info, &labels);
    // A panic costs one request, not the server.
    let answered = AssertUnwindSafe(answer(&server, &mut call)).catch_unwind().await;
    let (stage, answered) = match answered {
        Ok(answered) => (Stage::ResponseComplete, answered),
        Err(_) => {
            profile::caught();
            tracing::error!(audit_id = %call.audit_id, "request panicked");
            (Stage::Panic, Err(Status::internal("the server panicked; see its log")))
        }
    };
    let known = call.user.flow() != Flow::Unauthenticated;
    let (response, failure) = match answered {
        Ok(response) => (response, None),
        Err(status) => {
            let status = if known { status } else { status.shortened(UNAUTHENTICATED_MESSAGE) };
            (status.clone().into_response(), Some(status))
        }
    };
    let code = response.status();
    // A client without good credentials pays for a new handshake before it tries others.
    if code == StatusCode::UNAUTHORIZED {
        call.peer.connection.send_away();
    }
    call.keep_for(&response);
    let mut response = form(&server, &call, response, failure.is_some()).await;
    wire::warn(&mut response, &call.notes.lock().warnings);
    head(&server, &call, &mut response);
    request::answered(&call.span, code);
    server.metrics.answered(&labels, code.as_u16());
    audit::record(&call, code.as_u16(), call.began.elapsed());
    let trail = match code {
        // It did not come as far as that.
        StatusCode::UNAUTHORIZED => begin_trail(&server, &call, resource).await.ok().flatten(),
        _ => call.trail.take(),
    };
    let completion =
        trail.map(|trail| Arc::new(trail.ends(stage, call.audit_facts(), code.as_u16(), failure.as_ref())));
    let limit = limit(&call, known, &server.limits);
    if let (Some(completion), Limit::Stalled(_)) = (&completion, limit) {
        completion.begins().await;
    }
    let response = early_response::gather(response).await;
    let response = hold(response, completion.as_ref()).await;
    call.shed();
    if call.info.long_running() {
        // A trace is of use when it is over: not hours later.
        call.span = Span::none();
    }
    // Not kept for as long as the answer: the last piece of an answer is dropped while h2 holds the lock of the connection, and a
    // body that is dropped takes the same lock.
    drop(std::mem::take(call.body.get_mut()));
    // Requests that are served are counted until the answer is produced, memory until its last byte is sent.
    let producing = (std::mem::take(&mut call.held), serving);
    answer::follow(response, limit, producing, move |sent| {
        server.metrics.sent(&labels, sent, call.began.elapsed());
        request::sent(&call.span, sent.bytes);
        // Memory is given back when the last byte is sent and the last event is written.
        let held = (call, busy);
        match completion {
            Some(completion) => completion.settle(held),
            None => drop(held),
        }
    })
}

/// Begins what the audit log keeps of a request whose user is known.
async fn begin_trail(
    server: &Server,
    call: &Call,
    resource: Option<&Resource>,
) -> Result<Option<Trail>, Status> {
    let most = server.limits.request_timeout;
    server.auditor.begin(&call.audited(), resource, call.left(most), most).await
}

/// How long the answer may take. `known`: its client has shown who it is.
fn limit(call: &Call, known: bool, limits: &Limits) -> Limit {
    if call.info.long_running() {
        return Limit::Stalled(limits.watch_stall);
    }
    let left = call.left(limits.request_timeout).max(SENDING);
    Limit::Until(Instant::now() + if known { left } else { left.min(UNAUTHENTICATED_SENDING) })
}

/// The layers that may refuse, and the endpoint behind them.
async fn answer(server: &Server, call: &mut Call) -> Result<Response<Body>, Status> {
    let time =
        deadline::of(&call.query, server.limits.request_timeout)? + endpoints::profiling::time_beside(call);
    let watched_to_the_end = PROBES.iter().any(|path| call.info.path.starts_with(path));
    if !watched_to_the_end && call.info.path != "/metrics" {
        server.health.accepting()?;
        call.being_answered = (!call.info.long_running()).then(|| server.requests.token());
    }
    if call.info.target.is_some() {
        server.health.ready_for_data()?;
    }
    let guarded = async {
        call.user = server.authenticator.authenticate(&call.peer, &mut call.headers).await?;
        // Not earlier: not every client may decide that its request is traced.
        call.span = request_span::begin(server, call);
        let span = call.span.clone();
        authenticated(server, call).instrument(span).await
    };
    // A watch answers at once and then goes on; what bounds it is its own timeoutSeconds.
    tokio::time::timeout(time, guarded).await.unwrap_or_else(|_| Err(deadline::passed()))
}

/// What a request passes whose user is known.
async fn authenticated(server: &Server, call: &mut Call) -> Result<Response<Body>, Status> {
    let resource = call.info.target.as_ref().and_then(|target| server.resource(target));
    call.trail = begin_trail(server, call, resource).await?;
    count_connection(server, call)?;
    no_impersonation(call)?;
    call.held.extend(server.overload.admit(&call.user, &call.info)?);
    let authorizing = server.authorizer.authorize(&call.user, &call.info);
    let allowed = authorizing.instrument(tracing::trace_span!("authorization")).await;
    call.note_decision(&allowed);
    allowed?;
    endpoints::dispatch(server, call).await
}

/// Counts the connection for whoever has shown who it is on it first, and ends it where that user has its share. Probes are answered
/// all the same.
fn count_connection(server: &Server, call: &Call) -> Result<(), Status> {
    if call.peer.connection.is_authenticated() {
        return Ok(());
    }
    let owner = server.authenticator.owner(&call.peer).or_else(|| Owner::user(&call.user));
    let Some(owner) = owner.filter(|_| !PROBES.contains(&call.info.path.as_str())) else { return Ok(()) };
    let counted = server.connections.admit(&call.peer.connection, &owner);
    if counted.is_err() {
        call.peer.connection.send_away();
    }
    counted
}

/// The front server has turned impersonation into identity. Who comes directly and asks for it would act as somebody else
/// than they think if it were passed over.
fn no_impersonation(call: &Call) -> Result<(), Status> {
    if call.headers.keys().any(|name| name.as_str().starts_with("impersonate-")) {
        return Err(Status::forbidden_path("impersonation works only through the kube-apiserver"));
    }
    Ok(())
}

/// The form in which the answer is sent; the trail keeps it as it was before.
async fn form(server: &Server, call: &Call, response: Response<Body>, failed: bool) -> Response<Body> {
    let response = match &call.trail {
        Some(trail) => trail.keep_answered(response),
        None => response,
    };
    let work = server.heavy.of(call.user.flow());
    let response = protobuf::answer(call, &work, response, failed).await;
    let response = if pretty::wanted(call) { pretty::answer(&work, response) } else { response };
    compress::answer(server.limits.compression, call, &work, response).await
}

/// What every answer says.
fn head(server: &Server, call: &Call, response: &mut Response<Body>) {
    audit::stamp(response, &call.audit_id);
    // Over HTTP/1.1 a client has to be told that its connection ends; what it sent on it would be lost.
    let ends = match response.status() {
        StatusCode::UNAUTHORIZED => true,
        StatusCode::TOO_MANY_REQUESTS => {
            call.peer.connection.is_leaving() || server.health.accepting().is_err()
        }
        _ => false,
    };
    let headers = response.headers_mut();
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-cache, private"));
    if ends {
        headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
}

impl Call {
    /// Forgets what the client sent, once the answer is known: a client can make it long, and take its time with the answer.
    fn shed(&mut self) {
        (self.headers, self.query, self.uri) = Default::default();
        (self.info.path, self.info.target) = Default::default();
        (self.info.field_selector, self.info.label_selector) = Default::default();
    }

    /// Gives back memory that the request reserved and its response does not hold: the client decides how long the response takes.
    fn keep_for(&self, response: &Response<Body>) {
        // A body of unknown length is streamed, and has its own reservation.
        let Some(length) = http_body::Body::size_hint(response.body()).exact() else { return };
        let recorded = self.trail.as_ref().map_or(0, Trail::kept_bytes);
        if let Some(room) = self.room.lock().as_mut() {
            room.shrink_to(protobuf::copies(self) * length + pretty::held(self) + recorded);
        }
    }

    /// What is left of the time that a request has.
    pub(crate) fn left(&self, most: Duration) -> Duration {
        let time = deadline::of(&self.query, most).unwrap_or(most);
        time.saturating_sub(self.began.elapsed())
    }
}
