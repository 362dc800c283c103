//! ControlPlaneMigration: one attempt to move a control plane, with the spec that it was created with.

use repot_api::{control_plane_migration, names};
use repot_apimachinery::validation;

use super::strategy::Strategy;

pub(super) static STRATEGY: Strategy = Strategy {
    kind: &control_plane_migration::KIND_INFO,
    group: names::MIGRATION_GROUP,
    name_rule: validation::dns_subdomain,
    unconditional_update: true,
    normalise: control_plane_migration::normalise,
    validate: control_plane_migration::validate,
    validate_change: control_plane_migration::validate_change,
    validate_status: control_plane_migration::validate_status,
};
