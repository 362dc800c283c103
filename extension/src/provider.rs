//! What an author writes: one trait, and what its functions get and give.

use std::{future::Future, time::Duration};

use kube::Client;
use serde::Serialize;
use tokio::sync::Mutex;

use crate::{
    kinds::{Cluster, ExtensionObject},
    raw::RawJson,
    state::{State, StateError},
    status::{ErrorCode, NamedResourceReference, OperationState, OperationType},
    write::{ObjectWriter, Report, WriteError},
};

/// An extension controller of one kind and type.
///
/// Each function is called again after a failure, a restart of the controller or a lost answer, so it must be idempotent. Its future is
/// dropped at any await when the deadline passes, when ownership is lost or when the controller stops. It must not start tasks or
/// threads that go on then.
pub trait Provider: Send + Sync + 'static {
    /// The kind that the provider works on.
    type Object: ExtensionObject;

    /// Makes what the spec asks for.
    fn reconcile(
        &self,
        object: &Self::Object,
        context: &Context<Self::Object>,
    ) -> impl Future<Output = Result<Outcome, Failure>> + Send;

    /// Takes over what [`Context::state`] describes, then reconciles. It is called only where there is a state; without one, an object
    /// that is to be restored is reconciled.
    fn restore(
        &self,
        object: &Self::Object,
        context: &Context<Self::Object>,
    ) -> impl Future<Output = Result<Outcome, Failure>> + Send;

    /// Cleans up in this seed only. What the object stands for must stay untouched, because another seed takes it over. It runs
    /// without regard to ownership, which the other seed may have already.
    fn migrate(
        &self,
        object: &Self::Object,
        context: &Context<Self::Object>,
    ) -> impl Future<Output = Result<Outcome, Failure>> + Send;

    /// Removes what the object stands for.
    fn delete(
        &self,
        object: &Self::Object,
        context: &Context<Self::Object>,
    ) -> impl Future<Output = Result<Outcome, Failure>> + Send;
}

/// Why an operation failed. It becomes `status.lastError`, so it must hold no secrets.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{description}")]
pub struct Failure {
    description: String,
    codes: Vec<ErrorCode>,
    retry_after: Option<Duration>,
}

impl Failure {
    /// A failure that is retried with the usual backoff.
    #[must_use]
    pub fn new(description: impl Into<String>) -> Self {
        Self { description: description.into(), codes: Vec::new(), retry_after: None }
    }

    /// Adds a machine-readable cause, which gardenlet shows and evaluates.
    #[must_use]
    pub fn code(mut self, code: ErrorCode) -> Self {
        self.codes.push(code);
        self
    }

    /// Sets the wait until the next try in place of the backoff; the longest wait of the backoff limits it.
    #[must_use]
    pub fn retry_after(mut self, wait: Duration) -> Self {
        self.retry_after = Some(wait);
        self
    }

    pub(crate) fn codes(&self) -> &[ErrorCode] {
        &self.codes
    }

    pub(crate) fn asked_wait(&self) -> Option<Duration> {
        self.retry_after
    }
}

/// Fields of the status that this library writes itself, or that [`Outcome`] has functions for.
const RESERVED: [&str; 7] = [
    "conditions",
    "lastError",
    "lastOperation",
    "observedGeneration",
    "providerStatus",
    "resources",
    "state",
];

/// What is wrong with an outcome.
#[derive(Debug, thiserror::Error)]
pub enum OutcomeError {
    /// The field has a function of its own, or belongs to somebody else.
    #[error("status.{0} cannot be set as a field of the kind")]
    Reserved(String),
    /// The value has no JSON form.
    #[error("failed to encode a value as JSON")]
    Encode(#[from] serde_json::Error),
    /// The state cannot be encoded.
    #[error("failed to encode the state")]
    State(#[from] StateError),
}

impl From<OutcomeError> for Failure {
    fn from(error: OutcomeError) -> Self {
        Self::new(format!("failed to report the outcome: {error}"))
    }
}

impl From<StateError> for Failure {
    fn from(error: StateError) -> Self {
        Self::new(format!("failed to read the state: {error}"))
    }
}

impl From<WriteError> for Failure {
    fn from(error: WriteError) -> Self {
        Self::new(format!("failed to write the status: {error}"))
    }
}

/// What an operation changes in the status. Fields that are not named stay as they are.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    fields: Vec<(String, Option<RawJson>)>,
}

impl Outcome {
    /// An outcome that changes nothing but the last operation.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets `status.state`.
    ///
    /// # Errors
    /// When the state cannot be encoded.
    pub fn state(self, state: &State) -> Result<Self, OutcomeError> {
        let raw = state.write()?;
        Ok(self.set("state", Some(raw)))
    }

    /// Removes `status.state`: a restore is then a reconciliation.
    #[must_use]
    pub fn without_state(self) -> Self {
        self.set("state", None)
    }

