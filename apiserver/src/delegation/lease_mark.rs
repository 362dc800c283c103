//! The high-water mark of the store in a Lease of the kube-apiserver: an object that is made to be written every few seconds.

use async_trait::async_trait;
use k8s_openapi::{
    api::coordination::v1::{Lease, LeaseSpec},
    apimachinery::pkg::apis::meta::v1::MicroTime,
};
use kube::{Api, Client, api::PostParams};
use repot_api::names::HIGH_WATER_MARK;
use repot_storage::store::high_water::{HighWaterMark, MarkError, MarkStore};

/// A Lease whose annotation holds the mark. Servers that write at the same time do not overwrite each other: one of them
/// fails, and tries again later.
pub struct LeaseMark {
    leases: Api<Lease>,
    namespace: String,
    name: String,
    server: String,
}

impl std::fmt::Debug for LeaseMark {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.location())
    }
}

impl LeaseMark {
    /// `namespace`: that of the client where none is given. `server`: who writes, for people who look.
    #[must_use]
    pub fn new(client: Client, namespace: Option<String>, name: String, server: String) -> Self {
        let namespace = namespace.unwrap_or_else(|| client.default_namespace().to_owned());
        Self { leases: Api::namespaced(client, &namespace), namespace, name, server }
    }

    async fn lease(&self) -> Result<Option<Lease>, MarkError> {
        self.leases.get_opt(&self.name).await.map_err(|error| MarkError(error.to_string()))
    }
}

#[async_trait]
impl MarkStore for LeaseMark {
    async fn load(&self) -> Result<Option<HighWaterMark>, MarkError> {
        let Some(lease) = self.lease().await? else { return Ok(None) };
        let text = lease.metadata.annotations.and_then(|mut all| all.remove(HIGH_WATER_MARK));
        text.map(|text| text.parse()).transpose()
    }

    async fn save(&self, mark: &HighWaterMark) -> Result<(), MarkError> {
        let (found, post) = (self.lease().await?, PostParams::default());
        let exists = found.is_some();
        let mut lease = found.unwrap_or_default();
        lease.metadata.name = Some(self.name.clone());
        lease.metadata.annotations.get_or_insert_default().insert(HIGH_WATER_MARK.into(), mark.to_string());
        let spec = lease.spec.get_or_insert_with(LeaseSpec::default);
        spec.holder_identity = Some(self.server.clone());
        spec.renew_time = Some(MicroTime(jiff::Timestamp::now()));
        let written = if exists {
            self.leases.replace(&self.name, &post, &lease).await
        } else {
            self.leases.create(&post, &lease).await
        };
        written.map(drop).map_err(|error| MarkError(error.to_string()))
    }

    fn location(&self) -> String {
        format!("Lease {}/{} of the kube-apiserver", self.namespace, self.name)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use kube::client::Body;
    use uuid::Uuid;

    use super::*;

    /// A kube-apiserver with room for one Lease, that refuses to replace a version which is not the newest.
    fn cluster(stored: Arc<Mutex<Option<Lease>>>) -> Client {
        let service = tower::service_fn(move |request: http::Request<Body>| {
            let stored = Arc::clone(&stored);
            async move {
                let (head, body) = request.into_parts();
                let sent = body.collect_bytes().await.expect("a body");
                let mut stored = stored.lock().expect("no panic");
                let version = |lease: &Lease| lease.metadata.resource_version.clone();
                let lease = match head.method {
                    http::Method::GET => stored.clone(),
                    _ => {
                        let mut lease: Lease = serde_json::from_slice(&sent).expect("a Lease");
                        if version(&lease) != stored.as_ref().and_then(version) {
                            return Ok::<_, std::convert::Infallible>(answer(409, &status("Conflict", 409)));
                        }
                        let next = version(&lease).map_or(1, |now| now.parse::<u64>().expect("a number") + 1);
                        lease.metadata.resource_version = Some(next.to_string());
                        *stored = Some(lease.clone());
                        Some(lease)
                    }
                };
                Ok(match lease {
                    Some(lease) => answer(200, &serde_json::to_value(lease).expect("JSON")),
                    None => answer(404, &status("NotFound", 404)),
                })
            }
        });
        Client::new(service, "ns")
    }

    fn status(reason: &str, code: u16) -> serde_json::Value {
        serde_json::json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": reason, "reason": reason, "code": code})
    }

    fn answer(code: u16, body: &serde_json::Value) -> http::Response<Body> {
        http::Response::builder()
            .status(code)
            .body(Body::from(body.to_string().into_bytes()))
            .expect("an answer")
    }

    #[tokio::test]
    async fn keeps_a_mark_and_what_else_is_in_the_lease() {
        let stored = Arc::new(Mutex::new(None));
        let marks = LeaseMark::new(cluster(Arc::clone(&stored)), None, "mark".into(), "server".into());
        assert_eq!(marks.location(), "Lease ns/mark of the kube-apiserver");
        assert!(marks.load().await.expect("read").is_none());
        let mark = |resource_version| HighWaterMark {
            store: Uuid::from_u128(1),
            cluster: Some("c".into()),
            resource_version,
        };
        marks.save(&mark(7)).await.expect("made");
        assert_eq!(marks.load().await.expect("read"), Some(mark(7)));
        let label = |lease: &mut Lease| {
            lease.metadata.labels.get_or_insert_default().insert("a".into(), "b".into());
        };
        label(stored.lock().expect("no panic").as_mut().expect("a Lease"));
        marks.save(&mark(8)).await.expect("replaced");
        assert_eq!(marks.load().await.expect("read"), Some(mark(8)));
        let lease = stored.lock().expect("no panic").clone().expect("a Lease");
        assert!(lease.metadata.labels.is_some_and(|labels| labels["a"] == "b"));
        assert!(lease.spec.is_some_and(|spec| spec.renew_time.is_some()));
    }

    #[tokio::test]
    async fn a_lease_that_holds_something_else_is_no_lease_without_a_mark() {
        let mut lease = Lease::default();
        lease.metadata.annotations = Some([(HIGH_WATER_MARK.to_owned(), "?".to_owned())].into());
        let stored = Arc::new(Mutex::new(Some(lease)));
        let marks = LeaseMark::new(cluster(stored), Some("other".into()), "mark".into(), "server".into());
        marks.load().await.expect_err("it was taken for none");
    }
}
