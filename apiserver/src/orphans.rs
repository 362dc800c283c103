//! Objects whose namespace is gone. Kubernetes empties a namespace before it lets it go, but a creation that was let in just
//! before can come to rest just after, and nobody ever looks at such an object again.
//!
//! What is removed here cannot be had back, so an object has to be an orphan beyond doubt:
//! - The namespace was asked for by name at the kube-apiserver itself, with an answer that says there is none. An error, a
//!   slow answer or a kube-apiserver without `kube-system` ends the round, and everything starts anew.
//! - That answer came twice at least, about the same object (by uid), over at least the grace period, and a third time
//!   right before the removal. One look that finds the namespace starts it anew, too.
//! - The object is younger than the cluster (its `kube-system`). After a cluster was built anew around a store that was
//!   kept or restored, all its namespaces are missing for a while; those objects are what the new cluster is to be filled from.
//! - The removal names the uid, and is an ordinary deletion: finalizers are honoured, webhooks are asked.
//!
//! An object that is older than its namespace belonged to one of the same name before. The same is seen where namespaces
//! were restored with new ages, so such objects are only reported: by a line in the log and a metric.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::{Duration, Instant},
};

use axum::body::Body;
use http::Request;
use jiff::Timestamp;
use repot_storage::{Object, Scope};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::{
    call::Call,
    endpoints,
    filters::user::{AUTHENTICATED, MASTERS, User},
    resource::Resource,
    server::Server,
    status::Status,
    wire,
};

/// Clocks of different machines differ; an object is older than its namespace only beyond this.
const CLOCK_SKEW: Duration = Duration::from_secs(60);
/// The namespace that is as old as its cluster.
const FIRST_NAMESPACE: &str = "kube-system";

/// An object, as far as this matters.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Seen {
    namespace: String,
    name: String,
    uid: String,
    created: Option<Timestamp>,
}

/// When an object was first found without its namespace.
type Suspects = BTreeMap<String, Instant>;

/// What a round says of objects, by uid.
#[derive(Debug, Default, PartialEq, Eq)]
struct Verdict {
    remove: Vec<Seen>,
    /// Not long enough yet.
    waiting: usize,
    /// From before the cluster, or of unknown age.
    protected: usize,
}

/// Judges the objects whose namespace is absent in this round, and remembers them for the next one.
fn judge(
    suspects: &mut Suspects,
    orphans: Vec<Seen>,
    cluster_since: Timestamp,
    now: Instant,
    grace: Duration,
) -> Verdict {
    let present: BTreeSet<&String> = orphans.iter().map(|seen| &seen.uid).collect();
    // Whoever was found with a namespace, or not at all, is no suspect any more.
    suspects.retain(|uid, _| present.contains(uid));
    let mut verdict = Verdict::default();
    for seen in orphans {
        if seen.created.is_none_or(|created| created < cluster_since) {
            verdict.protected += 1;
            continue;
        }
        match suspects.get(&seen.uid) {
            Some(since) if now.duration_since(*since) >= grace => verdict.remove.push(seen),
            Some(_) => verdict.waiting += 1,
            None => {
                suspects.insert(seen.uid, now);
                verdict.waiting += 1;
            }
        }
    }
    verdict
}

/// Whether an object is from before its namespace.
fn is_older(object: Option<Timestamp>, namespace: Option<Timestamp>) -> bool {
    match (object, namespace) {
        (Some(object), Some(namespace)) => object.saturating_add(CLOCK_SKEW).is_ok_and(|end| end < namespace),
        _ => false,
    }
}

/// Looks for orphans again and again until `stop`. Does nothing where there is no cluster.
pub async fn watch(server: Arc<Server>, stop: CancellationToken) {
    if !server.namespaces.is_of_cluster() {
        return;
    }
    let mut suspects: BTreeMap<usize, Suspects> = BTreeMap::new();
    let every = server.limits.orphan_interval;
    let mut tick = tokio::time::interval_at(tokio::time::Instant::now() + every, every);
    while stop.run_until_cancelled(tick.tick()).await.is_some() {
        for (at, resource) in server.resources.iter().enumerate().filter(|(_, r)| r.kind.namespaced) {
            let looked = look(&server, resource, suspects.entry(at).or_default());
            match stop.run_until_cancelled(looked).await {
                None => return,
                Some(Err(error)) => {
                    tracing::warn!(%error, resource = %resource.name, "looking for orphans failed");
                    suspects.remove(&at);
                }
                Some(Ok(())) => {}
            }
        }
    }
}

async fn look(server: &Server, resource: &Resource, suspects: &mut Suspects) -> Result<(), Status> {
    let scope = Scope {
        group: resource.name.group.clone(),
        resource: resource.name.resource.clone(),
        namespace: None,
    };
    let list = server.store.list_cached(&scope, None).await;
    let list = list.map_err(|error| crate::status::from_storage(&error, &resource.name, ""))?;
    let mut by_namespace: BTreeMap<String, Vec<Seen>> = BTreeMap::new();
    for object in list.objects.into_iter().flatten() {
        by_namespace.entry(object.key.namespace.clone()).or_default().push(seen(&object));
    }
    let Some(cluster_since) = server.namespaces.look(FIRST_NAMESPACE).await?.and_then(|found| found.created)
    else {
        return Err(Status::internal("the cluster has no kube-system"));
    };
    let (mut orphans, mut older) = (Vec::new(), 0);
    for (namespace, objects) in by_namespace {
        match server.namespaces.look(&namespace).await? {
            None => orphans.extend(objects),
            Some(found) => {
                older += objects.iter().filter(|seen| is_older(seen.created, found.created)).count()
            }
        }
    }
    let verdict = judge(suspects, orphans, cluster_since, Instant::now(), server.limits.orphan_grace);
    report(server, &verdict, older);
    for orphan in verdict.remove {
        remove(server, resource, &orphan).await?;
    }
    Ok(())
}

