//! How far a live migration has come, in either of the two forms of `status.liveMigration`.

use crate::names::{
    REQUESTED_AT, STEP_API_SERVER_READY, STEP_FAILED, STEP_PEERS_JOINED, STEP_SIX_MEMBERS, STEPS_OF_NO_RETURN,
};
use repot_apimachinery::value::{annotation_of, at, items_at, text_at};
use serde_json::Value;

use crate::gardener::time::{CLOCK_DIFFERENCE, seconds_between};

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

/// What one condition or one side says of a step.
#[derive(Clone, Copy)]
struct Report<'a> {
    name: &'a str,
    step: Step,
    /// RFC 3339 in UTC, so that times compare as texts; empty where it has none.
    time: &'a str,
}

/// The steps after source and destination formed one etcd, in the spelling of Gardener.
const AFTER_JOINING: &[&str] = &[
    "MigrateExtensionsNeededBeforeKubeAPIServer",
    STEP_API_SERVER_READY,
    "MigrateDNSRecords",
    STEPS_OF_NO_RETURN[0],
    STEPS_OF_NO_RETURN[1],
    STEPS_OF_NO_RETURN[2],
];

impl<'a> Progress<'a> {
    /// How the step stands in which source and destination form one etcd. A later step that is done says that this one is,
    /// unless the etcd failed afterwards.
    #[must_use]
    pub fn joining(self) -> Step {
        let own = self.newest(&[STEP_SIX_MEMBERS, STEP_PEERS_JOINED]);
        let later = self
            .reports()
            .filter(|report| AFTER_JOINING.contains(&report.name) && report.step == Step::Done)
            .map(|report| report.time)
            .max();
        match (own, later) {
            (Some(own), Some(later)) if own.step == Step::Failed && own.time > later => Step::Failed,
            (_, Some(_)) => Step::Done,
            (own, None) => own.map_or(Step::Ahead, |report| report.step),
        }
    }

    /// How the step stands in which the API servers of the destination come up.
    #[must_use]
    pub fn api_servers(self) -> Step {
        self.newest(&[STEP_API_SERVER_READY]).map_or(Step::Ahead, |report| report.step)
    }

    /// Whether source members are being removed, or gone: from there on the only way is forward. A report counts even when the
    /// clock that wrote it was late by [`CLOCK_DIFFERENCE`]: a wrong yes refuses an abort, a wrong no loses data.
    #[must_use]
    pub fn is_past_return(self) -> bool {
        let requested = annotation_of(self.0, REQUESTED_AT).unwrap_or_default();
        self.all_reports().any(|report| {
            let before = seconds_between(report.time, requested);
            STEPS_OF_NO_RETURN.contains(&report.name)
                && report.step != Step::Ahead
                && before.is_none_or(|seconds| seconds <= CLOCK_DIFFERENCE)
        })
    }

    /// The same by the reports of this migration alone, for what a wrong yes would keep from being free for ever.
    #[must_use]
    pub fn has_removed_members(self) -> bool {
        self.reports().any(|report| STEPS_OF_NO_RETURN.contains(&report.name) && report.step != Step::Ahead)
    }

    /// Whether the status tells of the migration that was asked for last, not of an earlier one. Without the time of the
    /// request nobody knows, and the answer is no.
    #[must_use]
    pub fn is_current(self) -> bool {
        let requested = annotation_of(self.0, REQUESTED_AT);
        requested.is_some_and(|requested| {
            !requested.is_empty() && self.reports().any(|report| report.time >= requested)
        })
    }

