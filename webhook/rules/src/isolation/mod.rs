//! Isolation of a sick zone (GEP-21): the annotation that names it.

pub(crate) mod isolation_reconciled;
pub(crate) mod no_isolation_while_migrating;
pub(crate) mod no_maintenance_while_isolated;
pub(crate) mod no_move_while_isolated;
pub(crate) mod zone_fixed;
pub(crate) mod zone_form;
pub(crate) mod zone_used;
pub(crate) mod zones_left;

use std::collections::BTreeSet;

use repot_api::{
    gardener::shoot::Shoot,
    names::{ISOLATED_ZONE, ZONE_IDS},
};
use repot_apimachinery::value::{annotation_of, items_at, text_at};
use serde_json::Value;

use crate::{change::Change, facts::Facts, finding::annotation_path};

/// Where findings point.
pub(crate) fn path() -> String {
    annotation_path(ISOLATED_ZONE)
}

/// The code that the provider has for a zone id in the account of the Shoot, where that is known: by the CloudProfile, or by
/// what the provider told of an isolation before.
pub(crate) fn zone_code(change: &Change, facts: &Facts, id: &str) -> Option<String> {
    let region = text_at(&change.new, "/spec/region").unwrap_or_default();
    let told = [&change.new, &change.old].into_iter().find_map(|shoot| {
        let known = text_at(shoot, "/status/zoneIsolation/isolatedZoneID") == Some(id);
        text_at(shoot, "/status/zoneIsolation/isolatedZoneCode").filter(|_| known).map(str::to_owned)
    });
    let profile = facts.cloud_profile.as_deref();
    // Where a pool names the zone by this very text, ids and names are one.
    let named = || Shoot(&change.new).worker_zones().contains(id).then(|| id.to_owned());
    told.or_else(|| {
        profile.and_then(|profile| in_regions(profile, region, id).or_else(|| annotated(profile, region, id)))
    })
    .or_else(named)
}

/// A zone of the region with this id; or with this name, where ids and names are one.
fn in_regions(profile: &Value, region: &str, id: &str) -> Option<String> {
    let own = items_at(profile, "/spec/regions").iter().find(|one| text_at(one, "/name") == Some(region))?;
    let zones = items_at(own, "/zones");
    let by = |field| zones.iter().find(move |zone| text_at(zone, field) == Some(id));
    by("/id").or_else(|| by("/name")).and_then(|zone| text_at(zone, "/name")).map(str::to_owned)
}

/// `{"<region>": {"<id>": "<code>"}}`
fn annotated(profile: &Value, region: &str, id: &str) -> Option<String> {
    let all: Value = serde_json::from_str(annotation_of(profile, ZONE_IDS)?).ok()?;
    Some(all.get(region)?.get(id)?.as_str()?.to_owned())
}

/// Zones of this set that are left.
pub(crate) fn without<'a>(zones: &BTreeSet<&'a str>, code: &str) -> BTreeSet<&'a str> {
    zones.iter().copied().filter(|zone| *zone != code).collect()
}
