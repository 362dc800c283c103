//! Which zone of a Shoot has an ID of the provider: a zone may have another code in each account.

use repot_api::{gardener::shoot::Shoot, names::ZONE_IDS};
use repot_apimachinery::value::{annotation_of, items_at, text_at};
use serde_json::Value;

/// The code of the zone with this ID, by the CloudProfile of the Shoot, or by its pools where ids and names are one; `None` where nobody
/// knows it.
#[must_use]
pub fn code(shoot: &Value, profile: Option<&Value>, id: &str) -> Option<String> {
    let region = text_at(shoot, "/spec/region").unwrap_or_default();
    let told = profile
        .and_then(|profile| in_regions(profile, region, id).or_else(|| annotated(profile, region, id)));
    // Where a pool names the zone by this very text, ids and names are one.
    told.or_else(|| Shoot(shoot).worker_zones().contains(id).then(|| id.to_owned()))
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
