//! An event in the form of `audit.k8s.io/v1`.

use std::{collections::BTreeMap, net::IpAddr};

use bytes::{Bytes, BytesMut};
use http::HeaderMap;
use jiff::Timestamp;
use repot_apimachinery::schema::Schema;
use serde::Serialize;
use serde_json::{Value, json, value::RawValue};

use super::{
    policy::{API_VERSION, Decision, Level, Stage},
    redact::{Document, redact},
};
use crate::{
    filters::{request_info::RequestInfo, user::User},
    status::Status,
};

/// Objects that are longer than this without their payload are left out.
const MOST_SHOWN: usize = 100 << 10;
/// Says so, as kube-apiserver does.
const TRUNCATED: &str = "audit.k8s.io/truncated";

/// What events say of a request, of what is known before it is answered.
pub struct AuditedRequest<'a> {
    /// Ties the logs of all servers together that saw the request.
    pub audit_id: &'a str,
    /// Path and parameters as sent.
    pub uri: &'a str,
    /// Verb and target of the request.
    pub info: &'a RequestInfo,
    /// The user, as authentication found it.
    pub user: &'a User,
    /// Headers without those that assert identities.
    pub headers: &'a HeaderMap,
    /// Address at the other end of the connection.
    pub peer: Option<IpAddr>,
    /// When the request came.
    pub received: Timestamp,
}

/// What events say that a request learned on its way.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// Annotations of the event.
    pub annotations: BTreeMap<String, String>,
    /// Name of the object that was created.
    pub created: Option<String>,
}

/// What all events of a request have in common.
pub(super) struct Head {
    level: Level,
    audit_id: String,
    request_uri: String,
    verb: &'static str,
    user: User,
    source_ips: Vec<String>,
    user_agent: String,
    object_ref: Option<ObjectRef>,
    received: Timestamp,
    schema: Option<&'static Schema>,
    managed_fields: bool,
    pub(super) long_running: bool,
}

#[derive(Clone, Serialize)]
#[serde(rename_all = "camelCase")]
struct ObjectRef {
    resource: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    namespace: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    name: String,
    #[serde(rename = "apiGroup", skip_serializing_if = "String::is_empty")]
    group: String,
    #[serde(rename = "apiVersion")]
    version: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    subresource: String,
}

impl Head {
    pub(super) fn of(
        request: &AuditedRequest<'_>,
        decision: &Decision,
        schema: Option<&'static Schema>,
    ) -> Self {
        let header = |name: &str| request.headers.get(name).and_then(|value| value.to_str().ok());
        let object_ref = request.info.target.as_ref().map(|target| ObjectRef {
            resource: target.resource.clone(),
            namespace: target.namespace.clone(),
            name: target.name.clone(),
            group: target.group.clone(),
            version: target.version.clone(),
            subresource: target.subresource.clone(),
        });
        Self {
            level: decision.level,
            audit_id: request.audit_id.to_owned(),
            request_uri: request.uri.to_owned(),
            verb: request.info.verb,
            user: request.user.clone(),
            source_ips: source_ips(header("x-forwarded-for"), request.peer),
            user_agent: header("user-agent").unwrap_or_default().chars().take(1024).collect(),
            object_ref,
            received: request.received,
            schema,
            managed_fields: !decision.omit_managed_fields,
            long_running: request.info.long_running(),
        }
    }
}

/// Whom the request passed through, the client first.
fn source_ips(forwarded: Option<&str>, peer: Option<IpAddr>) -> Vec<String> {
    let forwarded = forwarded.unwrap_or_default().split(',').filter_map(|ip| ip.trim().parse().ok());
    let mut all: Vec<IpAddr> = forwarded.take(16).collect();
    all.extend(peer.filter(|peer| all.last() != Some(peer)));
    all.iter().map(ToString::to_string).collect()
}

/// How a request ended.
pub(super) struct Outcome {
    pub(super) code: u16,
    pub(super) status: Option<Status>,
}

/// One event; its objects are redacted when it is printed, beside the threads that serve.
pub(super) struct Event {
    pub(super) head: std::sync::Arc<Head>,
    pub(super) stage: Stage,
    pub(super) at: Timestamp,
    pub(super) outcome: Option<Outcome>,
    /// Name of the object that was created.
    pub(super) created: Option<String>,
    pub(super) sent: Option<Bytes>,
    pub(super) answered: Option<Vec<Bytes>>,
    pub(super) annotations: BTreeMap<String, String>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Wire<'a> {
    kind: &'static str,
    api_version: &'static str,
    level: Level,
    #[serde(rename = "auditID")]
    audit_id: &'a str,
    stage: Stage,
    #[serde(rename = "requestURI")]
    request_uri: &'a str,
    verb: &'a str,
    user: Value,
    #[serde(rename = "sourceIPs", skip_serializing_if = "<[String]>::is_empty")]
    source_ips: &'a [String],
    #[serde(skip_serializing_if = "str::is_empty")]
    user_agent: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    object_ref: Option<ObjectRef>,
    #[serde(skip_serializing_if = "Option::is_none")]
    response_status: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    request_object: Option<Box<RawValue>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    response_object: Option<Box<RawValue>>,
    request_received_timestamp: String,
    stage_timestamp: String,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    annotations: BTreeMap<String, String>,
}

