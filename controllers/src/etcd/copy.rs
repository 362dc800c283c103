//! The Job that copies the snapshots of another etcd, once for each set of volumes. It is taken up where it was after any
//! failure, since the copy is: the Job is made once, its container starts again, and nobody deletes it for being slow.

use k8s_openapi::api::batch::v1::Job;
use kube::ResourceExt;
use repot_etcd_core::copy_progress::PORT;
use serde_json::{Value, json};

use super::{
    api::{Etcd, Store},
    names,
    render::{self, Kind, Rendered, paths},
};

/// Failures after which Kubernetes would give the Job up: never.
const BACKOFF_LIMIT: i32 = i32::MAX;

/// The value of the label that Jobs have as their component.
const COMPONENT: &str = "copy";

/// Selects the Jobs of an Etcd, those for what was asked earlier included.
#[must_use]
pub fn selector(etcd: &str) -> String {
    format!("{}={etcd},{}={COMPONENT}", names::PART_OF, names::COMPONENT)
}

/// The name of the Job, where one is needed: another one for other volumes and stores, and for another owner, who continues what
/// others have written since.
#[must_use]
pub fn name(etcd: &Etcd) -> Option<String> {
    let backup = &etcd.spec.backup;
    let (source, target) = (backup.source_store.as_ref()?, backup.store.as_ref()?);
    let owner = backup.owner_check.as_ref().map(|check| (&check.name, &check.id));
    let what = json!([etcd.uid(), etcd.volumes(), source, target, owner]).to_string();
    let hash: String = blake3::hash(what.as_bytes()).to_hex().chars().take(8).collect();
    Some(format!("{}-copy-{hash}", etcd.name_any()))
}

/// Whether the Job has nothing left to do, or was given up.
pub(super) fn has_ended(job: &Job) -> bool {
    holds(job, "Complete") || holds(job, "Failed")
}

/// Whether a condition of the Job is true.
pub(super) fn holds(job: &Job, kind: &str) -> bool {
    let conditions = job.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.into_iter().any(|condition| condition.type_ == kind && condition.status == "True")
}

/// Renders the Job that copies the snapshots; `None` unless the Etcd names both a source store and a store.
#[must_use]
pub fn job(etcd: &Etcd, image: &str) -> Option<Rendered> {
    let backup = &etcd.spec.backup;
    let (source, target) = (backup.source_store.as_ref()?, backup.store.as_ref()?);
    let mut mounted = render::store("source", source, paths::SOURCE, paths::LOCAL_SOURCE);
    mounted.extend(render::store("store", target, paths::STORE, paths::LOCAL_STORE));
    let mut env = environment("SOURCE_", source, paths::SOURCE);
    env.extend(environment("", target, paths::STORE));
    env.push(json!({"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}));
    let container = json!({
        "name": "copy", "image": etcd.spec.etcd.image.as_deref().unwrap_or(image), "command": command(etcd, source, target),
        "env": env, "securityContext": render::container_security(),
        "ports": [{"name": "progress", "containerPort": PORT}],
        "volumeMounts": mounted.iter().map(|one| one.mount.clone()).collect::<Vec<_>>(),
    });
    let labels = json!({names::PART_OF: etcd.name_any(), names::COMPONENT: COMPONENT});
    let pod = json!({
        "restartPolicy": "OnFailure", "automountServiceAccountToken": false, "enableServiceLinks": false,
        "serviceAccountName": etcd.name_any(), "securityContext": render::security(etcd), "containers": [container],
        "volumes": mounted.into_iter().map(|one| one.volume).collect::<Vec<_>>(),
    });
    let mut metadata = render::metadata(etcd, &name(etcd)?);
    metadata["labels"] = labels.clone();
    let object = json!({
        "apiVersion": "batch/v1", "kind": "Job", "metadata": metadata,
        "spec": {"backoffLimit": BACKOFF_LIMIT, "template": {"metadata": {"labels": labels}, "spec": pod}},
    });
    Some(Rendered { kind: Kind::Job, object })
}

fn command(etcd: &Etcd, source: &Store, target: &Store) -> Vec<String> {
    let (source, target) = (source.url(paths::LOCAL_SOURCE), target.url(paths::LOCAL_STORE));
    let mut command =
        ["repot", "snapshots", "copy", "--source", &source, "--target", &target].map(str::to_owned).to_vec();
    command.extend(["--progress-port".to_owned(), PORT.to_string()]);
    if let Some(scope) = etcd.spec.backup.source_snapshots.as_deref().filter(|scope| *scope != "All") {
        command.extend(["--scope".to_owned(), scope.to_lowercase()]);
    }
    if let Some(check) = &etcd.spec.backup.owner_check {
        let owner = json!(render::record_of_owner(check)).to_string();
        command.extend(["--owner".to_owned(), owner]);
    }
    let wait = &etcd.spec.backup.wait_for_final_snapshot;
    if wait.enabled {
        let otherwise = if wait.on_timeout == "Fail" { "fail" } else { "copy" };
        let flags = ["--wait-for-final", &wait.timeout, "--on-deadline", otherwise];
        command.extend(flags.map(str::to_owned));
    }
    command
}

/// Where the command finds credentials: in the files that Secrets of etcd-backup-restore have.
fn environment(before: &str, store: &Store, path: &str) -> Vec<Value> {
    let variable = |name: &str, value: &str| json!({"name": format!("{before}{name}"), "value": value});
    let mut all = Vec::new();
    // An empty one for a store without a Secret: otherwise the source would be opened with what the target has.
    let secret = store.secret_ref.as_ref().map_or("", |_| path);
    all.push(variable("STORE_SECRET", secret));
    let (family, credentials, endpoint) = match store.provider.as_str() {
        "S3" => ("AWS", ("AWS_APPLICATION_CREDENTIALS", path.to_owned()), "AWS_ENDPOINT"),
        "ABS" => ("AZURE", ("AZURE_APPLICATION_CREDENTIALS", path.to_owned()), "AZURE_STORAGE_ENDPOINT"),
        "GCS" => {
            ("GOOGLE", ("GOOGLE_SERVICE_ACCOUNT", format!("{path}/serviceaccount.json")), "GOOGLE_BASE_URL")
        }
        _ => return all,
    };
    if store.secret_ref.is_some() {
        all.push(variable(credentials.0, &credentials.1));
    }
    if let Some(url) = &store.endpoint_override {
        all.push(variable(endpoint, url));
        if url.starts_with("http://") {
            all.push(variable(&format!("{family}_ALLOW_HTTP"), "true"));
        }
    }
    all
}
