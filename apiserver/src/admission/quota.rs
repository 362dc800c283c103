//! `count/R.G` of ResourceQuotas. kube-controller-manager counts what there is; here a new object takes its place before it
//! is stored, by an update of the quota's status that names the version it has read. So two servers cannot both give away
//! the last place. A creation that fails afterwards leaves its place taken until the controller counts again, as upstream.

use std::{collections::BTreeMap, time::Duration};

use futures::StreamExt;
use k8s_openapi::{api::core::v1::ResourceQuota, apimachinery::pkg::api::resource::Quantity};
use kube::{
    Api, Client, ResourceExt,
    api::{ListParams, PostParams},
    runtime::{WatchStreamExt, reflector, watcher},
};
use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;

use super::quantity::thousandths;
use crate::{resource::GroupResource, status::Status};

/// How often a place is tried for against others who take one.
const TRIES: usize = 8;
/// How long a question to the kube-apiserver may take.
const DEADLINE: Duration = Duration::from_secs(10);
/// Namespaces share this many locks: within one server nobody has to lose against a neighbour.
const LOCKS: usize = 64;
/// One object, in thousandths.
const ONE: i128 = 1000;

/// The quotas of the cluster.
pub struct Quotas {
    client: Client,
    seen: reflector::Store<ResourceQuota>,
    locks: Vec<Mutex<()>>,
}

impl Quotas {
    /// Follows the quotas of a cluster until `stop`; `known` is called when they have been listed.
    #[must_use]
    pub fn follow(client: Client, stop: CancellationToken, known: impl FnOnce() + Send + 'static) -> Self {
        let (seen, writer) = reflector::store();
        let api: Api<ResourceQuota> = Api::all(client.clone());
        let stream = reflector(writer, watcher(api, watcher::Config::default())).default_backoff();
        tokio::spawn(async move {
            let (mut stream, mut known) = (Box::pin(stream), Some(known));
            while let Some(Some(event)) = stop.run_until_cancelled(stream.next()).await {
                match event {
                    Ok(watcher::Event::InitDone) => {
                        if let Some(known) = known.take() {
                            known();
                        }
                    }
                    Ok(_) => {}
                    Err(error) => tracing::warn!(%error, "watch of resource quotas failed, trying again"),
                }
            }
        });
        Self { client, seen, locks: (0..LOCKS).map(|_| Mutex::new(())).collect() }
    }

    /// Takes a place for one more object, or, where nothing is going to be stored, sees whether there is one.
    ///
    /// # Errors
    /// 403 when there is none; 500 when nobody could tell.
    pub async fn take(
        &self,
        resource: &GroupResource,
        namespace: &str,
        name: &str,
        dry_run: bool,
    ) -> Result<(), Status> {
        let counted = format!("count/{resource}");
        let mut seen = self.seen.state().into_iter();
        if !seen.any(|quota| quota.namespace().as_deref() == Some(namespace) && counts(&quota, &counted)) {
            return Ok(());
        }
        let lock = &self.locks
            [namespace.bytes().fold(7_usize, |sum, b| sum.wrapping_mul(31) + usize::from(b)) % LOCKS];
        let _held = lock.lock().await;
        let api: Api<ResourceQuota> = Api::namespaced(self.client.clone(), namespace);
        let mut taken = Vec::new();
        for _ in 0..TRIES {
            let quotas = in_time(api.list(&ListParams::default())).await?;
            let pending = changed(quotas.items, &counted, &taken)
                .map_err(|why| Status::forbidden(resource, name, &why))?;
            if pending.is_empty() || dry_run {
                return Ok(());
            }
            let mut again = false;
            for quota in pending {
                match in_time_or_conflict(api.replace_status(
                    &quota.name_any(),
                    &PostParams::default(),
                    &quota,
                ))
                .await?
                {
                    Some(_) => taken.push(quota.name_any()),
                    None => again = true,
                }
            }
            if !again {
                return Ok(());
            }
        }
        Err(Status::conflict(
            resource,
            name,
            "the resource quota is being changed by others; please try again",
        ))
    }
}

