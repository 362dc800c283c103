//! ShootState: large, opaque, and without a status.

use repot_api::{names, shoot_state};
use repot_apimachinery::validation;

use super::strategy::Strategy;

pub(super) static STRATEGY: Strategy = Strategy {
    kind: &shoot_state::KIND_INFO,
    group: names::CORE_GROUP,
    name_rule: validation::dns_label,
    // As in Gardener: two writers of a state that saves a cluster must not overwrite each other unseen.
    unconditional_update: false,
    normalise: shoot_state::normalise,
    validate: shoot_state::validate,
    validate_change: |_, _| Vec::new(),
    validate_status: |_| Vec::new(),
};
