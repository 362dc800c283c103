//! What the sides of a migration by gardenlet remember.

use serde::{Deserialize, Serialize};

use crate::migration::Loss;

/// What one side remembers. It is part of that side's status.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Notes {
    /// Something of this side was changed: from here on there may be something to roll back.
    #[serde(skip_serializing_if = "is_false")]
    pub changed: bool,
    /// Garden: the seeds of the Shoot and of its BackupEntry before the migration, which a rollback writes back.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub former_seeds: Option<FormerSeeds>,
    /// Destination: what is lost with the source. Its epoch is zero: gardenlet knows no owner record.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub loss: Option<Loss>,
}

/// Seeds before the migration. A migration that gardenlet had begun may have changed some of them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct FormerSeeds {
    /// `spec.seedName` of the Shoot.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shoot: Option<String>,
    /// `spec.seedName` of the BackupEntry.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backup_entry: Option<String>,
    /// `status.seedName` of the BackupEntry.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backup_entry_status: Option<String>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature that serde asks for")]
fn is_false(value: &bool) -> bool {
    !*value
}
