//! Writes to one extension object: JSON patches under its UID and resourceVersion.
//!
//! Patches name single fields, so fields of others and fields that the Rust types do not know stay. Values are raw JSON, so a state
//! is sent token for token.

use std::time::Duration;

use http::{Request, header::CONTENT_TYPE};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::{Client, ResourceExt};
use serde::Serialize;
use tokio::time::timeout;

use crate::{
    kinds::ExtensionObject,
    raw::RawJson,
    status::{LastError, LastOperation, OperationState, OperationType},
};

/// Longest duration of one call of the API.
pub(crate) const CALL_TIMEOUT: Duration = Duration::from_secs(30);
/// Tries of one write, when others write at the same time.
const CONFLICT_TRIES: u32 = 8;
/// Longest description in bytes; errors of providers may quote whole requests.
const MAX_DESCRIPTION: usize = 4096;

/// Why a write did not happen.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// The object is gone, or another one has its name.
    #[error("the object is gone")]
    Gone,
    /// The API server refused a call, or did not answer.
    #[error("failed to write the object")]
    Api(#[source] kube::Error),
    /// The API server did not answer in time.
    #[error("the API server did not answer within {CALL_TIMEOUT:?}")]
    Timeout,
    /// Others changed the object each time.
    #[error("the object changed during each of {CONFLICT_TRIES} tries")]
    Conflict,
    /// The request cannot be built.
    #[error("failed to build the request")]
    Request(#[from] http::Error),
    /// A value has no JSON form.
    #[error("failed to encode a value as JSON")]
    Encode(#[from] serde_json::Error),
}

/// One operation of a JSON patch (RFC 6902).
#[derive(Clone, Debug, Serialize)]
pub(crate) struct PatchOp {
    op: &'static str,
    path: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<RawJson>,
}

impl PatchOp {
    pub(crate) fn add(
        path: impl Into<String>,
        value: &(impl Serialize + ?Sized),
    ) -> Result<Self, WriteError> {
        Ok(Self { op: "add", path: path.into(), value: Some(RawJson::encode(value)?) })
    }

    pub(crate) fn remove(path: impl Into<String>) -> Self {
        Self { op: "remove", path: path.into(), value: None }
    }
}

/// A key as one token of a JSON pointer (RFC 6901).
pub(crate) fn pointer_token(key: &str) -> String {
    key.replace('~', "~0").replace('/', "~1")
}

/// Which part of the object is written.
#[derive(Clone, Copy)]
pub(crate) enum Part {
    Metadata,
    Status,
}

/// Writes one object, and knows it as it was after the last write.
pub(crate) struct ObjectWriter<K> {
    client: Client,
    latest: K,
}

impl<K: ExtensionObject> ObjectWriter<K> {
    pub(crate) fn new(client: Client, object: K) -> Self {
        Self { client, latest: object }
    }

    /// The object as the last write or conflict showed it.
    pub(crate) fn latest(&self) -> &K {
        &self.latest
    }

    /// Applies what `build` makes of the newest object. It is built anew after each conflict; an empty patch is not sent.
    pub(crate) async fn patch(
        &mut self,
        part: Part,
        build: impl Fn(&K) -> Result<Vec<PatchOp>, WriteError>,
    ) -> Result<(), WriteError> {
        for _ in 0..CONFLICT_TRIES {
            let ops = build(&self.latest)?;
            if ops.is_empty() {
                return Ok(());
            }
            match self.send(part, ops).await {
                Ok(object) => {
                    self.latest = object;
                    return Ok(());
                }
                Err(WriteError::Api(kube::Error::Api(status))) if status.code == 409 => {
                    self.refresh().await?
                }
                Err(WriteError::Api(kube::Error::Api(status))) if status.code == 404 => {
                    return Err(WriteError::Gone);
                }
                Err(error) => return Err(error),
            }
        }
        Err(WriteError::Conflict)
    }

    async fn send(&self, part: Part, mut ops: Vec<PatchOp>) -> Result<K, WriteError> {
        let version = self.latest.resource_version().unwrap_or_default();
        // Another version than the stored one is a conflict, which no other form of precondition reports as such.
        ops.insert(0, PatchOp::add("/metadata/resourceVersion", &version)?);
        let namespace = self.latest.namespace();
        let suffix = match part {
            Part::Metadata => "",
            Part::Status => "/status",
        };
        let path = format!("{}/{}{suffix}", K::url_path(&(), namespace.as_deref()), self.latest.name_any());
        let request = Request::patch(path).header(CONTENT_TYPE, "application/json-patch+json");
        let request = request.body(serde_json::to_vec(&ops)?)?;
        let call = timeout(CALL_TIMEOUT, self.client.request(request)).await;
        call.map_err(|_| WriteError::Timeout)?.map_err(WriteError::Api)
    }

    async fn refresh(&mut self) -> Result<(), WriteError> {
        let api = K::api(self.client.clone(), self.latest.namespace().as_deref());
        let name = self.latest.name_any();
        let call = timeout(CALL_TIMEOUT, api.get_opt(&name)).await.map_err(|_| WriteError::Timeout)?;
        let found = call.map_err(WriteError::Api)?.ok_or(WriteError::Gone)?;
        if found.uid() != self.latest.uid() {
            return Err(WriteError::Gone);
        }
        self.latest = found;
        Ok(())
    }

    /// Writes the last operation with Processing, Pending or Error, and the last error where there is one.
    pub(crate) async fn report(&mut self, report: &Report) -> Result<(), WriteError> {
        self.patch(Part::Status, |latest| report.ops(latest)).await
    }
}

/// What is written of an operation.
#[derive(Clone, Debug)]
pub(crate) struct Report {
    pub(crate) operation: LastOperation,
    /// `Some(None)` removes the last error.
    pub(crate) error: Option<Option<LastError>>,
    pub(crate) observed_generation: Option<i64>,
    /// Further fields of the status: a value, or `None` to remove the field.
    pub(crate) fields: Vec<(String, Option<RawJson>)>,
}

impl Report {
    pub(crate) fn new(kind: &OperationType, state: OperationState, progress: i32, description: &str) -> Self {
        let operation = LastOperation {
            description: shortened(description),
            last_update_time: Some(Time(Timestamp::now())),
            progress,
            state,
            kind: kind.clone(),
        };
        Self { operation, error: None, observed_generation: None, fields: Vec::new() }
    }

    fn ops<K: ExtensionObject>(&self, latest: &K) -> Result<Vec<PatchOp>, WriteError> {
        let mut ops = Vec::new();
        if !latest.has_status() {
            ops.push(PatchOp::add("/status", &serde_json::Map::new())?);
        }
        ops.push(PatchOp::add("/status/lastOperation", &self.operation)?);
        match &self.error {
            Some(Some(error)) => ops.push(PatchOp::add("/status/lastError", error)?),
            Some(None) if latest.status().last_error.is_some() => {
                ops.push(PatchOp::remove("/status/lastError"));
            }
            _ => {}
        }
        if let Some(generation) = self.observed_generation {
            ops.push(PatchOp::add("/status/observedGeneration", &generation)?);
        }
        for (field, value) in &self.fields {
            let path = format!("/status/{}", pointer_token(field));
            // "remove" needs the field, and "add" replaces it.
            ops.push(PatchOp::add(path.clone(), &value.as_ref())?);
            if value.is_none() {
                ops.push(PatchOp::remove(path));
            }
        }
        Ok(ops)
    }
}

/// A description that fits into a status.
pub(crate) fn shortened(description: &str) -> String {
    if description.len() <= MAX_DESCRIPTION {
        return description.to_owned();
    }
    let end = description.floor_char_boundary(MAX_DESCRIPTION);
    format!("{}…", &description[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_descriptions_are_cut_at_a_character() {
        let long = "ä".repeat(MAX_DESCRIPTION);
        let short = shortened(&long);
        assert!(short.len() <= MAX_DESCRIPTION + 3 && short.ends_with("ä…"), "{} bytes", short.len());
        assert_eq!(shortened("short"), "short");
    }

    #[test]
    fn patch_carries_raw_json_token_for_token() {
        let state = RawJson::parse(r#"{"b": 1.0, "a": 1e400}"#).expect("JSON");
        let op = PatchOp::add("/status/state", &state).expect("an operation");
        let text = serde_json::to_string(&op).expect("JSON");
        assert_eq!(text, r#"{"op":"add","path":"/status/state","value":{"b": 1.0, "a": 1e400}}"#);
        assert_eq!(pointer_token("a~b/c"), "a~0b~1c");
    }
}
