//! How far a live migration has come, in either of the two forms of `status.liveMigration`.

use repot_api::names::{
    STEP_API_SERVER_READY, STEP_FAILED, STEP_PEERS_JOINED, STEP_SIX_MEMBERS, STEPS_OF_NO_RETURN,
};
use serde_json::Value;

use crate::change::{at, items_at, text_at};

/// How a step stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Not begun.
    Ahead,
    /// Begun, not done.
    Running,
    /// Past its deadline, or broken.
    Failed,
    /// Done.
    Done,
}

/// The progress of a Shoot.
#[derive(Clone, Copy, Debug)]
pub struct Progress<'a>(pub &'a Value);

impl Progress<'_> {
    /// How the step stands in which source and destination form one etcd.
    #[must_use]
    pub fn joining(self) -> Step {
        self.step(&[STEP_SIX_MEMBERS, STEP_PEERS_JOINED])
    }

    /// How the step stands in which the API servers of the destination come up.
    #[must_use]
    pub fn api_servers(self) -> Step {
        self.step(&[STEP_API_SERVER_READY])
    }

    /// Whether source members are being removed, or gone: from there on the only way is forward.
    #[must_use]
    pub fn is_past_return(self) -> bool {
        STEPS_OF_NO_RETURN.iter().any(|step| self.step(&[step]) != Step::Ahead)
    }

    fn step(self, names: &[&str]) -> Step {
        names.iter().map(|name| self.condition(name).max(self.side(name))).max().unwrap_or(Step::Ahead)
    }

    /// A condition that is there was begun, unless it is Unknown.
    fn condition(self, name: &str) -> Step {
        let all = items_at(self.0, "/status/liveMigration/conditions");
        let Some(found) = all.iter().find(|condition| text_at(condition, "/type") == Some(name)) else {
            return Step::Ahead;
        };
        let reason = text_at(found, "/reason").unwrap_or_default();
        match text_at(found, "/status") {
            Some("True") => Step::Done,
            Some("False") if STEP_FAILED.contains(&reason) => Step::Failed,
            Some("False") => Step::Running,
            _ => Step::Ahead,
        }
    }

    /// The paper's form tells the step at which each side is.
    fn side(self, name: &str) -> Step {
        let sides =
            ["source", "destination"].map(|side| at(self.0, &format!("/status/liveMigration/{side}")));
        let at = |side: &&Value| text_at(side, "/stepName") == Some(name);
        let steps = sides.into_iter().flatten().filter(at).map(|side| match text_at(side, "/status") {
            Some("Succeeded") => Step::Done,
            Some("Failed") => Step::Failed,
            _ => Step::Running,
        });
        steps.max().unwrap_or(Step::Ahead)
    }
}

impl Ord for Step {
    /// The more telling first: what one side calls failed is not made good by another that still tries.
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (*self as u8).cmp(&(*other as u8))
    }
}

impl PartialOrd for Step {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn reads_both_forms() {
        let both = [
            json!({"status": {"liveMigration": {"destination": {"stepName": "SixMemberETCDReady", "status": "Failed"}}}}),
            json!({"status": {"liveMigration": {"conditions": [
                {"type": "DestinationEtcdPeersJoined", "status": "False", "reason": "DeadlineExceeded"},
            ]}}}),
        ];
        for shoot in &both {
            assert_eq!(Progress(shoot).joining(), Step::Failed, "{shoot}");
            assert!(!Progress(shoot).is_past_return());
        }
        let late = json!({"status": {"liveMigration": {"conditions": [
            {"type": "EtcdMigrationComplete", "status": "False", "reason": "SourceMembersPresent"},
        ]}}});
        assert!(Progress(&late).is_past_return());
        assert_eq!(Progress(&json!([])).joining(), Step::Ahead);
    }
}
