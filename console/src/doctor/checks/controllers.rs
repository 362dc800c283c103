//! The controllers of Repot: whether somebody leads, by the Leases.

use jiff::Timestamp;
use repot_apimachinery::value::{items_at, text_at};
use serde_json::Value;

use crate::{
    doctor::{finding::Finding, run::failed, survey::Survey},
    objects::{CONTROL_PLANE_MIGRATION, HOSTED_ETCD, Kind, Result},
    text::duration,
};

/// Name of the check.
pub(super) const NAME: &str = "controllers";
/// Who acts, of several Pods.
pub(in crate::doctor) const LEASE: Kind = Kind::new("coordination.k8s.io", "v1", "Lease", "leases");
/// Leases of Repot, each with the component that holds it.
const LEASES: [(&str, &str); 2] =
    [("repot-controllers", "repot-controllers"), ("repot-certs", "repot-certs")];
/// A Lease is renewed every few seconds. One that is older than this has no holder, in seconds.
const STALE: i64 = 60;
/// A time that is further ahead is that of a wrong clock, in seconds.
const AHEAD: i64 = 5;

pub(super) async fn run(survey: &Survey) -> Result<Vec<Finding>> {
    let mut findings = Vec::new();
    for namespace in &survey.namespaces {
        for (name, component) in LEASES {
            let subject = format!("Lease {namespace}/{name}");
            match survey.objects.get(&LEASE, Some(namespace), name).await {
                Ok(Some(lease)) => findings.push(judge(&subject, &lease, survey.now())),
                Ok(None) => findings.extend(absent(&subject, survey, (namespace, component))),
                Err(error) => findings.push(failed(NAME, &subject, &error)),
            }
        }
    }
    if !findings.iter().any(|finding| finding.subject.ends_with("/repot-controllers")) {
        findings.extend(nobody(survey));
    }
    Ok(findings)
}

/// Kinds that are served here have their Leases here, also where the Pods are in another cluster.
fn nobody(survey: &Survey) -> Option<Finding> {
    let is_here = survey.serves(&CONTROL_PLANE_MIGRATION) || survey.serves(&HOSTED_ETCD);
    let is_known = is_here && survey.pods.is_ok();
    let says =
        "neither a Lease nor a Pod of repot-controllers was found; without them nothing is carried out";
    let advice = "see the value controllers.enabled of the charts; --repot-namespace names another namespace; those that run elsewhere without --leader-elect are not seen";
    is_known.then(|| Finding::warning(NAME, "", says, advice))
}

fn judge(subject: &str, lease: &Value, now: Timestamp) -> Finding {
    let holder = text_at(lease, "/spec/holderIdentity");
    let renewed: Option<Timestamp> = text_at(lease, "/spec/renewTime").and_then(|time| time.parse().ok());
    let advice =
        "see whether the Pods run, and their logs; docs/operate/alerts/repot-controllers-without-leader.md";
    match (holder, renewed.map(|time| now.duration_since(time).as_secs())) {
        (None, _) | (_, None) => {
            Finding::problem(NAME, subject, "nobody holds it, so nothing is done", advice)
        }
        (Some(holder), Some(age)) if age > STALE => {
            let says = format!("{holder} has not renewed it for {}, so nothing is done", duration(age));
            Finding::problem(NAME, subject, says, advice)
        }
        (Some(holder), Some(age)) if age < -AHEAD => {
            let says = format!("{holder} writes times that are {} ahead of the API server", duration(-age));
            Finding::warning(NAME, subject, says, "synchronise the clock of its node, such as by NTP")
        }
        (Some(holder), Some(age)) => {
            Finding::ok(NAME, subject, format!("{holder} renewed it {} ago", duration(age.max(0))))
        }
    }
}

/// Whoever is alone needs no Lease.
fn absent(subject: &str, survey: &Survey, (namespace, component): (&str, &str)) -> Option<Finding> {
    let pods = survey.pods.as_ref().ok()?;
    let is_of = |pod: &&Value| {
        text_at(pod, "/metadata/namespace") == Some(namespace)
            && pod["metadata"]["labels"]["app.kubernetes.io/name"] == component
    };
    let mut ours = pods.iter().filter(is_of).peekable();
    ours.peek()?;
    if !ours.any(elects) {
        return Some(Finding::ok(NAME, subject, "there is none: its Pod is alone, without --leader-elect"));
    }
    let says = "there is none, although its Pods elect a leader";
    Some(Finding::problem(NAME, subject, says, "see their logs: may they create Leases in their namespace?"))
}

fn elects(pod: &Value) -> bool {
    let has = |container: &Value| {
        let arguments = ["/args", "/command"].into_iter().flat_map(|path| items_at(container, path));
        arguments.filter_map(Value::as_str).any(|argument| argument == "--leader-elect")
    };
    items_at(pod, "/spec/containers").iter().any(has)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::doctor::{checks::tests::survey, finding::Severity};

    #[test]
    fn lease_is_judged_by_the_time_of_the_api_server() {
        let now: Timestamp = "2026-11-29T08:10:00Z".parse().expect("a time");
        let of = |renewed: &str| {
            let lease = json!({"spec": {"holderIdentity": "pod-a", "renewTime": renewed}});
            judge("Lease ns/l", &lease, now)
        };
        assert_eq!(of("2026-11-29T08:09:57.123456Z").message, "pod-a renewed it 2s ago");
        assert_eq!(of("2026-11-29T08:00:00.000000Z").severity, Severity::Problem);
        assert_eq!(of("2026-11-29T08:10:30.000000Z").severity, Severity::Warning);
        let given_back = json!({"spec": {"holderIdentity": "", "renewTime": "2026-11-29T08:09:57Z"}});
        assert_eq!(judge("l", &given_back, now).severity, Severity::Problem);
    }

    #[tokio::test]
    async fn pod_that_is_alone_needs_no_lease() {
        let pod = |arguments: Value| {
            json!({"metadata": {"namespace": "repot-system", "labels": {"app.kubernetes.io/name": "repot-controllers"}},
                   "spec": {"containers": [{"args": arguments}]}})
        };
        let of = |pods: Vec<Value>| {
            let survey = Survey { pods: Ok(pods), ..survey() };
            absent("l", &survey, ("repot-system", "repot-controllers")).map(|finding| finding.severity)
        };
        assert_eq!(of(vec![]), None);
        assert_eq!(of(vec![pod(json!(["controllers"]))]), Some(Severity::Ok));
        assert_eq!(of(vec![pod(json!(["controllers", "--leader-elect"]))]), Some(Severity::Problem));
    }

    #[tokio::test]
    async fn kinds_without_controllers_are_told() {
        let served = ["hostedetcds.migration.gardener.cloud".to_owned()].into();
        let found = nobody(&Survey { served, ..survey() });
        assert_eq!(found.map(|finding| finding.severity), Some(Severity::Warning));
        assert_eq!(nobody(&survey()), None);
    }
}
