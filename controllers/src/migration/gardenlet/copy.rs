//! The copy of the backups to the bucket of the destination, as a Job in a namespace of its own: that of the control plane belongs to
//! gardenlet.

use k8s_openapi::api::{batch::v1::Job, core::v1::Namespace};
use kube::{Api, Client, api::PostParams, core::ObjectMeta};
use repot_api::names::STORE_PROVIDER;
use repot_apimachinery::value::{annotation_of, text_at};
use repot_plan::migration::observed::SourceSnapshot;
use serde_json::{Value, json};

use crate::{
    errors::is_conflict,
    etcd::{
        api::{Etcd, SecretKey, Store},
        copy,
    },
    migration::{
        api::Shoot,
        context::Context,
        destination::{copy_bucket_secret, prepare::is_made_by},
        error::{Error, Result},
        garden::seed,
        names::{BACKUP_SECRET, MADE_BY, MAIN_ETCD, MANAGER, SOURCE_BACKUP_SECRET},
        seed::{namespace, secret, snapshots},
    },
};

/// Name of the Job.
const JOB: &str = "copy-snapshots";

/// The namespace of the copy, of a control plane with this namespace.
#[must_use]
pub fn namespace_of(technical_id: &str) -> String {
    format!("copy--{technical_id}")
}

/// Where the snapshots are, and where they are copied to.
pub struct Stores {
    /// The store of the source.
    pub source: Store,
    /// The store of the destination.
    pub target: Store,
}

/// The kind of store that a Seed has its backups in; `None` where its provider does not tell, and nobody says so.
fn provider(seed: &Value) -> Option<&str> {
    let named = annotation_of(seed, STORE_PROVIDER).filter(|named| !named.is_empty());
    named.or_else(|| match text_at(seed, "/spec/backup/provider")? {
        "aws" | "S3" => Some("S3"),
        "gcp" | "GCS" => Some("GCS"),
        "azure" | "ABS" => Some("ABS"),
        _ => None,
    })
}

/// The store of a seed for a Shoot, as gardenlet names it, with the credentials in a Secret of the copy.
async fn store(context: &Context, name: &str, entry: &str, own: &str, secret_name: &str) -> Result<Store> {
    let found = seed(context.garden_client(), name).await?;
    let found = found.ok_or_else(|| Error::Missing(format!("Seed {name}")))?;
    let missing = || {
        let message = "the kind of backup store of Seed";
        Error::Missing(format!("{message} {name} (annotation {STORE_PROVIDER}: S3, GCS, ABS or Local)"))
    };
    let provider = provider(&found).ok_or_else(missing)?;
    let data = secret(context.own_client(), own, secret_name).await?;
    let named = data.get("bucketName").and_then(|name| String::from_utf8(name.clone()).ok());
    // The BackupBucket of a seed has the UID of the Seed as its name, and the bucket that of the BackupBucket.
    let uid = || text_at(&found, "/metadata/uid").unwrap_or_default().to_owned();
    Ok(Store {
        provider: provider.to_owned(),
        container: named.unwrap_or_else(uid),
        prefix: format!("{entry}/{MAIN_ETCD}"),
        endpoint_override: None,
        secret_ref: Some(SecretKey { name: secret_name.to_owned(), ..SecretKey::default() }),
    })
}

/// The stores of both seeds. The Secrets of the copy have to exist.
///
/// # Errors
/// Where a Seed or a Secret is missing or cannot be read, or the kind of a store is not known.
pub async fn stores(context: &Context, shoot: &Shoot, (from, to): (&str, &str)) -> Result<Stores> {
    let missing = || Error::Missing("status.technicalID or status.uid of the Shoot".to_owned());
    let (own, entry) = (namespace_of(&shoot.status.technical_id), shoot.backup_entry().ok_or_else(missing)?);
    let (source, target) = futures::try_join!(
        store(context, from, &entry, &own, SOURCE_BACKUP_SECRET),
        store(context, to, &entry, &own, BACKUP_SECRET),
    )?;
    Ok(Stores { source, target })
}

