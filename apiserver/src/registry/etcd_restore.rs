//! EtcdRestore: runs once, with the spec it was begun with.

use repot_api::{etcd_restore, names};
use repot_apimachinery::validation;

use super::strategy::Strategy;

pub(super) static STRATEGY: Strategy = Strategy {
    kind: &etcd_restore::KIND_INFO,
    group: names::MIGRATION_GROUP,
    name_rule: validation::dns_subdomain,
    unconditional_update: true,
    normalise: etcd_restore::normalise,
    validate: etcd_restore::validate,
    validate_change: etcd_restore::validate_change,
    validate_status: etcd_restore::validate_status,
};
