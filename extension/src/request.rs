//! The side that drives: asking for an operation, and telling whether it is done.
//!
//! Gardener waits for a migration by type and state of the last operation alone, so an old Migrate/Succeeded passes. Here a request has
//! a time, and an object is done only by an operation that served this request:
//!
//! 1. the annotation `gardener.cloud/timestamp` of the object is that of the request, so the object is not older than the request;
//! 2. no operation annotation is left: only a controller that finished removes it, and this library's controllers remove it only with
//!    the timestamp that they began with;
//! 3. the last operation is of the right type, succeeded, and is not older than the request.
//!
//! Clocks of both sides are compared in step 3, as Gardener does. Where the controller's clock is behind, waiting takes longer and
//! nothing is accepted too early.

use std::{
    collections::BTreeMap,
    fmt::{self, Display, Formatter},
};

use jiff::{Timestamp, Unit};
use kube::ResourceExt;
use repot_api::names;
use serde::Serialize;

use crate::{
    annotations::{Requested, SeenRequest},
    kinds::ExtensionObject,
    status::{ErrorCode, LastOperation, OperationState, OperationType},
};

/// An operation that a flow asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    requested: Requested,
    timestamp: String,
    at: Timestamp,
}

/// The time of a request cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("failed to read the time {0:?} of the request")]
pub struct BadTimestamp(String, #[source] jiff::Error);

/// How far a request is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Progress {
    /// An operation that began after the request succeeded.
    Done,
    /// The operation is still to come, or runs.
    Waiting(Waiting),
    /// The operation failed; the controller tries again by itself.
    Failed {
        /// What the controller says.
        description: String,
        /// Machine-readable causes.
        codes: Vec<ErrorCode>,
    },
}

/// What a request waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Waiting {
    /// The object does not show the request: it is older, or another request replaced this one.
    RequestNotVisible,
    /// The operation annotation is still there.
    NotServed,
    /// The last operation has another type, or there is none.
    OtherOperation(Option<OperationType>),
    /// The operation runs, or waits for something itself.
    NotFinished(OperationState),
    /// The last operation is older than the request.
    OlderThanRequest,
    /// The operation acted on an older generation of the object.
    OlderGeneration,
}

impl Display for Waiting {
    fn fmt(&self, to: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::RequestNotVisible => to.write_str("the request is not seen on it"),
            Self::NotServed => to.write_str("its controller has not begun"),
            Self::OtherOperation(None) => {
                to.write_str("its controller has not begun, and has done nothing before")
            }
            Self::OtherOperation(Some(last)) => {
                write!(to, "its controller has not begun; its last operation is {}", name(last))
            }
            Self::NotFinished(state) => write!(to, "its operation is {}", name(state)),
            Self::OlderThanRequest => to.write_str("its last operation is older than the request"),
            Self::OlderGeneration => to.write_str("its controller has not seen the newest generation"),
        }
    }
}

/// The name of a variant as the API spells it.
fn name(value: &impl Serialize) -> String {
    serde_json::to_value(value).ok().and_then(|value| value.as_str().map(str::to_owned)).unwrap_or_default()
}

impl Request {
    /// A request of now. Record it: after a restart of the flow, [`Request::recorded`] continues to wait for it.
    #[must_use]
    pub fn new(requested: Requested, now: Timestamp) -> Self {
        Self { requested, timestamp: now.to_string(), at: now }
    }

    /// A request that was made before.
    ///
    /// # Errors
    /// When the text is not a time as RFC 3339 spells it.
    pub fn recorded(requested: Requested, timestamp: &str) -> Result<Self, BadTimestamp> {
        let at = timestamp.parse().map_err(|error| BadTimestamp(timestamp.to_owned(), error))?;
        Ok(Self { requested, timestamp: timestamp.to_owned(), at })
    }

    /// The time of the request as the annotation spells it.
    #[must_use]
    pub fn timestamp(&self) -> &str {
        &self.timestamp
    }

    /// The annotations that make the request, to be set in one write.
    #[must_use]
    pub fn annotations(&self) -> BTreeMap<String, String> {
        let operation = (names::OPERATION.to_owned(), self.requested.value().to_owned());
        BTreeMap::from([operation, (names::TIMESTAMP.to_owned(), self.timestamp.clone())])
    }

    /// How far the request is, by an object that was read after the request was made.
    #[must_use]
    pub fn progress(&self, object: &impl ExtensionObject) -> Progress {
        let seen = SeenRequest::of(object);
        if seen.timestamp() != Some(&self.timestamp) {
            return Progress::Waiting(Waiting::RequestNotVisible);
        }
        let status = object.status();
        let Some(last) = status.last_operation.filter(|last| self.is_served_by(&last.kind)) else {
            let other = status.last_operation.map(|last| last.kind.clone());
            return Progress::Waiting(Waiting::OtherOperation(other));
        };
        if self.is_newer_than(last) {
            return Progress::Waiting(Waiting::OlderThanRequest);
        }
        match &last.state {
            OperationState::Error | OperationState::Failed => {
                let codes = status.last_error.map(|error| error.codes.clone()).unwrap_or_default();
                Progress::Failed { description: last.description.clone(), codes }
            }
            OperationState::Succeeded if seen.has_operation() => Progress::Waiting(Waiting::NotServed),
            OperationState::Succeeded => {
                let current = object.meta().generation == Some(status.observed_generation);
                // A migration does not depend on the spec.
                let done = current || self.requested == Requested::Migrate;
                if done { Progress::Done } else { Progress::Waiting(Waiting::OlderGeneration) }
            }
            other => Progress::Waiting(Waiting::NotFinished(other.clone())),
        }
    }

    fn is_served_by(&self, kind: &OperationType) -> bool {
        match self.requested {
            Requested::Migrate => *kind == OperationType::Migrate,
            Requested::Restore => *kind == OperationType::Restore,
            Requested::Reconcile => matches!(kind, OperationType::Create | OperationType::Reconcile),
            Requested::WaitForState => false,
        }
    }

    /// Whether the last operation was written before the request. Controllers write whole seconds, so the request is rounded down
    /// to seconds, unless a controller wrote more.
    fn is_newer_than(&self, last: &LastOperation) -> bool {
        let Some(written) = last.last_update_time.as_ref().map(|time| time.0) else { return true };
        let unit = if written.subsec_nanosecond() == 0 { Unit::Second } else { Unit::Microsecond };
        let rounding = jiff::TimestampRound::new().smallest(unit).mode(jiff::RoundMode::Floor);
        let at = self.at.round(rounding).unwrap_or(self.at);
        at > written
    }
}

/// Whether `status.state` has a value, so that a restore has something to start from.
#[must_use]
pub fn has_state(object: &impl ExtensionObject) -> bool {
    object.status().state.is_some_and(|state| !state.is_null())
}

/// Whether nothing of an extension controller holds the object any more: it may be deleted without infrastructure being touched.
#[must_use]
pub fn is_released(object: &impl ExtensionObject) -> bool {
    let group = format!("{}/", names::EXTENSIONS_GROUP);
    !object.finalizers().iter().any(|name| name.starts_with(&group))
}

#[cfg(test)]
#[path = "tests/request.rs"]
mod tests;
