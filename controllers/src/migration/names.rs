//! Names on objects that a migration makes or marks.

/// On the ControlPlaneMigration until all sides have ended.
pub const FINALIZER: &str = "migration.gardener.cloud/control-plane-migration";
/// UID of the migration that made an object, as a label.
pub const MADE_BY: &str = "migration.gardener.cloud/made-by";
/// Which operation was requested last, and by which migration, as an annotation of extension resources.
pub const REQUESTED: &str = "migration.gardener.cloud/requested";
/// Who writes, as API servers know it.
pub const MANAGER: &str = "repot-migration";
/// The label of Deployments of a control plane, with its value `controlplane` (Gardener).
pub const ROLE: &str = "gardener.cloud/role";
/// Deployment and Service of the API servers of a control plane (Gardener).
pub const API_SERVER: &str = "kube-apiserver";
/// The Etcd that holds all but events (Gardener).
pub const MAIN_ETCD: &str = "etcd-main";
/// Secret with access to the bucket of the own seed (Gardener).
pub const BACKUP_SECRET: &str = "etcd-backup";
/// Secret with access to the bucket of the source seed (Gardener).
pub const SOURCE_BACKUP_SECRET: &str = "source-etcd-backup";
