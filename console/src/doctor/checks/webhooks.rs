//! The webhook configurations of Repot: what kube-apiserver trusts, and whether anybody answers.

use std::collections::{BTreeMap, btree_map::Entry};

use jiff::Timestamp;
use kube::api::ListParams;
use repot_apimachinery::value::{items_at, text_at};
use serde_json::Value;

use super::certificates::bundle;
use crate::{
    doctor::{
        finding::{Finding, Severity},
        run::failed,
        survey::Survey,
    },
    objects::{Kind, Result, SHOOT},
};

/// Name of the check.
pub(super) const NAME: &str = "webhooks";
/// Webhooks that change what is written.
pub(in crate::doctor) const MUTATING: Kind = Kind::new(
    "admissionregistration.k8s.io",
    "v1",
    "MutatingWebhookConfiguration",
    "mutatingwebhookconfigurations",
);
/// Webhooks that refuse what is written.
pub(in crate::doctor) const VALIDATING: Kind = Kind::new(
    "admissionregistration.k8s.io",
    "v1",
    "ValidatingWebhookConfiguration",
    "validatingwebhookconfigurations",
);
/// Where the Pods of a Service are.
const ENDPOINT_SLICE: Kind = Kind::new("discovery.k8s.io", "v1", "EndpointSlice", "endpointslices");
/// Label of an EndpointSlice with the name of its Service.
const SERVICE_LABEL: &str = "kubernetes.io/service-name";
/// Most configurations that are looked at.
const MOST: usize = 1000;

/// Namespace and name of a Service.
type ServiceName = (String, String);

pub(super) async fn run(survey: &Survey) -> Result<Vec<Finding>> {
    let (mut findings, mut ours) = (Vec::new(), Vec::new());
    for kind in [MUTATING, VALIDATING] {
        let found = survey.list(&kind, None, ListParams::default(), MOST).await?;
        ours.extend(found.items.into_iter().filter(is_ours).map(|object| (kind.kind, object)));
    }
    if ours.is_empty() {
        if survey.serves(&SHOOT) {
            findings.push(Finding::warning(
                NAME,
                "",
                "no webhook of Repot is registered, so nothing refuses a move that cannot succeed",
                "see the value webhook.enabled of the charts",
            ));
        }
        return Ok(findings);
    }
    let mut endpoints: BTreeMap<ServiceName, Result<usize>> = BTreeMap::new();
    for service in ours.iter().flat_map(|(_, object)| services(object)) {
        if let Entry::Vacant(place) = endpoints.entry(service) {
            let count = ready_endpoints(survey, place.key()).await;
            place.insert(count);
        }
    }
    for ((namespace, name), count) in &endpoints {
        if let Err(error) = count {
            findings.push(failed(NAME, &format!("Service {namespace}/{name}"), error));
        }
    }
    let known: BTreeMap<ServiceName, usize> =
        endpoints.into_iter().filter_map(|(service, count)| Some((service, count.ok()?))).collect();
    findings
        .extend(known.iter().filter(|(_, count)| **count == 0).map(|(service, _)| silent(service, &ours)));
    findings.extend(ours.iter().flat_map(|(kind, object)| judge(kind, object, &known, survey.now())));
    Ok(findings)
}

/// Those of the charts and manifests of Repot.
pub(in crate::doctor) fn is_ours(object: &Value) -> bool {
    let label = |name: &str| object["metadata"]["labels"][name].as_str().unwrap_or_default();
    let name = text_at(object, "/metadata/name").unwrap_or_default();
    label("app.kubernetes.io/name").starts_with("repot")
        || label("app.kubernetes.io/part-of") == "repot"
        || name.starts_with("repot-")
}

fn services(object: &Value) -> Vec<ServiceName> {
    items_at(object, "/webhooks").iter().filter_map(service).collect()
}

fn service(webhook: &Value) -> Option<ServiceName> {
    let text = |field: &str| text_at(webhook, &format!("/clientConfig/service/{field}")).map(str::to_owned);
    Some((text("namespace")?, text("name")?))
}

async fn ready_endpoints(survey: &Survey, (namespace, name): &ServiceName) -> Result<usize> {
    let params = ListParams::default().labels(&format!("{SERVICE_LABEL}={name}"));
    let slices = survey.list(&ENDPOINT_SLICE, Some(namespace), params, MOST).await?;
    Ok(slices.items.iter().map(ready).sum())
}

/// Endpoints that take requests: without a condition they do.
fn ready(slice: &Value) -> usize {
    let is_ready = |endpoint: &&Value| endpoint["conditions"]["ready"].as_bool() != Some(false);
    items_at(slice, "/endpoints").iter().filter(is_ready).count()
}

