use std::{collections::BTreeMap, convert::Infallible, sync::Arc};

use futures::future::BoxFuture;
use http_body_util::BodyExt;
use kube::client::Body;
use parking_lot::Mutex;
use tokio::sync::Semaphore;

use super::*;

/// Pods by name, and the Events that were created.
#[derive(Default)]
struct Stored {
    pods: BTreeMap<String, Value>,
    events: Vec<Value>,
}

/// A kube-apiserver with Pods, which refuses a patch of a version that is not the newest.
#[derive(Clone)]
struct Cluster(Arc<Mutex<Stored>>);

impl Cluster {
    fn with(pods: &[&str]) -> Self {
        let pod = |name: &&str| {
            let pod = json!({"metadata": {"name": name, "uid": format!("uid-{name}"), "resourceVersion": "1"},
                "status": {"conditions": [{"type": "Ready", "status": "True"}]}});
            ((*name).to_owned(), pod)
        };
        Self(Arc::new(Mutex::new(Stored { pods: pods.iter().map(pod).collect(), events: Vec::new() })))
    }

    /// The marker of a server. Each of its requests waits for a permit, which it takes.
    fn marker(&self, own: &str, gate: Arc<Semaphore>) -> Marker {
        let stored = self.0.clone();
        let service = tower::service_fn(move |request: http::Request<Body>| {
            let (stored, gate) = (stored.clone(), gate.clone());
            async move {
                gate.acquire().await.expect("a gate").forget();
                let (head, body) = request.into_parts();
                let body = body.collect().await.expect("a body").to_bytes();
                let body = serde_json::from_slice(&body).unwrap_or_default();
                let (code, answer) = stored.lock().answer(&head.method, head.uri.path(), &body);
                let answer = Body::from(answer.to_string().into_bytes());
                Ok::<_, Infallible>(http::Response::builder().status(code).body(answer).expect("a response"))
            }
        });
        Marker::new(&Client::new(service, "ns"), "ns", own)
    }

    fn free(&self, own: &str) -> Marker {
        self.marker(own, Arc::new(Semaphore::new(Semaphore::MAX_PERMITS)))
    }

    fn condition(&self, pod: &str, kind: &str) -> Value {
        let stored = self.0.lock();
        let conditions = stored.pods[pod]["status"]["conditions"].as_array().expect("a list");
        conditions.iter().find(|condition| condition["type"] == kind).cloned().unwrap_or_default()
    }

    fn is_ready(&self, pod: &str) -> bool {
        self.condition(pod, "Ready")["status"] == "True"
    }

    /// Changes a Pod as others do.
    fn change(&self, pod: &str, change: impl FnOnce(&mut Value)) {
        let mut stored = self.0.lock();
        let pod = stored.pods.get_mut(pod).expect("a pod");
        change(pod);
        bump(pod);
    }
}

impl Stored {
    fn answer(&mut self, method: &http::Method, path: &str, body: &Value) -> (u16, Value) {
        if path == "/api/v1/namespaces/ns/events" {
            self.events.push(body.clone());
            return (201, body.clone());
        }
        let rest = path.strip_prefix("/api/v1/namespaces/ns/pods/").expect("a path of pods");
        let Some(pod) = self.pods.get_mut(rest.trim_end_matches("/status")) else {
            return failure(404, "NotFound");
        };
        if method == http::Method::PATCH {
            if ["uid", "resourceVersion"]
                .iter()
                .any(|field| body["metadata"][field] != pod["metadata"][field])
            {
                return failure(409, "Conflict");
            }
            let new = &body["status"]["conditions"][0];
            let conditions = pod["status"]["conditions"].as_array_mut().expect("a list");
            conditions.retain(|condition| condition["type"] != new["type"]);
            conditions.push(new.clone());
            bump(pod);
        }
        (200, pod.clone())
    }
}

fn bump(pod: &mut Value) {
    let version: u64 = pod["metadata"]["resourceVersion"].as_str().expect("text").parse().expect("a number");
    pod["metadata"]["resourceVersion"] = json!((version + 1).to_string());
}

fn failure(code: u16, reason: &str) -> (u16, Value) {
    let status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": reason, "reason": reason, "code": code});
    (code, status)
}

fn peer(name: &str) -> Peer {
    Peer { name: name.to_owned(), uid: format!("uid-{name}"), addresses: Vec::new() }
}

