//! Whether etcd has authentication enabled, so that no client acts as the gateway.
//!
//! The gateway shows members its own certificate. With authentication, etcd takes the common name of that certificate as the user
//! of every call without a token (`authStore.AuthInfoFromTLS`). Each client would have the rights of the gateway.
//!
//! | authentication | a call with a token | a call without |
//! |---|---|---|
//! | disabled | passes | passes |
//! | enabled | passes, and etcd checks the token | is refused with `FailedPrecondition`; `Authenticate` passes |
//! | not known yet | passes | passes with `grpcgateway-accept`, by which etcd ignores the common name |
//!
//! etcd writes a line to its log for each call with that header, so it is not sent while authentication is known to be disabled.
//!
//! The state is asked for every five seconds. For so long after `auth enable`, and as long as the answer takes, calls without a
//! token still pass as those of the gateway. Then connections of clients end, since their streams were opened with its certificate.

use std::{sync::Arc, time::Duration};

use bytes::Buf;
use http_body_util::{BodyExt, Either, Full};
use hyper::{
    HeaderMap, Request,
    body::Bytes,
    header::{CONTENT_TYPE, HeaderName, HeaderValue, TE},
};
use tokio::{
    sync::watch,
    time::{MissedTickBehavior, interval, timeout},
};

use super::{
    Shared,
    grpc::{self, Code, Status},
    members::Member,
    upstream::Pool,
    watch::varint_field,
};

/// From one question to the next.
const PERIOD: Duration = Duration::from_secs(5);
/// How long one member may take for its answer.
const ANSWER: Duration = Duration::from_secs(4);
const STATUS: &str = "/etcdserverpb.Auth/AuthStatus";
const AUTHENTICATE: &str = "/etcdserverpb.Auth/Authenticate";
/// The names under which etcd looks for a token.
const TOKENS: [&str; 2] = ["token", "authorization"];
const IGNORE_COMMON_NAME: HeaderName = HeaderName::from_static("grpcgateway-accept");
/// A message without fields, after its prefix: not compressed, and no bytes.
const EMPTY: &[u8] = &[0; 5];
/// What etcd says to whom may not ask. Only an administrator may once authentication is enabled, so it is. Codes do not tell that:
/// a learner answers `FailedPrecondition` to every question.
const REFUSALS: [&str; 4] = [
    "etcdserver: user name is empty",
    "etcdserver: user name not found",
    "etcdserver: permission denied",
    "etcdserver: revision of auth store is old",
];
/// Number of the field `enabled` of `AuthStatusResponse`.
const ENABLED: u64 = 2;

/// Whether authentication is enabled; `None` before the first answer.
#[derive(Debug)]
pub(super) struct Auth(watch::Sender<Option<bool>>);

impl Default for Auth {
    fn default() -> Self {
        Self(watch::Sender::new(None))
    }
}

impl Auth {
    /// What is known.
    pub(super) fn enabled(&self) -> Option<bool> {
        *self.0.borrow()
    }

    /// Checks that a call does not need the certificate of the gateway.
    ///
    /// # Errors
    /// Where etcd would take the client for the gateway.
    pub(super) fn check(&self, path: &str, headers: &HeaderMap) -> Result<(), Status> {
        let has_token = TOKENS.iter().any(|name| headers.contains_key(*name));
        if self.enabled() != Some(true) || has_token || path == AUTHENTICATE {
            return Ok(());
        }
        let message = "gateway: etcd has authentication enabled, and the certificate of a client does not reach it; \
                       authenticate with user name and password, or connect to a member of etcd";
        Err(Status::new(Code::FailedPrecondition, message))
    }

    /// Lets etcd ignore the certificate of the gateway, unless it looks at no certificate.
    pub(super) fn mark(&self, headers: &mut HeaderMap) {
        if self.enabled() != Some(false) {
            headers.insert(IGNORE_COMMON_NAME, HeaderValue::from_static("application/grpc"));
        }
    }

    /// Waits until authentication is enabled that was not when this was called.
    pub(super) fn turned_on(&self) -> impl Future<Output = ()> + Send + 'static {
        let mut seen = self.0.subscribe();
        seen.mark_unchanged();
        async move {
            while seen.changed().await.is_ok() {
                if *seen.borrow_and_update() == Some(true) {
                    return;
                }
            }
            // The gateway ends, and its connections by themselves.
            std::future::pending().await
        }
    }

    fn set(&self, enabled: bool) {
        let changed = self.0.send_if_modified(|known| known.replace(enabled) != Some(enabled));
        if changed {
            tracing::info!(enabled, "authentication of etcd");
        }
    }
}

