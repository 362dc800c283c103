//! Jobs that copy snapshots from the bucket of the source to that of the destination.

use k8s_openapi::api::batch::v1::Job;
use kube::{Api, Client, ResourceExt};
use repot_plan::migration::observed::FinalSnapshot;
use serde_json::Value;

use super::prepare::create_params;
use crate::{
    errors::is_conflict,
    etcd::{
        api::{Etcd, SecretKey, Store},
        copy,
    },
    migration::{
        error::{Error, Result},
        names::{BACKUP_SECRET, SOURCE_BACKUP_SECRET},
        seed::read,
    },
};

/// Name of the Job that copies while the source serves.
pub const AHEAD: &str = "copy-snapshots-ahead";

/// Name of the Job that copies what the etcd of a forced migration did not begin with.
pub const OLDER: &str = "copy-older-snapshots";

/// Name of the Job that copies the rest, up to the final snapshot.
#[must_use]
pub fn name_of_final(snapshot: &FinalSnapshot) -> String {
    format!("copy-final-snapshot-{}-{}", snapshot.epoch, snapshot.revision)
}

/// Jobs of a control plane that copy snapshots.
///
/// # Errors
/// [`Error::Read`].
pub async fn jobs(seed: &Client, namespace: &str) -> Result<Vec<Job>> {
    read::list::<Job>(seed, namespace, "").await
}

/// Whether the Job of that name has succeeded.
#[must_use]
pub fn is_complete(jobs: &[Job], name: &str) -> bool {
    has_condition(jobs, name, "Complete")
}

/// Whether Kubernetes has given the Job of that name up.
#[must_use]
pub fn has_failed(jobs: &[Job], name: &str) -> bool {
    has_condition(jobs, name, "Failed")
}

fn has_condition(jobs: &[Job], name: &str, kind: &str) -> bool {
    let job = jobs.iter().find(|job| job.name_any() == name);
    let conditions = job.and_then(|job| job.status.as_ref()?.conditions.as_ref());
    conditions.into_iter().flatten().any(|one| one.type_ == kind && one.status == "True")
}

/// The store of an Etcd at the source, with credentials that the destination has.
#[must_use]
pub fn source_store(carried: &Etcd) -> Option<Store> {
    let store = carried.spec.backup.store.clone()?;
    let secret_ref = Some(SecretKey { name: SOURCE_BACKUP_SECRET.to_owned(), ..SecretKey::default() });
    Some(Store { secret_ref, ..store })
}

/// The store of an Etcd at the destination.
#[must_use]
pub fn target_store(etcd: &Etcd) -> Option<Store> {
    let store = etcd.spec.backup.store.clone()?;
    let secret_ref = Some(SecretKey { name: BACKUP_SECRET.to_owned(), ..SecretKey::default() });
    Some(Store { secret_ref, ..store })
}

/// Creates the Job of that name, unless it exists.
///
/// # Errors
/// Where the Etcd names no store, or the Job cannot be created.
pub async fn ensure(
    seed: &Client,
    namespace: &str,
    (carried, etcd): (&Etcd, &Etcd),
    image: &str,
    name: &str,
) -> Result<()> {
    let mut etcd = etcd.clone();
    etcd.spec.backup.source_snapshots = (name == OLDER).then(|| "Older".to_owned());
    let no_store = || Error::Missing("spec.backup.store of the Etcd".to_owned());
    let stores = (source_store(carried).ok_or_else(no_store)?, target_store(&etcd).ok_or_else(no_store)?);
    create(seed, namespace, name, render(&etcd, stores, image)?).await
}

/// A Job that copies snapshots from the first store to the second.
///
/// # Errors
/// [`Error::Missing`] where it cannot be made of this Etcd.
pub fn render(etcd: &Etcd, (source, target): (Store, Store), image: &str) -> Result<Value> {
    let mut copied = etcd.clone();
    let backup = &mut copied.spec.backup;
    (backup.source_store, backup.store) = (Some(source), Some(target));
    // This Job copies what there is; who may go on from it is decided elsewhere.
    backup.owner_check = None;
    backup.wait_for_final_snapshot.enabled = false;
    let job = copy::job(&copied, image);
    let mut job = job.ok_or_else(|| Error::Missing("spec.backup.store of the Etcd".to_owned()))?.object;
    // It may come before the Etcd, and goes with the namespace.
    job["metadata"]["ownerReferences"] = Value::Null;
    // The operator makes the ServiceAccount of an Etcd only when that has members.
    if let Some(pod) = job.pointer_mut("/spec/template/spec").and_then(Value::as_object_mut) {
        pod.remove("serviceAccountName");
    }
    Ok(job)
}

/// Creates a Job under this name, unless there is one.
///
/// # Errors
/// [`Error::Form`], [`Error::Write`].
pub async fn create(seed: &Client, namespace: &str, name: &str, mut job: Value) -> Result<()> {
    job["metadata"]["name"] = name.into();
    job["metadata"]["namespace"] = namespace.into();
    let form = |source| Error::Form { what: format!("Job {name}"), source };
    let job: Job = serde_json::from_value(job).map_err(form)?;
    match Api::<Job>::namespaced(seed.clone(), namespace).create(&create_params(), &job).await {
        Err(error) if is_conflict(&error) => Ok(()),
        outcome => outcome.map(drop).map_err(Error::write(format!("create Job {name}"))),
    }
}
