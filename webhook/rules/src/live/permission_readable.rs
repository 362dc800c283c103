//! The permission to move far can be read.

use repot_api::names::ALLOW_DISTANT_REGIONS;
use repot_apimachinery::value::{annotation_of, parse_bool};

use crate::{
    change::Change,
    facts::Facts,
    finding::{Finding, annotation_path},
};

pub(crate) fn judge(change: &Change, _: &Facts) -> Vec<Finding> {
    let unreadable =
        annotation_of(&change.new, ALLOW_DISTANT_REGIONS).is_some_and(|text| parse_bool(text).is_none());
    if change.sets(ALLOW_DISTANT_REGIONS).is_none() || !unreadable {
        return Vec::new();
    }
    let path = annotation_path(ALLOW_DISTANT_REGIONS);
    vec![Finding::refuse(path, "the value is neither true nor false", "set it to \"true\", or remove it")]
}
