//! Calls to an API over TLS, in terms of paths, JSON and status codes.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use bytes::Bytes;
use reqwest::header::HeaderMap;
use reqwest::{Certificate, Client, ClientBuilder, Identity, Method, RequestBuilder};
use serde_json::Value;

use crate::access::{Access, Credential};

/// Dialing takes no longer on one machine. Whole requests have no limit of their own: a watch is one, too.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// A client of one API server as one user.
#[derive(Clone)]
pub struct Api {
    client: Client,
    server: String,
    token: Option<String>,
}

/// A response that was read to its end.
#[derive(Debug)]
pub struct Answer {
    /// Method and path, for messages.
    pub request: String,
    /// HTTP status code of the answer.
    pub status: u16,
    /// Headers of the answer.
    pub headers: HeaderMap,
    /// The body, decoded from any transfer encoding.
    pub body: Bytes,
}

impl Api {
    /// A client that trusts only the given CA and shows only the given credential.
    pub fn new(access: &Access) -> Result<Self> {
        Self::build(access, Client::builder())
    }

    /// The same with settings of the test's own, such as `http1_only`.
    pub fn build(access: &Access, builder: ClientBuilder) -> Result<Self> {
        let roots = Certificate::from_pem_bundle(access.ca_pem.as_bytes())?;
        let mut builder = builder.tls_certs_only(roots).connect_timeout(CONNECT_TIMEOUT).no_proxy();
        let mut token = None;
        match &access.credential {
            Credential::Certificate(leaf) => {
                let pem = format!("{}{}", leaf.cert_pem, leaf.key_pem);
                builder = builder.identity(Identity::from_pem(pem.as_bytes())?);
            }
            Credential::Token(text) => token = Some(text.clone()),
            Credential::Anonymous => {}
        }
        Ok(Self { client: builder.build()?, server: access.server.clone(), token })
    }

    /// A client for what a kubeconfig file says.
    pub fn from_kubeconfig(path: &Path) -> Result<Self> {
        Self::new(&Access::read(path)?)
    }

    /// A request to `path`, which starts with a slash; for headers, bodies and streams beside the short forms.
    pub fn request(&self, method: Method, path: &str) -> RequestBuilder {
        let request = self.client.request(method, format!("{}{path}", self.server));
        match &self.token {
            Some(token) => request.bearer_auth(token),
            None => request,
        }
    }

    /// Sends a GET; any status is an answer.
    pub async fn get(&self, path: &str) -> Result<Answer> {
        send(self.request(Method::GET, path)).await
    }

    /// Sends a POST with a JSON body.
    pub async fn post(&self, path: &str, body: &Value) -> Result<Answer> {
        send(self.request(Method::POST, path).json(body)).await
    }

    /// Sends a PUT with a JSON body.
    pub async fn put(&self, path: &str, body: &Value) -> Result<Answer> {
        send(self.request(Method::PUT, path).json(body)).await
    }

    /// PATCH, of the kind that `media_type` names.
    pub async fn patch(&self, path: &str, media_type: &str, body: &Value) -> Result<Answer> {
        let request = self.request(Method::PATCH, path).header("Content-Type", media_type);
        send(request.body(body.to_string())).await
    }

    /// Sends a DELETE without a body.
    pub async fn delete(&self, path: &str) -> Result<Answer> {
        send(self.request(Method::DELETE, path)).await
    }
}

/// Sends a request and reads its response to the end.
///
/// Errors: on transport failures only; any status code is an [`Answer`].
pub async fn send(request: RequestBuilder) -> Result<Answer> {
    let (client, request) = request.build_split();
    let request = request?;
    let line = format!("{} {}", request.method(), request.url());
    let response = client.execute(request).await.with_context(|| format!("failed to send {line}"))?;
    let (status, headers) = (response.status().as_u16(), response.headers().clone());
    let body = response.bytes().await.with_context(|| format!("failed to read the response to {line}"))?;
    Ok(Answer { request: line, status, headers, body })
}

impl Answer {
    /// The body as JSON, whatever the status code.
    pub fn json(&self) -> Result<Value> {
        serde_json::from_slice(&self.body).with_context(|| format!("{self} is no JSON"))
    }

    /// The body as JSON.
    ///
    /// Errors: unless the status code is 2xx; the message has the body.
    pub fn ok(&self) -> Result<Value> {
        match self.status {
            200..300 => self.json(),
            _ => bail!("{self}"),
        }
    }
}

impl std::fmt::Display for Answer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let head: String = String::from_utf8_lossy(&self.body).chars().take(1000).collect();
        write!(f, "{} answered {}: {head}", self.request, self.status)
    }
}
