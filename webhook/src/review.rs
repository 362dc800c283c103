//! AdmissionReview: the question and the answer.

use std::collections::BTreeMap;

use base64::{Engine, engine::general_purpose::STANDARD};
use repot_rules::{
    change::{Change, Operation, Target, User},
    finding::{Finding, PatchOp, Verdict},
    judge::allows,
    opening::Projection,
    watch::Watch,
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json, value::RawValue};

use crate::lean;

/// One warning may be so long; clients cut longer ones.
const WARNING: usize = 120;
/// All warnings of one answer.
const WARNINGS: usize = 4096;

/// The body is no question.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Not JSON of the right shape. The parser's text is not repeated: it may quote the object.
    #[error("the body is not an AdmissionReview (line {line}, column {column})")]
    Malformed {
        /// Where.
        line: usize,
        /// Where.
        column: usize,
    },
    /// Another kind or version.
    #[error("only AdmissionReview of admission.k8s.io/v1 and v1beta1 is understood")]
    Version,
    /// It asks nothing.
    #[error("the AdmissionReview has no request with a uid")]
    NoRequest,
    /// An operation that is not about an object.
    #[error("only CREATE, UPDATE and DELETE can be judged")]
    Operation,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Wire<'a> {
    #[serde(default)]
    api_version: String,
    #[serde(default)]
    kind: String,
    #[serde(borrow)]
    request: Option<WireRequest<'a>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireRequest<'a> {
    #[serde(default)]
    uid: String,
    #[serde(default)]
    resource: WireResource,
    #[serde(default)]
    sub_resource: String,
    #[serde(default)]
    name: String,
    #[serde(default)]
    namespace: String,
    #[serde(default)]
    operation: String,
    #[serde(default)]
    user_info: WireUser,
    #[serde(borrow)]
    object: Option<&'a RawValue>,
    #[serde(borrow)]
    old_object: Option<&'a RawValue>,
    #[serde(default)]
    dry_run: Option<bool>,
}

#[derive(Default, Deserialize)]
struct WireResource {
    #[serde(default)]
    group: String,
    #[serde(default)]
    resource: String,
}

#[derive(Default, Deserialize)]
struct WireUser {
    #[serde(default)]
    username: String,
    #[serde(default)]
    groups: Vec<String>,
    #[serde(default)]
    uid: String,
    #[serde(default)]
    extra: BTreeMap<String, Vec<String>>,
}

/// The request of an AdmissionReview, read from the body.
#[derive(Debug)]
pub struct Question {
    api_version: &'static str,
    /// The `uid` of the request, which the answer repeats.
    pub uid: String,
    /// Whether nothing will be kept. Nothing is done here that would have to be left out then.
    pub dry_run: bool,
    /// What is asked about.
    pub change: Change,
}

impl Question {
    /// Reads a body that came to a webhook.
    ///
    /// # Errors
    /// [`Error`].
    pub fn read(body: &[u8], watch: &Watch) -> Result<Self, Error> {
        let malformed =
            |error: serde_json::Error| Error::Malformed { line: error.line(), column: error.column() };
        let wire: Wire<'_> = serde_json::from_slice(body).map_err(malformed)?;
        let api_version = match (wire.kind.as_str(), wire.api_version.as_str()) {
            ("AdmissionReview", "admission.k8s.io/v1") => "admission.k8s.io/v1",
            ("AdmissionReview", "admission.k8s.io/v1beta1") => "admission.k8s.io/v1beta1",
            _ => return Err(Error::Version),
        };
        let request = wire.request.filter(|request| !request.uid.is_empty()).ok_or(Error::NoRequest)?;
        let operation = match request.operation.as_str() {
            "CREATE" => Operation::Create,
            "UPDATE" => Operation::Update,
            "DELETE" => Operation::Delete,
            _ => return Err(Error::Operation),
        };
        let object = |raw: Option<&RawValue>| {
            raw.map_or(Ok(Value::Null), |raw| lean::read(raw, Projection::of(watch))).map_err(malformed)
        };
        let (old, new) = (object(request.old_object)?, object(request.object)?);
        let target = Target {
            group: request.resource.group,
            resource: request.resource.resource,
            subresource: request.sub_resource,
            namespace: request.namespace,
            name: request.name,
        };
        let WireUser { username, groups, uid, extra } = request.user_info;
        let user = User { name: username, groups, uid, extra };
        let change = Change { operation, target, user, old, new };
        Ok(Self { api_version, uid: request.uid, dry_run: request.dry_run.unwrap_or(false), change })
    }