    /// The newest of the reports of a step; of two at one time the one that is further.
    fn newest(self, names: &[&str]) -> Option<Report<'a>> {
        self.reports()
            .filter(|report| names.contains(&report.name))
            .max_by(|one, other| (one.time, one.step).cmp(&(other.time, other.step)))
    }

    /// All reports, without those that are older than the request for this migration.
    fn reports(self) -> impl Iterator<Item = Report<'a>> {
        let requested = annotation_of(self.0, REQUESTED_AT).unwrap_or_default();
        self.all_reports().filter(move |report| report.time.is_empty() || report.time >= requested)
    }

    fn all_reports(self) -> impl Iterator<Item = Report<'a>> {
        let conditions = items_at(self.0, "/status/liveMigration/conditions").iter().map(condition);
        let sides =
            ["source", "destination"].map(|side| at(self.0, &format!("/status/liveMigration/{side}")));
        conditions.chain(sides.into_iter().flatten().map(side))
    }
}

/// Gardener's form: a condition for each step. One that is there was begun, unless it is Unknown.
fn condition(condition: &Value) -> Report<'_> {
    let text = |member| text_at(condition, member).unwrap_or_default();
    let step = match text("/status") {
        "True" => Step::Done,
        "False" if STEP_FAILED.contains(&text("/reason")) => Step::Failed,
        "False" => Step::Running,
        _ => Step::Ahead,
    };
    Report { name: text("/type"), step, time: text("/lastTransitionTime") }
}

/// The paper's form: the step at which a side is.
fn side(side: &Value) -> Report<'_> {
    let text = |member| text_at(side, member).unwrap_or_default();
    let step = match text("/status") {
        "Succeeded" => Step::Done,
        "Failed" => Step::Failed,
        _ => Step::Running,
    };
    Report { name: text("/stepName"), step, time: text("/completionTime") }
}

impl Ord for Step {
    /// By how far the step is: a side that failed is further than one that still tries.
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

    fn joining(source: &Value, destination: &Value) -> Step {
        let sides = json!({"source": source, "destination": destination});
        Progress(&json!({"status": {"liveMigration": sides}})).joining()
    }

    #[test]
    fn the_newer_of_two_sides_counts() {
        let at = |step: &str, status: &str, time: &str| json!({"stepName": step, "status": status, "completionTime": time});
        let (early, late) = ("2026-01-01T10:00:00Z", "2026-01-01T11:00:00Z");
        let six = "SixMemberETCDReady";
        assert_eq!(joining(&at(six, "Failed", early), &at(six, "Succeeded", late)), Step::Done);
        assert_eq!(joining(&at(six, "Failed", late), &at(six, "Succeeded", early)), Step::Failed);
        let api = "DestinationKubeAPIServerReady";
        assert_eq!(joining(&at(six, "Failed", early), &at(api, "Succeeded", late)), Step::Done);
        assert_eq!(joining(&at(six, "Failed", late), &at(api, "Succeeded", early)), Step::Failed);
        assert_eq!(joining(&at(six, "Succeeded", early), &at(api, "Failed", late)), Step::Done);
    }

    #[test]
    fn the_progress_of_an_earlier_migration_does_not_count() {
        let shoot = |requested: &str| {
            json!({
                "metadata": {"annotations": {"migration.gardener.cloud/requested-at": requested}},
                "status": {"liveMigration": {"conditions": [
                    {"type": "EtcdMigrationComplete", "status": "True", "lastTransitionTime": "2026-01-01T10:00:00Z"},
                ]}},
            })
        };
        let (own, earlier) = (shoot("2026-01-01T09:00:00Z"), shoot("2026-01-02T09:00:00Z"));
        assert!(Progress(&own).is_past_return() && Progress(&own).is_current());
        // The clock of the seed is late by less than five minutes, and by more.
        assert!(Progress(&shoot("2026-01-01T10:05:00Z")).is_past_return());
        assert!(!Progress(&shoot("2026-01-01T10:05:01Z")).is_past_return());
        // Nobody can say of a time that cannot be read that it is earlier.
        assert!(Progress(&shoot("tomorrow")).is_past_return());
        assert!(!Progress(&earlier).is_past_return() && !Progress(&earlier).is_current());
    }
}
