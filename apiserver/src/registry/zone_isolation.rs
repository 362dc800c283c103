//! ZoneIsolation: a zone of a Shoot is left, and used again later.

use repot_api::{names, zone_isolation};
use repot_apimachinery::validation;

use super::strategy::Strategy;

pub(super) static STRATEGY: Strategy = Strategy {
    kind: &zone_isolation::KIND_INFO,
    group: names::MIGRATION_GROUP,
    name_rule: validation::dns_subdomain,
    unconditional_update: true,
    normalise: zone_isolation::normalise,
    validate: zone_isolation::validate,
    validate_change: zone_isolation::validate_change,
    validate_status: zone_isolation::validate_status,
};
