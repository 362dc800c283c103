//! What the page shows of a ZoneIsolation and of hosted etcds with their workflows.

use serde_json::{Value, json};

use super::rows::{problems, text};

/// Most steps of an object.
const MOST_STEPS: usize = 80;

fn steps(part: &Value, side: &str) -> Vec<Value> {
    let of = |step: &Value| {
        json!({
            "side": side, "name": text(step, "/name"), "state": text(step, "/state"), "reason": text(step, "/reason"),
            "message": text(step, "/message"), "started": text(step, "/startTime"),
            "completed": text(step, "/completionTime"), "attempts": step["attempts"].as_i64(),
        })
    };
    part["steps"].as_array().into_iter().flatten().take(MOST_STEPS).map(of).collect()
}

/// The row of a ZoneIsolation.
pub(super) fn isolation(object: &Value) -> Value {
    let at = |pointer: &str| text(object, pointer);
    let sides = ["garden", "seed"];
    let steps: Vec<Value> = sides.into_iter().flat_map(|side| steps(&object["status"][side], side)).collect();
    json!({
        "namespace": at("/metadata/namespace"), "name": at("/metadata/name"), "created": at("/metadata/creationTimestamp"),
        "shoot": at("/spec/shootRef/name"), "zone": at("/spec/isolatedZoneID"), "zoneCode": at("/status/isolatedZoneCode"),
        "expires": at("/spec/expiresAt"), "phase": at("/status/phase"), "status": at("/status/status"),
        "reason": at("/status/reason"), "message": at("/status/message"), "seed": at("/status/seedName"),
        "deleting": object.pointer("/metadata/deletionTimestamp").is_some_and(|time| !time.is_null()),
        "steps": steps,
    })
}

/// The row of a HostedEtcd.
pub(super) fn etcd(object: &Value) -> Value {
    let at = |pointer: &str| text(object, pointer);
    let number = |pointer: &str| object.pointer(pointer).and_then(Value::as_i64);
    json!({
        "namespace": at("/metadata/namespace"), "name": at("/metadata/name"), "created": at("/metadata/creationTimestamp"),
        "runs": at("/spec/etcdRef/name"), "lifecycle": at("/status/lifecycleStatus"), "message": at("/status/message"),
        "ready": number("/status/readyReplicas"), "replicas": number("/spec/settings/replicas"),
        "size": at("/spec/settings/size"), "workflowKind": at("/status/currentWorkflow/kind"),
        "workflow": at("/status/currentWorkflow/name"), "provider": at("/spec/backupStore/provider"),
        "bucket": at("/spec/backupStore/container"), "prefix": at("/spec/backupStore/prefix"), "problems": problems(object),
    })
}

/// The row of an EtcdBackup.
pub(super) fn backup(object: &Value) -> Value {
    let at = |pointer: &str| text(object, pointer);
    let number = |pointer: &str| object.pointer(pointer).and_then(Value::as_i64);
    let mut row = workflow(object);
    row["schedule"] = json!(at("/spec/schedule"));
    row["last"] = json!(at("/status/lastSuccessfulTime"));
    row["next"] = json!(at("/status/nextScheduleTime"));
    row["size"] = json!(number("/status/sizeBytes"));
    row["revision"] = json!(number("/status/revision"));
    row["keys"] = json!(number("/status/proof/keys"));
    row
}

/// The row of an EtcdRestore or an EtcdMigration.
pub(super) fn workflow(object: &Value) -> Value {
    let at = |pointer: &str| text(object, pointer);
    json!({
        "namespace": at("/metadata/namespace"), "name": at("/metadata/name"), "created": at("/metadata/creationTimestamp"),
        "cluster": at("/spec/clusterRef/name"), "phase": at("/status/phase"), "reason": at("/status/reason"),
        "message": at("/status/message"), "started": at("/status/startTime"), "completed": at("/status/completionTime"),
        "backup": at("/spec/source/backupName"), "steps": steps(&object["status"], ""),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_without_a_status_have_rows() {
        let object = json!({"metadata": {"namespace": "n", "name": "a"}, "spec": {}});
        assert_eq!(isolation(&object)["steps"], json!([]));
        assert_eq!(etcd(&object)["ready"], json!(null));
        assert_eq!(backup(&object)["phase"], json!(""));
    }

    #[test]
    fn number_of_steps_is_bounded() {
        let many: Vec<Value> = (0..1000).map(|at| json!({"name": format!("s{at}")})).collect();
        let object = json!({"status": {"steps": many, "seed": {"steps": many}, "garden": 7}});
        assert_eq!(workflow(&object)["steps"].as_array().map(Vec::len), Some(MOST_STEPS));
        assert_eq!(isolation(&object)["steps"].as_array().map(Vec::len), Some(MOST_STEPS));
    }
}
