//! Certificates: bundles of authorities, which are public, and serving certificates where the user lets Secrets be read.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use jiff::Timestamp;
use kube::api::ListParams;
use repot_apimachinery::value::text_at;
use repot_certs::inspect::{Validity, inspect};
use serde_json::Value;

use crate::{
    doctor::{finding::Finding, survey::Survey},
    objects::{Kind, Result},
    text::duration,
};

/// Name of the check.
pub(super) const NAME: &str = "certificates";
/// Secrets, of which only certificates are looked at.
const SECRET: Kind = Kind::new("", "v1", "Secret", "secrets");
/// An authority that ends within this time needs somebody's attention, in seconds.
const SOON: i64 = 14 * 86_400;
/// Most certificates of a bundle that are looked at.
const MOST: usize = 50;
/// Begins a certificate in PEM.
const BEGIN: &str = "-----BEGIN CERTIFICATE-----";

/// Serving certificates, if the user lets Secrets be read.
pub(super) async fn run(survey: &Survey) -> Result<Vec<Finding>> {
    if !survey.may_read_secrets {
        let why = "serving certificates are in Secrets; --read-secrets looks at them, and `repot certs status` does too";
        return Ok(vec![Finding::not_checked(NAME, "", why)]);
    }
    let mut findings = Vec::new();
    for namespace in &survey.namespaces {
        let params = ListParams::default().fields("type=kubernetes.io/tls");
        let found = survey.list(&SECRET, Some(namespace), params, MOST).await?;
        findings.extend(found.items.iter().map(|secret| serving(secret, survey.now())));
    }
    if findings.is_empty() {
        let namespaces: Vec<&str> = survey.namespaces.iter().map(String::as_str).collect();
        findings.push(Finding::warning(
            NAME,
            namespaces.join(", "),
            "there is no Secret with a serving certificate",
            "see the value certificates.issuer of the chart",
        ));
    }
    Ok(findings)
}

/// The certificate of a Secret; its key is not looked at.
fn serving(secret: &Value, now: Timestamp) -> Finding {
    let text = |path| text_at(secret, path).unwrap_or_default();
    let subject = format!("Secret {}/{}", text("/metadata/namespace"), text("/metadata/name"));
    let encoded = secret.get("data").and_then(|data| data.get("tls.crt")).and_then(Value::as_str);
    let pem = encoded.and_then(decoded);
    match pem.as_deref().and_then(inspect) {
        Some(one) => validity(NAME, &subject, &names(&one.names), one.validity, now),
        None => {
            Finding::problem(NAME, &subject, "it has no certificate that can be read", "`repot certs rotate`")
        }
    }
}

/// What is wrong with a bundle of authorities, which is PEM in base64.
pub(super) fn bundle(check: &'static str, subject: &str, encoded: &str, now: Timestamp) -> Vec<Finding> {
    let missing = |message: &str| {
        vec![Finding::problem(
            check,
            subject,
            message,
            "`repot certs status --publish` shows what has to be in it; repot-certs or cert-manager writes it",
        )]
    };
    if encoded.is_empty() {
        return missing("it has no caBundle, so kube-apiserver trusts no certificate of the server");
    }
    let Some(pem) = decoded(encoded) else { return missing("its caBundle is no base64 of text") };
    let certificates: Vec<Validity> =
        blocks(&pem).filter_map(|block| inspect(block).map(|one| one.validity)).take(MOST).collect();
    let Some(newest) = certificates.iter().copied().max_by_key(|one| one.until) else {
        return missing("its caBundle has no certificate that can be read");
    };
    // Older authorities may end: they stay in the bundle until nothing is signed by them.
    let count = certificates.len();
    let what = if count == 1 { "1 authority".to_owned() } else { format!("{count} authorities, the newest") };
    vec![validity(check, subject, &what, newest, now)]
}

