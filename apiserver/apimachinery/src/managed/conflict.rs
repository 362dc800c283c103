//! What an apply would take from other managers, in words.

use std::collections::BTreeMap;

use super::{
    element::Element,
    entries::{Id, Managed, Operation},
    set::Set,
};

/// A field that another manager owns with another value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    owner: Id,
    time: Option<String>,
    path: Vec<Element>,
}

impl Conflict {
    /// Path of the field, such as `.spec.gardener[name="x"].data`.
    #[must_use]
    pub fn field(&self) -> String {
        self.path.iter().map(ToString::to_string).collect()
    }

    /// The message of a `StatusCause`.
    #[must_use]
    pub fn message(&self) -> String {
        format!("conflict with {}", self.owner())
    }

    /// `"m" using v1 at t`, or `"m"` of one that applies.
    fn owner(&self) -> String {
        let Id { manager, operation, api_version, subresource } = &self.owner;
        let through =
            if subresource.is_empty() { String::new() } else { format!(" with subresource {subresource:?}") };
        match (operation, &self.time) {
            (Operation::Apply, _) => format!("{manager:?}{through}"),
            (Operation::Update, None) => format!("{manager:?}{through} using {api_version}"),
            (Operation::Update, Some(time)) => {
                format!("{manager:?}{through} using {api_version} at {time}")
            }
        }
    }

    pub(super) fn is_in(&self, fields: &Set) -> bool {
        fields.has(&self.path)
    }
}

/// What all managers own of what is set anew.
pub(super) fn conflicts(managed: &Managed, added: &Set, modified: &Set) -> Vec<Conflict> {
    let mut found = Vec::new();
    for (id, owned) in &managed.0 {
        let mut taken = owned.fields.intersection(added);
        taken.unite(owned.fields.intersection(modified));
        taken.each_path(&mut |path| {
            found.push(Conflict { owner: id.clone(), time: owned.time.clone(), path: path.to_vec() });
        });
    }
    found
}

/// All of them in one message.
#[must_use]
pub fn summary(conflicts: &[Conflict]) -> String {
    if let [only] = conflicts {
        return format!("Apply failed with 1 conflict: {}: {}", only.message(), only.field());
    }
    let mut by_owner = BTreeMap::<&Id, Vec<&Conflict>>::new();
    for conflict in conflicts {
        by_owner.entry(&conflict.owner).or_default().push(conflict);
    }
    let mut lines = Vec::new();
    for conflicts in by_owner.values() {
        lines.extend(conflicts.first().map(|first| format!("conflicts with {}:", first.owner())));
        lines.extend(conflicts.iter().map(|conflict| format!("- {}", conflict.field())));
    }
    format!("Apply failed with {} conflicts: {}", conflicts.len(), lines.join("\n"))
}
