//! EtcdCopyBackupsTasks of gardenlet: a restore waits until one has succeeded.

use kube::{
    Api, Client, ResourceExt,
    core::{DynamicObject, GroupVersionKind},
    discovery::ApiResource,
};
use repot_api::names::{DRUID_GROUP, V1ALPHA1};
use repot_apimachinery::value::{items_at, text_at};
use repot_plan::gardenlet::observed::CopyTask;
use serde_json::{Value, json};

use super::copy::{self, Stores};
use crate::{
    errors::is_not_found,
    migration::{
        error::{Error, Result},
        seed::{params, under},
    },
};

fn api(client: &Client, namespace: &str) -> Api<DynamicObject> {
    let kind = ApiResource::from_gvk(&GroupVersionKind::gvk(DRUID_GROUP, V1ALPHA1, "EtcdCopyBackupsTask"));
    Api::namespaced_with(client.clone(), namespace, &kind)
}

/// The task of a Shoot, which has the name of the Shoot; none where the kind is not served. gardenlet has one task at a time.
///
/// # Errors
/// [`Error::Read`].
pub async fn find(client: &Client, namespace: &str, shoot: &str) -> Result<Vec<DynamicObject>> {
    match api(client, namespace).get_opt(shoot).await {
        Err(error) if is_not_found(&error) => Ok(Vec::new()),
        found => {
            let found = found.map_err(Error::read(format!("EtcdCopyBackupsTask {namespace}/{shoot}")))?;
            // One that is being deleted makes room for the next one.
            Ok(found.into_iter().filter(|task| task.metadata.deletion_timestamp.is_none()).collect())
        }
    }
}

/// A task, compared with the stores that were copied.
#[must_use]
pub fn facts(task: &DynamicObject, stores: &Stores) -> CopyTask {
    CopyTask {
        uid: task.uid().unwrap_or_default(),
        is_marked: is_marked(task),
        difference: copy::difference(&task.data, stores),
    }
}

/// gardenlet looks at the condition only where the status is of the current generation and has no error.
fn is_marked(task: &DynamicObject) -> bool {
    let observed = task.data.pointer("/status/observedGeneration").and_then(Value::as_i64);
    let has = |kind: &str| {
        let mut conditions = items_at(&task.data, "/status/conditions").iter();
        conditions.any(|one| text_at(one, "/type") == Some(kind) && text_at(one, "/status") == Some("True"))
    };
    let has_error = text_at(&task.data, "/status/lastError").is_some();
    observed.is_some()
        && observed == task.metadata.generation
        && has("Succeeded")
        && !has("Failed")
        && !has_error
}

/// Marks a task as succeeded.
///
/// # Errors
/// [`Error::Write`]; a conflict where it has changed since it was observed.
pub async fn mark(client: &Client, task: &DynamicObject) -> Result<()> {
    let now = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let status = copy::succeeded(task.metadata.generation.unwrap_or_default(), &now);
    let patch = under(task.resource_version(), json!({"metadata": {"uid": task.uid()}, "status": status}));
    let (namespace, name) = (task.namespace().unwrap_or_default(), task.name_any());
    let outcome = api(client, &namespace).patch_status(&name, &params(), &patch).await;
    outcome.map(drop).map_err(Error::write(format!("mark EtcdCopyBackupsTask {namespace}/{name}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn task(status: &Value) -> DynamicObject {
        serde_json::from_value(json!({
            "apiVersion": "druid.gardener.cloud/v1alpha1", "kind": "EtcdCopyBackupsTask",
            "metadata": {"name": "s", "namespace": "n", "uid": "1", "generation": 2}, "status": status,
        }))
        .expect("a task")
    }

    #[test]
    fn task_is_marked_when_gardenlet_would_go_on() {
        assert!(is_marked(&task(&copy::succeeded(2, "2026-01-01T00:00:00Z"))));
        assert!(!is_marked(&task(&copy::succeeded(1, "2026-01-01T00:00:00Z"))));
        assert!(!is_marked(&task(&json!({}))));
        let mut failed = copy::succeeded(2, "2026-01-01T00:00:00Z");
        failed["lastError"] = "no bucket".into();
        assert!(!is_marked(&task(&failed)));
    }
}
