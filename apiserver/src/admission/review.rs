//! `AdmissionReview`: the question as bytes, and what an answer says. No I/O.

use std::collections::BTreeMap;

use base64::{Engine, engine::general_purpose::STANDARD};
use bytes::Bytes;
use serde::Deserialize;
use serde_json::{Value, json};

use super::Attributes;

/// The form of question and answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// `admission.k8s.io/v1`.
    V1,
    /// `admission.k8s.io/v1beta1`.
    V1Beta1,
}

impl Version {
    /// The first that is known of those that a webhook reads.
    #[must_use]
    pub fn first_of(accepted: &[String]) -> Option<Self> {
        accepted.iter().find_map(|version| match version.as_str() {
            "v1" => Some(Self::V1),
            "v1beta1" => Some(Self::V1Beta1),
            _ => None,
        })
    }

    fn api_version(self) -> &'static str {
        match self {
            Self::V1 => "admission.k8s.io/v1",
            Self::V1Beta1 => "admission.k8s.io/v1beta1",
        }
    }
}

/// An object in the pieces it was printed in; cheap to copy.
#[derive(Clone, Debug, Default)]
pub struct Printed(pub Vec<Bytes>);

impl Printed {
    /// The JSON literal `null`, in one piece.
    #[must_use]
    pub fn null() -> Self {
        Self(vec![Bytes::from_static(b"null")])
    }

    /// Length of all pieces together, in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.iter().map(Bytes::len).sum()
    }

    /// Whether there is nothing at all.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// The body of the question.
#[must_use]
pub fn question(
    uid: &str,
    version: Version,
    attributes: &Attributes<'_>,
    object: &Printed,
    old: &Printed,
) -> Printed {
    let mut head = head(uid, version, attributes).to_string();
    // The objects go in as they are, between the pieces of everything else.
    head.truncate(head.len() - 2);
    head.push_str(",\"object\":");
    let tail = format!(",\"dryRun\":{},\"options\":{}}}}}", attributes.dry_run, attributes.options);
    let mut pieces = vec![Bytes::from(head)];
    pieces.extend(object.0.iter().cloned());
    pieces.push(Bytes::from_static(b",\"oldObject\":"));
    pieces.extend(old.0.iter().cloned());
    pieces.push(Bytes::from(tail));
    Printed(pieces)
}

/// `{…,"request":{…}}`: `request` is the last member, both in the order written here and in that of the alphabet.
fn head(uid: &str, version: Version, attributes: &Attributes<'_>) -> Value {
    let Attributes { resource, target, operation, call, .. } = attributes;
    let (group, user) = (&resource.name.group, &call.user);
    let kind = json!({"group": group, "version": resource.version, "kind": resource.kind.kind});
    let plural = json!({"group": group, "version": resource.version, "resource": resource.name.resource});
    let mut request = json!({
        "uid": uid,
        "kind": kind,
        "resource": plural,
        "requestKind": kind,
        "requestResource": plural,
        "operation": operation.name(),
        "userInfo": {"username": user.name, "groups": user.groups},
    });
    let some = [
        ("subResource", &target.subresource),
        ("requestSubResource", &target.subresource),
        ("name", &attributes.name),
        ("namespace", &target.namespace),
    ];
    for (key, value) in some.into_iter().filter(|(_, value)| !value.is_empty()) {
        request[key] = value.as_str().into();
    }
    if !user.uid.is_empty() {
        request["userInfo"]["uid"] = user.uid.as_str().into();
    }
    if !user.extra.is_empty() {
        request["userInfo"]["extra"] = json!(user.extra);
    }
    json!({"apiVersion": version.api_version(), "kind": "AdmissionReview", "request": request})
}

/// The request as expressions know it: everything but the objects, and what is absent is empty.
#[must_use]
pub fn request(attributes: &Attributes<'_>) -> Value {
    let mut request = head("", Version::V1, attributes)["request"].take();
    for key in ["subResource", "requestSubResource", "name", "namespace"] {
        if request[key].is_null() {
            request[key] = "".into();
        }
    }
    for (key, empty) in [("uid", json!("")), ("extra", json!({}))] {
        if request["userInfo"][key].is_null() {
            request["userInfo"][key] = empty;
        }
    }
    request["dryRun"] = attributes.dry_run.into();
    request["options"] = attributes.options.clone();
    request
}

