//! The conversation with a service: `v2.KeyManagementService`, gRPC over a unix socket.

use std::{
    collections::BTreeMap,
    error::Error as _,
    os::{linux::net::SocketAddrExt, unix::net::SocketAddr},
    path::PathBuf,
    sync::{Arc, OnceLock},
    time::{Duration, Instant},
};

use async_trait::async_trait;
use bytes::Bytes;
use http::uri::PathAndQuery;
use hyper_util::rt::TokioIo;
use prost::Message;
use tokio::net::UnixStream;
use tonic::{
    Code, Request, Status,
    client::Grpc,
    transport::{Channel, Endpoint},
};
use tonic_prost::ProstCodec;
use tracing::Instrument;
use zeroize::Zeroizing;

use super::{super::metrics::Metrics, object::Source};
use crate::trace;

/// A pause before a service that is not there is looked for again.
const PAUSE: Duration = Duration::from_millis(20);
/// Of what a service says, this much is shown.
const MAX_SHOWN: usize = 200;

/// A service did not do what it was asked. Says what the service said, not what it was sent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{call} failed: {code}: {said}")]
pub(super) struct Failure {
    call: &'static str,
    code: &'static str,
    said: String,
}

/// What a service says of itself.
#[derive(Clone, PartialEq, Message)]
pub(super) struct StatusResponse {
    /// Version of the protocol that the service speaks.
    #[prost(string, tag = "1")]
    pub version: String,
    /// `ok`, or what is wrong.
    #[prost(string, tag = "2")]
    pub healthz: String,
    /// The key that encrypts now.
    #[prost(string, tag = "3")]
    pub key_id: String,
}

#[derive(Clone, PartialEq, Message)]
struct StatusRequest {}

#[derive(Clone, PartialEq, Message)]
struct EncryptRequest {
    #[prost(bytes = "vec", tag = "1")]
    plaintext: Vec<u8>,
    #[prost(string, tag = "2")]
    uid: String,
}

#[derive(Clone, PartialEq, Message)]
struct EncryptResponse {
    #[prost(bytes = "bytes", tag = "1")]
    ciphertext: Bytes,
    #[prost(string, tag = "2")]
    key_id: String,
    #[prost(btree_map = "string, bytes", tag = "3")]
    annotations: BTreeMap<String, Vec<u8>>,
}

#[derive(Clone, PartialEq, Message)]
struct DecryptRequest {
    #[prost(bytes = "bytes", tag = "1")]
    ciphertext: Bytes,
    #[prost(string, tag = "2")]
    uid: String,
    #[prost(string, tag = "3")]
    key_id: String,
    #[prost(btree_map = "string, bytes", tag = "4")]
    annotations: BTreeMap<String, Vec<u8>>,
}

#[derive(Clone, PartialEq, Message)]
struct DecryptResponse {
    #[prost(bytes = "vec", tag = "1")]
    plaintext: Vec<u8>,
}

/// A key management service.
///
/// # Assumptions
/// Every call may be made again: none changes anything.
#[async_trait]
pub(super) trait Service: Send + Sync {
    /// How it is, and which key encrypts.
    async fn status(&self) -> Result<StatusResponse, Failure>;
    /// Encrypts a seed. What comes back is not checked yet.
    async fn encrypt(&self, plaintext: &[u8]) -> Result<Source, Failure>;
    /// Decrypts a seed.
    async fn decrypt(&self, source: &Source) -> Result<Zeroizing<Vec<u8>>, Failure>;
}

/// The service behind a unix socket. Connects when it is first used, and again when the connection is lost.
pub(super) struct Socket {
    provider: String,
    path: PathBuf,
    timeout: Duration,
    channel: OnceLock<Channel>,
    metrics: Arc<Metrics>,
}

impl Socket {
    /// A path that begins with `@` is a name of Linux that is no file. `timeout` is for each call with all that it takes.
    pub(super) fn new(provider: String, path: PathBuf, timeout: Duration, metrics: Arc<Metrics>) -> Self {
        Self { provider, path, timeout, channel: OnceLock::new(), metrics }
    }

    /// Made at the first call: it needs a runtime.
    fn channel(&self) -> Channel {
        let make = || {
            let path = self.path.clone();
            let connect = move |_| {
                let path = path.clone();
                async move { connect(&path).await.map(TokioIo::new) }
            };
            // The authority that Go's servers take for a socket.
            Endpoint::from_static("http://localhost").connect_with_connector_lazy(tower::service_fn(connect))
        };
        self.channel.get_or_init(make).clone()
    }

