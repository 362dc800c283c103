//! Who makes a request.

use std::collections::BTreeMap;

use crate::shares::Flow;

/// An identity, as authentication found it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct User {
    /// User name, such as `system:anonymous`.
    pub name: String,
    /// Unique id, where the identity has one.
    pub uid: String,
    /// Groups, in the order found.
    pub groups: Vec<String>,
    /// Further facts for the authorizer.
    pub extra: BTreeMap<String, Vec<String>>,
}

/// Group of everybody who is known.
pub const AUTHENTICATED: &str = "system:authenticated";
/// Group of everybody who is not.
pub const UNAUTHENTICATED: &str = "system:unauthenticated";
/// Group that may do everything.
pub const MASTERS: &str = "system:masters";
/// Group of those who watch over the server; its members decide whether their requests are traced.
pub const MONITORING: &str = "system:monitoring";

impl User {
    /// The user `system:anonymous` in the group [`UNAUTHENTICATED`], for requests without credentials.
    #[must_use]
    pub fn anonymous() -> Self {
        Self { name: "system:anonymous".into(), groups: vec![UNAUTHENTICATED.into()], ..Self::default() }
    }

    /// With whom the user shares limits: all users without credentials are one flow, also those that the front proxy names.
    #[must_use]
    pub fn flow(&self) -> Flow {
        match self.in_group(UNAUTHENTICATED) {
            true => Flow::Unauthenticated,
            false => Flow::User(self.name.as_str().into()),
        }
    }

    /// Whether this user is in a group.
    #[must_use]
    pub fn in_group(&self, group: &str) -> bool {
        self.groups.iter().any(|g| g == group)
    }

    /// With the group of all known users, which callers such as the aggregator leave out.
    #[must_use]
    pub fn known(mut self) -> Self {
        if !self.in_group(AUTHENTICATED) && !self.in_group(UNAUTHENTICATED) {
            self.groups.push(AUTHENTICATED.into());
        }
        self
    }
}