#[tokio::test]
async fn marks_a_pod_and_says_so_on_both() {
    let cluster = Cluster::with(&["a", "b"]);
    cluster.free("a").mark(&peer("b")).await.expect("marked");
    let ready = cluster.condition("b", "Ready");
    assert_eq!((&ready["status"], &ready["reason"]), (&json!("False"), &json!("PeerUnreachable")));
    assert!(cluster.is_ready("a"));
    let claim = cluster.condition("a", MARKS_PEER);
    assert!(claim["message"].as_str().is_some_and(|text| text.contains("Pod b")), "{claim}");
    let stored = cluster.0.lock();
    let [event] = stored.events.as_slice() else { panic!("{:?}", stored.events) };
    assert_eq!((&event["involvedObject"]["name"], &event["type"]), (&json!("b"), &json!("Warning")));
}

#[tokio::test]
async fn leaves_pods_that_get_no_requests_alone() {
    let cluster = Cluster::with(&["a", "b", "c", "d"]);
    cluster.change("b", |pod| pod["metadata"]["deletionTimestamp"] = json!("2026-11-30T00:00:00Z"));
    cluster.change("c", |pod| pod["status"]["conditions"][0]["status"] = json!("False"));
    cluster.change("d", |pod| pod["metadata"]["uid"] = json!("another"));
    for name in ["b", "c", "d", "e"] {
        let done = cluster.free("a").mark(&peer(name)).await;
        assert!(matches!(done, Err(Error::NotNeeded)), "{name}: {done:?}");
    }
    assert!(cluster.0.lock().events.is_empty());
}

#[tokio::test]
async fn server_that_is_not_ready_marks_nobody() {
    let cluster = Cluster::with(&["a", "b"]);
    cluster.change("a", |pod| pod["status"]["conditions"][0]["status"] = json!("False"));
    let done = cluster.free("a").mark(&peer("b")).await;
    assert!(matches!(done, Err(Error::OwnNotReady)), "{done:?}");
    assert!(cluster.is_ready("b"));
}

#[tokio::test]
async fn server_that_does_not_reach_kube_apiserver_marks_nobody() {
    let cluster = Cluster::with(&["a", "b"]);
    let done = cluster.marker("a", Arc::new(Semaphore::new(0))).mark(&peer("b")).await;
    assert!(matches!(done, Err(Error::NoAnswer)), "{done:?}");
    assert!(cluster.is_ready("b"));
}

/// A server that marks another one, request by request.
struct Step {
    gate: Arc<Semaphore>,
    work: BoxFuture<'static, ()>,
    is_done: bool,
}

impl Step {
    fn new(cluster: &Cluster, own: &'static str, other: &'static str) -> Self {
        let gate = Arc::new(Semaphore::new(0));
        let marker = cluster.marker(own, gate.clone());
        let work = async move { drop(marker.mark_ready(&peer(other)).await) };
        Self { gate, work: Box::pin(work), is_done: false }
    }

    /// Lets one more request be answered.
    async fn go_on(&mut self) {
        self.gate.add_permits(1);
        // A task of the client passes requests on.
        for _ in 0..8 {
            if !self.is_done {
                self.is_done = futures::poll!(&mut self.work).is_ready();
            }
            tokio::task::yield_now().await;
        }
    }
}

/// All orders in which so many servers take so many steps each.
fn orders(left: &[usize]) -> Vec<Vec<usize>> {
    if left.iter().all(|steps| *steps == 0) {
        return vec![Vec::new()];
    }
    let mut all = Vec::new();
    for who in (0..left.len()).filter(|who| left[*who] > 0) {
        let mut rest = left.to_vec();
        rest[who] -= 1;
        all.extend(orders(&rest).into_iter().map(|tail| [vec![who], tail].concat()));
    }
    all
}

/// Servers that mark each other in a circle, with their four requests each in every so many-th order; how many marks there were.
async fn in_a_circle(names: &[&'static str], every: usize) -> Vec<usize> {
    let mut found = Vec::new();
    for order in orders(&vec![4; names.len()]).into_iter().step_by(every) {
        let cluster = Cluster::with(names);
        let next = |at: usize| names[(at + 1) % names.len()];
        let mut servers: Vec<Step> =
            names.iter().enumerate().map(|(at, own)| Step::new(&cluster, own, next(at))).collect();
        for who in &order {
            servers[*who].go_on().await;
        }
        let ready = names.iter().filter(|name| cluster.is_ready(name)).count();
        assert!(ready > 0, "no server is ready after {order:?}");
        found.push(names.len() - ready);
    }
    found
}

#[tokio::test]
async fn two_servers_that_suspect_each_other_never_mark_both() {
    let found = in_a_circle(&["a", "b"], 1).await;
    assert_eq!(found.len(), 70);
    assert!(found.contains(&1), "nobody was ever marked");
}

#[tokio::test]
async fn one_of_three_servers_that_suspect_each_other_stays_ready() {
    let found = in_a_circle(&["a", "b", "c"], 13).await;
    assert!(found.len() > 2000 && found.contains(&2), "two were never marked");
}
