//! Parts of a state that are read and compared on their own: a Secret that changes is no reason to list all extension objects.

/// What has to be read beside the Secrets, which are always read: they tell whether the namespace is being emptied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Parts {
    /// Whether to read MachineDeployments, MachineSets and Machines.
    pub machines: bool,
    /// Whether to read extension objects, objects that these refer to, and carried objects.
    pub objects: bool,
}

impl Parts {
    /// Nothing but the Secrets.
    pub const SECRETS: Self = Self { machines: false, objects: false };
    /// The Secrets and the machines.
    pub const MACHINES: Self = Self { machines: true, objects: false };
    /// The Secrets and all objects but machines.
    pub const OBJECTS: Self = Self { machines: false, objects: true };
    /// All parts of the state.
    pub const ALL: Self = Self { machines: true, objects: true };

    /// What is in one of both.
    #[must_use]
    pub fn union(self, other: Self) -> Self {
        Self { machines: self.machines || other.machines, objects: self.objects || other.objects }
    }
}