fn seen(object: &Object) -> Seen {
    let created = wire::parse_meta(object).creation_timestamp.and_then(|text| text.parse().ok());
    let key = &object.key;
    Seen { namespace: key.namespace.clone(), name: key.name.clone(), uid: object.uid.to_string(), created }
}

fn report(server: &Server, verdict: &Verdict, older: usize) {
    let found = &server.metrics.orphans.found;
    let missing = verdict.waiting + verdict.remove.len();
    for (reason, count) in [
        ("NamespaceMissing", missing),
        ("OlderThanCluster", verdict.protected),
        ("NamespaceRecreated", older),
    ] {
        found.with_label_values(&[reason]).set(i64::try_from(count).unwrap_or(i64::MAX));
    }
    if missing + verdict.protected + older > 0 {
        let protected = verdict.protected;
        tracing::warn!(missing, protected, older, "objects whose namespace is gone");
    }
}

async fn remove(server: &Server, resource: &Resource, orphan: &Seen) -> Result<(), Status> {
    // The last look; whoever made the namespace anew since then keeps what is in it.
    if server.namespaces.look(&orphan.namespace).await?.is_some() {
        return Ok(());
    }
    let Seen { namespace, name, uid, .. } = orphan;
    let path =
        format!("/apis/{}/namespaces/{namespace}/{}/{name}", resource.api_version(), resource.name.resource);
    let options = json!({"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": {"uid": uid}});
    let request = Request::delete(path).header(http::header::CONTENT_TYPE, "application/json");
    let request = request.body(Body::from(options.to_string()));
    let request = request.map_err(|error| Status::internal(error.to_string()))?;
    let mut call = Call::begin(request, Arc::default()).map_err(|(status, _)| status)?;
    call.user = User {
        name: "system:apiserver".to_owned(),
        groups: vec![MASTERS.to_owned(), AUTHENTICATED.to_owned()],
        ..User::default()
    };
    match endpoints::dispatch(server, &mut call).await {
        Ok(_) => {
            server.metrics.orphans.removed.inc();
            tracing::warn!(namespace, name, uid, "deleted an object whose namespace is gone");
        }
        Err(status) => {
            tracing::warn!(namespace, name, uid, %status, "an object whose namespace is gone stays")
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const GRACE: Duration = Duration::from_secs(60);

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(seconds).expect("a time")
    }

    fn orphan(uid: &str, created: Option<i64>) -> Seen {
        Seen { namespace: "n".into(), name: uid.into(), uid: uid.into(), created: created.map(at) }
    }

    #[test]
    fn removes_only_what_was_an_orphan_twice_and_long_enough() {
        let (mut suspects, start) = (Suspects::new(), Instant::now());
        let mut round = |orphans: &[&str], after: u64| {
            let orphans = orphans.iter().map(|uid| orphan(uid, Some(20))).collect();
            let now = start + Duration::from_secs(after);
            let verdict = judge(&mut suspects, orphans, at(10), now, GRACE);
            verdict.remove.into_iter().map(|seen| seen.uid).collect::<Vec<_>>()
        };
        assert_eq!(round(&["a"], 0), [""; 0]);
        assert_eq!(round(&["a", "b"], 30), [""; 0]);
        assert_eq!(round(&["a", "b"], 60), ["a"]);
        // One look that finds the namespace starts everything anew.
        assert_eq!(round(&[], 70), [""; 0]);
        assert_eq!(round(&["a", "b"], 200), [""; 0]);
        assert_eq!(round(&["a", "b"], 260), ["a", "b"]);
    }

    #[test]
    fn one_look_is_never_enough() {
        let mut suspects = Suspects::new();
        let verdict =
            judge(&mut suspects, vec![orphan("a", Some(20))], at(10), Instant::now(), Duration::ZERO);
        assert_eq!((verdict.remove.len(), verdict.waiting), (0, 1));
    }

    #[test]
    fn never_removes_what_is_older_than_the_cluster() {
        let (mut suspects, now) = (Suspects::new(), Instant::now());
        for _ in 0..3 {
            let orphans = vec![orphan("old", Some(9)), orphan("ageless", None)];
            let verdict = judge(&mut suspects, orphans, at(10), now, Duration::ZERO);
            assert_eq!(verdict, Verdict { protected: 2, ..Verdict::default() });
        }
    }

    #[test]
    fn an_object_is_older_than_its_namespace_beyond_the_skew_of_clocks() {
        assert!(is_older(Some(at(0)), Some(at(61))));
        assert!(!is_older(Some(at(0)), Some(at(60))));
        assert!(!is_older(None, Some(at(100))) && !is_older(Some(at(0)), None));
    }
}
