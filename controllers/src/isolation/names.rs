//! Names on objects that an isolation makes or marks.

/// On the ZoneIsolation until both sides have ended.
pub const FINALIZER: &str = "migration.gardener.cloud/zone-isolation";
/// On a ZoneIsolation that was created because the Shoot had the annotation.
pub const BY_ANNOTATION: &str = "migration.gardener.cloud/by-annotation";
/// UID of the ZoneIsolation that has set the annotation of a Shoot, as an annotation beside it.
pub const ANNOTATED_BY: &str = "migration.gardener.cloud/isolated-by";
/// ID of the zone for which a node was cordoned, as an annotation of the Node.
pub const CORDONED_FOR: &str = "migration.gardener.cloud/cordoned-for-zone";
/// What was asked of the controller of a Worker last, and by which ZoneIsolation, as an annotation of the Worker.
pub const ASKED: &str = "migration.gardener.cloud/isolation-requested";
/// Name of the SubnetIsolation of a Shoot.
pub const SUBNET_ISOLATION: &str = "isolated-zone";
/// Who writes, as API servers know it.
pub const MANAGER: &str = "repot-isolation";
