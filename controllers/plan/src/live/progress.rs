//! How far a live migration is, as Gardener and GEP-39 show it in the status of the Shoot: a condition for each of eight steps. The
//! controller of the garden alone writes them.

use crate::{
    ledger::{Record, State},
    migration::{
        Step,
        effect::Effect,
        observed::{GardenFacts, LiveCondition},
    },
};

/// Conditions of Gardener, and the step that each of them shows.
const CONDITIONS: [(&str, Step); 8] = [
    ("SourceEtcdPreparedForPeerJoin", Step::SourceMembersExposed),
    ("DestinationEtcdPeersJoined", Step::SixMemberEtcdReady),
    // No extension resource has to migrate before kube-apiservers start: these need nothing but objects that are carried.
    ("MigrateExtensionsNeededBeforeKubeAPIServer", Step::DestinationPrepared),
    ("DestinationKubeAPIServerReady", Step::ApiServes),
    ("MigrateDNSRecords", Step::ApiDnsSwitched),
    ("EtcdMigrationComplete", Step::SourceMembersRemoved),
    ("SourceSeedCleanup", Step::SourceRemoved),
    ("MigrationCompleted", Step::OperationSucceeded),
];

/// What is to be written; nothing where it is there. `record` gives the record of a step, whichever side has it.
pub(crate) fn tell<'a>(
    facts: &GardenFacts,
    is_rollback: bool,
    record: impl Fn(Step) -> Option<&'a Record>,
) -> Option<Effect> {
    let conditions = CONDITIONS.iter().map(|(kind, step)| condition(kind, record(*step), is_rollback));
    let conditions: Vec<LiveCondition> = conditions.collect();
    let is_there = |wanted: &LiveCondition| {
        let mut found = facts.live.iter().filter(|found| found.kind == wanted.kind);
        found.any(|found| found.status == wanted.status && found.reason == wanted.reason)
    };
    (!conditions.iter().all(is_there)).then_some(Effect::TellLiveProgress { conditions })
}

fn condition(kind: &str, record: Option<&Record>, is_rollback: bool) -> LiveCondition {
    let (status, reason) = match record.map_or(State::Pending, |record| record.state) {
        State::Pending | State::RolledBack => ("Unknown", "NotStarted"),
        // Its side is going to say so.
        State::Running if is_rollback => ("Unknown", "NotStarted"),
        State::Running => ("False", "Progressing"),
        State::Failed => ("False", "StepFailed"),
        State::Succeeded | State::Skipped => ("True", "Reached"),
    };
    LiveCondition {
        kind: kind.to_owned(),
        status: status.to_owned(),
        reason: reason.to_owned(),
        message: record.map(|record| record.message.clone()).unwrap_or_default(),
    }
}
