//! The Pods of Repot: whether they run, and which versions of Repot there are.

use std::collections::{BTreeMap, BTreeSet};

use repot_apimachinery::value::{at, items_at, text_at};
use serde_json::Value;

use crate::{
    doctor::{finding::Finding, survey::Survey},
    objects::Result,
};

/// Name of the check.
pub(super) const NAME: &str = "pods";
/// Containers that have started again more often than this are worth a look.
const RESTARTS: i64 = 5;
/// The version of this program.
const VERSION: &str = env!("CARGO_PKG_VERSION");

#[expect(clippy::unused_async, reason = "all checks have this form")]
pub(super) async fn run(survey: &Survey) -> Result<Vec<Finding>> {
    let pods = match &survey.pods {
        Ok(pods) => pods,
        Err(why) => return Ok(vec![Finding::not_checked(NAME, "", why)]),
    };
    if pods.is_empty() {
        let namespaces: Vec<&str> = survey.namespaces.iter().map(String::as_str).collect();
        return Ok(vec![Finding::not_checked(
            NAME,
            "",
            format!(
                "no Pod of Repot in this cluster, looked in {}; a virtual garden has them elsewhere",
                namespaces.join(", ")
            ),
        )]);
    }
    let mut findings: Vec<Finding> = pods.iter().map(judge).collect();
    findings.extend(versions(pods));
    Ok(findings)
}

fn judge(pod: &Value) -> Finding {
    let text = |path| text_at(pod, path).unwrap_or_default();
    let (namespace, name) = (text("/metadata/namespace"), text("/metadata/name"));
    let subject = format!("Pod {namespace}/{name}");
    let conditions = items_at(pod, "/status/conditions").iter();
    let is_ready = conditions.clone().any(|one| one["type"] == "Ready" && one["status"] == "True");
    let containers = items_at(pod, "/status/containerStatuses");
    let restarts: i64 = containers.iter().filter_map(|one| one["restartCount"].as_i64()).sum();
    let why = containers.iter().find_map(|one| {
        let waiting = text_at(one, "/state/waiting/reason");
        waiting.or_else(|| text_at(one, "/lastState/terminated/reason"))
    });
    let advice =
        format!("kubectl logs -n {namespace} {name} --previous; kubectl describe pod -n {namespace} {name}");
    if at(pod, "/metadata/deletionTimestamp").is_some() {
        return Finding::ok(NAME, subject, "is being deleted");
    }
    if !is_ready {
        let says = match (why, text("/status/phase")) {
            (Some(why), phase) => format!("is not ready: {phase}, {why}"),
            (None, phase) => format!("is not ready: {phase}"),
        };
        return Finding::problem(NAME, subject, says, advice);
    }
    if restarts > RESTARTS {
        let why = why.map(|why| format!(", the last time for {why}")).unwrap_or_default();
        return Finding::warning(NAME, subject, format!("has started again {restarts} times{why}"), advice);
    }
    Finding::ok(NAME, subject, format!("ready, {}", images(pod).join(", ")))
}

fn images(pod: &Value) -> Vec<String> {
    items_at(pod, "/spec/containers")
        .iter()
        .filter_map(|one| text_at(one, "/image"))
        .map(str::to_owned)
        .collect()
}

/// All parts have one version, and it is that of this program.
fn versions(pods: &[Value]) -> Vec<Finding> {
    let mut all: BTreeMap<String, BTreeSet<&str>> = BTreeMap::new();
    for pod in pods {
        let component = pod["metadata"]["labels"]["app.kubernetes.io/name"].as_str().unwrap_or_default();
        // A further container may be that of a key management service.
        if let Some(image) = images(pod).into_iter().next() {
            all.entry(image).or_default().insert(component);
        }
    }
    let list = |(image, components): (&String, &BTreeSet<&str>)| {
        let components: Vec<&str> = components.iter().copied().collect();
        format!("{image} ({})", components.join(", "))
    };
    let listed: Vec<String> = all.iter().map(list).collect();
    let listed = listed.join("; ");
    let mut findings = vec![if all.len() > 1 {
        let advice = "wait for the end of the upgrade, or end it: docs/operate/upgrades.md";
        Finding::warning(NAME, "versions", format!("several images run: {listed}"), advice)
    } else {
        Finding::ok(NAME, "versions", format!("all Pods have the image {listed}"))
    }];
    let tags = all.keys().filter_map(|image| tag(image)).filter(|tag| is_version(tag));
    let others: BTreeSet<&str> = tags.filter(|tag| tag.trim_start_matches('v') != VERSION).collect();
    if !others.is_empty() {
        let others: Vec<&str> = others.into_iter().collect();
        let says = format!("this program is {VERSION}, and the cluster runs {}", others.join(", "));
        findings.push(Finding::warning(NAME, "versions", says, "use the program of the same version"));
    }
    findings
}

/// The tag of an image, which stands behind the last colon and before a digest.
fn tag(image: &str) -> Option<&str> {
    let name = image.split('@').next()?;
    name.rsplit('/').next()?.split_once(':').map(|(_, tag)| tag)
}

fn is_version(tag: &str) -> bool {
    let mut numbers = tag.trim_start_matches('v').split(['-', '+']).next().unwrap_or_default().split('.');
    numbers.clone().count() == 3 && numbers.all(|number| number.parse::<u32>().is_ok())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::doctor::finding::Severity;

    fn pod(component: &str, image: &str, ready: &str, restarts: i64) -> Value {
        json!({
            "metadata": {"namespace": "repot-system", "name": component, "labels": {"app.kubernetes.io/name": component}},
            "spec": {"containers": [{"image": image}]},
            "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": ready}], "containerStatuses": [
                {"restartCount": restarts, "state": {"waiting": {"reason": "CrashLoopBackOff"}}},
            ]},
        })
    }

    #[test]
    fn pods_are_judged_by_readiness_and_restarts() {
        let of = |ready, restarts| judge(&pod("repot-webhook", "repot:1.0.0", ready, restarts));
        assert_eq!(of("True", 0).severity, Severity::Ok);
        assert_eq!(of("True", 9).severity, Severity::Warning);
        let broken = of("False", 0);
        assert_eq!(broken.severity, Severity::Problem);
        assert_eq!(broken.message, "is not ready: Running, CrashLoopBackOff");
    }

    #[test]
    fn mixed_versions_are_told() {
        let of = |images: [&str; 2]| {
            let pods = images.map(|image| pod("repot-apiserver", image, "True", 0));
            versions(&pods).iter().map(|finding| finding.severity).collect::<Vec<_>>()
        };
        let same = format!("registry.example:5000/repot:{VERSION}");
        assert_eq!(of([&same, &same]), [Severity::Ok]);
        assert_eq!(of([&same, "registry.example:5000/repot:0.0.9"]), [Severity::Warning, Severity::Warning]);
        assert_eq!(of(["repot", "repot"]), [Severity::Ok]);
    }

    #[test]
    fn tags_are_told_from_ports_and_digests() {
        assert_eq!(tag("registry:5000/repot"), None);
        assert_eq!(tag("registry:5000/repot:v1.2.3@sha256:aa"), Some("v1.2.3"));
        assert!(is_version("v1.2.3-rc.1") && !is_version("latest") && !is_version("1.2"));
    }
}
