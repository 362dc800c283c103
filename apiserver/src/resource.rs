//! Names of what is served: groups, versions, resources.

use std::fmt;

use repot_apimachinery::kind::Kind;

use crate::registry::strategy::Strategy;

/// A group and a plural resource.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct GroupResource {
    /// API group; empty for the core group.
    pub group: String,
    /// Plural name of the resource, such as `shootstates`.
    pub resource: String,
}

impl fmt::Display for GroupResource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.group.is_empty() {
            f.write_str(&self.resource)
        } else {
            write!(f, "{}.{}", self.resource, self.group)
        }
    }
}

/// A kind at a group and version.
#[derive(Clone, Debug)]
pub struct Resource {
    /// Where errors and keys place it.
    pub name: GroupResource,
    /// API version without the group, such as `v1alpha1`.
    pub version: String,
    /// The kind that is served: its names, schema and columns.
    pub kind: &'static Kind,
    /// How it behaves when it is written.
    pub strategy: &'static Strategy,
}

impl Resource {
    /// The `apiVersion` of objects, in the form `group/version`.
    #[must_use]
    pub fn api_version(&self) -> String {
        format!("{}/{}", self.name.group, self.version)
    }
}
