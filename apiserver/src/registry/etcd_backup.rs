//! EtcdBackup: a single one is begun with its spec, a schedule may be changed.

use repot_api::{etcd_backup, names};
use repot_apimachinery::validation;

use super::strategy::Strategy;

pub(super) static STRATEGY: Strategy = Strategy {
    kind: &etcd_backup::KIND_INFO,
    group: names::MIGRATION_GROUP,
    name_rule: validation::dns_subdomain,
    unconditional_update: true,
    normalise: etcd_backup::normalise,
    validate: etcd_backup::validate,
    validate_change: etcd_backup::validate_change,
    validate_status: etcd_backup::validate_status,
};