    /// The answer of rules that judge.
    #[must_use]
    pub fn judged(&self, findings: &[Finding]) -> Vec<u8> {
        let mut response = Response::new(&self.uid, allows(findings));
        response.warnings = warnings(findings);
        response.audit_annotations = audit(findings);
        response.status = (!response.allowed).then(|| refusal(findings));
        self.answer(&response)
    }

    /// The answer of rules that change the object.
    #[must_use]
    pub fn patched(&self, patch: &[PatchOp]) -> Vec<u8> {
        let mut response = Response::new(&self.uid, true);
        if !patch.is_empty() {
            // Numbers and strings always print.
            let text = serde_json::to_vec(patch).unwrap_or_default();
            response.patch = Some(STANDARD.encode(text));
            response.patch_type = Some("JSONPatch");
            response.audit_annotations.insert("changes".to_owned(), patch.len().to_string());
        }
        self.answer(&response)
    }

    fn answer(&self, response: &Response<'_>) -> Vec<u8> {
        let review = Answer { api_version: self.api_version, kind: "AdmissionReview", response };
        serde_json::to_vec(&review).unwrap_or_default()
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Answer<'a> {
    api_version: &'a str,
    kind: &'a str,
    response: &'a Response<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Response<'a> {
    uid: &'a str,
    allowed: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    patch: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    patch_type: Option<&'a str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    audit_annotations: BTreeMap<String, String>,
}

impl<'a> Response<'a> {
    fn new(uid: &'a str, allowed: bool) -> Self {
        Self {
            uid,
            allowed,
            status: None,
            patch: None,
            patch_type: None,
            warnings: Vec::new(),
            audit_annotations: BTreeMap::new(),
        }
    }
}

fn line(finding: &Finding) -> String {
    format!("{}: {} ({})", finding.field, finding.message(), finding.rule)
}

/// All refusals in one message: a person mends all of them at once.
fn refusal(findings: &[Finding]) -> Value {
    let refused: Vec<&Finding> =
        findings.iter().filter(|finding| finding.verdict == Verdict::Refuse).collect();
    let lines: Vec<String> = refused.iter().map(|finding| line(finding)).collect();
    let message = match lines.as_slice() {
        [one] => one.clone(),
        many => format!("{} reasons:\n  - {}", many.len(), many.join("\n  - ")),
    };
    let cause = |finding: &&Finding| json!({"reason": finding.rule, "field": finding.field, "message": finding.message()});
    let causes: Vec<Value> = refused.iter().map(cause).collect();
    json!({"status": "Failure", "code": 403, "reason": "Forbidden", "message": message, "details": {"causes": causes}})
}

/// Warnings in pieces that clients show whole, as many as fit.
fn warnings(findings: &[Finding]) -> Vec<String> {
    let warned = findings.iter().filter(|finding| finding.verdict == Verdict::Warn);
    let mut pieces: Vec<String> = warned.flat_map(|finding| wrap(&line(finding))).collect();
    let mut total = 0;
    pieces.retain(|piece| {
        total += piece.len();
        total <= WARNINGS
    });
    pieces
}

fn wrap(text: &str) -> Vec<String> {
    let mut pieces = vec![String::new()];
    for word in text.split_whitespace() {
        let mut rest = word;
        while let Some(current) = pieces.last_mut() {
            let gap = usize::from(!current.is_empty());
            if current.len() + gap + rest.len() <= WARNING {
                current.push_str(&" "[..gap]);
                current.push_str(rest);
                break;
            }
            if current.is_empty() {
                // A word longer than a line is cut where a character ends.
                let cut = (0..=WARNING).rev().find(|at| rest.is_char_boundary(*at)).unwrap_or(rest.len());
                current.push_str(&rest[..cut]);
                rest = &rest[cut..];
            }
            pieces.push(String::new());
        }
    }
    pieces.retain(|piece| !piece.is_empty());
    pieces
}

/// Which rules spoke, for the audit log: no word of the object.
fn audit(findings: &[Finding]) -> BTreeMap<String, String> {
    let named = |verdict| {
        let mut names: Vec<&str> = findings.iter().filter(|f| f.verdict == verdict).map(|f| f.rule).collect();
        names.dedup();
        names.join(",")
    };
    let of =
        |key: &str, verdict| Some((key.to_owned(), named(verdict))).filter(|(_, names)| !names.is_empty());
    [of("refused-by", Verdict::Refuse), of("warned-by", Verdict::Warn)].into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use repot_rules::watch::ANNOTATION_CHANGES;

    use super::*;

    fn body(change: impl FnOnce(&mut Value)) -> Vec<u8> {
        let mut review = json!({
            "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
            "request": {
                "uid": "u-1", "operation": "UPDATE", "name": "n", "namespace": "ns",
                "resource": {"group": "core.gardener.cloud", "version": "v1beta1", "resource": "shoots"},
                "userInfo": {"username": "alice", "groups": ["g"]}, "object": {}, "oldObject": null,
            },
        });
        change(&mut review);
        review.to_string().into_bytes()
    }

    #[test]
    fn echoes_version_kind_and_uid() {
        for version in ["admission.k8s.io/v1", "admission.k8s.io/v1beta1"] {
            let question =
                Question::read(&body(|review| review["apiVersion"] = json!(version)), &ANNOTATION_CHANGES)
                    .expect("a question");
            for answer in [question.judged(&[]), question.patched(&[])] {
                let answer: Value = serde_json::from_slice(&answer).expect("JSON");
                let expected = json!({"apiVersion": version, "kind": "AdmissionReview", "response": {"uid": "u-1", "allowed": true}});
                assert_eq!(answer, expected);
            }
        }
    }

    #[test]
    fn rejects_what_is_no_question() {
        let read = |change: fn(&mut Value)| {
            Question::read(&body(change), &ANNOTATION_CHANGES).expect_err("no question")
        };
        assert!(matches!(read(|r| r["apiVersion"] = json!("admission.k8s.io/v2")), Error::Version));
        assert!(matches!(read(|r| r["kind"] = json!("Review")), Error::Version));
        assert!(matches!(read(|r| r["request"] = Value::Null), Error::NoRequest));
        assert!(matches!(read(|r| r["request"]["uid"] = json!("")), Error::NoRequest));
        assert!(matches!(read(|r| r["request"]["operation"] = json!("CONNECT")), Error::Operation));
        let error =
            Question::read(b"{\"kind\": secret", &ANNOTATION_CHANGES).expect_err("no JSON").to_string();
        assert!(!error.contains("secret"), "{error}");
    }

    #[test]
    fn tells_all_refusals_with_code_reason_and_causes() {
        let question = Question::read(&body(|_| {}), &ANNOTATION_CHANGES).expect("a question");
        let mut findings =
            vec![Finding::refuse("a", "is wrong", "mend it"), Finding::warn("b", "is odd", "look")];
        findings.push(Finding::refuse("c", "is wrong too", "mend it too"));
        findings.iter_mut().for_each(|finding| finding.rule = "some-rule");
        let answer: Value = serde_json::from_slice(&question.judged(&findings)).expect("JSON");
        let (response, status) = (&answer["response"], &answer["response"]["status"]);
        assert_eq!(
            (&response["allowed"], &status["code"], &status["reason"]),
            (&json!(false), &json!(403), &json!("Forbidden"))
        );
        let message =
            "2 reasons:\n  - a: is wrong; mend it (some-rule)\n  - c: is wrong too; mend it too (some-rule)";
        assert_eq!(status["message"], message);
        assert_eq!(status["details"]["causes"].as_array().map(Vec::len), Some(2));
        assert_eq!(response["warnings"], json!(["b: is odd; look (some-rule)"]));
        assert_eq!(
            response["auditAnnotations"],
            json!({"refused-by": "some-rule", "warned-by": "some-rule"})
        );
    }

    #[test]
    fn warnings_are_short_and_few() {
        let long = Finding::warn("f", "word ".repeat(100) + &"\u{e4}".repeat(200), "x".repeat(5000));
        let pieces = warnings(&[long.clone(), long]);
        assert!(pieces.len() > 5 && pieces.iter().all(|piece| piece.len() <= WARNING), "{pieces:?}");
        assert!(pieces.iter().map(String::len).sum::<usize>() <= WARNINGS);
    }

    #[test]
    fn patches_come_with_their_type_or_not_at_all() {
        let question = Question::read(&body(|_| {}), &ANNOTATION_CHANGES).expect("a question");
        let patch = [PatchOp::Remove { path: "/metadata/labels/x".into() }];
        let answer: Value = serde_json::from_slice(&question.patched(&patch)).expect("JSON");
        assert_eq!(answer["response"]["patchType"], "JSONPatch");
        let encoded = answer["response"]["patch"].as_str().expect("text");
        let decoded: Value =
            serde_json::from_slice(&STANDARD.decode(encoded).expect("base64")).expect("JSON");
        assert_eq!(decoded, json!([{"op": "remove", "path": "/metadata/labels/x"}]));
        let none: Value = serde_json::from_slice(&question.patched(&[])).expect("JSON");
        assert!(none["response"].get("patch").is_none() && none["response"].get("patchType").is_none());
    }
}