/// The newest snapshot in the bucket of the source; `None` where it has none.
///
/// # Errors
/// Where the bucket cannot be read in time.
pub async fn newest(context: &Context, own: &str, store: &Store) -> Result<Option<SourceSnapshot>> {
    snapshots::open(context.own_client(), own, store, &context.local_stores).await?.newest().await
}

/// The revision up to which the bucket of the destination holds snapshots, once the Job has copied and verified them.
///
/// # Errors
/// Where the Job or the bucket cannot be read in time.
pub async fn copied(context: &Context, own: &str, store: &Store) -> Result<Option<u64>> {
    let job = Api::<Job>::namespaced(context.own_client().clone(), own).get_opt(JOB).await;
    let job = job.map_err(Error::read(format!("Job {own}/{JOB}")))?;
    let conditions = job.as_ref().and_then(|job| job.status.as_ref()?.conditions.as_ref());
    let is_complete =
        |one: &k8s_openapi::api::batch::v1::JobCondition| one.type_ == "Complete" && one.status == "True";
    if !conditions.into_iter().flatten().any(is_complete) {
        return Ok(None);
    }
    snapshots::open(context.own_client(), own, store, &context.local_stores).await?.newest_revision().await
}

/// The namespace, where this migration has made it.
///
/// # Errors
/// [`Error::Read`].
pub async fn find(client: &Client, own: &str, migration: &str) -> Result<Option<Namespace>> {
    Ok(namespace::find(client, own).await?.filter(|found| is_made_by(found, migration)))
}

/// Creates the namespace, and Secrets in it with access to both buckets.
///
/// # Errors
/// [`Error::Foreign`] where another migration has made the namespace, and has not removed it yet.
pub async fn ensure_namespace(
    context: &Context,
    own: &str,
    migration: &str,
    (from, to): (&str, &str),
) -> Result<()> {
    let client = context.own_client();
    match namespace::find(client, own).await? {
        Some(found) if is_made_by(&found, migration) && found.metadata.deletion_timestamp.is_none() => {}
        Some(_) => return Err(Error::Foreign(format!("Namespace {own}"))),
        None => {
            let labels = [(MADE_BY.to_owned(), migration.to_owned())].into();
            let metadata =
                ObjectMeta { name: Some(own.to_owned()), labels: Some(labels), ..ObjectMeta::default() };
            let new = Namespace { metadata, ..Namespace::default() };
            let outcome = Api::<Namespace>::all(client.clone()).create(&create_params(), &new).await;
            outcome.map_err(Error::write(format!("create Namespace {own}")))?;
        }
    }
    let garden = context.garden_client();
    copy_bucket_secret(garden, client, own, SOURCE_BACKUP_SECRET, from).await?;
    copy_bucket_secret(garden, client, own, BACKUP_SECRET, to).await
}

fn create_params() -> PostParams {
    PostParams { field_manager: Some(MANAGER.to_owned()), ..PostParams::default() }
}

/// Creates the Job that copies and verifies, unless it exists.
///
/// # Errors
/// [`Error::Write`].
pub async fn ensure_job(context: &Context, own: &str, stores: Stores) -> Result<()> {
    let metadata = ObjectMeta {
        name: Some(MAIN_ETCD.to_owned()),
        namespace: Some(own.to_owned()),
        ..ObjectMeta::default()
    };
    let mut etcd = Etcd { metadata, ..Etcd::default() };
    let backup = &mut etcd.spec.backup;
    backup.source_store = Some(stores.source);
    backup.store = Some(stores.target);
    // A dead source stores no final snapshot; what one that lives stores later is copied by etcd-druid.
    backup.wait_for_final_snapshot.enabled = false;
    let missing = || Error::Missing("a store of snapshots".to_owned());
    let mut job = copy::job(&etcd, &context.image).ok_or_else(missing)?.object;
    job["metadata"]["name"] = JOB.into();
    // There is no such Etcd here, and no ServiceAccount of one.
    job["metadata"]["ownerReferences"] = Value::Null;
    if let Some(pod) = job.pointer_mut("/spec/template/spec").and_then(Value::as_object_mut) {
        pod.remove("serviceAccountName");
    }
    let form = |source| Error::Form { what: format!("Job {JOB}"), source };
    let job: Job = serde_json::from_value(job).map_err(form)?;
    let all = Api::<Job>::namespaced(context.own_client().clone(), own);
    match all.create(&create_params(), &job).await {
        Err(error) if is_conflict(&error) => Ok(()),
        outcome => outcome.map(drop).map_err(Error::write(format!("create Job {own}/{JOB}"))),
    }
}

