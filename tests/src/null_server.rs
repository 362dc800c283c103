//! The smallest aggregated API server that kube-apiserver accepts: it stores nothing and authorizes everybody.
//!
//! It is the floor in benchmarks (what a request costs before Repot does anything) and the proof that the testbed's garden,
//! certificates and aggregation work without Repot.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use axum::Router;
use axum::body::Body;
use axum::extract::{Path, Request};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use bytes::Bytes;
use futures::StreamExt;
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

/// The API group that it serves, in version `v1`, with the cluster-scoped resource `blobs`.
pub const GROUP: &str = "null.repot.dev";
const JSON: [(header::HeaderName, &str); 1] = [(header::CONTENT_TYPE, "application/json")];
const HANDSHAKE_DEADLINE: Duration = Duration::from_secs(10);
/// As many as Kubernetes' own servers allow on one connection.
const MAX_STREAMS: u32 = 1000;
/// Receive windows that do not throttle bodies of many megabytes, in bytes.
const STREAM_WINDOW: u32 = 2 << 20;
const CONNECTION_WINDOW: u32 = 16 << 20;

/// A running null server; it ends when dropped.
pub struct NullServer {
    port: u16,
    task: JoinHandle<()>,
}

impl NullServer {
    /// Listens on 127.0.0.1 with the given serving certificate. Must be called inside a runtime.
    pub async fn start(serving: &Leaf) -> Result<Self> {
        let acceptor = TlsAcceptor::from(Arc::new(tls_config(serving)?));
        let port = port::reserve()?;
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await?;
        let task = tokio::spawn(accept(listener, acceptor));
        Ok(Self { port, task })
    }

    /// Its port on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The address at which the server listens.
    pub fn address(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port).into()
    }
}

impl Drop for NullServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn tls_config(serving: &Leaf) -> Result<rustls::ServerConfig> {
    let chain = CertificateDer::pem_slice_iter(serving.cert_pem.as_bytes()).collect::<Result<Vec<_>, _>>()?;
    let key = PrivateKeyDer::from_pem_slice(serving.key_pem.as_bytes())?;
    let config = rustls::ServerConfig::builder().with_no_client_auth().with_single_cert(chain, key);
    let mut config = config.context("failed to use the serving certificate")?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(config)
}

async fn accept(listener: TcpListener, acceptor: TlsAcceptor) {
    let router = router();
    // Connections live in this set, so that they end with the server.
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

/// Serves one connection. Its errors are the client's to report: probes leave in the middle of a response all the time.
async fn serve(stream: TcpStream, acceptor: TlsAcceptor, router: Router) {
    let _ = stream.set_nodelay(true);
    let handshake = tokio::time::timeout(HANDSHAKE_DEADLINE, acceptor.accept(stream));
    let Ok(Ok(tls)) = handshake.await else { return };
    let mut builder = Builder::new(TokioExecutor::new());
    builder
        .http2()
        .max_concurrent_streams(MAX_STREAMS)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW);
    let _ = builder.serve_connection(TokioIo::new(tls), TowerToHyperService::new(router)).await;
}

fn router() -> Router {
    Router::new()
        .route("/readyz", get(async || "ok"))
        .route("/apis", get(async || json_response(StatusCode::OK, group_list())))
        .route("/apis/null.repot.dev", get(async || json_response(StatusCode::OK, group())))
        .route("/apis/null.repot.dev/v1", get(async || json_response(StatusCode::OK, resources())))
        .route(
            "/apis/null.repot.dev/v1/blobs",
            get(async || json_response(StatusCode::OK, list())).post(swallow),
        )
        .route("/apis/null.repot.dev/v1/blobs/{bytes}", get(pour).post(echo))
        .route("/openapi/v2", get(async || json_response(StatusCode::OK, openapi_v2())))
        .route("/openapi/v3", get(async || json_response(StatusCode::OK, json!({ "paths": {} }))))
}

/// Reads a body of any size, keeps none of it, and answers how long it was and as whom the front proxy sent it.
async fn swallow(headers: HeaderMap, request: Request) -> Response {
    let mut received: u64 = 0;
    let mut body = request.into_body().into_data_stream();
    while let Some(chunk) = body.next().await {
        match chunk {
            Ok(chunk) => received += chunk.len() as u64,
            Err(error) => return (StatusCode::BAD_REQUEST, error.to_string()).into_response(),
        }
    }
    let user = headers.get("x-remote-user").and_then(|value| value.to_str().ok());
    let mut blob = blob("swallowed");
    blob["received"] = received.into();
    blob["user"] = user.into();
    json_response(StatusCode::CREATED, blob)
}

/// Sends a body back piece by piece, as a create is answered with what was created: the floor of a real one.
async fn echo(request: Request) -> Response {
    (StatusCode::CREATED, JSON, Body::new(request.into_body())).into_response()
}

/// Answers a JSON document of exactly so many bytes (or the shortest possible one, when that is longer).
async fn pour(Path(bytes): Path<usize>) -> Response {
    let mut text = blob(&bytes.to_string()).to_string();
    text.truncate(text.len() - 1);
    text += r#","data":""#;
    let filler = bytes.saturating_sub(text.len() + 2);
    let document = [text.as_bytes(), &vec![b'x'; filler], br#""}"#].concat();
    (JSON, Body::from(Bytes::from(document))).into_response()
}

fn json_response(status: StatusCode, body: Value) -> Response {
    (status, JSON, body.to_string()).into_response()
}

fn blob(name: &str) -> Value {
    json!({ "apiVersion": format!("{GROUP}/v1"), "kind": "Blob", "metadata": { "name": name } })
}

fn list() -> Value {
    let metadata = json!({ "resourceVersion": "1" });
    json!({ "apiVersion": format!("{GROUP}/v1"), "kind": "BlobList", "metadata": metadata, "items": [] })
}

fn group_list() -> Value {
    let mut group = group();
    if let Some(fields) = group.as_object_mut() {
        fields.retain(|field, _| field != "kind" && field != "apiVersion");
    }
    json!({ "kind": "APIGroupList", "apiVersion": "v1", "groups": [group] })
}

fn group() -> Value {
    let version = json!({ "groupVersion": format!("{GROUP}/v1"), "version": "v1" });
    json!({
        "kind": "APIGroup", "apiVersion": "v1", "name": GROUP,
        "versions": [version], "preferredVersion": version,
    })
}

fn resources() -> Value {
    json!({
        "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": format!("{GROUP}/v1"),
        "resources": [{
            "name": "blobs", "singularName": "blob", "namespaced": false, "kind": "Blob", "verbs": ["create", "get"],
        }],
    })
}

fn openapi_v2() -> Value {
    json!({ "swagger": "2.0", "info": { "title": "null", "version": "v1" }, "paths": {}, "definitions": {} })
}
