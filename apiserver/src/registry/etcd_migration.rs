//! EtcdMigration: runs once, with the spec it was begun with.

use repot_api::{etcd_migration, names};
use repot_apimachinery::validation;

use super::strategy::Strategy;

pub(super) static STRATEGY: Strategy = Strategy {
    kind: &etcd_migration::KIND_INFO,
    group: names::MIGRATION_GROUP,
    name_rule: validation::dns_subdomain,
    unconditional_update: true,
    normalise: etcd_migration::normalise,
    validate: etcd_migration::validate,
    validate_change: etcd_migration::validate_change,
    validate_status: etcd_migration::validate_status,
};
