//! Buckets for backups: whether they exist, by what Gardener says of them.

use kube::api::ListParams;
use repot_api::names::{CORE_GROUP, EXTENSIONS_GROUP};
use repot_apimachinery::value::text_at;
use serde_json::Value;

use crate::{
    doctor::{finding::Finding, survey::Survey},
    objects::{Kind, Result},
};

/// Name of the check.
pub(super) const NAME: &str = "buckets";
/// Buckets in a garden, then those on a seed.
const BUCKETS: [Kind; 2] = [
    Kind::new(CORE_GROUP, "v1beta1", "BackupBucket", "backupbuckets"),
    Kind::new(EXTENSIONS_GROUP, V1ALPHA1, "BackupBucket", "backupbuckets"),
];
/// Version of the group of extensions.
const V1ALPHA1: &str = "v1alpha1";
/// Most buckets that are looked at.
const MOST: usize = 2000;

pub(super) async fn run(survey: &Survey) -> Result<Vec<Finding>> {
    let mut findings = Vec::new();
    for kind in BUCKETS.iter().filter(|kind| survey.serves(kind)) {
        let found = survey.list(kind, None, ListParams::default(), MOST).await?;
        findings.extend(found.items.iter().map(|object| judge(kind, object)));
    }
    Ok(findings)
}

fn judge(kind: &Kind, bucket: &Value) -> Finding {
    let subject =
        format!("{}.{} {}", kind.kind, kind.group, text_at(bucket, "/metadata/name").unwrap_or_default());
    let state = text_at(bucket, "/status/lastOperation/state").unwrap_or("not reported");
    let error = text_at(bucket, "/status/lastError/description");
    let advice = "see the credentials in its spec.secretRef, and the log of the provider's extension";
    match (state, error) {
        (_, Some(error)) => Finding::problem(NAME, subject, error, advice),
        ("Succeeded", None) => Finding::ok(NAME, subject, "its last operation has succeeded"),
        ("Failed" | "Error" | "Aborted", None) => {
            Finding::problem(NAME, subject, format!("its last operation is {state}"), advice)
        }
        (state, None) => Finding::warning(NAME, subject, format!("its last operation is {state}"), advice),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::doctor::finding::Severity;

    #[test]
    fn bucket_is_judged_by_its_last_operation() {
        let of = |state: &str, error: Value| {
            let status = json!({"lastOperation": {"state": state}, "lastError": error});
            judge(&BUCKETS[0], &json!({"metadata": {"name": "b"}, "status": status})).severity
        };
        assert_eq!(of("Succeeded", json!(null)), Severity::Ok);
        assert_eq!(of("Processing", json!(null)), Severity::Warning);
        assert_eq!(of("Succeeded", json!({"description": "access denied"})), Severity::Problem);
        assert_eq!(of("Error", json!(null)), Severity::Problem);
    }
}