/// The quotas that one more object changes, changed, without those where its place is taken already.
///
/// # Errors
/// Why there is no place.
fn changed(
    quotas: Vec<ResourceQuota>,
    counted: &str,
    taken: &[String],
) -> Result<Vec<ResourceQuota>, String> {
    let mut pending = Vec::new();
    for mut quota in quotas {
        let name = quota.name_any();
        if taken.contains(&name) || !counts(&quota, counted) {
            continue;
        }
        let status = quota.status.get_or_insert_default();
        let Some(hard) = status.hard.as_ref().and_then(|hard| hard.get(counted)) else { continue };
        let used = status.used.get_or_insert_default();
        let Some(before) = used.get(counted) else {
            return Err(format!("status unknown for quota: {name}, resources: {counted}"));
        };
        let unreadable = || format!("status unreadable for quota: {name}, resources: {counted}");
        let limit = thousandths(&hard.0).ok_or_else(unreadable)?;
        let after = thousandths(&before.0).ok_or_else(unreadable)?.saturating_add(ONE);
        if after > limit {
            let (used, limited) = (&before.0, &hard.0);
            return Err(format!(
                "exceeded quota: {name}, requested: {counted}=1, used: {counted}={used}, limited: {counted}={limited}"
            ));
        }
        used.insert(counted.to_owned(), Quantity((after / ONE).to_string()));
        pending.push(quota);
    }
    Ok(pending)
}

/// Whether a quota counts objects of this resource. Those with scopes are about Pods and the like.
fn counts(quota: &ResourceQuota, counted: &str) -> bool {
    let spec = quota.spec.as_ref();
    let scoped = spec.is_some_and(|spec| {
        spec.scope_selector.is_some() || spec.scopes.as_ref().is_some_and(|scopes| !scopes.is_empty())
    });
    let limits =
        |hard: Option<&BTreeMap<String, Quantity>>| hard.is_some_and(|hard| hard.contains_key(counted));
    let of_status = quota.status.as_ref().and_then(|status| status.hard.as_ref());
    !scoped && (limits(spec.and_then(|spec| spec.hard.as_ref())) || limits(of_status))
}

async fn in_time<T>(answer: impl Future<Output = kube::Result<T>>) -> Result<T, Status> {
    in_time_or_conflict(answer).await?.ok_or_else(|| unknown("a conflict where none can be"))
}

/// `None`: somebody else was faster.
async fn in_time_or_conflict<T>(answer: impl Future<Output = kube::Result<T>>) -> Result<Option<T>, Status> {
    match tokio::time::timeout(DEADLINE, answer).await {
        Ok(Ok(value)) => Ok(Some(value)),
        Ok(Err(kube::Error::Api(status))) if matches!(status.code, 404 | 409) => Ok(None),
        Ok(Err(error)) => Err(unknown(&error.to_string())),
        Err(_) => Err(unknown("no answer in time")),
    }
}

fn unknown(why: &str) -> Status {
    tracing::error!(why, "resource quotas could not be read or changed");
    Status::internal("failed to take a place in the resource quota")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    const COUNTED: &str = "count/shootstates.core.gardener.cloud";

    fn quota(name: &str, status: &Value) -> ResourceQuota {
        let mut quota =
            json!({"metadata": {"name": name}, "spec": {"hard": {COUNTED: "2"}}, "status": status});
        if name == "scoped" {
            quota["spec"]["scopes"] = json!(["BestEffort"]);
        }
        serde_json::from_value(quota).expect("a quota")
    }

    fn status(hard: &str, used: &str) -> Value {
        json!({"hard": {COUNTED: hard, "pods": "1"}, "used": {COUNTED: used, "pods": "1"}})
    }

    #[test]
    fn takes_a_place_in_every_quota_that_counts() {
        let quotas = vec![
            quota("a", &status("2", "1")),
            quota("b", &status("1k", "0")),
            quota("scoped", &status("0", "0")),
            quota("new", &json!({})),
            quota("taken", &status("1", "1")),
        ];
        let pending = changed(quotas, COUNTED, &["taken".to_owned()]).expect("places");
        let used: Vec<_> = pending
            .iter()
            .map(|q| {
                (
                    q.name_any(),
                    q.status.as_ref().and_then(|s| s.used.clone()).unwrap_or_default()[COUNTED].0.clone(),
                )
            })
            .collect();
        assert_eq!(used, [("a".to_owned(), "2".to_owned()), ("b".to_owned(), "1".to_owned())]);
    }

    #[test]
    fn says_which_quota_has_no_place() {
        let refused = changed(vec![quota("a", &status("2", "2"))], COUNTED, &[]).expect_err("full");
        assert_eq!(
            refused,
            format!("exceeded quota: a, requested: {COUNTED}=1, used: {COUNTED}=2, limited: {COUNTED}=2")
        );
        let uncounted = quota("a", &json!({"hard": {COUNTED: "2"}}));
        let refused = changed(vec![uncounted], COUNTED, &[]).expect_err("not counted yet");
        assert_eq!(refused, format!("status unknown for quota: a, resources: {COUNTED}"));
        assert!(changed(vec![quota("a", &status("x", "0"))], COUNTED, &[]).is_err());
    }
}
