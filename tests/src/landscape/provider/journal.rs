//! What the providers of all seeds did, in order, for tests.

use std::sync::Arc;

use kube::ResourceExt;
use parking_lot::Mutex;
use repot_extension::kinds::ExtensionObject;

/// One call of a provider.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// The seed whose provider was called.
    pub seed: String,
    /// `reconcile`, `restore`, `migrate` or `delete`.
    pub function: &'static str,
    /// Kind of the object in CamelCase.
    pub kind: String,
    /// Namespace of the object; empty for cluster-scoped kinds.
    pub namespace: String,
    /// Name of the object.
    pub name: String,
}

/// The calls of all providers, in the order in which they began. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct Journal(Arc<Mutex<Vec<Call>>>);

/// Writes the calls of one seed into the journal.
pub(super) struct Log {
    seed: String,
    journal: Journal,
}

impl Journal {
    /// All calls so far.
    pub fn calls(&self) -> Vec<Call> {
        self.0.lock().clone()
    }

    /// Calls of this function in a seed, as `<Kind>/<name>`.
    pub fn of(&self, seed: &str, function: &str) -> Vec<String> {
        let calls = self.0.lock();
        let found = calls.iter().filter(|call| call.seed == seed && call.function == function);
        found.map(|call| format!("{}/{}", call.kind, call.name)).collect()
    }
}

impl Log {
    pub(super) fn new(seed: &str, journal: &Journal) -> Self {
        Self { seed: seed.to_owned(), journal: journal.clone() }
    }

    /// Name of the seed.
    pub(super) fn seed(&self) -> &str {
        &self.seed
    }

    /// Records the beginning of a call.
    pub(super) fn record<K: ExtensionObject>(&self, function: &'static str, object: &K) {
        self.journal.0.lock().push(Call {
            seed: self.seed.clone(),
            function,
            kind: K::kind(&()).into_owned(),
            namespace: object.namespace().unwrap_or_default(),
            name: object.name_any(),
        });
    }
}
