//! All checks, each within its own time.

use std::{sync::Arc, time::Duration};

use futures::future::BoxFuture;
use tokio::sync::Semaphore;

use super::{
    checks,
    finding::{Finding, Report},
    survey::Survey,
};
use crate::objects::{Error, Result};

/// Checks that run at a time.
const AT_ONCE: usize = 4;

/// Looks at one subject.
#[derive(Clone, Copy)]
pub(super) struct Check {
    /// Its name in findings.
    pub name: &'static str,
    /// What it does.
    pub run: for<'a> fn(&'a Survey) -> BoxFuture<'a, Result<Vec<Finding>>>,
}

/// Runs all checks. None of them takes longer than `limit`, and none stops the others.
pub async fn run(survey: Arc<Survey>, limit: Duration) -> Report {
    run_these(checks::ALL, survey, limit).await
}

async fn run_these(checks: &'static [Check], survey: Arc<Survey>, limit: Duration) -> Report {
    let permits = Arc::new(Semaphore::new(AT_ONCE));
    let tasks: Vec<_> = checks
        .iter()
        .map(|check| {
            let (survey, permits) = (survey.clone(), permits.clone());
            (
                check.name,
                tokio::spawn(async move {
                    let _permit = permits.acquire_owned().await;
                    within(check, &survey, limit).await
                }),
            )
        })
        .collect();
    let mut findings = Vec::new();
    for (name, task) in tasks {
        match task.await {
            Ok(found) => findings.extend(found),
            Err(error) => {
                let why = format!("the check itself failed: {error}");
                findings.push(Finding::warning(name, "", why, "report this as an error of Repot"));
            }
        }
    }
    findings.extend(survey.cut.lock().iter().map(|(plural, most)| not_all(plural, *most)));
    Report { findings }
}

/// There are more objects than were looked at.
fn not_all(plural: &str, most: usize) -> Finding {
    let why = format!("there are more than {most}: the others were not looked at; ask for one namespace");
    Finding::not_checked("size", plural, why)
}

async fn within(check: &Check, survey: &Survey, limit: Duration) -> Vec<Finding> {
    match tokio::time::timeout(limit, (check.run)(survey)).await {
        Ok(Ok(findings)) if findings.is_empty() => {
            vec![Finding::ok(check.name, "", "there is nothing to look at")]
        }
        Ok(Ok(findings)) => findings,
        Ok(Err(error)) => vec![failed(check.name, "", &error)],
        Err(_) => {
            let why = format!("no result within {} s", limit.as_secs());
            vec![Finding::not_checked(check.name, "", why)]
        }
    }
}

/// What an error of a request is as a finding: a lack of rights is no fault of the installation.
pub(super) fn failed(check: &'static str, subject: &str, error: &Error) -> Finding {
    match error {
        Error::Forbidden { message, .. } => {
            Finding::not_checked(check, subject, format!("forbidden: {message}"))
        }
        Error::NotServed { kind, .. } => {
            Finding::not_checked(check, subject, format!("this cluster does not serve {kind}"))
        }
        Error::Cut { .. } => Finding::not_checked(check, subject, error.to_string()),
        Error::Late { .. } | Error::Request { .. } | Error::Refused { .. } | Error::Missing(_) => {
            Finding::warning(check, subject, format!("could not be checked: {error}"), "run the doctor again")
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;
    use crate::doctor::{checks::tests::survey, finding::Severity};

    fn hangs(_: &Survey) -> BoxFuture<'_, Result<Vec<Finding>>> {
        std::future::pending().boxed()
    }

    fn panics(_: &Survey) -> BoxFuture<'_, Result<Vec<Finding>>> {
        async { panic!("a fault of the check") }.boxed()
    }

    fn is_forbidden(_: &Survey) -> BoxFuture<'_, Result<Vec<Finding>>> {
        let error =
            || Error::Forbidden { what: "failed to list seeds".to_owned(), message: "no rights".to_owned() };
        async move { Err(error()) }.boxed()
    }

    fn works(_: &Survey) -> BoxFuture<'_, Result<Vec<Finding>>> {
        async { Ok(vec![Finding::ok("works", "", "fine")]) }.boxed()
    }

    static CHECKS: &[Check] = &[
        Check { name: "hangs", run: hangs },
        Check { name: "panics", run: panics },
        Check { name: "forbidden", run: is_forbidden },
        Check { name: "works", run: works },
    ];

    #[tokio::test]
    async fn no_check_stops_another_one() {
        let report = run_these(CHECKS, Arc::new(survey()), Duration::from_millis(50)).await;
        let all: Vec<(&str, Severity)> =
            report.findings.iter().map(|finding| (finding.check, finding.severity)).collect();
        assert_eq!(
            all,
            [
                ("hangs", Severity::NotChecked),
                ("panics", Severity::Warning),
                ("forbidden", Severity::NotChecked),
                ("works", Severity::Ok),
            ]
        );
        assert!(report.is_well());
        assert_eq!(report.findings[2].message, "not checked: forbidden: no rights");
    }
}
