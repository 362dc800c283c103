//! How long this process may write: as long as its Lease surely holds. A process that stood still, or that was cut off, finds out
//! by its own clock, before it has asked anybody.
//!
//! The term is over before the Lease is, so nobody else has begun by then. What was handed to the network before is not called
//! back: what may not be done twice was decided under the versions of objects, and is refused where those are others. The rest, such as
//! Services, is applied once more by whoever acts then.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use http::{Method, Request};
use kube::{Client, client::Body};
use repot_etcd::agent::clock;

/// What is not done any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the Lease was not renewed in time: another process may act now, and this one writes nothing any more"
)]
pub struct LeaseExpired;

/// Until when this process may write, in milliseconds since the start of the machine. Clones share it.
#[derive(Clone, Debug)]
pub struct LeaseDeadline(Arc<AtomicU64>);

impl LeaseDeadline {
    /// For a process that is alone: it does not end.
    #[must_use]
    pub fn endless() -> Self {
        Self(Arc::new(AtomicU64::new(u64::MAX)))
    }

    /// So long from a reading of [`clock::now`] that was taken before the Lease was asked for: when the answer comes, a part of its
    /// time has gone by already.
    #[must_use]
    pub fn begin(asked: Duration, length: Duration) -> Self {
        let term = Self(Arc::new(AtomicU64::new(0)));
        term.renew(asked, length);
        term
    }

    /// The same, for one that runs.
    pub fn renew(&self, asked: Duration, length: Duration) {
        let until = asked.saturating_add(length).as_millis();
        self.0.store(u64::try_from(until).unwrap_or(u64::MAX), Ordering::SeqCst);
    }

    /// Ends the term now: [`Self::check`] gives an error from here on, unless the term is renewed.
    pub fn end(&self) {
        self.0.store(0, Ordering::SeqCst);
    }

    /// Whether something may be written now.
    ///
    /// # Errors
    /// [`LeaseExpired`].
    pub fn check(&self) -> Result<(), LeaseExpired> {
        let now = u64::try_from(clock::now().as_millis()).unwrap_or(u64::MAX);
        if now < self.0.load(Ordering::SeqCst) { Ok(()) } else { Err(LeaseExpired) }
    }
}

/// A client that reads always, and writes while the term runs.
///
/// # Errors
/// What it is asked to write afterwards fails with [`LeaseExpired`], inside [`kube::Error::Service`].
#[must_use]
pub fn fenced_client(term: LeaseDeadline, client: Client) -> Client {
    let namespace = client.default_namespace().to_owned();
    let service = tower::service_fn(move |request: Request<Body>| {
        let (client, term) = (client.clone(), term.clone());
        async move {
            if !is_read(request.method()) {
                term.check().map_err(|over| kube::Error::Service(over.into()))?;
            }
            client.send(request).await
        }
    });
    Client::new(service, namespace)
}

fn is_read(method: &Method) -> bool {
    matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS)
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::{
        Api,
        api::{DeleteParams, Patch, PatchParams, PostParams},
    };
    use serde_json::json;
    use tokio::sync::mpsc;

    use super::*;

    const LENGTH: Duration = Duration::from_secs(10);

    #[test]
    fn term_counts_from_the_question_and_not_from_the_answer() {
        let now = clock::now();
        let term = LeaseDeadline::begin(now, LENGTH);
        assert_eq!(term.check(), Ok(()));
        // The answer was on its way for longer than the term.
        term.renew(now.saturating_sub(LENGTH), LENGTH);
        assert_eq!(term.check(), Err(LeaseExpired));
        term.renew(now, LENGTH);
        assert_eq!(term.check(), Ok(()));
        term.end();
        assert_eq!(term.check(), Err(LeaseExpired));
        assert_eq!(LeaseDeadline::endless().check(), Ok(()));
    }

    #[tokio::test]
    async fn after_the_term_nothing_is_sent_but_questions() {
        let (sent, mut seen) = mpsc::unbounded_channel();
        let answers = tower::service_fn(move |request: Request<Body>| {
            sent.send(request.method().clone()).expect("somebody looks");
            let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}});
            async move { Ok::<_, Infallible>(http::Response::new(Body::from(object.to_string().into_bytes()))) }
        });
        let term = LeaseDeadline::begin(clock::now(), LENGTH);
        let client = fenced_client(term.clone(), Client::new(answers, "default"));
        let all = Api::<ConfigMap>::default_namespaced(client);
        let patch = Patch::Merge(json!({}));
        all.patch("a", &PatchParams::default(), &patch).await.expect("it runs");
        term.end();
        let refused = all.patch("a", &PatchParams::default(), &patch).await.expect_err("it is over");
        assert!(refused.to_string().contains("Lease was not renewed"), "{refused}");
        all.create(&PostParams::default(), &ConfigMap::default()).await.expect_err("it is over");
        all.delete("a", &DeleteParams::default()).await.expect_err("it is over");
        all.get("a").await.expect("questions may be asked");
        let seen: Vec<Method> = std::iter::from_fn(|| seen.try_recv().ok()).collect();
        assert_eq!(seen, [Method::PATCH, Method::GET]);
    }
}
