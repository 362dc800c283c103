//! A ShootState as types. Opaque parts (`data`, `state`) keep their text, so that they come back byte for byte.

use std::collections::{BTreeMap, BTreeSet};

use kube::core::ObjectMeta;
use repot_extension::{RawJson, status::NamedResourceReference};
use serde::{Deserialize, Serialize};

use super::error::{Error, Result};

/// Type of entries of `spec.gardener` that are Secrets.
pub const TYPE_SECRET: &str = "secret";
/// Type and name of the entry of `spec.gardener` that has the machines.
pub const TYPE_MACHINE_STATE: &str = "machine-state";

/// An entry of `spec.gardener`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GardenerEntry {
    /// What the entry is; for a Secret the opaque `{data, immutable, type}`.
    pub data: RawJson,
    /// Labels of the object.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Name of the object; the key of the entry.
    pub name: String,
    /// [`TYPE_SECRET`], [`TYPE_MACHINE_STATE`] or what others wrote.
    #[serde(rename = "type")]
    pub kind: String,
}

/// An entry of `spec.extensions`: what an extension controller needs to continue in another seed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ExtensionEntry {
    /// Kind of the extension object.
    pub kind: String,
    /// Name of the extension object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Purpose of the extension object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub purpose: Option<String>,
    /// Objects that the state refers to.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub resources: Vec<NamedResourceReference>,
    /// `status.state` as the extension controller wrote it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<RawJson>,
}

/// An entry of `spec.resources`: a whole object of the control plane's namespace.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ResourceEntry {
    /// Group and version of the object.
    pub api_version: String,
    /// The object, without what only its old API server knows.
    pub data: RawJson,
    /// Kind of the object.
    pub kind: String,
    /// Name of the object.
    pub name: String,
}

/// `spec` of a ShootState as it is stored: entries in their order.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Spec {
    /// States of extension objects.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub extensions: Option<Vec<ExtensionEntry>>,
    /// Secrets and the machines.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gardener: Option<Vec<GardenerEntry>>,
    /// Objects as a whole.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<Vec<ResourceEntry>>,
}

/// A ShootState as it is stored.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct ShootStateObject {
    /// Kubernetes metadata of the ShootState.
    pub metadata: ObjectMeta,
    /// What the ShootState holds.
    #[serde(default)]
    pub spec: Option<Spec>,
}

/// Everything of a control plane that has to survive its seed.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct State {
    /// Secrets, and entries of types that this module does not know.
    pub secrets: Vec<GardenerEntry>,
    /// The machines; `None` where there are none.
    pub machines: Option<GardenerEntry>,
    /// States of extension objects.
    pub extensions: Vec<ExtensionEntry>,
    /// Objects that states refer to, and carried objects.
    pub resources: Vec<ResourceEntry>,
}

/// Identifies an entry within its list; no two entries of a list have the same.
pub trait Entry {
    /// The list in `spec`.
    const LIST: &'static str;

    /// What identifies the entry.
    fn key(&self) -> (&str, &str, &str);

    /// The members that identify the entry, as they are stored.
    fn identity(&self) -> Vec<(&'static str, &str)>;

    /// The opaque member.
    fn payload(&self) -> Option<(&'static str, &RawJson)>;

    /// About how many bytes the entry has as JSON.
    fn size(&self) -> usize;
}

impl Entry for GardenerEntry {
    const LIST: &'static str = "gardener";

    fn key(&self) -> (&str, &str, &str) {
        (&self.name, "", "")
    }

    fn identity(&self) -> Vec<(&'static str, &str)> {
        vec![("name", &self.name)]
    }

    fn payload(&self) -> Option<(&'static str, &RawJson)> {
        Some(("data", &self.data))
    }

    fn size(&self) -> usize {
        let labels = self.labels.iter().map(|(key, value)| key.len() + value.len() + 6).sum::<usize>();
        self.data.get().len() + labels + self.name.len() + self.kind.len()
    }
}

impl Entry for ExtensionEntry {
    const LIST: &'static str = "extensions";

    fn key(&self) -> (&str, &str, &str) {
        (&self.kind, self.name.as_deref().unwrap_or_default(), self.purpose.as_deref().unwrap_or_default())
    }

    fn identity(&self) -> Vec<(&'static str, &str)> {
        let name = self.name.as_deref().map(|name| ("name", name));
        let purpose = self.purpose.as_deref().map(|purpose| ("purpose", purpose));
        [Some(("kind", self.kind.as_str())), name, purpose].into_iter().flatten().collect()
    }

    fn payload(&self) -> Option<(&'static str, &RawJson)> {
        self.state.as_ref().map(|state| ("state", state))
    }

    fn size(&self) -> usize {
        self.state.as_ref().map_or(0, |state| state.get().len()) + self.resources.len() * 128
    }
}

impl Entry for ResourceEntry {
    const LIST: &'static str = "resources";

    fn key(&self) -> (&str, &str, &str) {
        (&self.kind, &self.name, &self.api_version)
    }

    fn identity(&self) -> Vec<(&'static str, &str)> {
        vec![("kind", &self.kind), ("name", &self.name), ("apiVersion", &self.api_version)]
    }

    fn payload(&self) -> Option<(&'static str, &RawJson)> {
        Some(("data", &self.data))
    }

    fn size(&self) -> usize {
        self.data.get().len() + self.name.len()
    }
}

impl State {
    /// Takes the entries of a ShootState.
    ///
    /// # Errors
    /// [`Error::Duplicate`] where two entries of a list have the same key: nobody knows then which one to restore.
    pub fn read(spec: &Spec) -> Result<Self> {
        let gardener = spec.gardener.as_deref().unwrap_or_default();
        let extensions = spec.extensions.clone().unwrap_or_default();
        let resources = spec.resources.clone().unwrap_or_default();
        ensure_unique(gardener)?;
        ensure_unique(&extensions)?;
        ensure_unique(&resources)?;
        let (machines, secrets): (Vec<_>, Vec<_>) =
            gardener.iter().cloned().partition(|entry| entry.kind == TYPE_MACHINE_STATE);
        let ([] | [_]) = machines.as_slice() else {
            return Err(Error::Duplicate(format!("of type {TYPE_MACHINE_STATE}")));
        };
        Ok(Self { secrets, machines: machines.into_iter().next(), extensions, resources })
    }

    /// Gives `spec` of a ShootState with these entries.
    #[must_use]
    pub fn write(self) -> Spec {
        let gardener = self.secrets.into_iter().chain(self.machines).collect();
        Spec { gardener: Some(gardener), extensions: Some(self.extensions), resources: Some(self.resources) }
    }
}

fn ensure_unique<E: Entry>(entries: &[E]) -> Result<()> {
    let mut seen = BTreeSet::new();
    match entries.iter().find(|entry| !seen.insert(entry.key())) {
        Some(entry) => Err(Error::Duplicate(format!("{:?} in spec.{}", entry.key(), E::LIST))),
        None => Ok(()),
    }
}
