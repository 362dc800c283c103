//! The machine state: which machines a Shoot has, in the form that Gardener reads and writes: `{"state": base64(gzip(JSON))}`.
//!
//! A machine that the state lacks is a machine that the destination creates a second time, and the first one is never deleted. So
//! an empty state replaces nothing, and while a Shoot moves, states are merged.

use std::{
    collections::{BTreeMap, btree_map},
    io::{Read, Write},
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use flate2::{Compression, read::GzDecoder, write::GzEncoder};
use kube::core::ObjectMeta;
use repot_extension::RawJson;
use serde::{Deserialize, Serialize};

use super::{
    error::{Error, Result},
    model::{GardenerEntry, TYPE_MACHINE_STATE},
};

/// A decompressed state is not larger than this: 20,000 machines have about 40 MiB.
const MAX_BYTES: u64 = 256 << 20;
/// Label of a Machine with the name of its node.
const NODE: &str = "node";
/// Label that names the owner where there is no owner reference.
const OWNER_NAME: &str = "name";

/// All machines of a Shoot, by MachineDeployment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct MachineState {
    /// The MachineDeployments by name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub machine_deployments: BTreeMap<String, MachineDeploymentState>,
}

/// What belongs to a MachineDeployment. Objects have name, namespace, labels, annotations and spec.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct MachineDeploymentState {
    /// `spec.replicas` of the MachineDeployment.
    #[serde(skip_serializing_if = "is_zero")]
    pub replicas: i32,
    /// MachineSets in the order of their names.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub machine_sets: Vec<RawJson>,
    /// Machines in the order of their names.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub machines: Vec<RawJson>,
}

/// Objects of machine-controller-manager as kube-apiserver lists them.
#[derive(Debug, Default)]
pub struct MachineObjects {
    /// MachineDeployments of the namespace.
    pub deployments: Vec<RawJson>,
    /// MachineSets of the namespace.
    pub sets: Vec<RawJson>,
    /// Machines of the namespace.
    pub machines: Vec<RawJson>,
}

/// The form of an entry. Without `state`, the entry is the state itself: so it was before Gardener compressed it.
#[derive(Serialize, Deserialize)]
struct Compressed {
    state: Option<String>,
}

#[derive(Deserialize)]
struct Listed {
    metadata: ObjectMeta,
    #[serde(default)]
    spec: Option<RawJson>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct SpecPart {
    replicas: i32,
    #[serde(rename = "providerID")]
    provider_id: String,
}

/// What is kept of a MachineSet or Machine.
#[derive(Serialize)]
struct Kept<'a> {
    metadata: ObjectMeta,
    #[serde(skip_serializing_if = "Option::is_none")]
    spec: Option<&'a RawJson>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(number: &i32) -> bool {
    *number == 0
}

impl MachineState {
    /// Makes the state of the objects of a namespace. As in Gardener, a MachineDeployment without MachineSets and a Machine without
    /// node and provider id are left out.
    ///
    /// # Errors
    /// [`Error::Malformed`].
    pub fn of(objects: &MachineObjects) -> Result<Self> {
        let mut sets = by_owner(&objects.sets, "MachineDeployment", |_, _| true)?;
        let mut machines = by_owner(&objects.machines, "MachineSet", exists_at_provider)?;
        let mut state = Self::default();
        for deployment in &objects.deployments {
            let listed = listed(deployment)?;
            let name = listed.metadata.name.clone().unwrap_or_default();
            let Some(sets) = sets.remove(&name) else { continue };
            let owners = std::iter::once(&name).chain(sets.keys()).cloned().collect::<Vec<_>>();
            let owned = owners.iter().filter_map(|owner| machines.remove(owner)).flatten();
            let machines = owned.collect::<BTreeMap<_, _>>().into_values().collect();
            let replicas = spec_part(&listed)?.replicas;
            let machine_sets = sets.into_values().collect();
            state
                .machine_deployments
                .insert(name, MachineDeploymentState { replicas, machine_sets, machines });
        }
        Ok(state)
    }

    /// Reads the state of an entry.
    ///
    /// # Errors
    /// [`Error::Malformed`], [`Error::Compression`].
    pub fn read(entry: &GardenerEntry) -> Result<Self> {
        let text = inflate(&entry.data)?;
        serde_json::from_str(if text.is_empty() { "{}" } else { &text }).map_err(|_| malformed())
    }

    /// Gives the entry, or nothing where there are no MachineDeployments. Equal states give equal bytes.
    ///
    /// # Errors
    /// [`Error::Compression`].
    pub fn entry(&self) -> Result<Option<GardenerEntry>> {
        if self.machine_deployments.is_empty() {
            return Ok(None);
        }
        let text = serde_json::to_vec(self).map_err(|_| malformed())?;
        let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
        encoder.write_all(&text).map_err(Error::Compression)?;
        let state = STANDARD.encode(encoder.finish().map_err(Error::Compression)?);
        let data = RawJson::encode(&Compressed { state: Some(state) }).map_err(|_| malformed())?;
        let name = TYPE_MACHINE_STATE.to_owned();
        Ok(Some(GardenerEntry { data, labels: BTreeMap::new(), kind: name.clone(), name }))
    }

