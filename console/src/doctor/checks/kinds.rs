//! Kinds that the parts of Repot need.

use crate::{
    doctor::{finding::Finding, survey::Survey},
    objects::{CONTROL_PLANE_MIGRATION, ETCD, HOSTED_ETCD, Kind, Result, SEED, SHOOT},
};

/// Name of the check.
pub(super) const NAME: &str = "kinds";
/// Objects of which a control plane on a seed is made.
const EXTENSIONS: [Kind; 3] = [
    Kind::new("extensions.gardener.cloud", "v1alpha1", "Cluster", "clusters"),
    Kind::new("extensions.gardener.cloud", "v1alpha1", "DNSRecord", "dnsrecords"),
    Kind::new("extensions.gardener.cloud", "v1alpha1", "Worker", "workers"),
];

#[expect(clippy::unused_async, reason = "all checks have this form")]
pub(super) async fn run(survey: &Survey) -> Result<Vec<Finding>> {
    let mut findings: Vec<Finding> = survey
        .unknown_groups
        .iter()
        .map(|(group, why)| {
            Finding::warning(NAME, group, why, "see the APIService of the group: kubectl get apiservices")
        })
        .collect();
    let group = "migration.gardener.cloud";
    let is_unknown = |group: &str| survey.unknown_groups.iter().any(|(name, _)| name.starts_with(group));
    let serves_states = survey.served.iter().any(|name| name.starts_with("shootstates."));
    let (garden, seed) = (survey.serves(&CONTROL_PLANE_MIGRATION), survey.serves(&HOSTED_ETCD));
    match (garden, seed) {
        (true, true) => findings.push(Finding::ok(NAME, group, "the kinds of gardens and of seeds are served")),
        (true, false) => findings.push(Finding::ok(NAME, group, "the kinds of gardens are served")),
        (false, true) => findings.push(Finding::ok(NAME, group, "the kinds of seeds are served")),
        (false, false) if is_unknown(group) => {}
        (false, false) if survey.serves(&ETCD) => findings.push(Finding::warning(
            NAME,
            group,
            "no kind of Repot is served here, so there are neither HostedEtcds nor EtcdBackups",
            "install the chart repot-seed with its API server; a seed whose controllers move control planes alone needs none",
        )),
        (false, false) => findings.push(Finding::problem(
            NAME,
            group,
            "no kind of Repot is served here",
            "install the chart repot-garden or repot-seed, or ask another cluster by --kubeconfig or --context",
        )),
    }
    if garden && !serves_states {
        findings.push(Finding::problem(
            NAME,
            "shootstates",
            "ShootStates are not served, so no control plane can move",
            "see the value shootstateGroup of the chart repot-garden",
        ));
    }
    if garden {
        findings.extend(missing(survey, &[SHOOT, SEED], "the garden has Gardener's API server", is_unknown));
    }
    if seed {
        findings.extend(missing(survey, &[ETCD], "kubectl apply -f deploy/crds/etcds.yaml", is_unknown));
        let needed = missing(survey, &EXTENSIONS, "", is_unknown);
        let names: Vec<&str> = needed.iter().map(|finding| finding.subject.as_str()).collect();
        if !names.is_empty() {
            let says = format!(
                "{} are not served, so no control plane moves to or from this seed",
                names.join(", ")
            );
            let advice = "install Gardener's CRDs; a seed with hosted etcds alone needs none of them";
            findings.push(Finding::warning(NAME, "extensions.gardener.cloud", says, advice));
        }
    }
    Ok(findings)
}

fn missing(survey: &Survey, kinds: &[Kind], advice: &str, is_unknown: impl Fn(&str) -> bool) -> Vec<Finding> {
    let is_missing = |kind: &&Kind| !survey.serves(kind) && !is_unknown(kind.group);
    let finding = |kind: &Kind| {
        let subject = format!("{}.{}", kind.plural, kind.group);
        Finding::problem(NAME, subject, format!("{} is not served", kind.kind), advice)
    };
    kinds.iter().filter(is_missing).map(finding).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::{checks::tests::survey, finding::Severity};

    async fn of(served: &[&str]) -> Vec<(Severity, String)> {
        let survey = Survey { served: served.iter().map(|name| (*name).to_owned()).collect(), ..survey() };
        let findings = run(&survey).await.expect("findings");
        findings.into_iter().map(|finding| (finding.severity, finding.subject)).collect()
    }

    #[tokio::test]
    async fn cluster_without_kinds_is_a_problem_unless_it_has_etcds() {
        let group = "migration.gardener.cloud".to_owned();
        assert_eq!(of(&[]).await, [(Severity::Problem, group.clone())]);
        assert_eq!(of(&["etcds.druid.gardener.cloud"]).await, [(Severity::Warning, group)]);
    }

    #[tokio::test]
    async fn seed_needs_the_crd_of_etcds() {
        let found = of(&["hostedetcds.migration.gardener.cloud"]).await;
        assert!(found.contains(&(Severity::Problem, "etcds.druid.gardener.cloud".to_owned())), "{found:?}");
        assert!(found.contains(&(Severity::Warning, "extensions.gardener.cloud".to_owned())), "{found:?}");
        let found = of(&["hostedetcds.migration.gardener.cloud", "etcds.druid.gardener.cloud"]).await;
        assert!(found.iter().all(|(severity, _)| *severity != Severity::Problem), "{found:?}");
    }

    #[tokio::test]
    async fn cluster_without_repot_is_a_problem() {
        assert_eq!(of(&[]).await, [(Severity::Problem, "migration.gardener.cloud".to_owned())]);
    }

    #[tokio::test]
    async fn group_that_does_not_answer_is_not_missing() {
        let unknown_groups = vec![("migration.gardener.cloud/v1alpha1".to_owned(), "503".to_owned())];
        let findings = run(&Survey { unknown_groups, ..survey() }).await.expect("findings");
        let severities: Vec<Severity> = findings.iter().map(|finding| finding.severity).collect();
        assert_eq!(severities, [Severity::Warning]);
    }
}
