//! Seeds of a garden, as their gardenlets report them.

use kube::api::ListParams;
use repot_apimachinery::value::{at, text_at};
use serde_json::Value;

use crate::{
    doctor::{finding::Finding, run::failed, survey::Survey},
    etcd::hosted::conditions,
    objects::{Error, Result, SEED},
    text::{ago, duration},
};

use super::controllers::LEASE;

/// Name of the check.
pub(super) const NAME: &str = "seeds";
/// Where gardenlets renew their Leases.
const LEASES: &str = "gardener-system-seed-lease";
/// A gardenlet that has not renewed its Lease for so long is away, in seconds.
const SILENT: i64 = 120;
/// Most seeds that are looked at.
const MOST: usize = 2000;
/// Conditions of a Seed on which moves depend.
const CONDITIONS: [&str; 3] = ["GardenletReady", "BackupBucketsReady", "SeedSystemComponentsHealthy"];

pub(super) async fn run(survey: &Survey) -> Result<Vec<Finding>> {
    if !survey.serves(&SEED) {
        return Ok(vec![Finding::not_checked(NAME, "", "this cluster has no Seeds")]);
    }
    let seeds = survey.list(&SEED, None, ListParams::default(), MOST).await?;
    let mut findings: Vec<Finding> = seeds.items.iter().flat_map(judge).collect();
    match survey.list(&LEASE, Some(LEASES), ListParams::default(), MOST).await {
        Ok(leases) => findings.extend(leases.items.iter().filter_map(|lease| silent(lease, survey))),
        Err(Error::Forbidden { .. }) => {
            findings.push(Finding::not_checked(NAME, format!("Leases of {LEASES}"), "forbidden"));
        }
        Err(error) => findings.push(failed(NAME, &format!("Leases of {LEASES}"), &error)),
    }
    Ok(findings)
}

fn judge(seed: &Value) -> Vec<Finding> {
    let subject = format!("Seed {}", text_at(seed, "/metadata/name").unwrap_or_default());
    let all = conditions(seed);
    let bad = all.iter().filter(|one| CONDITIONS.contains(&one.kind.as_str()) && one.status != "True");
    let mut findings: Vec<Finding> = bad
        .map(|one| {
            let says = format!("{} is {}: {}: {}", one.kind, one.status, one.reason, one.message);
            let advice = "see gardenlet of this seed; Shoots can be moved away: docs/operate/dead-seed.md";
            match one.kind.as_str() {
                "GardenletReady" => Finding::problem(NAME, &subject, says, advice),
                _ => Finding::warning(NAME, &subject, says, "no Shoot may move there until it is True"),
            }
        })
        .collect();
    if at(seed, "/spec/backup").is_none_or(Value::is_null) {
        let says = "it has no spec.backup, so a dead seed would lose its etcds";
        findings.push(Finding::warning(NAME, &subject, says, "configure a backup bucket"));
    }
    if findings.is_empty() {
        let version = text_at(seed, "/status/gardener/version").unwrap_or("an unknown version");
        findings.push(Finding::ok(NAME, &subject, format!("ready, gardenlet {version}")));
    }
    findings
}

fn silent(lease: &Value, survey: &Survey) -> Option<Finding> {
    let seed = text_at(lease, "/metadata/name")?;
    let renewed: jiff::Timestamp = text_at(lease, "/spec/renewTime")?.parse().ok()?;
    let age = survey.now().duration_since(renewed).as_secs();
    let says = format!("its gardenlet renewed its Lease {}", ago(renewed, survey.now()));
    let advice = format!("a seed is dead after {}: docs/operate/dead-seed.md", duration(SILENT));
    (age > SILENT).then(|| Finding::problem(NAME, format!("Seed {seed}"), says, advice))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::doctor::{checks::tests::survey, finding::Severity};

    #[test]
    fn seed_is_judged_by_its_conditions() {
        let of = |gardenlet: &str, buckets: &str| {
            let seed = json!({"metadata": {"name": "a"}, "spec": {"backup": {}}, "status": {"conditions": [
                {"type": "GardenletReady", "status": gardenlet}, {"type": "BackupBucketsReady", "status": buckets},
            ]}});
            judge(&seed).into_iter().map(|finding| finding.severity).collect::<Vec<_>>()
        };
        assert_eq!(of("True", "True"), [Severity::Ok]);
        assert_eq!(of("Unknown", "False"), [Severity::Problem, Severity::Warning]);
        assert_eq!(judge(&json!({}))[0].severity, Severity::Warning);
    }

    #[tokio::test]
    async fn gardenlet_that_is_silent_is_a_problem() {
        let lease = |time: jiff::Timestamp| json!({"metadata": {"name": "a"}, "spec": {"renewTime": time.to_string()}});
        let now = jiff::Timestamp::now();
        assert_eq!(silent(&lease(now), &survey()), None);
        let old = now - jiff::SignedDuration::from_secs(600);
        assert!(silent(&lease(old), &survey()).is_some());
    }
}
