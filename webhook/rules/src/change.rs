//! What is about to happen to an object, and who wants it.

use std::collections::BTreeMap;

use repot_api::gardener::seed_change::SeedChange;
use repot_apimachinery::value::{annotation_of, is_ending, text_at};
use serde_json::Value;

/// What kind of write it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// A new object.
    Create,
    /// An object in place of another.
    Update,
    /// The end of an object, or the request for it.
    Delete,
}

impl Operation {
    /// As AdmissionReview has it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Create => "CREATE",
            Self::Update => "UPDATE",
            Self::Delete => "DELETE",
        }
    }
}

/// Which object, or subresource of it, a write is about.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Target {
    /// API group of the object's resource.
    pub group: String,
    /// Plural, such as `shoots`.
    pub resource: String,
    /// Such as `status`; empty for the object itself.
    pub subresource: String,
    /// Empty for objects of the cluster.
    pub namespace: String,
    /// Empty while a name is still to be made.
    pub name: String,
}

/// The user who makes a change: name, groups, and what else the authenticator tells.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct User {
    /// User name, as the authenticator tells it.
    pub name: String,
    /// Groups that the user is in.
    pub groups: Vec<String>,
    /// Identity beside the name, empty where the authenticator has none.
    pub uid: String,
    /// What else the authenticator tells; some authorizers decide by it.
    pub extra: BTreeMap<String, Vec<String>>,
}

impl User {
    /// Whether the user is in a group.
    #[must_use]
    pub fn is_in(&self, group: &str) -> bool {
        self.groups.iter().any(|own| own == group)
    }
}

/// One write. Rules judge this, never an object alone: what was wrong before may stay, be repaired or be deleted.
#[derive(Clone, Debug)]
pub struct Change {
    /// What kind of write.
    pub operation: Operation,
    /// The object that is written.
    pub target: Target,
    /// The user who makes the change.
    pub user: User,
    /// Before; null for a new object.
    pub old: Value,
    /// After; null for a deletion.
    pub new: Value,
}

impl Change {
    /// The new value of an annotation that this change sets or changes. Nothing where it stays or goes, or becomes empty.
    #[must_use]
    pub fn sets(&self, annotation: &str) -> Option<&str> {
        let new = annotation_of(&self.new, annotation)?;
        (annotation_of(&self.old, annotation) != Some(new)).then_some(new)
    }

    /// Whether this is about the object itself or one of the subresources through which its spec is written.
    #[must_use]
    pub fn is_of(&self, group: &str, resource: &str) -> bool {
        self.target.group == group && self.target.resource == resource
    }

    /// The name of the object. One of many that are deleted together comes without it in its target, and a new one may have none yet.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        let own = [&self.new, &self.old].into_iter().find_map(|object| text_at(object, "/metadata/name"));
        Some(self.target.name.as_str()).filter(|name| !name.is_empty()).or(own)
    }

    /// What the change of `spec.seedName` amounts to; [`SeedChange::Stay`] for what is no update.
    #[must_use]
    pub fn seed_change(&self) -> SeedChange<'_> {
        match self.operation {
            Operation::Update => SeedChange::between(&self.old, &self.new),
            Operation::Create | Operation::Delete => SeedChange::Stay,
        }
    }

    /// Whether the object was on its way out before.
    #[must_use]
    pub fn is_ending(&self) -> bool {
        is_ending(&self.old)
    }
}
