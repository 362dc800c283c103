//! Isolation of a sick zone (GEP-21): the annotation that names it.

pub(crate) mod isolation_reconciled;
pub(crate) mod no_isolation_while_migrating;
pub(crate) mod no_maintenance_while_isolated;
pub(crate) mod no_move_while_isolated;
pub(crate) mod versions_kept_while_isolated;
pub(crate) mod zone_fixed;
pub(crate) mod zone_form;
pub(crate) mod zone_used;
pub(crate) mod zones_left;

use std::collections::BTreeSet;

use repot_api::names::ISOLATED_ZONE;
use repot_apimachinery::value::text_at;

use crate::{change::Change, facts::Facts, finding::annotation_path, zones};

/// Where findings point.
pub(crate) fn path() -> String {
    annotation_path(ISOLATED_ZONE)
}

/// The code that the provider has for a zone id in the account of the Shoot, where that is known: by the CloudProfile, or by
/// what the provider told of an isolation before.
pub(crate) fn zone_code(change: &Change, facts: &Facts, id: &str) -> Option<String> {
    let told = [&change.new, &change.old].into_iter().find_map(|shoot| {
        let known = text_at(shoot, "/status/zoneIsolation/isolatedZoneID") == Some(id);
        text_at(shoot, "/status/zoneIsolation/isolatedZoneCode").filter(|_| known).map(str::to_owned)
    });
    told.or_else(|| zones::code(&change.new, facts.cloud_profile.as_deref(), id))
}

/// Zones of this set that are left.
pub(crate) fn without<'a>(zones: &BTreeSet<&'a str>, code: &str) -> BTreeSet<&'a str> {
    zones.iter().copied().filter(|zone| *zone != code).collect()
}