/// Asks for as long as the gateway runs.
pub(super) async fn follow(shared: Arc<Shared>) {
    let pool = Pool::new(shared.dialer.clone());
    let mut tick = interval(PERIOD);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tick.tick().await;
        // What was known holds while nobody answers: without a quorum it cannot be changed.
        if let Some(enabled) = ask(&shared, &pool).await {
            shared.auth.set(enabled);
        }
    }
}

/// Asks one member after the other until one knows.
async fn ask(shared: &Shared, pool: &Pool) -> Option<bool> {
    let mut tried = Vec::new();
    while let Some(flight) = shared.members.pick(0, &tried) {
        let member = flight.member().clone();
        if let Ok(Some(enabled)) = timeout(ANSWER, ask_member(pool, &member)).await {
            return Some(enabled);
        }
        tried.push(member);
    }
    None
}

async fn ask_member(pool: &Pool, member: &Arc<Member>) -> Option<bool> {
    let mut sender = pool.to(member).await.ok()?;
    let request = Request::post(format!("{}{STATUS}", member.url.trim_end_matches('/')))
        .header(CONTENT_TYPE, "application/grpc")
        .header(TE, "trailers")
        .body(Either::Left(Full::new(Bytes::from_static(EMPTY))));
    let (head, body) = sender.send_request(request.ok()?).await.ok()?.into_parts();
    let body = body.collect().await.ok()?;
    let failure = grpc::failure(&head.headers).or_else(|| grpc::failure(body.trailers()?));
    if let Some(failure) = failure {
        return REFUSALS.contains(&failure.message).then_some(true);
    }
    enabled(&body.to_bytes())
}

/// Reads the answer: the prefix, then the message.
fn enabled(body: &[u8]) -> Option<bool> {
    let mut message = body;
    message.try_get_u8().ok()?;
    let length = usize::try_from(message.try_get_u32().ok()?).ok()?;
    Some(varint_field(message.get(..length)?, ENABLED).ok()? != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_read() {
        let header = [0x0a, 2, 0x18, 5];
        let answer = |fields: &[u8]| {
            let message = [&header, fields].concat();
            let length = u8::try_from(message.len()).expect("short");
            [&[0, 0, 0, 0, length][..], &message].concat()
        };
        assert_eq!(enabled(&answer(&[0x10, 1, 0x18, 7])), Some(true));
        assert_eq!(enabled(&answer(&[0x18, 7])), Some(false));
        assert_eq!(enabled(&[0, 0, 0, 0, 9, 1]), None);
        assert_eq!(enabled(&[]), None);
    }

    #[test]
    fn only_calls_with_a_token_and_authenticate_pass_once_it_is_enabled() {
        let (auth, mut headers) = (Auth::default(), HeaderMap::new());
        let marked = |auth: &Auth| {
            let mut headers = HeaderMap::new();
            auth.mark(&mut headers);
            headers.contains_key(IGNORE_COMMON_NAME)
        };
        assert!(auth.check("/etcdserverpb.KV/Range", &headers).is_ok() && marked(&auth));
        auth.set(false);
        assert!(auth.check("/etcdserverpb.KV/Range", &headers).is_ok() && !marked(&auth));
        auth.set(true);
        assert!(auth.check("/etcdserverpb.KV/Range", &headers).is_err() && marked(&auth));
        assert!(auth.check(AUTHENTICATE, &headers).is_ok());
        headers.insert("token", HeaderValue::from_static("x.1"));
        assert!(auth.check("/etcdserverpb.KV/Range", &headers).is_ok());
    }

    #[tokio::test]
    async fn connections_end_when_it_is_enabled_and_not_before() {
        let auth = Auth::default();
        auth.set(true);
        let mut late = std::pin::pin!(auth.turned_on());
        auth.set(true);
        auth.set(false);
        assert!(timeout(Duration::from_millis(50), late.as_mut()).await.is_err());
        auth.set(true);
        timeout(Duration::from_secs(5), late).await.expect("it was turned on");
    }
}
