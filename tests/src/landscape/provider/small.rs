//! Kinds whose provider keeps a small state and nothing else: ControlPlane, Network, OperatingSystemConfig, ContainerRuntime,
//! Extension.

use std::marker::PhantomData;

use kube::ResourceExt;
use repot_extension::kinds::ExtensionObject;
use repot_extension::{Context, Failure, Outcome, Provider, State};
use serde_json::json;

use super::journal::Log;

/// Keeps a state that names the object and the seed in which it was created, so that a test sees where it came from.
pub(super) struct SmallProvider<K> {
    log: Log,
    kind: PhantomData<fn() -> K>,
}

impl<K: ExtensionObject> SmallProvider<K> {
    pub(super) fn new(log: Log) -> Self {
        Self { log, kind: PhantomData }
    }

    /// The state of a new object: bytes, so that it comes back as it was written.
    fn new_state(&self, object: &K) -> State {
        let kind = K::kind(&());
        let state =
            json!({"kind": kind, "name": object.name_any(), "uid": object.uid(), "by": self.log.seed()});
        State::bytes(state.to_string())
    }
}

impl<K: ExtensionObject> Provider for SmallProvider<K> {
    type Object = K;

    async fn reconcile(&self, object: &K, context: &Context<K>) -> Result<Outcome, Failure> {
        self.log.record("reconcile", object);
        let state = context.state()?.unwrap_or_else(|| self.new_state(object));
        Ok(Outcome::new().state(&state)?)
    }

    async fn restore(&self, object: &K, context: &Context<K>) -> Result<Outcome, Failure> {
        self.log.record("restore", object);
        let state = context.state()?.ok_or_else(|| Failure::new("there is no state to restore"))?;
        Ok(Outcome::new().state(&state)?)
    }

    async fn migrate(&self, object: &K, _: &Context<K>) -> Result<Outcome, Failure> {
        self.log.record("migrate", object);
        Ok(Outcome::new())
    }

    async fn delete(&self, object: &K, _: &Context<K>) -> Result<Outcome, Failure> {
        self.log.record("delete", object);
        Ok(Outcome::new())
    }
}
