//! Kinds of objects that commands read and write.

use kube::{core::GroupVersionKind, discovery::ApiResource};
use repot_api::names::{CORE_GROUP, DRUID_GROUP, MIGRATION_GROUP, V1ALPHA1};

/// A kind of object, and where it is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kind {
    /// API group; empty for that of Pods.
    pub group: &'static str,
    /// Version of the group.
    pub version: &'static str,
    /// Name of the kind in CamelCase.
    pub kind: &'static str,
    /// Name of the resource in URLs.
    pub plural: &'static str,
}

impl Kind {
    /// A kind by its group, version, name and resource.
    #[must_use]
    pub const fn new(
        group: &'static str,
        version: &'static str,
        kind: &'static str,
        plural: &'static str,
    ) -> Self {
        Self { group, version, kind, plural }
    }

    pub(super) fn resource(&self) -> ApiResource {
        let gvk = GroupVersionKind::gvk(self.group, self.version, self.kind);
        ApiResource::from_gvk_with_plural(&gvk, self.plural)
    }

    /// Path of the resource in URLs, of all namespaces.
    #[must_use]
    pub fn path(&self) -> String {
        let Self { group, version, plural, .. } = self;
        if group.is_empty() {
            format!("/api/{version}/{plural}")
        } else {
            format!("/apis/{group}/{version}/{plural}")
        }
    }
}

/// An etcd that serves a control plane.
pub const HOSTED_ETCD: Kind = Kind::new(MIGRATION_GROUP, V1ALPHA1, "HostedEtcd", "hostedetcds");
/// A backup of a hosted etcd, or a schedule of them.
pub const ETCD_BACKUP: Kind = Kind::new(MIGRATION_GROUP, V1ALPHA1, "EtcdBackup", "etcdbackups");
/// A restore of a hosted etcd.
pub const ETCD_RESTORE: Kind = Kind::new(MIGRATION_GROUP, V1ALPHA1, "EtcdRestore", "etcdrestores");
/// A hosted etcd that gets other settings.
pub const ETCD_MIGRATION: Kind = Kind::new(MIGRATION_GROUP, V1ALPHA1, "EtcdMigration", "etcdmigrations");
/// The members of an etcd.
pub const ETCD: Kind = Kind::new(DRUID_GROUP, V1ALPHA1, "Etcd", "etcds");
/// A move of a control plane to another seed.
pub const CONTROL_PLANE_MIGRATION: Kind =
    Kind::new(MIGRATION_GROUP, V1ALPHA1, "ControlPlaneMigration", "controlplanemigrations");
/// A zone that a Shoot leaves.
pub const ZONE_ISOLATION: Kind = Kind::new(MIGRATION_GROUP, V1ALPHA1, "ZoneIsolation", "zoneisolations");
/// A seed of the garden.
pub const SEED: Kind = Kind::new(CORE_GROUP, "v1beta1", "Seed", "seeds");
/// An Event about an object.
pub const EVENT: Kind = Kind::new("", "v1", "Event", "events");
/// What has to survive the move of a Shoot.
pub const SHOOT_STATE: Kind = Kind::new(MIGRATION_GROUP, V1ALPHA1, "ShootState", "shootstates");
/// The same in Gardener's group, where no Gardener serves that.
pub const SHOOT_STATE_OF_CORE: Kind = Kind::new(CORE_GROUP, V1ALPHA1, "ShootState", "shootstates");
/// A Shoot of the garden.
pub const SHOOT: Kind = Kind::new(CORE_GROUP, "v1beta1", "Shoot", "shoots");