/// What a webhook said.
#[derive(Debug, Default)]
pub struct Verdict {
    /// Whether the request may go on.
    pub allowed: bool,
    /// JSON Patch of a mutating webhook, decoded from base64; `None` where it sent none.
    pub patch: Option<Bytes>,
    /// `metav1.Status`, for a request that may not.
    pub status: Option<Value>,
    /// Warnings of the webhook for the client.
    pub warnings: Vec<String>,
    /// For the audit log.
    pub annotations: BTreeMap<String, String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Review {
    api_version: Option<String>,
    kind: Option<String>,
    response: Option<Response>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Response {
    uid: Option<String>,
    allowed: Option<bool>,
    status: Option<Value>,
    patch: Option<String>,
    patch_type: Option<String>,
    audit_annotations: Option<BTreeMap<String, String>>,
    warnings: Option<Vec<String>>,
}

/// Reads an answer.
///
/// # Errors
/// Why it is none to this question.
pub fn answer(text: &[u8], uid: &str, version: Version, mutating: bool) -> Result<Verdict, String> {
    let review: Review =
        serde_json::from_slice(text).map_err(|_| "the answer is no AdmissionReview".to_owned())?;
    let response = review.response.ok_or("webhook response was absent")?;
    if version == Version::V1 {
        let got = response.uid.as_deref().unwrap_or_default();
        if got != uid {
            return Err(format!("expected response.uid={uid:?}, got {got:?}"));
        }
        let (api_version, kind) = (review.api_version.unwrap_or_default(), review.kind.unwrap_or_default());
        if api_version != version.api_version() || kind != "AdmissionReview" {
            let expected = version.api_version();
            return Err(format!(
                "expected webhook response of {expected}, Kind=AdmissionReview, got {api_version:?}, Kind={kind:?}"
            ));
        }
    }
    let patch = patch(response.patch.as_deref(), response.patch_type.as_deref(), version, mutating)?;
    Ok(Verdict {
        allowed: response.allowed.unwrap_or_default(),
        patch,
        status: response.status,
        warnings: response.warnings.unwrap_or_default(),
        annotations: response.audit_annotations.unwrap_or_default(),
    })
}

fn patch(
    patch: Option<&str>,
    kind: Option<&str>,
    version: Version,
    mutating: bool,
) -> Result<Option<Bytes>, String> {
    let patch = patch.filter(|patch| !patch.is_empty());
    match (patch, kind, version, mutating) {
        (_, _, Version::V1Beta1, false)
        | (None, _, Version::V1Beta1, true)
        | (None, None, Version::V1, _) => {
            return Ok(None);
        }
        (Some(_), _, Version::V1, false) => {
            return Err("validating webhook may not return response.patch".to_owned());
        }
        (None, Some(_), Version::V1, false) => {
            return Err("validating webhook may not return response.patchType".to_owned());
        }
        (Some(_), None, Version::V1, true) => {
            return Err("webhook returned response.patch but not response.patchType".to_owned());
        }
        (None, Some(_), Version::V1, true) => {
            return Err("webhook returned response.patchType but not response.patch".to_owned());
        }
        (Some(_), Some("JSONPatch"), Version::V1, true) | (Some(_), _, Version::V1Beta1, true) => {}
        (Some(_), Some(other), Version::V1, true) => return Err(format!("unsupported patch type {other:?}")),
    }
    let decoded =
        STANDARD.decode(patch.unwrap_or_default()).map_err(|_| "the patch is not base64".to_owned())?;
    Ok(Some(decoded.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(response: &Value, mutating: bool) -> Result<Verdict, String> {
        let review =
            json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response});
        answer(review.to_string().as_bytes(), "u", Version::V1, mutating)
    }

    #[test]
    fn answers_have_to_be_to_the_question() {
        assert!(read(&json!({"uid": "u", "allowed": true}), false).expect("an answer").allowed);
        assert!(!read(&json!({"uid": "u", "warnings": null}), false).expect("an answer").allowed);
        assert!(read(&json!({"uid": "x", "allowed": true}), false).is_err());
        assert!(answer(b"{}", "u", Version::V1, false).is_err());
        assert!(answer(b"<html>", "u", Version::V1, false).is_err());
        let old = json!({"response": {"allowed": true}}).to_string();
        assert!(answer(old.as_bytes(), "u", Version::V1, false).is_err());
        assert!(answer(old.as_bytes(), "u", Version::V1Beta1, false).expect("an answer").allowed);
    }

    #[test]
    fn a_patch_has_a_type_and_comes_from_a_mutating_webhook() {
        let with = |patch: Value, kind: Value| json!({"uid": "u", "allowed": true, "patch": patch, "patchType": kind});
        for (response, mutating, good) in [
            (with(json!("W10="), json!("JSONPatch")), true, true),
            (with(json!("W10="), Value::Null), true, false),
            (with(Value::Null, json!("JSONPatch")), true, false),
            (with(json!("W10="), json!("Other")), true, false),
            (with(json!("%"), json!("JSONPatch")), true, false),
            (with(json!("W10="), json!("JSONPatch")), false, false),
            (with(Value::Null, json!("JSONPatch")), false, false),
            (with(Value::Null, Value::Null), false, true),
        ] {
            assert_eq!(read(&response, mutating).is_ok(), good, "{response} {mutating}");
        }
        let verdict = read(&with(json!("W10="), json!("JSONPatch")), true).expect("an answer");
        assert_eq!(verdict.patch.as_deref(), Some(&b"[]"[..]));
    }
}