    /// Sets `status.providerStatus`.
    ///
    /// # Errors
    /// When the value has no JSON form.
    pub fn provider_status(self, status: &impl Serialize) -> Result<Self, OutcomeError> {
        let raw = RawJson::encode(status)?;
        Ok(self.set("providerStatus", Some(raw)))
    }

    /// Sets the objects that the state refers to; they are carried to the other seed with it.
    ///
    /// # Errors
    /// When the value has no JSON form.
    pub fn resources(self, resources: &[NamedResourceReference]) -> Result<Self, OutcomeError> {
        let raw = RawJson::encode(resources)?;
        Ok(self.set("resources", Some(raw)))
    }

    /// Sets a field that only this kind has, such as `nodesCIDR` or `machineDeployments`.
    ///
    /// # Errors
    /// When all kinds have that field, or the value has no JSON form.
    pub fn field(self, name: &str, value: &(impl Serialize + ?Sized)) -> Result<Self, OutcomeError> {
        if RESERVED.contains(&name) {
            return Err(OutcomeError::Reserved(name.to_owned()));
        }
        let raw = RawJson::encode(value)?;
        Ok(self.set(name, Some(raw)))
    }

    /// Removes a field that only this kind has.
    ///
    /// # Errors
    /// When all kinds have that field.
    pub fn without_field(self, name: &str) -> Result<Self, OutcomeError> {
        if RESERVED.contains(&name) {
            return Err(OutcomeError::Reserved(name.to_owned()));
        }
        Ok(self.set(name, None))
    }

    fn set(mut self, name: &str, value: Option<RawJson>) -> Self {
        self.fields.retain(|(known, _)| known != name);
        self.fields.push((name.to_owned(), value));
        self
    }

    pub(crate) fn into_fields(self) -> Vec<(String, Option<RawJson>)> {
        self.fields
    }
}

/// What an operation may use.
pub struct Context<K> {
    client: Client,
    operation: OperationType,
    cluster: Option<Cluster>,
    state: Option<RawJson>,
    writer: Mutex<ObjectWriter<K>>,
}

impl<K: ExtensionObject> Context<K> {
    pub(crate) fn new(
        client: Client,
        operation: OperationType,
        cluster: Option<Cluster>,
        writer: ObjectWriter<K>,
    ) -> Self {
        let state = writer.latest().status().state.cloned();
        Self { client, operation, cluster, state, writer: Mutex::new(writer) }
    }

    /// A client of the seed's API.
    #[must_use]
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Type of the operation as it is recorded: a first reconciliation is a Create.
    #[must_use]
    pub fn operation(&self) -> &OperationType {
        &self.operation
    }

    /// The Shoot with its Seed and CloudProfile; `None` for cluster-scoped kinds and where there is none.
    #[must_use]
    pub fn cluster(&self) -> Option<&Cluster> {
        self.cluster.as_ref()
    }

    /// The state as it was when the operation began; `None` where there was none.
    ///
    /// # Errors
    /// When `status.state` is damaged.
    pub fn state(&self) -> Result<Option<State>, StateError> {
        self.state.as_ref().map_or(Ok(None), State::read)
    }

    /// Writes `status.state` at once, so that an interrupted operation finds it at its next try.
    ///
    /// # Errors
    /// When the object is gone or the API server does not take the write; the operation should then end with that error.
    pub async fn save_state(&self, state: &State) -> Result<(), Failure> {
        let fields = vec![("state".to_owned(), Some(state.write()?))];
        let report = Report::new(&self.operation, OperationState::Processing, 1, "Saving the state");
        self.writer.lock().await.report(&Report { fields, ..report }).await?;
        Ok(())
    }

    /// Shows progress, from 1 to 99 percent, in `status.lastOperation`.
    ///
    /// # Errors
    /// When the object is gone or the API server does not take the write.
    pub async fn report(&self, percent: i32, description: &str) -> Result<(), Failure> {
        let state = OperationState::Processing;
        let report = Report::new(&self.operation, state, percent.clamp(1, 99), description);
        self.writer.lock().await.report(&report).await?;
        Ok(())
    }

    pub(crate) fn into_writer(self) -> ObjectWriter<K> {
        self.writer.into_inner()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outcome_sets_fields_of_the_kind_alone() {
        for name in RESERVED {
            let refused = Outcome::new().field(name, "x");
            assert!(matches!(refused, Err(OutcomeError::Reserved(field)) if field == name));
        }
        let outcome = Outcome::new()
            .field("nodesCIDR", "10.0.0.0/16")
            .and_then(|o| o.field("nodesCIDR", "10.1.0.0/16"));
        let fields = outcome.expect("an outcome").without_state().into_fields();
        let shown: Vec<_> =
            fields.iter().map(|(name, value)| (name.as_str(), value.as_ref().map(RawJson::get))).collect();
        assert_eq!(shown, [("nodesCIDR", Some("\"10.1.0.0/16\"")), ("state", None)]);
    }
}