    async fn call<Q, A>(&self, call: &'static str, path: &'static str, request: Q) -> Result<A, Failure>
    where
        Q: Message + Clone + 'static,
        A: Message + Default + 'static,
    {
        let began = Instant::now();
        let failure = |status: &Status| Failure {
            call,
            code: code(status.code()),
            said: status.message().chars().take(MAX_SHOWN).collect(),
        };
        let mut last = Status::deadline_exceeded("no answer in time");
        let tries = async {
            loop {
                match self.once(path, request.clone()).await {
                    Ok(answer) => return Ok(answer),
                    // The connection, not the service: it may just be starting.
                    Err(status) if status.source().is_some() => last = status,
                    Err(status) => return Err(status),
                }
                tokio::time::sleep(PAUSE).await;
            }
        };
        let span = trace::kms_call(&self.provider, call);
        let answer = tokio::time::timeout(self.timeout, tries).instrument(span.clone()).await;
        let answer = answer.unwrap_or_else(|_| Err(last));
        let said = answer.as_ref().map_or_else(|status| code(status.code()), |_| "OK");
        trace::kms_answered(&span, said);
        self.metrics.called(&self.provider, path, said, began.elapsed());
        answer.map_err(|status| failure(&status))
    }

    async fn once<Q, A>(&self, path: &'static str, request: Q) -> Result<A, Status>
    where
        Q: Message + 'static,
        A: Message + Default + 'static,
    {
        let mut grpc = Grpc::new(self.channel());
        grpc.ready().await.map_err(|error| Status::from_error(Box::new(error)))?;
        let mut request = Request::new(request);
        request.set_timeout(self.timeout);
        let codec = ProstCodec::<Q, A>::default();
        Ok(grpc.unary(request, PathAndQuery::from_static(path), codec).await?.into_inner())
    }
}

#[async_trait]
impl Service for Socket {
    async fn status(&self) -> Result<StatusResponse, Failure> {
        self.call("Status", "/v2.KeyManagementService/Status", StatusRequest {}).await
    }

    async fn encrypt(&self, plaintext: &[u8]) -> Result<Source, Failure> {
        let request = EncryptRequest { plaintext: plaintext.to_vec(), uid: uid() };
        let answer: EncryptResponse =
            self.call("Encrypt", "/v2.KeyManagementService/Encrypt", request).await?;
        let EncryptResponse { ciphertext: encrypted, key_id, annotations } = answer;
        Ok(Source { key_id, encrypted, annotations })
    }

    async fn decrypt(&self, source: &Source) -> Result<Zeroizing<Vec<u8>>, Failure> {
        let Source { key_id, encrypted: ciphertext, annotations } = source.clone();
        let request = DecryptRequest { ciphertext, uid: uid(), key_id, annotations };
        let answer: DecryptResponse =
            self.call("Decrypt", "/v2.KeyManagementService/Decrypt", request).await?;
        Ok(Zeroizing::new(answer.plaintext))
    }
}

async fn connect(path: &std::path::Path) -> std::io::Result<UnixStream> {
    use std::os::unix::ffi::OsStrExt;
    let Some(name) = path.as_os_str().as_bytes().strip_prefix(b"@") else {
        return UnixStream::connect(path).await;
    };
    // Never waits: a name that is no file is of this machine, and a queue that is full is refused.
    let stream = std::os::unix::net::UnixStream::connect_addr(&SocketAddr::from_abstract_name(name)?)?;
    stream.set_nonblocking(true)?;
    UnixStream::from_std(stream)
}

/// A name for one request, for the logs of the service.
fn uid() -> String {
    uuid::Uuid::new_v4().to_string()
}

/// The name of a code as Go spells it.
fn code(code: Code) -> &'static str {
    match code {
        Code::Ok => "OK",
        Code::Cancelled => "Canceled",
        Code::Unknown => "Unknown",
        Code::InvalidArgument => "InvalidArgument",
        Code::DeadlineExceeded => "DeadlineExceeded",
        Code::NotFound => "NotFound",
        Code::AlreadyExists => "AlreadyExists",
        Code::PermissionDenied => "PermissionDenied",
        Code::ResourceExhausted => "ResourceExhausted",
        Code::FailedPrecondition => "FailedPrecondition",
        Code::Aborted => "Aborted",
        Code::OutOfRange => "OutOfRange",
        Code::Unimplemented => "Unimplemented",
        Code::Internal => "Internal",
        Code::Unavailable => "Unavailable",
        Code::DataLoss => "DataLoss",
        Code::Unauthenticated => "Unauthenticated",
    }
}

#[cfg(test)]
impl Failure {
    /// For services of tests.
    pub(super) fn of_test(call: &'static str) -> Self {
        Self { call, code: "Unknown", said: "told to fail".into() }
    }
}
