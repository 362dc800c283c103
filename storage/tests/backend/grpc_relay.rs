//! A relay between clients and etcd that answers some calls with an error, as etcd does: before etcd sees the call, or in
//! place of its answer when all is done. It may also deliver a call twice.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use bytes::Bytes;
use http_body_util::{BodyExt, Empty, Full, combinators::BoxBody};
use hyper::{
    Request, Response,
    body::{Frame, Incoming},
    client::conn::http2::SendRequest,
    service::service_fn,
};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::{TcpListener, TcpStream};
use tonic::Code;

type Body = BoxBody<Bytes, hyper::Error>;

/// When an error is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// etcd never sees the call.
    Before,
    /// etcd has done what was asked, and its answer is dropped.
    After,
    /// etcd is asked twice, and the second answer is passed on: no error is answered.
    Twice,
}

/// An error to be answered.
#[derive(Clone, Copy, Debug)]
pub struct Fault {
    pub code: Code,
    pub text: &'static str,
    pub when: When,
}

/// A call without streams, such as a transaction.
pub struct Call<'a> {
    /// The method, such as `/etcdserverpb.KV/Txn`.
    pub path: &'a str,
    /// The message as it is sent.
    pub body: &'a [u8],
}

impl Call<'_> {
    pub fn is_transaction(&self) -> bool {
        self.path == "/etcdserverpb.KV/Txn"
    }

    /// Whether it is a transaction on the record of an object.
    pub fn writes_record(&self) -> bool {
        self.is_transaction() && self.body.windows(10).any(|part| part == b"/registry/")
    }
}

/// Chooses the error of a call.
pub type Choose = dyn Fn(&Call<'_>) -> Option<Fault> + Send + Sync;

/// See the module. It ends with its runtime.
pub struct GrpcRelay {
    pub endpoint: String,
    /// What etcd had done when something else was answered.
    done: Arc<AtomicU64>,
}

impl GrpcRelay {
    /// `target`: the URL of etcd, without TLS.
    pub async fn start(target: &str, choose: Arc<Choose>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        let target = target.trim_start_matches("http://").to_owned();
        let done = Arc::new(AtomicU64::new(0));
        let count = Arc::clone(&done);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(join(client, target.clone(), Arc::clone(&choose), Arc::clone(&count)));
            }
        });
        Self { endpoint, done }
    }

    /// How many calls etcd had done when an error, or a second answer, took the place of the first.
    pub fn answered_after(&self) -> u64 {
        self.done.load(Ordering::SeqCst)
    }
}

async fn join(client: TcpStream, target: String, choose: Arc<Choose>, done: Arc<AtomicU64>) {
    // etcd may be away: then the client finds its connection closed.
    let Ok(server) = TcpStream::connect(target).await else { return };
    for stream in [&client, &server] {
        stream.set_nodelay(true).unwrap();
    }
    let shaken = hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(server)).await;
    let Ok((sender, connection)) = shaken else { return };
    let serve = service_fn(move |request| {
        let (sender, choose, done) = (sender.clone(), Arc::clone(&choose), Arc::clone(&done));
        async move { relay(sender, request, &*choose, &done).await }
    });
    let served = hyper::server::conn::http2::Builder::new(TokioExecutor::new())
        .serve_connection(TokioIo::new(client), serve);
    tokio::select! {
        _ = connection => {}
        _ = served => {}
    }
}

async fn relay(
    mut sender: SendRequest<Body>,
    request: Request<Incoming>,
    choose: &Choose,
    done: &AtomicU64,
) -> Result<Response<Body>, hyper::Error> {
    let path = request.uri().path().to_owned();
    let (head, body) = request.into_parts();
    // The other calls are streams, which have no end.
    if !path.starts_with("/etcdserverpb.KV/") && path != "/etcdserverpb.Lease/LeaseGrant" {
        let answer = sender.send_request(Request::from_parts(head, body.boxed())).await?;
        return Ok(answer.map(BodyExt::boxed));
    }
    let body = body.collect().await?.to_bytes();
    let fault = choose(&Call { path: &path, body: &body });
    if let Some(fault) = fault.filter(|fault| fault.when == When::Before) {
        return Ok(error(fault));
    }
    let whole = || Full::new(body.clone()).map_err(|never| match never {}).boxed();
    let answer = sender.send_request(Request::from_parts(head.clone(), whole())).await?;
    let Some(fault) = fault else { return Ok(answer.map(BodyExt::boxed)) };
    let answer = answer.into_body().collect().await?;
    let status = answer.trailers().and_then(|trailers| trailers.get("grpc-status"));
    done.fetch_add(u64::from(status.is_some_and(|status| status == "0")), Ordering::SeqCst);
    if fault.when == When::Twice {
        return Ok(sender.send_request(Request::from_parts(head, whole())).await?.map(BodyExt::boxed));
    }
    Ok(error(fault))
}

/// Trailers only, as gRPC answers an error.
fn error(fault: Fault) -> Response<Body> {
    let body = Empty::<Bytes>::new().map_frame(|frame: Frame<Bytes>| frame).map_err(|never| match never {});
    Response::builder()
        .header("content-type", "application/grpc")
        .header("grpc-status", (fault.code as i32).to_string())
        .header("grpc-message", fault.text)
        .body(body.boxed())
        .unwrap()
}
