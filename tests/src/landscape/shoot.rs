//! The names of a Shoot, which follow from its Project and its own name as in Gardener.

use super::dns::ZONE;

/// A Shoot of a landscape.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShootName {
    /// The Project, of at most ten characters.
    pub project: String,
    /// The name of the Shoot.
    pub name: String,
}

impl ShootName {
    /// The Shoot of that name in a Project.
    pub fn new(project: &str, name: &str) -> Self {
        Self { project: project.to_owned(), name: name.to_owned() }
    }

    /// The namespace of its control plane in a seed, and the name of its cluster in the cloud.
    pub fn technical_id(&self) -> String {
        format!("shoot--{}--{}", self.project, self.name)
    }

    /// The name of its BackupEntry, which is the first part of the prefix of its backups.
    pub fn backup_entry(&self) -> String {
        format!("{}--{}", self.technical_id(), self.name)
    }

    /// The namespace of its Project in the garden.
    pub fn project_namespace(&self) -> String {
        format!("garden-{}", self.project)
    }

    /// The DNS name of its API, which keeps its name when the control plane moves.
    pub fn api_domain(&self) -> String {
        format!("api.{}.{}.{ZONE}", self.name, self.project)
    }

    /// The DNS name of the record that says which seed may serve its etcd.
    pub fn owner_domain(&self) -> String {
        format!("owner.{}.{}.{ZONE}", self.name, self.project)
    }
}
