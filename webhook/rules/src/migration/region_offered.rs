//! The region of the Shoot is one of its CloudProfile's: else its machines cannot be made anew after the move.

use repot_api::gardener::shoot::Shoot;
use repot_apimachinery::value::{items_at, text_at};

use crate::{change::Change, facts::Facts, finding::Finding, migration::destination};

pub(crate) fn judge(change: &Change, facts: &Facts) -> Vec<Finding> {
    let Some((_, to)) = destination(change, facts) else { return Vec::new() };
    let Some(profile) = facts.cloud_profile.as_deref() else { return Vec::new() };
    let Some(region) = text_at(&change.new, "/spec/region") else { return Vec::new() };
    let regions = items_at(profile, "/spec/regions");
    if regions.is_empty() || regions.iter().any(|one| text_at(one, "/name") == Some(region)) {
        return Vec::new();
    }
    let name = Shoot(&change.new).cloud_profile().unwrap_or_default();
    let reason = format!("region {region:?} of the Shoot is not among the regions of CloudProfile {name:?}");
    let advice = format!("add the region to the CloudProfile before the Shoot moves to {to:?}");
    vec![Finding::refuse("spec.region", reason, advice)]
}
