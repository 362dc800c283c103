//! An admission webhook that records what it is asked and answers as a test says.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Context, Result};
use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use hyper_util::service::TowerToHyperService;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;

use crate::pki::Leaf;
use crate::port;

const HANDSHAKE_DEADLINE: Duration = Duration::from_secs(10);

/// What a webhook does when it is asked.
pub type Behaviour = Arc<dyn Fn(&Asked) -> Reply + Send + Sync>;

/// One review that the webhook was sent.
#[derive(Clone, Debug)]
pub struct Asked {
    /// The path it came to.
    pub path: String,
    /// What stood after `?`.
    pub query: String,
    /// The AdmissionReview as it was sent.
    pub review: Value,
    /// The same as it came.
    pub body: Bytes,
    /// Headers of the request.
    pub headers: HeaderMap,
}

/// One answer of the webhook.
#[derive(Clone, Debug)]
pub enum Reply {
    /// `response` of an AdmissionReview; `uid` is filled in where it is missing.
    Response(Value),
    /// Any bytes with a status code.
    Raw(u16, String),
    /// None, ever.
    Silence,
}

impl Reply {
    /// An answer that allows the request.
    #[must_use]
    pub fn allow() -> Self {
        Self::Response(json!({ "allowed": true }))
    }

    /// No, with a message.
    #[must_use]
    pub fn deny(message: &str) -> Self {
        Self::Response(json!({ "allowed": false, "status": { "message": message } }))
    }

    /// Yes, with a JSON Patch.
    #[must_use]
    pub fn patch(patch: &Value) -> Self {
        let encoded = STANDARD.encode(patch.to_string());
        Self::Response(json!({ "allowed": true, "patchType": "JSONPatch", "patch": encoded }))
    }
}

/// A running webhook server with a behaviour for each path; it ends when dropped.
pub struct WebhookServer {
    port: u16,
    state: Arc<Shop>,
    task: JoinHandle<()>,
}

#[derive(Default)]
struct Shop {
    behaviours: Mutex<BTreeMap<String, Behaviour>>,
    asked: Mutex<Vec<Asked>>,
}

impl WebhookServer {
    /// Listens on 127.0.0.1 with the given serving certificate, and allows everything. Must be called inside a runtime.
    pub async fn start(serving: &Leaf) -> Result<Self> {
        let acceptor = TlsAcceptor::from(Arc::new(tls_config(serving)?));
        let port = port::reserve()?;
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await?;
        let state = Arc::new(Shop::default());
        let task = tokio::spawn(accept(listener, acceptor, state.clone()));
        Ok(Self { port, state, task })
    }

    /// Its port on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// What it does at a path from now on.
    pub fn on(&self, path: &str, behaviour: impl Fn(&Asked) -> Reply + Send + Sync + 'static) {
        if let Ok(mut behaviours) = self.state.behaviours.lock() {
            behaviours.insert(path.to_owned(), Arc::new(behaviour));
        }
    }

    /// What it was asked at a path, in order.
    pub fn asked(&self, path: &str) -> Vec<Asked> {
        let all = self.state.asked.lock().map(|asked| asked.clone()).unwrap_or_default();
        all.into_iter().filter(|asked| asked.path == path).collect()
    }
}

impl Drop for WebhookServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn tls_config(serving: &Leaf) -> Result<rustls::ServerConfig> {
    let chain = CertificateDer::pem_slice_iter(serving.cert_pem.as_bytes()).collect::<Result<Vec<_>, _>>()?;
    let key = PrivateKeyDer::from_pem_slice(serving.key_pem.as_bytes())?;
    let config = rustls::ServerConfig::builder().with_no_client_auth().with_single_cert(chain, key);
    config.context("failed to use the serving certificate")
}

async fn accept(listener: TcpListener, acceptor: TlsAcceptor, state: Arc<Shop>) {
    let router = Router::new().fallback(answer).with_state(state);
    let mut connections = tokio::task::JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                // A connection that was gone before it was accepted is nobody's loss.
                let Ok((stream, _)) = accepted else { continue };
                connections.spawn(serve(stream, acceptor.clone(), router.clone()));
            }
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn serve(stream: TcpStream, acceptor: TlsAcceptor, router: Router) {
    let handshake = tokio::time::timeout(HANDSHAKE_DEADLINE, acceptor.accept(stream));
    let Ok(Ok(tls)) = handshake.await else { return };
    let builder = Builder::new(TokioExecutor::new()).http1_only();
    let _ = builder.serve_connection(TokioIo::new(tls), TowerToHyperService::new(router)).await;
}

async fn answer(State(state): State<Arc<Shop>>, request: Request) -> Response {
    let (path, query) =
        (request.uri().path().to_owned(), request.uri().query().unwrap_or_default().to_owned());
    let headers = request.headers().clone();
    let Ok(body) = axum::body::to_bytes(request.into_body(), usize::MAX).await else {
        return StatusCode::BAD_REQUEST.into_response();
    };
    let review: Value = serde_json::from_slice(&body).unwrap_or_default();
    let asked = Asked { path, query, review, body, headers };
    let behaviour = state.behaviours.lock().ok().and_then(|all| all.get(&asked.path).cloned());
    let reply = behaviour.map_or_else(Reply::allow, |behaviour| behaviour(&asked));
    let (uid, version) = (asked.review["request"]["uid"].clone(), asked.review["apiVersion"].clone());
    if let Ok(mut all) = state.asked.lock() {
        all.push(asked);
    }
    match reply {
        Reply::Silence => std::future::pending().await,
        Reply::Raw(code, text) => {
            (StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR), text).into_response()
        }
        Reply::Response(mut response) => {
            if response["uid"].is_null() {
                response["uid"] = uid;
            }
            let review = json!({ "apiVersion": version, "kind": "AdmissionReview", "response": response });
            ([("content-type", "application/json")], Body::from(review.to_string())).into_response()
        }
    }
}
