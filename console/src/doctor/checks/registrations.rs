//! The APIServices of Repot: whether kube-apiserver reaches the server behind them, and what it trusts.

use kube::api::ListParams;
use repot_apimachinery::value::{at, text_at};
use serde_json::Value;

use super::certificates::bundle;
use crate::{
    doctor::{finding::Finding, survey::Survey},
    etcd::hosted::conditions,
    objects::{ETCD, Kind, Result},
};

/// Name of the check.
pub(super) const NAME: &str = "apiservices";
/// What says which server serves a group.
pub(in crate::doctor) const API_SERVICE: Kind =
    Kind::new("apiregistration.k8s.io", "v1", "APIService", "apiservices");
/// Most APIServices that are looked at.
const MOST: usize = 1000;

pub(super) async fn run(survey: &Survey) -> Result<Vec<Finding>> {
    let found = survey.list(&API_SERVICE, None, ListParams::default(), MOST).await?;
    let ours: Vec<&Value> = found.items.iter().filter(|one| is_ours(one)).collect();
    let mut findings: Vec<Finding> = ours.iter().flat_map(|one| judge(one, survey.now())).collect();
    let is_plain_seed = survey.serves(&ETCD);
    if ours.is_empty()
        && !is_plain_seed
        && !survey.served.iter().any(|name| name.ends_with(".migration.gardener.cloud"))
    {
        findings.push(Finding::problem(
            NAME,
            "v1alpha1.migration.gardener.cloud",
            "no APIService of Repot exists",
            "install the chart repot-garden or repot-seed",
        ));
    }
    Ok(findings)
}

/// Those of the group of Repot, and those that name a Service of Repot, as that of ShootStates.
pub(in crate::doctor) fn is_ours(object: &Value) -> bool {
    let is_repot = |text: &str| text.starts_with("repot");
    let is_group = text_at(object, "/spec/group") == Some("migration.gardener.cloud");
    let has_service = at(object, "/spec/service").is_some_and(Value::is_object);
    has_service && (is_group || text_at(object, "/spec/service/name").is_some_and(is_repot))
}

fn judge(object: &Value, now: jiff::Timestamp) -> Vec<Finding> {
    let subject = format!("APIService/{}", text_at(object, "/metadata/name").unwrap_or_default());
    let service = |field: &str| text_at(object, &format!("/spec/service/{field}")).unwrap_or_default();
    let (namespace, name) = (service("namespace"), service("name"));
    let available = conditions(object).into_iter().find(|condition| condition.kind == "Available");
    let mut findings = vec![match available {
        Some(one) if one.status == "True" => {
            Finding::ok(NAME, &subject, format!("available at Service {namespace}/{name}"))
        }
        Some(one) => Finding::problem(
            NAME,
            &subject,
            format!("not available: {}: {}", one.reason, one.message),
            format!("see Service {namespace}/{name}, its Pods, and their logs"),
        ),
        None => Finding::problem(
            NAME,
            &subject,
            "kube-apiserver has not looked at it yet",
            "wait, then ask again",
        ),
    }];
    if at(object, "/spec/insecureSkipTLSVerify") == Some(&Value::Bool(true)) {
        findings.push(Finding::warning(
            NAME,
            &subject,
            "kube-apiserver does not check the certificate of the server (insecureSkipTLSVerify)",
            "set spec.caBundle, and remove that field",
        ));
    } else {
        let encoded = text_at(object, "/spec/caBundle").unwrap_or_default();
        findings.extend(bundle(NAME, &subject, encoded, now));
    }
    findings
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::doctor::finding::Severity;

    fn api_service(available: &str) -> Value {
        json!({
            "metadata": {"name": "v1alpha1.migration.gardener.cloud"},
            "spec": {"group": "migration.gardener.cloud", "insecureSkipTLSVerify": true,
                     "service": {"name": "repot-apiserver", "namespace": "repot-system"}},
            "status": {"conditions": [{"type": "Available", "status": available, "reason": "MissingEndpoints",
                                       "message": "no endpoints"}]},
        })
    }

    #[test]
    fn server_that_is_not_reached_is_a_problem() {
        let now = jiff::Timestamp::UNIX_EPOCH;
        let severities = |available| {
            judge(&api_service(available), now).into_iter().map(|one| one.severity).collect::<Vec<_>>()
        };
        assert_eq!(severities("True"), [Severity::Ok, Severity::Warning]);
        assert_eq!(severities("False"), [Severity::Problem, Severity::Warning]);
        assert!(judge(&api_service("False"), now)[0].message.contains("MissingEndpoints: no endpoints"));
    }

    #[test]
    fn groups_of_others_are_left_alone() {
        let mut other = api_service("False");
        other["spec"]["group"] = json!("metrics.k8s.io");
        assert!(is_ours(&other));
        other["spec"]["service"]["name"] = json!("metrics-server");
        assert!(!is_ours(&other));
        let local = json!({"spec": {"group": "migration.gardener.cloud", "service": null}});
        assert!(!is_ours(&local));
    }
}
