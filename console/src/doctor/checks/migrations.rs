//! Migrations that do not go on.

use jiff::Timestamp;

use crate::{
    doctor::{finding::Finding, survey::Survey},
    durations::Durations,
    migration::Migration,
    objects::{CONTROL_PLANE_MIGRATION, Result},
    progress::Progress,
    text::duration,
};
use kube::api::ListParams;

/// Name of the check.
pub(super) const NAME: &str = "migrations";
/// A step that takes so many times as long as it usually does is worth a look.
const TIMES: i64 = 5;
/// Such a step is not worth a look before, in seconds.
const PATIENCE: i64 = 300;
/// A step that was started more often than this is worth a look.
const ATTEMPTS: i64 = 3;
/// Failures that are older are history, in seconds.
const RECENT: i64 = 7 * 86_400;
/// Most migrations that are looked at.
const MOST: usize = 20_000;

pub(super) async fn run(survey: &Survey) -> Result<Vec<Finding>> {
    if !survey.serves(&CONTROL_PLANE_MIGRATION) {
        return Ok(vec![Finding::not_checked(NAME, "", "this cluster is no garden of Repot")]);
    }
    let namespace = survey.namespace.as_deref();
    let found = survey.list(&CONTROL_PLANE_MIGRATION, namespace, ListParams::default(), MOST).await?;
    let all: Vec<Migration> = found
        .items
        .into_iter()
        .filter_map(|object| Some(Migration::new(&serde_json::from_value(object).ok()?)))
        .collect();
    Ok(judge(&all, survey.now()))
}

fn judge(all: &[Migration], now: Timestamp) -> Vec<Finding> {
    let mut findings: Vec<Finding> = all.iter().flat_map(|one| one_migration(one, all, now)).collect();
    if findings.is_empty() {
        let running = all.iter().filter(|one| !one.is_over()).count();
        let says = format!("{} known, {running} under way, none is stuck", all.len());
        findings.push(Finding::ok(NAME, "", says));
    }
    findings
}

fn one_migration(one: &Migration, all: &[Migration], now: Timestamp) -> Vec<Finding> {
    let subject = format!("ControlPlaneMigration {}", one.key());
    let status = format!("repot status {} -n {} --migration {}", one.shoot, one.namespace, one.name);
    if one.is_over() {
        let is_recent =
            one.ended().or(one.created).is_some_and(|time| now.duration_since(time).as_secs() < RECENT);
        let is_open = one.phase == "Failed" && one.followed_by.is_none() && is_recent;
        let says = format!("has failed: {}", one.message);
        return is_open
            .then(|| Finding::warning(NAME, &subject, says, format!("{status}; repair it, then repot retry")))
            .into_iter()
            .collect();
    }
    let progress = Progress::of(one, &Durations::of(all, one.mode, one.executor), now);
    let mut findings = Vec::new();
    let age = one.created.map(|time| now.duration_since(time).as_secs()).unwrap_or_default();
    if one.sides.is_empty() && age > PATIENCE {
        let says = format!("nobody has begun it for {}", duration(age));
        let advice = format!("see whether repot-controllers runs in the garden; {status}");
        findings.push(Finding::problem(NAME, &subject, says, advice));
    }
    for side in &progress.silent {
        let says = format!("the {side} has recorded nothing for more than three minutes");
        let advice = format!("see whether the controllers of the {side} run and reach the garden; {status}");
        findings.push(Finding::problem(NAME, &subject, says, advice));
    }
    for side in one.sides.iter().filter(|side| side.phase == "Failed") {
        let says = format!("the {} has failed: {}", side.name, side.message);
        findings.push(Finding::problem(
            NAME,
            &subject,
            says,
            format!("repair it, then repot retry; {status}"),
        ));
    }
    for step in &progress.open {
        let is_late = step.usual_seconds.is_some_and(|usual| step.seconds > TIMES * usual + PATIENCE);
        if is_late || step.attempts > ATTEMPTS {
            let says = format!(
                "step {} of the {} runs for {}, start {}: {}",
                step.name,
                step.side,
                duration(step.seconds),
                step.attempts,
                step.message
            );
            findings.push(Finding::warning(NAME, &subject, says, &status));
        }
    }
    if one.paused {
        findings.push(Finding::warning(
            NAME,
            &subject,
            "is paused, and rolls back after 24 hours",
            "repot resume",
        ));
    }
    findings
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{
        doctor::finding::Severity,
        migration::tests::{classic, read},
    };

    fn now() -> Timestamp {
        "2026-11-28T06:15:00Z".parse().expect("a time")
    }

    fn running() -> serde_json::Value {
        let mut object = classic();
        object["status"]["phase"] = json!("Running");
        object["status"]["source"]["phase"] = json!("Running");
        object["status"]["source"]["observedTime"] = json!("2026-11-28T06:14:30Z");
        object
    }

    #[test]
    fn migration_that_goes_on_is_well() {
        let found = judge(&[read(running()), read(classic())], now());
        assert_eq!(found.iter().map(|one| one.severity).collect::<Vec<_>>(), [Severity::Ok]);
        assert_eq!(found[0].message, "2 known, 1 under way, none is stuck");
    }

    #[test]
    fn silent_side_and_step_that_takes_too_long_are_told() {
        let mut object = running();
        object["status"]["source"]["observedTime"] = json!("2026-11-28T06:00:00Z");
        object["status"]["destination"]["steps"][1]["state"] = json!("Running");
        let found = judge(&[read(object), read(classic())], now());
        let severities: Vec<Severity> = found.iter().map(|one| one.severity).collect();
        assert_eq!(severities, [Severity::Problem, Severity::Warning], "{found:?}");
        assert!(
            found[1].message.starts_with("step ApiDnsSwitched of the destination runs for 59m54s"),
            "{found:?}"
        );
    }

    #[test]
    fn migration_that_nobody_begins_is_a_problem() {
        let mut object = classic();
        object["status"] = json!({});
        assert_eq!(judge(&[read(object.clone())], now())[0].severity, Severity::Problem);
        object["metadata"]["creationTimestamp"] = json!("2026-11-28T06:14:00Z");
        assert_eq!(judge(&[read(object)], now())[0].severity, Severity::Ok);
    }

    #[test]
    fn old_failures_are_history() {
        let mut object = classic();
        object["status"]["phase"] = json!("Failed");
        assert_eq!(judge(&[read(object.clone())], now())[0].severity, Severity::Warning);
        let later = now() + jiff::SignedDuration::from_secs(RECENT + 3600);
        assert_eq!(judge(&[read(object)], later)[0].severity, Severity::Ok);
    }
}
