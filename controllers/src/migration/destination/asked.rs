//! What is read in a pass of the destination. What costs much is read only while a row decides on it: in an outage, requests of passes
//! compete with the API servers that are being started. Pure.

use repot_plan::{
    ledger::{Phase, State},
    migration::Step,
};

use crate::{
    etcd::api::Etcd,
    migration::overall::{Ledger, is_open},
};

/// Rows that decide on the ShootState.
const NEED_STATE: [Step; 9] = [
    Step::SourceBucketReadable,
    Step::LossConfirmed,
    Step::BindingsResolved,
    Step::SnapshotsCopiedAhead,
    Step::DestinationPrepared,
    Step::FinalSnapshotCopied,
    Step::InfrastructureRestored,
    Step::ExtensionsRestored,
    Step::WorkersRestored,
];
/// Rows that write the main Etcd. They need the ShootState where it is not yet a standby of this migration.
const WRITE_ETCD: [Step; 3] = [Step::StandbyFollows, Step::EtcdServes, Step::EtcdComplete];
/// Rows that decide on extension resources.
const NEED_EXTENSIONS: [Step; 3] =
    [Step::InfrastructureRestored, Step::ExtensionsRestored, Step::WorkersRestored];

/// Whether the ShootState is read. A large etcd is followed for minutes before its standby has restored it, and nothing is written
/// meanwhile.
pub(super) fn state(ledger: &Ledger, etcd: Option<&Etcd>) -> bool {
    let is_any_open = |steps: &[Step]| steps.iter().any(|step| is_open(ledger, *step));
    let writes_etcd = is_any_open(&WRITE_ETCD) && !etcd.is_some_and(|etcd| is_own_standby(etcd, ledger));
    let is_needed = writes_etcd || is_any_open(&NEED_STATE) || is_open(ledger, Step::MachinesUnchanged);
    is_needed && !ledger.phase.is_rollback()
}

/// Whether an Etcd is written as the standby of this migration. One that is carried may have been the standby of an earlier one.
pub(super) fn is_own_standby(etcd: &Etcd, ledger: &Ledger) -> bool {
    etcd.spec.backup.standby && ledger.notes.volumes.as_ref() == Some(&etcd.volumes())
}

/// Whether extension resources are read: to restore them, and to remove them in a rollback.
pub(super) fn extensions(ledger: &Ledger) -> bool {
    ledger.phase != Phase::Running || NEED_EXTENSIONS.iter().any(|step| ledger.is_started(*step))
}

/// Whether it is asked what is left at the destination: only a rollback removes it.
pub(super) fn left(ledger: &Ledger) -> bool {
    ledger.phase.is_rollback()
}

/// Whether the Secret with access to the bucket of the source is looked for: the last rows, and the cleanup after them, remove it.
pub(super) fn source_secret(ledger: &Ledger) -> bool {
    ledger.phase != Phase::Running || ledger.state(Step::SourceBackupEntryRemoved) != State::Pending
}

#[cfg(test)]
mod tests {
    use repot_apimachinery::time::Time;
    use repot_plan::ledger::Record;
    use serde_json::json;

    use super::*;

    fn ledger(phase: Phase, open: &[Step]) -> Ledger {
        let record = || Record { state: State::Running, started: Some(Time(1)), ..Record::pending() };
        let mut ledger =
            Ledger { phase, steps: open.iter().map(|step| (*step, record())).collect(), ..Ledger::default() };
        ledger.notes.volumes = Some("u2-standby".to_owned());
        ledger
    }

    fn standby(volumes: &str) -> Etcd {
        let spec = json!({"replicas": 1, "volumeClaimTemplate": volumes, "backup": {"standby": true}});
        serde_json::from_value(json!({"metadata": {"name": "etcd-main"}, "spec": spec})).expect("an Etcd")
    }

    #[test]
    fn standby_of_an_earlier_migration_is_not_taken_for_the_own_one() {
        let follows = ledger(Phase::Running, &[Step::StandbyFollows]);
        assert!(state(&follows, Some(&standby("u1-standby"))));
        assert!(!state(&follows, Some(&standby("u2-standby"))));
        assert!(state(&follows, None));
    }

    #[test]
    fn little_is_read_in_an_outage_and_everything_in_a_rollback() {
        let outage = ledger(Phase::Running, &[Step::ApiStarted, Step::EtcdServes]);
        let own = standby("u2-standby");
        let asked = |ledger: &Ledger| {
            (state(ledger, Some(&own)), extensions(ledger), left(ledger), source_secret(ledger))
        };
        assert_eq!(asked(&outage), (false, false, false, false));
        assert_eq!(asked(&ledger(Phase::RollingBack, &[])), (false, true, true, true));
        assert_eq!(asked(&ledger(Phase::Running, &[Step::WorkersRestored])), (true, true, false, false));
    }
}
