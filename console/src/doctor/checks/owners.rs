//! Owner records in DNS, as far as this machine reaches their servers.

use futures::{StreamExt as _, stream};
use kube::api::ListParams;
use repot_apimachinery::value::{at, text_at};
use repot_controllers::owner::{Report, Verdict};
use serde_json::Value;

use crate::{
    doctor::{finding::Finding, survey::Survey},
    objects::{ETCD, Result, causes},
};

/// Name of the check.
pub(super) const NAME: &str = "owners";
/// Most records that are asked for: each is some queries.
const MOST: usize = 20;
/// Records that are asked for at a time.
const AT_ONCE: usize = 5;
/// Most Etcds that are looked at.
const MOST_ETCDS: usize = 10_000;

pub(super) async fn run(survey: &Survey) -> Result<Vec<Finding>> {
    if !survey.serves(&ETCD) {
        return Ok(vec![Finding::not_checked(NAME, "", "this cluster has no Etcds")]);
    }
    let found = survey.list(&ETCD, survey.namespace.as_deref(), ListParams::default(), MOST_ETCDS).await?;
    let mut with_record: Vec<Value> = found.items.into_iter().filter(has_record).collect();
    let left = with_record.len().saturating_sub(MOST);
    with_record.truncate(MOST);
    let asked = with_record.into_iter().map(|etcd| async move { ask(survey, &etcd).await });
    let mut findings: Vec<Finding> = stream::iter(asked).buffered(AT_ONCE).collect().await;
    if left > 0 {
        findings.push(Finding::not_checked(
            NAME,
            format!("{left} more Etcds"),
            "`repot owner show` asks for each of them",
        ));
    }
    Ok(findings)
}

fn has_record(etcd: &Value) -> bool {
    at(etcd, "/spec/backup/ownerCheck").is_some_and(Value::is_object)
}

async fn ask(survey: &Survey, etcd: &Value) -> Finding {
    let text = |path| text_at(etcd, path).unwrap_or_default();
    let (namespace, name) = (text("/metadata/namespace"), text("/metadata/name"));
    let subject = format!("Etcd {namespace}/{name}");
    match Report::read(survey.objects.client(), (namespace, name), &[]).await {
        Ok((report, _)) => judge(&subject, &report.record, &report.verdict(), etcd["spec"]["replicas"] == 0),
        Err(error) => Finding::not_checked(NAME, subject, causes(&error)),
    }
}

fn judge(subject: &str, record: &str, verdict: &Verdict, is_stopped: bool) -> Finding {
    match verdict {
        Verdict::Owner => Finding::ok(NAME, subject, format!("{record} names it")),
        Verdict::Other(others) if is_stopped => {
            Finding::ok(NAME, subject, format!("is stopped, and {record} names {}", others.join(", ")))
        }
        Verdict::Other(others) if others.is_empty() => Finding::problem(
            NAME,
            subject,
            format!("{record} has no value, so its members may not serve"),
            "see the DNSRecord; `repot owner show` and `repot owner transfer`",
        ),
        Verdict::Other(others) => Finding::warning(
            NAME,
            subject,
            format!("{record} names {}, so its members may not serve", others.join(", ")),
            "that is so during a migration; else `repot owner show`",
        ),
        Verdict::Unknown(why) => {
            let why = format!("{record}: {why}; this machine may not reach the servers of the zone");
            Finding::not_checked(NAME, subject, why)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::finding::Severity;

    #[test]
    fn server_that_cannot_be_asked_is_no_problem() {
        let of = |verdict, is_stopped| judge("e", "r", &verdict, is_stopped).severity;
        assert_eq!(of(Verdict::Owner, false), Severity::Ok);
        assert_eq!(of(Verdict::Unknown("no server answers".to_owned()), false), Severity::NotChecked);
        assert_eq!(of(Verdict::Other(vec!["seed-b/2".to_owned()]), false), Severity::Warning);
        assert_eq!(of(Verdict::Other(vec!["seed-b/2".to_owned()]), true), Severity::Ok);
        assert_eq!(of(Verdict::Other(vec![]), false), Severity::Problem);
    }
}