fn judge(kind: &str, object: &Value, ready: &BTreeMap<ServiceName, usize>, now: Timestamp) -> Vec<Finding> {
    let name = text_at(object, "/metadata/name").unwrap_or_default();
    let mut findings = Vec::new();
    for webhook in items_at(object, "/webhooks") {
        let subject = format!("{kind}/{name} {}", text_at(webhook, "/name").unwrap_or_default());
        let encoded = text_at(webhook, "/clientConfig/caBundle").unwrap_or_default();
        let of_bundle = bundle(NAME, &subject, encoded, now);
        let is_trusted = of_bundle.iter().all(|finding| finding.severity == Severity::Ok);
        findings.extend(of_bundle.into_iter().filter(|finding| finding.severity != Severity::Ok));
        let Some(service) = service(webhook) else {
            let url = text_at(webhook, "/clientConfig/url").unwrap_or_default();
            let why = format!("it is called at {url}, which only kube-apiserver has to reach");
            findings.push(Finding::not_checked(NAME, subject, why));
            continue;
        };
        if let Some(count) = ready.get(&service).filter(|count| **count > 0 && is_trusted) {
            let says = format!("failurePolicy {}, {count} ready endpoints", policy(webhook));
            findings.push(Finding::ok(NAME, subject, says));
        }
    }
    findings
}

fn policy(webhook: &Value) -> &str {
    text_at(webhook, "/failurePolicy").unwrap_or("Fail")
}

/// A Service at which nobody answers, with what that means for the webhooks behind it.
fn silent(key: &ServiceName, all: &[(&str, Value)]) -> Finding {
    let webhooks = all.iter().flat_map(|(_, object)| items_at(object, "/webhooks"));
    let ours: Vec<&Value> = webhooks.filter(|webhook| service(webhook).as_ref() == Some(key)).collect();
    let fail = ours.iter().filter(|webhook| policy(webhook) != "Ignore").count();
    let ignore = ours.len() - fail;
    let (namespace, name) = key;
    let subject = format!("Service {namespace}/{name}");
    let advice = format!(
        "see the Pods of the Service: kubectl get pods -n {namespace}; docs/operate/webhook-outage.md"
    );
    if fail == 0 {
        let says = format!("has no ready endpoint, and {ignore} webhooks let all writes pass meanwhile");
        return Finding::warning(NAME, subject, says, advice);
    }
    let says = format!(
        "has no ready endpoint: what {fail} webhooks judge is refused (failurePolicy Fail), what {ignore} others judge \
         passes (Ignore)"
    );
    Finding::problem(NAME, subject, says, advice)
}

#[cfg(test)]
mod tests {
    use base64::{Engine as _, engine::general_purpose::STANDARD};
    use serde_json::json;

    use super::*;
    use crate::doctor::checks::certificates::tests::authority;

    fn configuration(policy: &str, bundle: &str) -> Value {
        json!({
            "metadata": {"name": "repot-garden"},
            "webhooks": [{"name": "w.repot.gardener.cloud", "failurePolicy": policy, "clientConfig": {
                "caBundle": bundle, "service": {"name": "repot-webhook", "namespace": "repot-system"},
            }}],
        })
    }

    fn judged(object: &Value, count: usize) -> Vec<Severity> {
        let ready = BTreeMap::from([(("repot-system".to_owned(), "repot-webhook".to_owned()), count)]);
        judge("Kind", object, &ready, Timestamp::now()).iter().map(|finding| finding.severity).collect()
    }

    #[test]
    fn webhook_is_well_where_somebody_answers_whom_kube_apiserver_trusts() {
        let bundle = STANDARD.encode(authority().certificate_pem());
        assert_eq!(judged(&configuration("Fail", &bundle), 2), [Severity::Ok]);
        assert_eq!(judged(&configuration("Fail", ""), 2), [Severity::Problem]);
        assert_eq!(judged(&configuration("Fail", &bundle), 0), []);
    }

    #[test]
    fn service_that_nobody_answers_is_as_bad_as_the_policies_behind_it() {
        let key = ("repot-system".to_owned(), "repot-webhook".to_owned());
        let of = |policies: &[&str]| {
            let all: Vec<(&str, Value)> =
                policies.iter().map(|policy| ("Kind", configuration(policy, ""))).collect();
            silent(&key, &all)
        };
        assert_eq!(of(&["Ignore", "Ignore"]).severity, Severity::Warning);
        let mixed = of(&["Fail", "Ignore", "Fail"]);
        assert_eq!(mixed.severity, Severity::Problem);
        assert!(mixed.message.contains("what 2 webhooks judge is refused"), "{mixed:?}");
        assert!(mixed.message.contains("what 1 others judge passes"), "{mixed:?}");
    }

    #[test]
    fn endpoints_that_are_not_ready_do_not_count() {
        let slice =
            json!({"endpoints": [{"conditions": {"ready": true}}, {"conditions": {"ready": false}}, {}]});
        assert_eq!(ready(&slice), 2);
    }

    #[test]
    fn configurations_of_others_are_left_alone() {
        assert!(is_ours(&configuration("Fail", "")));
        assert!(!is_ours(
            &json!({"metadata": {"name": "gardener", "labels": {"app.kubernetes.io/name": "gardener"}}})
        ));
    }
}
