//! Objects of the garden, as they were observed in a pass.

use kube::core::DynamicObject;

use crate::migration::api::Shoot;

/// Objects of the garden, as they were observed.
pub struct Objects {
    /// The Shoot; `None` where it does not exist.
    pub shoot: Option<Shoot>,
    /// The BackupEntry of the Shoot; `None` where it has none.
    pub backup_entry: Option<DynamicObject>,
}
