//! A final snapshot that the source stored after the destination had begun: a Job keeps it beside the snapshots of the destination, and
//! tells what it holds more. No etcd is restored from it.

use k8s_openapi::api::core::v1::Secret;
use kube::{Api, api::DeleteParams};
use repot_etcd::snapshot::late::LateReport;
use repot_plan::migration::observed::FinalSnapshot;
use serde_json::{Value, json};

use super::{buckets, copies};
use crate::{
    errors::is_not_found,
    etcd::{
        api::{Etcd, SecretKey, Store},
        render::paths,
    },
    migration::{
        context::Context,
        error::{Error, Result},
        seed::{etcd::Etcds, snapshots},
    },
};

/// Secret with access to the bucket of the source, for as long as the Job needs it.
const SECRET: &str = "late-source-etcd-backup";
/// Where the Job unpacks a database.
const SCRATCH: &str = "/var/scratch";
/// Failures after which Kubernetes gives the Job up.
const ATTEMPTS: u32 = 6;
/// The longest that the Job may take, in seconds.
const LONGEST: u32 = 24 * 3600;
/// How long the Job is kept when it has ended, in seconds.
const KEPT: u32 = 24 * 3600;

/// Which snapshot, and where it is kept.
pub struct Asked<'a> {
    /// Namespace of the control plane.
    pub namespace: &'a str,
    /// The seed whose bucket has it.
    pub source_seed: &'a str,
    /// The history in the store of the destination.
    pub history: String,
    /// Revision that the destination began with at least: that of the loss that was confirmed.
    pub least: u64,
    /// The snapshot that is asked for.
    pub snapshot: &'a FinalSnapshot,
}

/// How far it has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Progress {
    /// The destination began with all that it holds.
    Contained {
        /// Revision that the destination began with.
        held: u64,
    },
    /// The Job works.
    Copying,
    /// The Job was given up.
    Failed,
    /// What the destination does not hold.
    Reported(LateReport),
}

/// Looks how far it has come, and starts what is missing.
///
/// # Errors
/// Where the seed, the garden or the store of the destination does not answer.
pub async fn advance(context: &Context, asked: &Asked<'_>) -> Result<Progress> {
    let (seed, namespace) = (context.own_client(), asked.namespace);
    let etcds = Etcds::read(seed, namespace).await?;
    let main = etcds.need_main()?;
    let no_store = || Error::Missing("spec.backup.store of the Etcd".to_owned());
    let target = copies::target_store(main).ok_or_else(no_store)?;
    let store = snapshots::open(seed, namespace, &target, &context.local_stores).await?;
    let reached = asked.snapshot.revision;
    let held = store.copied_revision(reached).await?.unwrap_or_default().max(asked.least);
    if held >= reached {
        return Ok(Progress::Contained { held });
    }
    let (name, jobs) = (&asked.history, copies::jobs(seed, namespace).await?);
    if copies::is_complete(&jobs, name)
        && let Some(report) = store.late_report(&asked.history).await?
    {
        return Ok(Progress::Reported(report));
    }
    if copies::has_failed(&jobs, name) {
        return Ok(Progress::Failed);
    }
    buckets::copy_secret(context.garden_client(), seed, namespace, SECRET, asked.source_seed).await?;
    copies::create(seed, namespace, name, job(main, target, asked, &context.image)?).await?;
    Ok(Progress::Copying)
}

/// Takes the access to the bucket of the source away again.
///
/// # Errors
/// [`Error::Write`].
pub async fn clean_up(context: &Context, asked: &Asked<'_>) -> Result<()> {
    let all = Api::<Secret>::namespaced(context.own_client().clone(), asked.namespace);
    match all.delete(SECRET, &DeleteParams::default()).await {
        Err(error) if is_not_found(&error) => Ok(()),
        outcome => outcome.map(drop).map_err(Error::write(format!("delete Secret {SECRET}"))),
    }
}

fn job(main: &Etcd, target: Store, asked: &Asked<'_>, image: &str) -> Result<Value> {
    let source = main.spec.backup.source_store.clone();
    let source = source.ok_or_else(|| Error::Missing("spec.backup.sourceStore of the Etcd".to_owned()))?;
    let secret_ref = Some(SecretKey { name: SECRET.to_owned(), ..SecretKey::default() });
    let source = Store { secret_ref, ..source };
    let (from, to) = (source.url(paths::LOCAL_SOURCE), target.url(paths::LOCAL_STORE));
    let mut job = copies::render(main, (source, target), image)?;
    let spec = &mut job["spec"];
    (spec["backoffLimit"], spec["activeDeadlineSeconds"]) = (ATTEMPTS.into(), LONGEST.into());
    spec["ttlSecondsAfterFinished"] = KEPT.into();
    let pod = &mut spec["template"]["spec"];
    let container = &mut pod["containers"][0];
    container["command"] = json!([
        "repot",
        "snapshots",
        "late",
        "--source",
        from,
        "--target",
        to,
        "--name",
        asked.snapshot.name,
        "--history",
        asked.history,
        "--held",
        asked.least.to_string(),
        "--scratch",
        SCRATCH,
    ]);
    push(&mut container["volumeMounts"], json!({"name": "scratch", "mountPath": SCRATCH}));
    push(&mut pod["volumes"], json!({"name": "scratch", "emptyDir": {}}));
    Ok(job)
}

fn push(list: &mut Value, item: Value) {
    if let Some(list) = list.as_array_mut() {
        list.push(item);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn job_reads_the_store_of_the_source_by_its_own_secret_and_has_room_to_unpack() {
        let etcd: Etcd = serde_json::from_value(json!({
            "metadata": {"name": "etcd-main", "namespace": "n"},
            "spec": {"labels": {}, "replicas": 1, "etcd": {}, "volumeClaimTemplate": "v", "backup": {
                "store": {"provider": "S3", "container": "b", "prefix": "p", "secretRef": {"name": "etcd-backup"}},
                "sourceStore": {"provider": "S3", "container": "a", "prefix": "p", "secretRef": {"name": "gone"}},
            }},
        }))
        .expect("an Etcd");
        let snapshot = FinalSnapshot { name: "Full-1".to_owned(), revision: 7, epoch: 1 };
        let asked = Asked {
            namespace: "n",
            source_seed: "a",
            history: "late-5c1f".to_owned(),
            least: 5,
            snapshot: &snapshot,
        };
        let target = copies::target_store(&etcd).expect("a store");
        let job = job(&etcd, target, &asked, "image").expect("a Job");
        let pod = &job["spec"]["template"]["spec"];
        let text = pod.to_string();
        assert!(text.contains(SECRET) && !text.contains("gone"), "{text}");
        let command = pod["containers"][0]["command"].to_string();
        assert!(command.contains(r#""late","--source","s3://a/p""#), "{command}");
        assert!(command.contains(r#""--history","late-5c1f","--held","5""#), "{command}");
        let mounts = |list: &Value| list.as_array().map_or(0, Vec::len);
        assert_eq!(mounts(&pod["volumes"]), mounts(&pod["containers"][0]["volumeMounts"]));
        assert_eq!(job["metadata"]["ownerReferences"], Value::Null);
    }
}
