//! The kinds that are watched.

use kube::{
    core::{DynamicObject, GroupVersionKind},
    discovery::ApiResource,
};
use repot_api::names::{CORE_GROUP, MIGRATION_GROUP, V1ALPHA1};
use serde::{Deserialize, Serialize};
use serde_json::{Value, value::to_raw_value};

use super::{Row, etcd_rows, rows};
use crate::migration::Migration;

/// A kind of the garden that the page shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(in crate::ui) enum Kind {
    Migrations,
    Shoots,
    Seeds,
    Isolations,
    Etcds,
    Backups,
    Restores,
    EtcdMigrations,
}

/// An object as it is kept.
pub(super) struct Object {
    pub(super) row: Row,
    /// Where it is a ControlPlaneMigration.
    pub(super) migration: Option<Migration>,
}

impl Kind {
    pub(in crate::ui) const ALL: [Self; 8] = [
        Self::Migrations,
        Self::Shoots,
        Self::Seeds,
        Self::Isolations,
        Self::Etcds,
        Self::Backups,
        Self::Restores,
        Self::EtcdMigrations,
    ];

    /// Where the API server has it.
    pub(super) fn resource(self) -> ApiResource {
        let (group, version, kind) = match self {
            Self::Migrations => (MIGRATION_GROUP, V1ALPHA1, "ControlPlaneMigration"),
            Self::Shoots => (CORE_GROUP, "v1beta1", "Shoot"),
            Self::Seeds => (CORE_GROUP, "v1beta1", "Seed"),
            Self::Isolations => (MIGRATION_GROUP, V1ALPHA1, "ZoneIsolation"),
            Self::Etcds => (MIGRATION_GROUP, V1ALPHA1, "HostedEtcd"),
            Self::Backups => (MIGRATION_GROUP, V1ALPHA1, "EtcdBackup"),
            Self::Restores => (MIGRATION_GROUP, V1ALPHA1, "EtcdRestore"),
            Self::EtcdMigrations => (MIGRATION_GROUP, V1ALPHA1, "EtcdMigration"),
        };
        ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind))
    }

    /// Whether its objects lie in namespaces.
    pub(super) fn is_namespaced(self) -> bool {
        self != Self::Seeds
    }

    /// The object as the page shows it; `None` for one that has not the shape of its kind.
    pub(super) fn read(self, object: DynamicObject) -> Option<Object> {
        let value = serde_json::to_value(object).ok()?;
        let (row, migration) = match self {
            Self::Migrations => {
                let migration = Migration::new(&serde_json::from_value(value).ok()?);
                (rows::migration(&migration), Some(rows::kept(migration)))
            }
            Self::Shoots => (rows::shoot(&value), None),
            Self::Seeds => (rows::seed(&value), None),
            Self::Isolations => (etcd_rows::isolation(&value), None),
            Self::Etcds => (etcd_rows::etcd(&value), None),
            Self::Backups => (etcd_rows::backup(&value), None),
            Self::Restores | Self::EtcdMigrations => (etcd_rows::workflow(&value), None),
        };
        Some(Object { row: raw(&row)?, migration })
    }
}

fn raw(value: &Value) -> Option<Row> {
    to_raw_value(value).ok().map(|raw| Row(raw.into()))
}
