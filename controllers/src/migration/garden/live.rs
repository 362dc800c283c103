//! `status.liveMigration` of the Shoot, in Gardener's form and in that of GEP-39. Pure.

use repot_api::names::{STEP_PEERS_JOINED, STEP_SIX_MEMBERS};
use repot_plan::migration::observed::LiveCondition;
use serde_json::{Value, json};

use crate::migration::api::ShootStatus;

/// Conditions of steps that the source does.
const OF_SOURCE: [&str; 2] = ["SourceEtcdPreparedForPeerJoin", "SourceSeedCleanup"];
/// The condition of the whole.
const WHOLE: &str = "MigrationCompleted";

fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value[field].as_str().unwrap_or_default()
}

/// The conditions that a Shoot has.
#[must_use]
pub fn read(status: &ShootStatus) -> Vec<LiveCondition> {
    let read = |condition: &Value| {
        let text = |field| text(condition, field).to_owned();
        LiveCondition {
            kind: text("type"),
            status: text("status"),
            reason: text("reason"),
            message: text("message"),
        }
    };
    status.live_migration.conditions.iter().map(read).collect()
}

/// The field with these conditions. One whose status stays keeps its time of transition. Gardener drops the two fields of GEP-39.
#[must_use]
pub fn render(status: &ShootStatus, conditions: &[LiveCondition], now: &str) -> Value {
    let before = &status.live_migration.conditions;
    let condition = |wanted: &LiveCondition| {
        let same = before
            .iter()
            .find(|found| text(found, "type") == wanted.kind && text(found, "status") == wanted.status);
        let since = same.map_or(now, |found| text(found, "lastTransitionTime"));
        json!({
            "type": wanted.kind, "status": wanted.status, "reason": wanted.reason, "message": wanted.message,
            "lastTransitionTime": since, "lastUpdateTime": now,
        })
    };
    json!({
        "conditions": conditions.iter().map(condition).collect::<Vec<_>>(),
        "source": side(conditions, true, now), "destination": side(conditions, false, now),
    })
}

/// The last step of a side that was started; null before the first one.
fn side(conditions: &[LiveCondition], of_source: bool, now: &str) -> Value {
    let is_of_side = |one: &&LiveCondition| OF_SOURCE.contains(&&*one.kind) == of_source && one.kind != WHOLE;
    let last = conditions.iter().filter(is_of_side).rfind(|one| one.status != "Unknown");
    last.map_or(Value::Null, |last| {
        let status = match (&*last.status, &*last.reason) {
            ("True", _) => "Succeeded",
            (_, "StepFailed") => "Failed",
            _ => "Error",
        };
        let name = if last.kind == STEP_PEERS_JOINED { STEP_SIX_MEMBERS } else { &*last.kind };
        let completed = if status == "Succeeded" { now.into() } else { Value::Null };
        json!({"stepName": name, "status": status, "message": last.message, "completionTime": completed})
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mk(kind: &str, status: &str, reason: &str) -> LiveCondition {
        LiveCondition {
            kind: kind.into(),
            status: status.into(),
            reason: reason.into(),
            ..Default::default()
        }
    }

    #[test]
    fn status_that_stays_keeps_its_time_and_both_forms_say_the_same() {
        let (early, late) = ("2026-01-01T00:00:00Z", "2026-01-01T00:01:00Z");
        let joined = |status, reason| {
            [mk("SourceEtcdPreparedForPeerJoin", "True", "Reached"), mk(STEP_PEERS_JOINED, status, reason)]
        };
        let first = render(&ShootStatus::default(), &joined("False", "Progressing"), early);
        let status = serde_json::from_value(json!({"liveMigration": first})).expect("a status");
        assert_eq!(read(&status), joined("False", "Progressing"));
        let second = render(&status, &joined("True", "Reached"), late);
        let times: Vec<&str> =
            (0..2).map(|at| text(&second["conditions"][at], "lastTransitionTime")).collect();
        assert_eq!(times, [early, late]);
        let side = |json: &Value| (json["stepName"].clone(), json["status"].clone());
        assert_eq!(side(&first["destination"]), (json!("SixMemberETCDReady"), json!("Error")));
        assert_eq!(side(&second["destination"]), (json!("SixMemberETCDReady"), json!("Succeeded")));
        assert_eq!(side(&second["source"]), (json!("SourceEtcdPreparedForPeerJoin"), json!("Succeeded")));
        let none = render(&status, &[mk(STEP_PEERS_JOINED, "Unknown", "NotStarted")], late);
        assert_eq!((&none["source"], &none["destination"]), (&Value::Null, &Value::Null));
    }
}
