//! HostedEtcd: settings may be changed, whom it stands for may not.

use repot_api::{hosted_etcd, names};
use repot_apimachinery::validation;

use super::strategy::Strategy;

pub(super) static STRATEGY: Strategy = Strategy {
    kind: &hosted_etcd::KIND_INFO,
    group: names::MIGRATION_GROUP,
    name_rule: validation::dns_subdomain,
    unconditional_update: true,
    normalise: hosted_etcd::normalise,
    validate: hosted_etcd::validate,
    validate_change: hosted_etcd::validate_change,
    validate_status: hosted_etcd::validate_status,
};
