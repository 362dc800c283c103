//! Region ConfigMaps of the scheduler.

use std::collections::BTreeMap;

use repot_api::names::{PURPOSE, PURPOSE_PROFILES};
use repot_apimachinery::value::{annotation_of, at, raw_annotation_of, text_at};
use serde_json::Value;

use crate::facts::Distances;

/// Reads a ConfigMap, if it is one of those.
#[must_use]
pub fn read(map: &Value) -> Option<Distances> {
    let purpose = at(map, "/metadata/labels").and_then(|labels| labels.get(PURPOSE.0));
    if purpose.and_then(Value::as_str) != Some(PURPOSE.1) {
        return None;
    }
    let profiles = annotation_of(map, PURPOSE_PROFILES).unwrap_or_default();
    let data = map.get("data").and_then(Value::as_object).into_iter().flatten();
    Some(Distances {
        name: text_at(map, "/metadata/name").unwrap_or_default().to_owned(),
        profiles: profiles
            .split(',')
            .map(|name| name.trim().to_owned())
            .filter(|name| !name.is_empty())
            .collect(),
        thresholds: Distances::THRESHOLDS.map(|key| raw_annotation_of(map, key).map(str::to_owned)),
        from: data.map(|(from, text)| (from.clone(), entry(text.as_str().unwrap_or_default()))).collect(),
    })
}

/// `<to region>: <distance>`, a line each.
fn entry(text: &str) -> Result<BTreeMap<String, u64>, String> {
    let read: Result<BTreeMap<String, u64>, _> = serde_saphyr::from_str(text);
    // What the parser says may quote the text; where it stopped does not.
    read.map_err(|_| "it is not a map from regions to whole numbers from 0 on".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn reads_regions_whose_names_look_like_booleans() {
        let map = json!({
            "metadata": {
                "name": "regions", "labels": {"scheduling.gardener.cloud/purpose": "region-config"},
                "annotations": {
                    "scheduling.gardener.cloud/cloudprofiles": "local, other",
                    "migration.gardener.cloud/inter-seed-distance-threshold": "180",
                },
            },
            "data": {"eu": "no: 12\nyes: 3\ny: 4\nus: 99\n", "bad": "us: far\n", "negative": "us: -1\n"},
        });
        let read = read(&map).expect("distances");
        assert_eq!(read.profiles, ["local", "other"]);
        assert_eq!(read.thresholds, [Some("180".to_owned()), None]);
        let eu = read.from["eu"].as_ref().expect("readable");
        assert_eq!((eu["no"], eu["yes"], eu["y"], eu["us"]), (12, 3, 4, 99));
        assert!(read.from["bad"].is_err() && read.from["negative"].is_err());
        assert!(super::read(&json!({"metadata": {"name": "other"}})).is_none());
    }
}
