//! The request chain, read top to bottom in the order in which a request passes it.

use std::{panic::AssertUnwindSafe, sync::Arc};

use axum::body::Body;
use futures::FutureExt;
use http::{Request, Response};

use crate::{
    call::Call,
    endpoints,
    filters::{audit, authorization::ALWAYS_ALLOWED, client_certificate::Peer, deadline},
    server::Server,
    status::Status,
    wire,
};

/// Answers a request, whatever happens.
pub async fn serve(server: Arc<Server>, peer: Arc<Peer>, request: Request<Body>) -> Response<Body> {
    // Head: audit id, parameters, what the request is about.
    let mut call = match Call::begin(request, peer) {
        Ok(call) => call,
        Err((status, audit_id)) => {
            let mut response = status.into_response();
            audit::stamp(&mut response, &audit_id);
            return response;
        }
    };
    let serving = server.metrics.serving(&call.info);
    // A panic costs one request, not the server.
    let answered = AssertUnwindSafe(answer(&server, &mut call)).catch_unwind().await;
    let mut response = match answered {
        Ok(Ok(response)) => response,
        Ok(Err(status)) => status.into_response(),
        Err(_) => {
            tracing::error!(audit_id = %call.audit_id, "request panicked");
            Status::internal("the server panicked; see its log").into_response()
        }
    };
    drop(serving);
    wire::warn(&mut response, &call.notes.lock().warnings);
    audit::stamp(&mut response, &call.audit_id);
    let (code, took) = (response.status().as_u16(), call.began.elapsed());
    let resource = call.info.target.as_ref().and_then(|target| server.resource(target));
    server.metrics.answered(&call.info, resource, code, took);
    audit::record(&call, code, took);
    // Places in memory and among requests are given back when the last byte is sent.
    wire::hold(response, std::mem::take(&mut call.held))
}

/// The layers that may refuse, and the endpoint behind them.
async fn answer(server: &Server, call: &mut Call) -> Result<Response<Body>, Status> {
    let time = deadline::of(&call.query, server.limits.request_timeout)?;
    let watched_to_the_end = ALWAYS_ALLOWED.iter().any(|path| call.info.path.starts_with(path));
    if !watched_to_the_end && call.info.path != "/metrics" {
        server.health.accepting()?;
    }
    if call.info.target.is_some() {
        server.health.ready_for_data()?;
    }
    let guarded = async {
        call.user = server.authenticator.authenticate(&call.peer, &mut call.headers).await?;
        call.held.extend(server.overload.admit(&call.user, &call.info)?);
        server.authorizer.authorize(&call.user, &call.info).await?;
        endpoints::dispatch(server, call).await
    };
    // A watch answers at once and then goes on; what bounds it is its own timeoutSeconds.
    tokio::time::timeout(time, guarded).await.unwrap_or_else(|_| Err(deadline::passed()))
}
