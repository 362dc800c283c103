//! ShootStates: whether they follow what seeds have. Only metadata and events are read.

use std::collections::BTreeMap;

use kube::api::ListParams;
use repot_apimachinery::value::text_at;
use serde_json::Value;

use crate::{
    doctor::{finding::Finding, survey::Survey},
    objects::{CONTROL_PLANE_MIGRATION, Kind, Result},
    text::ago,
};

/// Name of the check.
pub(super) const NAME: &str = "shootstates";
/// What has happened, as kubectl shows it.
pub(in crate::doctor) const EVENT: Kind = Kind::new("", "v1", "Event", "events");
/// Reason of events about a ShootState that cannot be written.
const REASON: &str = "ShootStateSyncFailed";
/// Older events say nothing about now, in seconds.
const RECENT: i64 = 1800;
/// Most events that are looked at.
const MOST: usize = 2000;

pub(super) async fn run(survey: &Survey) -> Result<Vec<Finding>> {
    if !survey.serves(&CONTROL_PLANE_MIGRATION) {
        return Ok(vec![Finding::not_checked(NAME, "", "this cluster is no garden of Repot")]);
    }
    let params = ListParams::default().fields(&format!("reason={REASON}"));
    let found = survey.list(&EVENT, survey.namespace.as_deref(), params, MOST).await?;
    Ok(judge(&found.items, survey.now()))
}

/// The newest failure of each Shoot.
fn judge(events: &[Value], now: jiff::Timestamp) -> Vec<Finding> {
    let mut newest: BTreeMap<String, (jiff::Timestamp, String)> = BTreeMap::new();
    for event in events {
        let text = |path| text_at(event, path).unwrap_or_default();
        let times =
            ["/series/lastObservedTime", "/lastTimestamp", "/eventTime", "/metadata/creationTimestamp"];
        let time = times.iter().filter_map(|path| text_at(event, path)?.parse().ok()).max();
        let Some(time) = time.filter(|time| now.duration_since(*time).as_secs() < RECENT) else { continue };
        let shoot = format!("Shoot {}/{}", text("/involvedObject/namespace"), text("/involvedObject/name"));
        let entry = newest.entry(shoot).or_insert((time, text("/message").to_owned()));
        if time > entry.0 {
            *entry = (time, text("/message").to_owned());
        }
    }
    if newest.is_empty() {
        return vec![Finding::ok(NAME, "", "no seed has failed to write a ShootState in the last half hour")];
    }
    let advice =
        "a forced migration would lose what is not written; docs/operate/alerts/repot-shoot-state-lagging.md";
    let finding = |(shoot, (time, says)): (String, (jiff::Timestamp, String))| {
        Finding::problem(
            NAME,
            shoot,
            format!("its ShootState was not written {}: {says}", ago(time, now)),
            advice,
        )
    };
    newest.into_iter().map(finding).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::doctor::finding::Severity;

    #[test]
    fn newest_failure_of_each_shoot_counts() {
        let now: jiff::Timestamp = "2026-11-29T08:30:00Z".parse().expect("a time");
        let event = |shoot: &str, time: &str, message: &str| json!({"involvedObject": {"namespace": "garden-dev", "name": shoot}, "lastTimestamp": time, "message": message});
        let found = judge(
            &[
                event("alpha", "2026-11-29T08:10:00Z", "older"),
                event("alpha", "2026-11-29T08:20:00Z", "quota"),
                event("beta", "2026-11-29T07:00:00Z", "long ago"),
            ],
            now,
        );
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(found[0].message, "its ShootState was not written 10m00s ago: quota");
        assert_eq!(judge(&[], now)[0].severity, Severity::Ok);
    }
}
