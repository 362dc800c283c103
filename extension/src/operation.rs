//! One operation on one object: what is written before and after the provider's function.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::{Client, Resource, ResourceExt};
use tokio::time::timeout;

use crate::{
    annotations::{Requested, SeenRequest},
    decide::{Work, fulfils},
    kinds::{Cluster, ExtensionObject},
    provider::{Context, Failure, Outcome, Provider},
    status::{LastError, OperationState, OperationType},
    write::{ObjectWriter, Part, PatchOp, Report, WriteError, pointer_token, shortened},
};

/// How an operation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    Succeeded,
    /// The provider failed and asked for this wait.
    Failed(Option<Duration>),
}

/// An operation that is due.
pub(crate) struct Operation<'a, P: Provider> {
    pub(crate) client: &'a Client,
    pub(crate) provider: &'a P,
    pub(crate) finalizer: &'a str,
    pub(crate) deadline: Duration,
    pub(crate) cluster: Option<Cluster>,
    pub(crate) work: Work,
    pub(crate) recorded: OperationType,
}

impl<P: Provider> Operation<'_, P> {
    /// Runs the operation on the object as it was read. An annotation is removed only if it is still the one that was seen.
    ///
    /// `migrate` and `restore` stay until the success is written: whoever starts next goes on with them. `reconcile` goes once the
    /// status says Processing, which has the same effect. Gardener's gardenlet needs that: it does not look at the success of a
    /// BackupBucket or BackupEntry whose annotation is still there, nor again when the annotation goes.
    pub(crate) async fn run(self, object: P::Object) -> Result<Ended, WriteError> {
        let mut writer = ObjectWriter::new(self.client.clone(), object.clone());
        if matches!(self.work, Work::Reconcile | Work::Restore) {
            writer.patch(Part::Metadata, |latest| add_finalizer(latest, self.finalizer)).await?;
        }
        let description = format!("{} in progress", self.name());
        writer.report(&Report::new(&self.recorded, OperationState::Processing, 1, &description)).await?;
        let seen = SeenRequest::of(&object);
        if self.serves(&seen) == Some(Requested::Reconcile) {
            writer.patch(Part::Metadata, |latest| Ok(self.remove_request(latest, &seen))).await?;
        }
        let context = Context::new(self.client.clone(), self.recorded.clone(), self.cluster.clone(), writer);
        let outcome = self.call(&object, &context).await;
        let mut writer = context.into_writer();
        let failure = match outcome {
            Ok(outcome) => match self.succeed(&mut writer, &object, outcome).await {
                Err(WriteError::Api(kube::Error::Api(status))) if (400..500).contains(&status.code) => {
                    Failure::new(format!("the API server refused its outcome: {}", status.message))
                }
                ended => return ended,
            },
            Err(failure) => failure,
        };
        self.fail(&mut writer, &object, &failure).await
    }

    async fn call(&self, object: &P::Object, context: &Context<P::Object>) -> Result<Outcome, Failure> {
        let provider = self.provider;
        let called = async {
            match self.work {
                Work::Reconcile => provider.reconcile(object, context).await,
                Work::Restore => provider.restore(object, context).await,
                Work::Migrate => provider.migrate(object, context).await,
                Work::Delete => provider.delete(object, context).await,
            }
        };
        let late = || Failure::new(format!("it did not finish within {:?}", self.deadline));
        timeout(self.deadline, called).await.unwrap_or_else(|_| Err(late()))
    }

    async fn succeed(
        &self,
        writer: &mut ObjectWriter<P::Object>,
        object: &P::Object,
        outcome: Outcome,
    ) -> Result<Ended, WriteError> {
        let description = format!("{} succeeded", self.name());
        let report = Report::new(&self.recorded, OperationState::Succeeded, 100, &description);
        let fields = outcome.into_fields();
        let generation = object.meta().generation;
        let report = Report { error: Some(None), observed_generation: generation, fields, ..report };
        writer.report(&report).await?;
        let seen = SeenRequest::of(object);
        writer.patch(Part::Metadata, |latest| self.finish(latest, &seen)).await?;
        Ok(Ended::Succeeded)
    }

    /// The finalizer and the annotation go in one write, so no restart comes between them.
    fn finish(&self, latest: &P::Object, seen: &SeenRequest) -> Result<Vec<PatchOp>, WriteError> {
        let mut ops = Vec::new();
        if matches!(self.work, Work::Migrate | Work::Delete) {
            ops.extend(remove_finalizer(latest, self.finalizer)?);
        }
        if self.serves(seen) != Some(Requested::Reconcile) {
            ops.extend(self.remove_request(latest, seen));
        }
        Ok(ops)
    }

    /// The request that this operation serves; an older operation that goes on serves none.
    fn serves(&self, seen: &SeenRequest) -> Option<Requested> {
        seen.requested().filter(|requested| fulfils(&self.recorded, *requested))
    }

    fn remove_request(&self, latest: &P::Object, seen: &SeenRequest) -> Vec<PatchOp> {
        let keys = self.serves(seen).map(|requested| seen.removable(requested, &SeenRequest::of(latest)));
        let path = |key| format!("/metadata/annotations/{}", pointer_token(key));
        keys.unwrap_or_default().into_iter().map(|key| PatchOp::remove(path(key))).collect()
    }

    async fn fail(
        &self,
        writer: &mut ObjectWriter<P::Object>,
        object: &P::Object,
        failure: &Failure,
    ) -> Result<Ended, WriteError> {
        let description = format!("{} failed: {failure}", self.name());
        let last_error = LastError {
            description: shortened(&description),
            task_id: None,
            codes: failure.codes().to_vec(),
            last_update_time: Some(Time(Timestamp::now())),
        };
        let report = Report::new(&self.recorded, OperationState::Error, 50, &description);
        let generation = object.meta().generation;
        writer
            .report(&Report { error: Some(Some(last_error)), observed_generation: generation, ..report })
            .await?;
        Ok(Ended::Failed(failure.asked_wait()))
    }

    fn name(&self) -> String {
        format!("{:?} of {}", self.recorded, P::Object::kind(&()))
    }
}

