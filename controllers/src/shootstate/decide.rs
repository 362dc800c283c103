//! Whether a seed may write the ShootState of a Shoot, and how: a pure function of the Shoot.

use kube::core::ObjectMeta;
use repot_api::gardener::shoot::ROLLED_BACK;
use serde::Deserialize;

use super::difference::Mode;

/// What is read of a Shoot.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct Shoot {
    /// Kubernetes metadata of the Shoot.
    pub metadata: ObjectMeta,
    /// What the user wants.
    #[serde(default)]
    pub spec: ShootSpec,
    /// What gardenlet or Repot reports.
    #[serde(default)]
    pub status: ShootStatus,
}

/// What is read of `spec`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ShootSpec {
    /// The seed that the control plane should be on.
    pub seed_name: Option<String>,
}

/// What is read of `status`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ShootStatus {
    /// The seed that the control plane is on.
    pub seed_name: Option<String>,
    /// What gardenlet does or did last.
    pub last_operation: Option<LastOperation>,
    /// Namespace of the control plane in its seed.
    #[serde(rename = "technicalID")]
    pub technical_id: Option<String>,
}

/// `status.lastOperation` of a Shoot.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct LastOperation {
    /// Such as `Reconcile` or `Migrate`.
    #[serde(rename = "type", default)]
    pub kind: String,
    /// Such as `Processing` or `Succeeded`.
    #[serde(default)]
    pub state: String,
    /// What it is about, in words; Repot's own words tell of a migration that has rolled back.
    #[serde(default)]
    pub description: String,
}

/// What a seed does with the ShootState of a Shoot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Leaves it alone, for this reason.
    Skip(&'static str),
    /// Brings it to what the seed has.
    Sync(Mode),
}

/// Decides for a seed.
///
/// A seed that does not have the control plane writes nothing: it would overwrite what the other seed writes. A destination writes
/// nothing until its Restore has succeeded: until then its namespace has a part of the state only.
#[must_use]
pub fn decide(shoot: &Shoot, seed: &str) -> Decision {
    let (wanted, present) = (shoot.spec.seed_name.as_deref(), shoot.status.seed_name.as_deref());
    if shoot.metadata.deletion_timestamp.is_some() {
        return Decision::Skip("the Shoot is being deleted");
    }
    if present.is_none() {
        return Decision::Skip("the Shoot is on no seed yet");
    }
    if present != Some(seed) {
        return Decision::Skip("the Shoot is on another seed");
    }
    let leaves = wanted.is_some_and(|wanted| wanted != seed);
    let operation = shoot.status.last_operation.as_ref();
    let is = |kind: &str| operation.is_some_and(|operation| operation.kind == kind);
    let has_succeeded = operation.is_some_and(|operation| operation.state == "Succeeded");
    if !leaves && is("Restore") && !has_succeeded {
        return Decision::Skip("the Shoot is being restored on this seed");
    }
    if !leaves && is("Migrate") && has_succeeded {
        return Decision::Skip("the Shoot is about to be restored on this seed");
    }
    // A migration has rolled back to where another one had restored a part only.
    let is_partial = operation.is_some_and(|operation| {
        operation.state != "Succeeded" && operation.description.starts_with(ROLLED_BACK.0)
    });
    if leaves || is("Migrate") || is("LiveMigrate") || is_partial {
        return Decision::Sync(Mode::Upsert);
    }
    Decision::Sync(Mode::Overwrite)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn decided(spec_seed: &str, status_seed: &str, kind: &str, state: &str) -> Decision {
        let shoot = json!({
            "metadata": {}, "spec": {"seedName": spec_seed},
            "status": {"seedName": status_seed, "lastOperation": {"type": kind, "state": state}},
        });
        decide(&serde_json::from_value(shoot).expect("a Shoot"), "here")
    }

    #[test]
    fn only_the_seed_of_the_control_plane_writes() {
        let (upsert, overwrite) = (Decision::Sync(Mode::Upsert), Decision::Sync(Mode::Overwrite));
        for (spec, status, kind, state, expected) in [
            ("here", "here", "Create", "Processing", overwrite),
            ("here", "here", "Reconcile", "Failed", overwrite),
            ("here", "here", "Restore", "Succeeded", overwrite),
            ("here", "here", "Migrate", "Processing", upsert),
            ("there", "here", "Reconcile", "Succeeded", upsert),
            ("there", "here", "Migrate", "Succeeded", upsert),
            ("there", "here", "Restore", "Processing", upsert),
            ("there", "here", "LiveMigrate", "Processing", upsert),
        ] {
            assert_eq!(decided(spec, status, kind, state), expected, "{spec} {status} {kind} {state}");
        }
        for (spec, status, kind, state) in [
            ("here", "there", "Reconcile", "Succeeded"),
            ("there", "there", "Migrate", "Processing"),
            // Before and while the destination is filled.
            ("here", "here", "Migrate", "Succeeded"),
            ("here", "here", "Restore", "Processing"),
            ("here", "here", "Restore", "Failed"),
        ] {
            let decision = decided(spec, status, kind, state);
            assert!(matches!(decision, Decision::Skip(_)), "{spec} {status} {kind} {state}: {decision:?}");
        }
    }

    #[test]
    fn nothing_is_removed_after_a_rollback_to_a_seed_that_was_not_restored_completely() {
        let description = format!("{}m{}", ROLLED_BACK.0, ROLLED_BACK.1);
        for (state, mode) in [("Failed", Mode::Upsert), ("Succeeded", Mode::Overwrite)] {
            let operation = json!({"type": "Reconcile", "state": state, "description": description});
            let shoot = json!({
                "metadata": {}, "spec": {"seedName": "here"},
                "status": {"seedName": "here", "lastOperation": operation},
            });
            let shoot: Shoot = serde_json::from_value(shoot).expect("a Shoot");
            assert_eq!(decide(&shoot, "here"), Decision::Sync(mode), "{state}");
        }
    }

    #[test]
    fn shoots_that_go_or_were_never_there_are_left_alone() {
        let deleted = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}, "status": {"seedName": "here"}});
        for shoot in [json!({"metadata": {}}), json!({"metadata": {}, "spec": {"seedName": "here"}}), deleted]
        {
            let shoot: Shoot = serde_json::from_value(shoot).expect("a Shoot");
            assert!(matches!(decide(&shoot, "here"), Decision::Skip(_)), "{shoot:?}");
        }
    }
}
