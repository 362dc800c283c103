//! The API server: whether it answers, its version, and its clock.

use repot_apimachinery::value::text_at;

use crate::{
    doctor::{finding::Finding, survey::Survey},
    objects::Result,
    text::duration,
};

/// Name of the check.
pub(super) const NAME: &str = "connection";
/// The oldest minor version of Kubernetes with which Repot works.
const OLDEST_MINOR: u32 = 30;
/// Clocks that differ by more than this make times hard to read, in seconds.
const WARNING: i64 = 5;
/// Clocks that differ by more than this let certificates and tokens count as not valid yet, in seconds.
const PROBLEM: i64 = 60;

#[expect(clippy::unused_async, reason = "all checks have this form")]
pub(super) async fn run(survey: &Survey) -> Result<Vec<Finding>> {
    Ok(vec![version(survey), clock(survey)])
}

fn version(survey: &Survey) -> Finding {
    let version = text_at(&survey.version, "/gitVersion").unwrap_or("of an unknown version");
    let minor = text_at(&survey.version, "/minor").unwrap_or_default();
    let digits: String = minor.chars().take_while(char::is_ascii_digit).collect();
    let says = format!("Kubernetes {version} answers in {} ms", survey.latency.as_millis());
    match digits.parse::<u32>() {
        Ok(minor) if minor < OLDEST_MINOR => Finding::problem(
            NAME,
            &survey.server,
            format!("{says}; Repot needs 1.{OLDEST_MINOR} or later"),
            "upgrade Kubernetes",
        ),
        _ => Finding::ok(NAME, &survey.server, says),
    }
}

fn clock(survey: &Survey) -> Finding {
    let Some(clock) = survey.clock else {
        return Finding::not_checked(NAME, &survey.server, "the answer has no header Date");
    };
    let seconds = clock.difference().as_secs();
    let says = format!(
        "the clock of the API server is {} {} that of this machine",
        duration(seconds.abs()),
        if seconds > 0 { "ahead of" } else { "behind" }
    );
    let advice = "synchronise both clocks, such as by NTP";
    match seconds.abs() {
        PROBLEM.. => Finding::problem(NAME, &survey.server, says, advice),
        WARNING.. => Finding::warning(NAME, &survey.server, says, advice),
        _ => Finding::ok(NAME, &survey.server, "its clock agrees with that of this machine"),
    }
}

#[cfg(test)]
mod tests {
    use jiff::SignedDuration;
    use serde_json::json;

    use super::*;
    use crate::doctor::{checks::tests::survey, finding::Severity, survey::Clock};

    #[tokio::test]
    async fn old_kubernetes_is_a_problem() {
        let mut cluster = survey();
        assert_eq!(version(&cluster).message, "Kubernetes v1.33.1 answers in 3 ms");
        cluster.version = json!({"gitVersion": "v1.29.4-gke.1", "minor": "29+"});
        assert_eq!(version(&cluster).severity, Severity::Problem);
    }

    #[tokio::test]
    async fn clock_that_is_a_minute_off_is_a_problem() {
        let of = |seconds| {
            let ahead = SignedDuration::from_secs(seconds);
            clock(&Survey { clock: Some(Clock { least: ahead, most: ahead }), ..survey() })
        };
        assert_eq!(of(1).severity, Severity::Ok);
        assert_eq!(of(-20).message, "the clock of the API server is 20s behind that of this machine");
        assert_eq!((of(20).severity, of(-90).severity), (Severity::Warning, Severity::Problem));
        assert_eq!(clock(&survey()).severity, Severity::NotChecked);
    }
}
