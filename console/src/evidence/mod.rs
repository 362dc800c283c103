//! Evidence of a migration for auditors: what was recorded, signed, and checked without a cluster.
//!
//! The file is an envelope of DSSE (<https://github.com/secure-systems-lab/dsse>) with one or more signatures by Ed25519. The payload is
//! JSON: the ControlPlaneMigration as it was stored, its Events, and a summary that follows from them.

mod check;
mod envelope;

use jiff::Timestamp;
use serde_json::{Value, json};

pub use check::findings;
pub use envelope::{Envelope, Error, PrivateKey, PublicKey};

/// Form of the payload. Another version of it has another number.
pub const FORM: &str = "migration.gardener.cloud/evidence/v1";

/// What is signed: the object without managed fields, its Events, the oldest first, and a summary.
#[must_use]
pub fn payload(object: &Value, events: &[Value], collected: Timestamp, server: &str) -> Value {
    let mut object = object.clone();
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("managedFields");
    }
    let mut events: Vec<Value> = events.iter().map(event).collect();
    events.sort_by_key(|event| event["time"].as_str().unwrap_or_default().to_owned());
    json!({
        "form": FORM,
        "collected": collected,
        "server": server,
        "summary": summary(&object),
        "events": events,
        "migration": object,
    })
}

/// What an auditor asks first. It follows from the object alone, so a reader can compute it again.
#[must_use]
pub fn summary(object: &Value) -> Value {
    let (spec, status) = (&object["spec"], &object["status"]);
    let known = |value: &Value| (!value.is_null()).then(|| value.clone());
    let snapshot = ["source", "destination"].iter().find_map(|side| known(&status[side]["finalSnapshot"]));
    json!({
        "shoot": {"namespace": object["metadata"]["namespace"], "name": spec["shootRef"]["name"], "uid": spec["shootRef"]["uid"]},
        "sourceSeed": spec["sourceSeed"],
        "destinationSeed": spec["destinationSeed"],
        "mode": spec["mode"],
        "executor": spec["executor"],
        "phase": status["phase"],
        "created": object["metadata"]["creationTimestamp"],
        "pointOfNoReturn": status["pointOfNoReturn"],
        "ownerEpoch": status["ownerEpoch"],
        "apiOutage": status["apiOutage"],
        "finalSnapshot": snapshot,
        "confirmedLoss": status["destination"]["loss"],
        "lateSnapshot": status["lateSnapshot"],
    })
}

fn event(event: &Value) -> Value {
    let first = |fields: [&str; 3]| {
        fields.iter().map(|field| &event[*field]).find(|value| !value.is_null()).cloned().unwrap_or_default()
    };
    json!({
        "time": first(["eventTime", "lastTimestamp", "firstTimestamp"]),
        "type": event["type"],
        "reason": event["reason"],
        "message": event["message"],
        "from": first(["reportingComponent", "reportingController", "source"]),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::migration::tests::classic;

    #[test]
    fn payload_has_the_object_without_managed_fields_and_events_in_order() {
        let mut object = classic();
        object["metadata"]["managedFields"] = json!([{"manager": "x"}]);
        let at = |time: &str| json!({"lastTimestamp": time, "reason": "Reached", "message": "m", "type": "Normal"});
        let events = [at("2026-11-28T05:15:00Z"), at("2026-11-28T05:14:00Z")];
        let now = "2026-11-28T06:00:00Z".parse().expect("a time");
        let payload = payload(&object, &events, now, "https://garden");
        assert_eq!(payload["migration"]["metadata"].get("managedFields"), None);
        assert_eq!(payload["events"][0]["time"], "2026-11-28T05:14:00Z");
        assert_eq!(payload["summary"]["apiOutage"]["seconds"], 7);
        assert!(findings(&payload).is_empty(), "{:?}", findings(&payload));
    }
}
