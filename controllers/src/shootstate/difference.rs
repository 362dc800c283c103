//! What brings a ShootState to the state of its seed: changes of single entries, as operations of a JSON Patch.
//!
//! Indexes are those of the ShootState that was compared. So changes come in the order replace, remove from the end, add at the end:
//! then no change moves the entry of a later one, and a patch may be cut between any two of them.

use std::collections::BTreeSet;

use repot_extension::RawJson;
use serde::Serialize;

use super::{
    compare,
    machines::MachineState,
    model::{Entry, GardenerEntry, ShootStateObject, Spec, State, TYPE_MACHINE_STATE, TYPE_SECRET},
    parts::Parts,
};

/// An old value up to so many bytes is tested whole. Larger ones are guarded by the resourceVersion of the object, which the writer
/// adds: a test of megabytes would double what is sent.
const MAX_TESTED: usize = 64 << 10;

/// What happens to entries that the seed does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// They stay: while a migration runs, the seed loses objects that the destination needs.
    Upsert,
    /// They are removed. Machines are an exception, see [`difference`].
    Overwrite,
}

/// One operation of a JSON Patch.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "op", rename_all = "lowercase")]
pub enum Operation {
    /// The value at `path` has to equal `value`.
    Test {
        /// JSON pointer.
        path: String,
        /// Expected value.
        value: RawJson,
    },
    /// Sets a member or inserts an element.
    Add {
        /// JSON pointer.
        path: String,
        /// The new value.
        value: RawJson,
    },
    /// Replaces a value that exists.
    Replace {
        /// JSON pointer.
        path: String,
        /// The new value.
        value: RawJson,
    },
    /// Removes a value that exists.
    Remove {
        /// JSON pointer.
        path: String,
    },
}

impl Operation {
    /// Sets a member or inserts an element; `None` where the value has no JSON form.
    pub(super) fn add(path: &str, value: &(impl Serialize + ?Sized)) -> Option<Self> {
        Some(Self::Add { path: path.to_owned(), value: RawJson::encode(value).ok()? })
    }

    /// Replaces a value that exists; `None` where the new one has no JSON form.
    pub(super) fn replace(path: &str, value: &(impl Serialize + ?Sized)) -> Option<Self> {
        Some(Self::Replace { path: path.to_owned(), value: RawJson::encode(value).ok()? })
    }
}

/// The change of one entry.
#[derive(Clone, Debug)]
pub struct Change {
    /// Tests of the old entry, and the one operation that changes it.
    pub operations: Vec<Operation>,
    /// About how many bytes they have.
    pub bytes: usize,
}

/// Changes by kind, so that they can be put in order.
#[derive(Default)]
struct Changes {
    replaced: Vec<Change>,
    removed: Vec<Change>,
    added: Vec<Change>,
}

/// Compares a ShootState with the state of the seed. Each change is for one entry and tests the old one; equal states give nothing.
///
/// Three things are never removed: entries of types that Repot does not write, machine states for a state without machines
/// ([`MachineState::lacks_machines`]), and, where the seed has no Secret that persists, anything: such a namespace is being
/// emptied or filled.
#[must_use]
pub fn difference(current: &ShootStateObject, wanted: &State, mode: Mode) -> Vec<Change> {
    difference_of(current, wanted, mode, Parts::ALL)
}

/// The same for parts of the state: what belongs to others stays as it is.
#[must_use]
pub fn difference_of(current: &ShootStateObject, wanted: &State, mode: Mode, parts: Parts) -> Vec<Change> {
    let mode = if wanted.secrets.is_empty() { Mode::Upsert } else { mode };
    let nothing = Spec::default();
    let spec = current.spec.as_ref().unwrap_or(&nothing);
    let mut changes = Changes::default();
    if current.spec.is_none() {
        changes.parent("/spec".to_owned(), "{}");
    }
    let machines = machines(spec.gardener.as_deref().unwrap_or_default(), wanted.machines.as_ref(), mode);
    let gardener: Vec<_> = wanted.secrets.iter().chain(&machines).collect();
    changes.compare(
        spec.gardener.as_deref(),
        &gardener,
        compare::gardener,
        removes(mode, |entry| entry.kind == TYPE_SECRET),
    );
    if !parts.objects {
        return changes.in_order();
    }
    let extensions: Vec<_> = wanted.extensions.iter().collect();
    changes.compare(spec.extensions.as_deref(), &extensions, compare::extension, removes(mode, |_| true));
    let resources: Vec<_> = wanted.resources.iter().collect();
    changes.compare(spec.resources.as_deref(), &resources, compare::resource, removes(mode, |_| true));
    changes.in_order()
}

fn removes<E>(mode: Mode, removable: fn(&E) -> bool) -> fn(&E) -> bool {
    match mode {
        Mode::Overwrite => removable,
        Mode::Upsert => |_| false,
    }
}