/// Deletes the namespace of the copy. The snapshots stay.
///
/// # Errors
/// [`Error::Write`].
pub async fn remove(client: &Client, found: Option<&Namespace>) -> Result<()> {
    match found {
        Some(found) => namespace::delete(client, found).await,
        None => Ok(()),
    }
}

/// How the stores of an EtcdCopyBackupsTask differ from those that were copied; `None` where they do not.
#[must_use]
pub fn difference(task: &Value, stores: &Stores) -> Option<String> {
    let sides = [("sourceStore", &stores.source), ("targetStore", &stores.target)];
    sides.into_iter().find_map(|(side, store)| {
        let found =
            |field: &str| text_at(task, &format!("/spec/{side}/{field}")).unwrap_or_default().to_owned();
        let pairs = [("container", &store.container), ("prefix", &store.prefix)];
        let other =
            pairs.into_iter().find(|(field, own)| found(field).trim_matches('/') != own.trim_matches('/'));
        other.map(|(field, own)| format!("spec.{side}.{field} is {:?}, and {own:?} was copied", found(field)))
    })
}

/// The status of an EtcdCopyBackupsTask whose snapshots Repot has copied, as etcd-druid writes that of one that has succeeded.
#[must_use]
pub fn succeeded(generation: i64, now: &str) -> Value {
    json!({
        "observedGeneration": generation, "lastError": null,
        "conditions": [{
            "type": "Succeeded", "status": "True", "lastTransitionTime": now, "lastUpdateTime": now,
            "reason": "CopiedByRepot", "message": "Repot has copied and verified the snapshots.",
        }],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kind_of_a_store_is_that_of_the_annotation_or_of_the_provider() {
        let seed = |provider: &str, named: &str| {
            let metadata = json!({"annotations": {STORE_PROVIDER: named}});
            json!({"metadata": metadata, "spec": {"backup": {"provider": provider}}})
        };
        assert_eq!(provider(&seed("aws", "")), Some("S3"));
        assert_eq!(provider(&seed("gcp", "")), Some("GCS"));
        assert_eq!(provider(&seed("azure", "")), Some("ABS"));
        assert_eq!(provider(&seed("other", "S3")), Some("S3"));
        assert_eq!(provider(&seed("other", "")), None);
    }

    #[test]
    fn task_with_other_stores_is_not_taken_for_the_copy() {
        let store = |container: &str| Store {
            container: container.to_owned(),
            prefix: "shoot--p--s--u/etcd-main".to_owned(),
            ..Store::default()
        };
        let stores = Stores { source: store("a"), target: store("b") };
        let task = |target: &str, prefix: &str| {
            json!({"spec": {
                "sourceStore": {"container": "a", "prefix": "shoot--p--s--u/etcd-main"},
                "targetStore": {"container": target, "prefix": prefix},
            }})
        };
        assert_eq!(difference(&task("b", "shoot--p--s--u/etcd-main/"), &stores), None);
        let other = difference(&task("c", "shoot--p--s--u/etcd-main"), &stores);
        assert_eq!(other.as_deref(), Some(r#"spec.targetStore.container is "c", and "b" was copied"#));
        assert!(difference(&task("b", "elsewhere"), &stores).is_some_and(|said| said.contains("prefix")));
    }
}