/// Each certificate of a text in PEM, with its own first line.
pub(in crate::doctor) fn blocks(pem: &str) -> impl Iterator<Item = &str> {
    let starts: Vec<usize> = pem.match_indices(BEGIN).map(|(at, _)| at).collect();
    let ends: Vec<usize> = starts.iter().skip(1).copied().chain([pem.len()]).collect();
    starts.into_iter().zip(ends).map(|(from, to)| &pem[from..to])
}

fn decoded(encoded: &str) -> Option<String> {
    let compact: String = encoded.split_whitespace().collect();
    String::from_utf8(STANDARD.decode(compact).ok()?).ok()
}

fn names(all: &[String]) -> String {
    let first = all.first().map_or("no name", String::as_str);
    if all.len() > 1 {
        format!("for {first} and {} more names", all.len() - 1)
    } else {
        format!("for {first}")
    }
}

fn validity(check: &'static str, subject: &str, what: &str, validity: Validity, now: Timestamp) -> Finding {
    let seconds = |time: time::OffsetDateTime| time.unix_timestamp().saturating_sub(now.as_second());
    let (begins, left) = (seconds(validity.issued), seconds(validity.until));
    let until = Timestamp::from_second(validity.until.unix_timestamp()).map(|time| time.to_string());
    let until = until.unwrap_or_default();
    let advice = "`repot certs status` shows all of them, and `repot certs rotate` renews them";
    if left <= 0 {
        Finding::problem(check, subject, format!("{what}: ended at {until}"), advice)
    } else if begins > 60 {
        Finding::problem(check, subject, format!("{what}: not valid yet; do the clocks agree?"), advice)
    } else if left < SOON {
        Finding::warning(check, subject, format!("{what}: ends in {}, at {until}", duration(left)), advice)
    } else {
        Finding::ok(check, subject, format!("{what}: valid until {until}"))
    }
}

#[cfg(test)]
pub(in crate::doctor) mod tests {
    use repot_certs::Authority;
    use serde_json::json;
    use time::{Duration, OffsetDateTime};

    use super::*;
    use crate::doctor::finding::Severity;

    /// An authority that is valid for a year.
    pub(in crate::doctor) fn authority() -> Authority {
        let year = Duration::days(365);
        Authority::generate_for("test", OffsetDateTime::now_utc(), year).expect("an authority")
    }

    #[test]
    fn bundle_says_when_it_ends() {
        let authority = authority();
        let encoded = STANDARD.encode(authority.certificate_pem());
        let until =
            inspect(authority.certificate_pem()).expect("a certificate").validity.until.unix_timestamp();
        let of = |now| {
            let now = Timestamp::from_second(now).expect("a time");
            let found = bundle("c", "s", &encoded, now);
            assert_eq!(found.len(), 1, "{found:?}");
            found[0].severity
        };
        assert_eq!(of(until - SOON - 1), Severity::Ok);
        assert_eq!((of(until - SOON + 1), of(until)), (Severity::Warning, Severity::Problem));
    }

    #[test]
    fn bundle_that_cannot_be_used_is_a_problem() {
        for wrong in ["", "%%%", "bm8gY2VydGlmaWNhdGU="] {
            let found = bundle("c", "s", wrong, Timestamp::now());
            assert_eq!(found[0].severity, Severity::Problem, "{wrong}");
        }
    }

    #[test]
    fn secret_is_judged_by_its_certificate_alone() {
        let leaf =
            authority().issue_server("repot", &["repot.example".to_owned()], OffsetDateTime::now_utc());
        let pem = leaf.expect("a certificate").certificate_pem;
        let secret = json!({
            "metadata": {"namespace": "repot-system", "name": "repot-tls"},
            "data": {"tls.crt": STANDARD.encode(pem), "tls.key": "is not looked at"},
        });
        let found = serving(&secret, Timestamp::now());
        assert_eq!(found.severity, Severity::Ok, "{found:?}");
        assert_eq!(found.subject, "Secret repot-system/repot-tls");
        assert!(found.message.starts_with("for repot.example: valid until "), "{found:?}");
        let without = json!({"metadata": {"name": "s"}, "data": {"tls.key": "x"}});
        assert_eq!(serving(&without, Timestamp::now()).severity, Severity::Problem);
    }
}
