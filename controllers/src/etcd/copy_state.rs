//! What the Job that copies snapshots has come to.

use repot_api::conditions::Reason;
use repot_etcd_core::operator::Source;

use super::{api::Etcd, copy, observe::Observed, status::Copied};

/// How far the copy is.
#[must_use]
pub fn source(observed: &Observed) -> Source {
    let Some(name) = copy::name(&observed.etcd) else { return Source::Ready };
    // Whoever has data goes on from them, and a standby reads the store of the other etcd.
    if observed.is_bootstrapped() || observed.stands_by() {
        return Source::Ready;
    }
    if observed.status().source_copied.is_some_and(|copied| copied.job == name) || is_complete(observed) {
        return Source::Ready;
    }
    if let Some(copied) =
        observed.status().source_copied.filter(|copied| copied.owner_id != owner_id(&observed.etcd))
    {
        let earlier = copied.owner_id.as_deref().unwrap_or("no owner");
        let message = format!("the snapshots were copied for {earlier}; Job {name} copies them again");
        return Source::Outdated(Reason::new("CopiedForAnotherOwner", message));
    }
    let job = observed.copy.as_ref();
    if job.is_some_and(|job| copy::holds(job, "Failed")) {
        let message =
            format!("Job {name} was given up; see the log of its Pod, and delete the Job to try again");
        return Source::Missing(Reason::new("CopyFailed", message));
    }
    let failed = job.and_then(|job| job.status.as_ref()?.failed).unwrap_or_default();
    let so_far = match &observed.progress {
        Some(progress) => progress.summary(),
        None => "it does not tell how far it is; see its log".to_owned(),
    };
    let message =
        format!("Job {name} copies the snapshots of the other etcd ({failed} Pods failed): {so_far}");
    Source::Missing(Reason::new("CopyingSnapshots", message))
}

/// What is recorded of a copy that was completed: the Job may go after it.
#[must_use]
pub fn completed(observed: &Observed, now: &str) -> Option<Copied> {
    let recorded = observed.status().source_copied;
    let Some(name) = copy::name(&observed.etcd) else { return recorded };
    match recorded {
        Some(copied) if copied.job == name => Some(copied),
        _ if is_complete(observed) => {
            Some(Copied { job: name, time: now.to_owned(), owner_id: owner_id(&observed.etcd) })
        }
        other => other,
    }
}

fn owner_id(etcd: &Etcd) -> Option<String> {
    etcd.spec.backup.owner_check.as_ref().map(|check| check.id.clone())
}

fn is_complete(observed: &Observed) -> bool {
    observed.copy.as_ref().is_some_and(|job| copy::holds(job, "Complete"))
}