impl Event {
    /// Bytes of bodies that wait in it.
    pub(super) fn weight(&self) -> usize {
        let answered: usize = self.answered.iter().flatten().map(Bytes::len).sum();
        self.sent.as_ref().map_or(0, Bytes::len) + answered
    }

    /// Leaves the bodies out.
    pub(super) fn lighten(&mut self) {
        if self.sent.take().is_some() | self.answered.take().is_some() {
            self.annotations.insert(TRUNCATED.into(), "true".into());
        }
    }

    /// One line.
    pub(super) fn line(mut self) -> serde_json::Result<Vec<u8>> {
        let answered = self.answered.take().map(joined);
        let sent = self.sent.take();
        let request_object = self.shown(sent.as_deref(), Document::Sent);
        let response_object = self.shown(answered.as_deref(), Document::Answered);
        let head = self.head.as_ref();
        let mut object_ref = head.object_ref.clone();
        if let (Some(object), Some(name)) = (&mut object_ref, self.created) {
            object.name = name;
        }
        let wire = Wire {
            kind: "Event",
            api_version: API_VERSION,
            level: head.level,
            audit_id: &head.audit_id,
            stage: self.stage,
            request_uri: &head.request_uri,
            verb: head.verb,
            user: user(&head.user),
            source_ips: &head.source_ips,
            user_agent: &head.user_agent,
            object_ref,
            response_status: self.outcome.as_ref().map(response_status),
            request_object,
            response_object,
            request_received_timestamp: micro_time(head.received),
            stage_timestamp: micro_time(self.at),
            annotations: self.annotations,
        };
        let mut line = serde_json::to_vec(&wire)?;
        line.push(b'\n');
        Ok(line)
    }

    fn shown(&mut self, text: Option<&[u8]>, from: fn(&'static Schema) -> Document) -> Option<Box<RawValue>> {
        let text = text.filter(|text| !text.is_empty())?;
        // Where no schema says what is secret, everything may be.
        let clean = redact(text, from(self.head.schema?), self.head.managed_fields, MOST_SHOWN);
        let shown = clean.and_then(|clean| RawValue::from_string(String::from_utf8(clean).ok()?).ok());
        if shown.is_none() {
            self.annotations.insert(TRUNCATED.into(), "true".into());
        }
        shown
    }
}

fn joined(pieces: Vec<Bytes>) -> Bytes {
    let mut all = BytesMut::new();
    pieces.iter().for_each(|piece| all.extend_from_slice(piece));
    all.freeze()
}

fn user(user: &User) -> Value {
    let mut shown = json!({"username": user.name});
    if !user.uid.is_empty() {
        shown["uid"] = user.uid.as_str().into();
    }
    if !user.groups.is_empty() {
        shown["groups"] = json!(user.groups);
    }
    if !user.extra.is_empty() {
        shown["extra"] = json!(user.extra);
    }
    shown
}

fn response_status(outcome: &Outcome) -> Value {
    let status = outcome.status.as_ref().and_then(|status| serde_json::from_slice(&status.to_json()).ok());
    let mut shown: Value = status.unwrap_or_else(|| json!({"metadata": {}}));
    if let Some(members) = shown.as_object_mut() {
        members.retain(|name, _| !matches!(name.as_str(), "kind" | "apiVersion"));
    }
    shown["code"] = outcome.code.into();
    shown
}

fn micro_time(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%S%.6fZ").to_string()
}

#[cfg(test)]
impl Event {
    /// An event of an anonymous GET.
    pub(super) fn of_uri(uri: &str) -> Self {
        let request = http::Request::builder().uri(uri).body(axum::body::Body::empty()).expect("a request");
        let call = crate::call::Call::begin(request, std::sync::Arc::default())
            .map_err(|(status, _)| status)
            .expect("a call");
        let decision =
            Decision { level: Level::Metadata, omit_stages: Vec::new(), omit_managed_fields: false };
        Self {
            head: std::sync::Arc::new(Head::of(&call.audited(), &decision, None)),
            stage: Stage::ResponseComplete,
            at: Timestamp::now(),
            outcome: None,
            created: None,
            sent: None,
            answered: None,
            annotations: BTreeMap::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn source_addresses_begin_with_the_client() {
        let peer: IpAddr = "10.0.0.1".parse().expect("an address");
        assert_eq!(
            source_ips(Some("192.0.2.7, nonsense, ::1"), Some(peer)),
            ["192.0.2.7", "::1", "10.0.0.1"]
        );
        assert_eq!(source_ips(Some("10.0.0.1"), Some(peer)), ["10.0.0.1"]);
        assert_eq!(source_ips(None, None), [""; 0]);
    }

    #[test]
    fn times_have_microseconds() {
        let at = "2026-01-02T03:04:05.0000067Z".parse().expect("a time");
        assert_eq!(micro_time(at), "2026-01-02T03:04:05.000006Z");
    }
}