/// Says in the status that a deletion waits for its confirmation, unless it says so already.
pub(crate) async fn report_unconfirmed<K: ExtensionObject>(
    client: &Client,
    object: K,
) -> Result<(), WriteError> {
    let said = |operation: &crate::status::LastOperation| {
        operation.summary() == (&OperationType::Delete, &OperationState::Pending)
    };
    if object.status().last_operation.is_some_and(said) {
        return Ok(());
    }
    let description = format!(
        "the deletion is not confirmed: set the annotation {}=true",
        repot_api::names::CONFIRM_DELETION
    );
    let report = Report::new(&OperationType::Delete, OperationState::Pending, 0, &description);
    ObjectWriter::new(client.clone(), object).report(&report).await
}

/// Removes the finalizer without any call to a provider.
pub(crate) async fn release<K: ExtensionObject>(
    client: &Client,
    object: K,
    finalizer: &str,
) -> Result<(), WriteError> {
    let mut writer = ObjectWriter::new(client.clone(), object);
    writer.patch(Part::Metadata, |latest| remove_finalizer(latest, finalizer)).await
}

fn add_finalizer<K: ExtensionObject>(latest: &K, finalizer: &str) -> Result<Vec<PatchOp>, WriteError> {
    let known = latest.finalizers();
    if known.iter().any(|name| name == finalizer) {
        return Ok(Vec::new());
    }
    let all: Vec<&str> = known.iter().map(String::as_str).chain([finalizer]).collect();
    Ok(vec![PatchOp::add("/metadata/finalizers", &all)?])
}

fn remove_finalizer<K: ExtensionObject>(latest: &K, finalizer: &str) -> Result<Vec<PatchOp>, WriteError> {
    let known = latest.finalizers();
    let rest: Vec<&str> = known.iter().map(String::as_str).filter(|name| *name != finalizer).collect();
    if rest.len() == known.len() {
        return Ok(Vec::new());
    }
    Ok(vec![PatchOp::add("/metadata/finalizers", &rest)?])
}