    /// Whether machines are missing: MachineDeployments want some, and there is none.
    #[must_use]
    pub fn lacks_machines(&self) -> bool {
        let mut deployments = self.machine_deployments.values();
        deployments.clone().any(|deployment| deployment.replicas > 0)
            && deployments.all(|one| one.machines.is_empty())
    }

    /// Adds what `older` has and this one lacks: MachineDeployments, MachineSets and Machines.
    ///
    /// # Errors
    /// [`Error::Malformed`].
    pub fn merge(&mut self, older: Self) -> Result<()> {
        for (name, old) in older.machine_deployments {
            match self.machine_deployments.entry(name) {
                btree_map::Entry::Vacant(place) => drop(place.insert(old)),
                btree_map::Entry::Occupied(mut place) => {
                    let new = place.get_mut();
                    new.machine_sets = union(&new.machine_sets, old.machine_sets)?;
                    new.machines = union(&new.machines, old.machines)?;
                }
            }
        }
        Ok(())
    }
}

/// Whether the data of two entries are one state, however it was compressed. Data that cannot be read differ from all others.
#[must_use]
pub fn is_same_state(one: &RawJson, other: &RawJson) -> bool {
    let is_equal = || Some(inflate(one).ok()? == inflate(other).ok()?);
    one == other || is_equal() == Some(true)
}

fn malformed() -> Error {
    Error::Malformed("the machine state".to_owned())
}

fn inflate(data: &RawJson) -> Result<String> {
    let compressed: Compressed = data.decode().map_err(|_| malformed())?;
    let Some(state) = compressed.state else { return Ok(data.get().to_owned()) };
    let bytes = STANDARD.decode(state).map_err(|_| malformed())?;
    let mut text = String::new();
    if !bytes.is_empty() {
        let mut decoder = GzDecoder::new(bytes.as_slice()).take(MAX_BYTES);
        decoder.read_to_string(&mut text).map_err(Error::Compression)?;
    }
    Ok(text)
}

fn listed(object: &RawJson) -> Result<Listed> {
    object.decode().map_err(|_| Error::Malformed("an object of machine-controller-manager".to_owned()))
}

fn spec_part(listed: &Listed) -> Result<SpecPart> {
    let part = listed.spec.as_ref().map(RawJson::decode).transpose();
    part.map(Option::unwrap_or_default).map_err(|_| {
        let name = listed.metadata.name.as_deref().unwrap_or_default();
        Error::Malformed(format!("spec of the object {name} of machine-controller-manager"))
    })
}

/// Whether the provider has made a machine of it, or a node has joined.
fn exists_at_provider(metadata: &ObjectMeta, spec: &SpecPart) -> bool {
    metadata.labels.as_ref().is_some_and(|labels| labels.contains_key(NODE)) || !spec.provider_id.is_empty()
}

type ByOwner = BTreeMap<String, BTreeMap<String, RawJson>>;

/// What is kept of objects, by the name of the owner and their own name.
fn by_owner(
    objects: &[RawJson],
    owner: &str,
    is_kept: fn(&ObjectMeta, &SpecPart) -> bool,
) -> Result<ByOwner> {
    let mut found = ByOwner::new();
    for object in objects {
        let listed = listed(object)?;
        if !is_kept(&listed.metadata, &spec_part(&listed)?) {
            continue;
        }
        let name = listed.metadata.name.clone().unwrap_or_default();
        let owners = owners(&listed.metadata, owner);
        let kept = keep(&listed)?;
        for owner in owners {
            found.entry(owner).or_default().insert(name.clone(), kept.clone());
        }
    }
    Ok(found)
}

/// Names of the owners of a kind; without any owner reference, the name in a label.
fn owners(metadata: &ObjectMeta, kind: &str) -> Vec<String> {
    let references = metadata.owner_references.as_deref().unwrap_or_default();
    if references.is_empty() {
        let named = metadata.labels.as_ref().and_then(|labels| labels.get(OWNER_NAME));
        return named.cloned().into_iter().collect();
    }
    let of_kind = references.iter().filter(|reference| reference.kind == kind);
    of_kind.map(|reference| reference.name.clone()).collect()
}

fn keep(listed: &Listed) -> Result<RawJson> {
    let all = &listed.metadata;
    let metadata = ObjectMeta {
        name: all.name.clone(),
        namespace: all.namespace.clone(),
        labels: all.labels.clone(),
        annotations: all.annotations.clone(),
        ..ObjectMeta::default()
    };
    RawJson::encode(&Kept { metadata, spec: listed.spec.as_ref() }).map_err(|_| malformed())
}

/// Objects of both lists by name; of two with one name the new one.
fn union(new: &[RawJson], old: Vec<RawJson>) -> Result<Vec<RawJson>> {
    let name = |object: &RawJson| Ok::<_, Error>(listed(object)?.metadata.name.unwrap_or_default());
    let mut all = BTreeMap::new();
    for object in old.into_iter().chain(new.iter().cloned()) {
        all.insert(name(&object)?, object);
    }
    Ok(all.into_values().collect())
}

#[cfg(test)]
#[path = "tests/machines.rs"]
mod tests;
