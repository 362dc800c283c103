use kube::Resource;
use serde_json::json;

use super::*;

/// An object with all fields that the golden of its kind has.
fn mk_golden<S: WorkflowSpec>(golden: &str) -> Value {
    let mut object: Value = serde_json::from_str(golden).expect("a golden");
    object["apiVersion"] = json!("migration.gardener.cloud/v1alpha1");
    object["kind"] = json!(S::KIND.name());
    object["metadata"] = json!({
        "name": "a", "namespace": "shoot", "uid": "u", "resourceVersion": "7", "generation": 3,
        "creationTimestamp": "2026-05-01T06:30:00Z", "finalizers": ["example.com/other"],
    });
    object
}

fn check_is_kept<S: WorkflowSpec + PartialEq>(golden: &str) {
    let mut object = mk_golden::<S>(golden);
    object["spec"]["cancel"] = json!(false);
    // Of a newer version of this program.
    object["spec"]["unknownField"] = json!({"a": [1, null]});
    object["status"]["unknownField"] = json!(2);
    let read: WorkflowObject<S> = serde_json::from_value(object.clone()).expect("an object");
    assert_eq!(serde_json::to_value(&read).expect("JSON"), object);
    assert_eq!(read.types, Some(TypeMeta::resource::<WorkflowObject<S>>()));
    assert_eq!(WorkflowObject::<S>::api_version(&()), object["apiVersion"].as_str().unwrap_or_default());
}

#[test]
fn workflows_are_written_with_all_fields_that_were_read() {
    check_is_kept::<BackupSpec>(include_str!(
        "../../../../apiserver/api/tests/goldens/etcdbackups.rests.json"
    ));
    check_is_kept::<RestoreSpec>(include_str!(
        "../../../../apiserver/api/tests/goldens/etcdrestores.rests.json"
    ));
    check_is_kept::<MigrationSpec>(include_str!(
        "../../../../apiserver/api/tests/goldens/etcdmigrations.rests.json"
    ));
}

/// A number that is too large or negative is rejected by validation; if it were stored all the same, one object must not stop all.
#[test]
fn numbers_beyond_what_is_valid_can_be_read() {
    let settings = |replicas: i64| {
        let spec = json!({"clusterRef": {"name": "main"}, "settings": {"replicas": replicas}});
        let spec: MigrationSpec = serde_json::from_value(spec).expect("a spec");
        spec.settings.wanted().replicas
    };
    assert_eq!(settings(3), Some(3));
    assert_eq!(settings(-1), None);
    assert_eq!(settings(i64::MAX), None);
    let backup = json!({"retention": {"limit": -7}});
    let backup: BackupSpec = serde_json::from_value(backup).expect("a spec");
    let retention = backup.backup(Time(0)).and_then(|spec| spec.retention);
    assert!(matches!(retention, Some(repot_etcd_core::retention::Retention::LimitBased(1))), "{retention:?}");
}

/// Fields of the ledger are all in `ledger`: none of them is a field of the status here.
#[test]
fn the_ledger_is_found_in_the_status() {
    let all = json!({
        "observedGeneration": 1, "revision": 2, "lastSuccessfulTime": "t", "sizeBytes": 3, "nextScheduleTime": "n",
        "phase": "Running", "message": "m",
    });
    let status: WorkflowStatus = serde_json::from_value(all).expect("a status");
    assert_eq!(status.to_ledger(), json!({"phase": "Running", "message": "m"}));
    assert_eq!((status.phase(), status.message()), (Some("Running"), Some("m")));
    let own = ["observedGeneration", "revision", "lastSuccessfulTime", "sizeBytes", "nextScheduleTime"];
    for kind in Kind::ALL {
        let both: Vec<_> = repot_plan::status::fields(kind.plans()).filter(|f| own.contains(f)).collect();
        assert!(both.is_empty(), "{both:?} of {}", kind.name());
    }
}

#[test]
fn hosted_etcds_are_read_and_their_status_is_written_without_the_lock() {
    let golden = include_str!("../../../../apiserver/api/tests/goldens/hostedetcds.rests.json");
    let mut object: Value = serde_json::from_str(golden).expect("a golden");
    object["metadata"] = json!({"name": "main"});
    let hosted: HostedEtcd = serde_json::from_value(object.clone()).expect("a HostedEtcd");
    assert_eq!(hosted.spec.etcd_ref, EtcdRef { kind: Some("Etcd".to_owned()), name: "main".to_owned() });
    assert_eq!(hosted.spec.api_server_ref.name, "kube-apiserver");
    assert_eq!(hosted.spec.settings.wanted().replicas, Some(3));
    let store = hosted.spec.backup_store.map(|store| store.url());
    assert_eq!(store.as_deref(), Some("s3://bucket/shoot--a--b/main"));
    let lock = hosted.status.current_workflow.clone().map(|lock| (lock.kind, lock.name, lock.uid));
    assert_eq!(lock, Some(("EtcdMigration".to_owned(), "faster".to_owned(), "u".to_owned())));
    let mut written = object["status"].clone();
    // Fields of a condition that are not its own are replaced with it, as the list is.
    written["conditions"][0].as_object_mut().expect("a condition").remove("observedGeneration");
    written.as_object_mut().expect("a status").remove("currentWorkflow");
    assert_eq!(json!(hosted.status), written);
    let empty = json!(HostedEtcdStatus::default());
    assert_eq!(empty["command"], Value::Null);
    assert!(empty.get("command").is_some(), "a merge patch removes only what it names");
}
