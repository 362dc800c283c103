//! Servers that trace, and what their collectors get.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use repot_tests::TestEnv;
use repot_tests::access::{Access, Credential};
use repot_tests::garden::Garden;
use repot_tests::http::{Answer, Api, send};
use repot_tests::otel::{Collector, Span};
use repot_tests::pki;
use repot_tests::repot::{Repot, write_encryption_config};
use repot_tests::wait::until;
use reqwest::Method;

/// Spans are sent within five seconds; the rest is for a machine that is busy.
pub const ARRIVAL: Duration = Duration::from_secs(60);

/// Flags of an API server with an embedded store and a key of its own.
pub fn flags(env: &TestEnv) -> Result<Vec<String>> {
    let keys = write_encryption_config(&env.make_dir("keys")?)?;
    Ok(vec![
        format!("--storage=embedded:{}", env.make_dir("store")?.display()),
        format!("--encryption-provider-config={}", keys.display()),
    ])
}

/// The flag that names a TracingConfiguration.
pub fn tracing(config: &Path) -> String {
    format!("--tracing-config-file={}", config.display())
}

/// A server itself, not through kube-apiserver.
pub fn direct(garden: &Garden, repot: &Repot, credential: Credential) -> Result<Api> {
    Api::new(&Access { server: repot.url().to_owned(), ca_pem: garden.pki().serving.pem(), credential })
}

/// The same as a user with a client certificate.
pub fn direct_as(garden: &Garden, repot: &Repot, user: &str, groups: &[&str]) -> Result<Api> {
    direct(garden, repot, Credential::Certificate(garden.pki().client.client(user, groups)?))
}

/// A trace that a client has begun.
pub struct ClientTrace {
    /// Hexadecimal ID of the trace.
    pub trace: String,
    /// Hexadecimal ID of the client's span.
    pub span: String,
}

impl ClientTrace {
    pub fn new() -> Result<Self> {
        let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        Ok(Self { trace: hex(&pki::random_bytes::<16>()?), span: hex(&pki::random_bytes::<8>()?) })
    }

    /// A GET in this trace, of which the client says that it is sampled.
    pub async fn get(&self, api: &Api, path: &str) -> Result<Answer> {
        let header = format!("00-{}-{}-01", self.trace, self.span);
        send(api.request(Method::GET, path).header("traceparent", header)).await
    }
}

/// Waits until a span has arrived, and gives it with all that have.
pub async fn arrived(
    collector: &mut Collector,
    what: &str,
    wanted: impl Fn(&Span) -> bool,
) -> Result<(Span, Vec<Span>)> {
    until(what, ARRIVAL, async || {
        let spans = collector.spans().await?;
        let found = spans.iter().find(|span| wanted(span)).cloned();
        let names: Vec<_> = spans.iter().map(|span| span.name.as_str()).collect();
        let found = found.with_context(|| format!("not among {names:?}"))?;
        Ok((found, spans))
    })
    .await
}

/// The spans below one, directly or not.
pub fn below<'a>(root: &Span, spans: &'a [Span]) -> Vec<&'a Span> {
    let of = |parent: &str| {
        spans.iter().filter(|span| span.trace == root.trace && span.parent == parent).collect::<Vec<_>>()
    };
    let mut found = of(&root.id);
    let mut next = 0;
    while let Some(span) = found.get(next).copied() {
        found.extend(of(&span.id));
        next += 1;
    }
    found
}