/// The machine state to be stored; `None` where the stored one stays.
fn machines(current: &[GardenerEntry], wanted: Option<&GardenerEntry>, mode: Mode) -> Option<GardenerEntry> {
    let wanted = wanted?;
    let Some(current) = current.iter().find(|entry| entry.kind == TYPE_MACHINE_STATE) else {
        return Some(wanted.clone());
    };
    // A state that nobody can read is replaced.
    let (Ok(old), Ok(mut new)) = (MachineState::read(current), MachineState::read(wanted)) else {
        return Some(wanted.clone());
    };
    if new.machine_deployments.is_empty() {
        return None;
    }
    if mode == Mode::Upsert || new.lacks_machines() {
        new.merge(old).ok()?;
        return new.entry().ok()?;
    }
    Some(wanted.clone())
}

impl Changes {
    /// Compares one list. `is_removed` says whether an entry that is not wanted is removed.
    fn compare<E: Entry + Serialize>(
        &mut self,
        current: Option<&[E]>,
        wanted: &[&E],
        is_same: fn(&E, &E) -> bool,
        is_removed: fn(&E) -> bool,
    ) {
        if current.is_none() && !wanted.is_empty() {
            self.parent(format!("/spec/{}", E::LIST), "[]");
        }
        let current = current.unwrap_or_default();
        let mut kept = BTreeSet::new();
        for new in wanted {
            match current.iter().position(|old| old.key() == new.key()) {
                Some(at) => {
                    kept.insert(at);
                    if !is_same(&current[at], new) {
                        self.replaced.extend(replace(at, &current[at], *new));
                    }
                }
                None => self.added.extend(add(*new)),
            }
        }
        let rest = current.iter().enumerate().rev().filter(|(at, old)| !kept.contains(at) && is_removed(old));
        self.removed.extend(rest.map(|(at, old)| remove(at, old)));
    }

    /// A value into which entries are added, where it is missing. It belongs to the first change.
    fn parent(&mut self, path: String, value: &'static str) {
        let value = RawJson::parse(value).ok();
        let operations =
            value.into_iter().map(|value| Operation::Add { path: path.clone(), value }).collect();
        self.added.push(Change { operations, bytes: 0 });
    }

    /// All changes in the order in which they can be applied. Operations without an entry join the entry that follows.
    fn in_order(self) -> Vec<Change> {
        let mut ordered: Vec<Change> = self.replaced.into_iter().chain(self.removed).collect();
        let mut parents = Vec::new();
        for mut change in self.added {
            if change.bytes == 0 {
                parents.append(&mut change.operations);
                continue;
            }
            parents.append(&mut change.operations);
            ordered.push(Change { operations: std::mem::take(&mut parents), bytes: change.bytes });
        }
        ordered
    }
}

/// Nothing where the entry cannot be encoded, which no entry does.
fn replace<E: Entry + Serialize>(at: usize, old: &E, new: &E) -> Option<Change> {
    let path = format!("/spec/{}/{at}", E::LIST);
    let mut operations = tests(&path, old);
    operations.push(Operation::replace(&path, new)?);
    Some(Change { operations, bytes: tested_bytes(old) + new.size() + OVERHEAD })
}

fn add<E: Entry + Serialize>(new: &E) -> Option<Change> {
    let path = format!("/spec/{}/-", E::LIST);
    let operations = vec![Operation::add(&path, new)?];
    Some(Change { operations, bytes: new.size() + OVERHEAD })
}

fn remove<E: Entry>(at: usize, old: &E) -> Change {
    let path = format!("/spec/{}/{at}", E::LIST);
    let mut operations = tests(&path, old);
    operations.push(Operation::Remove { path });
    Change { operations, bytes: tested_bytes(old) + OVERHEAD }
}

/// Bytes of an operation beside its values.
const OVERHEAD: usize = 128;

/// Tests that the entry is the one that was compared, and has its old value.
fn tests<E: Entry>(path: &str, old: &E) -> Vec<Operation> {
    let identity = old.identity().into_iter();
    let test = |member: &str, value| Operation::Test { path: format!("{path}/{member}"), value };
    let mut tests: Vec<_> =
        identity.filter_map(|(member, text)| Some(test(member, RawJson::encode(text).ok()?))).collect();
    if let Some((member, value)) = old.payload().filter(|(_, value)| value.get().len() <= MAX_TESTED) {
        tests.push(test(member, value.clone()));
    }
    tests
}

fn tested_bytes<E: Entry>(old: &E) -> usize {
    old.payload().map_or(0, |(_, value)| value.get().len()).min(MAX_TESTED)
}

#[cfg(test)]
#[path = "tests/difference.rs"]
mod tests;
