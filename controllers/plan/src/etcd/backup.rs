//! EtcdBackup: a backup, taken once or by schedule.
//!
//! Its finalizer never holds up the deletion of a cluster: without a HostedEtcd nothing is waited for, and a store that does not
//! answer is waited for one hour.

use std::{collections::BTreeMap, time::Duration};

use repot_apimachinery::{
    schedule::{self, Schedule},
    time::Time,
};
use repot_etcd_core::{
    backups::Backup,
    retention::{Retention, expendable},
};

use super::{
    effect::Effect,
    observed::{Cluster, Lock, Observed},
    rows::{
        give_lock_back, is_backed_up, is_locked, is_name_free, is_unlocked, is_verified, is_well,
        name_backup, note_lock, note_proof, note_service, take_backup, take_lock, verify_backup,
    },
    step::{Side, Step},
    workflow::{EtcdFlow, EtcdLedger, PLAN_VERSION, SIDE_LIMIT},
};
use crate::{
    flow::{self, CANCELLED, Decision, Input, OnFailure, POLL, Plan, Plans, Proof, Row, SOON, Timeout},
    ledger::Phase,
};

/// How long the deletion of backups is waited for when their EtcdBackup is deleted.
pub const DELETION_PATIENCE: Duration = Duration::from_secs(3600);

/// What an EtcdBackup asks for beside what all workflows do.
#[derive(Clone, Copy, Debug)]
pub struct Spec {
    /// When; once where there is none.
    pub schedule: Option<Schedule>,
    /// Which backups of the schedule are kept; all where it is left out.
    pub retention: Option<Retention>,
    /// Whether the backups are deleted together with the object.
    pub delete_backups: bool,
    /// When the object was created.
    pub created: Time,
}

/// One backup, version 1.
pub static PLAN: Plan<EtcdFlow> = Plan {
    kind: "EtcdBackup",
    version: PLAN_VERSION,
    forward: FORWARD,
    // It changes nothing that would have to be rolled back.
    rollback: &[],
    point_of_no_return: None,
    needs_rollback: |_| false,
    fields: &["backupName", "proof"],
    unpausable_from: None,
    side_limit: SIDE_LIMIT,
    committed_side_limit: SIDE_LIMIT,
};

/// All versions of the workflow.
pub static PLANS: Plans<EtcdFlow> = Plans { versions: &[&PLAN] };

static FORWARD: &[Row<EtcdFlow>] = &[
    Row {
        does: "No other backup in the store has the name of this object; backups of a schedule get random names.",
        advice: "choose another name, or delete the backup of that name",
        ..Row::new(Side::Seed, Step::NameFree, is_name_free)
    },
    Row {
        after: &[Step::NameFree],
        does: "`status.currentWorkflow` of the HostedEtcd is this backup, and its finalizer is set.",
        proof: Proof::HeldUntil(Step::LockReleased),
        timeout: Timeout::Hours(24),
        advice: "end the workflow that has the lock, or wait for it",
        effects: take_lock,
        on_done: note_lock,
        ..Row::new(Side::Seed, Step::LockTaken, is_locked)
    },
    Row {
        after: &[Step::LockTaken],
        does: "A quorum of the etcd answers.",
        advice: "repair the etcd first",
        on_done: note_service,
        ..Row::new(Side::Seed, Step::EtcdServes, is_well)
    },
    Row {
        after: &[Step::EtcdServes],
        does: "A backup with the name of this object, or a random one by a schedule, recorded in `status.backupName`, is in the store.",
        timeout: Timeout::Steps(2),
        advice: "see whether the store can be reached and has room",
        effects: take_backup,
        on_start: name_backup,
        ..Row::new(Side::Seed, Step::BackupTaken, is_backed_up)
    },
    Row {
        after: &[Step::BackupTaken],
        does: "The backup was restored elsewhere.",
        timeout: Timeout::Steps(2),
        advice: "see the log of the etcd agent",
        effects: verify_backup,
        on_done: note_proof,
        ..Row::new(Side::Seed, Step::BackupVerified, is_verified)
    },
    Row {
        after: &[Step::BackupVerified],
        does: "`status.currentWorkflow` is cleared.",
        on_failure: OnFailure::Skip,
        advice: "it is cleared when the HostedEtcd can be written",
        effects: give_lock_back,
        ..Row::new(Side::Seed, Step::LockReleased, is_unlocked)
    },
];

/// What to do next.
#[must_use]
pub fn decide(spec: &Spec, input: &Input<'_, EtcdFlow>) -> Decision<EtcdFlow> {
    decide_by(&PLANS, spec, input)
}

/// The same by other tables: tests plant faults in them.
pub(crate) fn decide_by(
    plans: &Plans<EtcdFlow>,
    spec: &Spec,
    input: &Input<'_, EtcdFlow>,
) -> Decision<EtcdFlow> {
    let (ledger, observed) = (input.ledger, input.observed);
    let is_known = ledger.version == 0 || plans.of(ledger.version).is_some();
    if !is_known || ledger.phase == Phase::Running {
        return flow::decide(plans, input);
    }
    match (observed.request.deleting, spec.schedule) {
        (Some(since), _) => delete(plans, spec, input, since),
        (None, Some(schedule)) => wait_for(plans, schedule, spec, input),
        (None, None) if ledger.phase.is_end() => keep(plans, spec, input),
        (None, None) => flow::decide(plans, input),
    }
}

/// Between two backups of a schedule.
fn wait_for(
    plans: &Plans<EtcdFlow>,
    schedule: Schedule,
    spec: &Spec,
    input: &Input<'_, EtcdFlow>,
) -> Decision<EtcdFlow> {
    let Input { observed, ledger, now, .. } = *input;
    if observed.request.cancel || observed.cluster != Cluster::Present {
        return stop(plans, spec, input);
    }
    let due = schedule::next(&schedule, ledger.started.unwrap_or(spec.created));
    let is_due = due.is_some_and(|due| due <= now) && !observed.request.paused;
    if is_due {
        return Decision {
            effects: Vec::new(),
            records: Some(next_run(plans, ledger, now)),
            requeue: Some(SOON),
        };
    }
    let mut next = ledger.clone();
    next.phase = Phase::Scheduled;
    let effects = match observed.lock {
        Lock::Ours => vec![Effect::EnsureLock { held: false }],
        // Another workflow may be about to restore one of them.
        Lock::Other(_) => Vec::new(),
        Lock::Free => prune(spec, observed, now),
    };
    let wait = match due {
        Some(due) if effects.is_empty() => due.since(now).max(POLL),
        _ => POLL,
    };
    Decision { effects, records: (next != *ledger).then_some(next), requeue: Some(wait) }
}

/// A run of its own: of the one before, nothing is left but what it produced.
fn next_run(plans: &Plans<EtcdFlow>, ledger: &EtcdLedger, now: Time) -> EtcdLedger {
    EtcdLedger {
        version: plans.newest().version,
        phase: Phase::Running,
        reason: "Started".to_owned(),
        started: Some(now),
        completed: ledger.completed,
        ..EtcdLedger::default()
    }
}

/// After the end. The finalizer stays where the backups go together with the object.
fn keep(plans: &Plans<EtcdFlow>, spec: &Spec, input: &Input<'_, EtcdFlow>) -> Decision<EtcdFlow> {
    let observed = input.observed;
    if !spec.delete_backups || observed.cluster != Cluster::Present {
        return flow::decide(plans, input);
    }
    let (effects, requeue) = match observed.lock {
        Lock::Ours => (vec![Effect::EnsureLock { held: false }], Some(POLL)),
        Lock::Free | Lock::Other(_) => (Vec::new(), None),
    };
    Decision { effects, records: None, requeue }
}

fn stop(plans: &Plans<EtcdFlow>, spec: &Spec, input: &Input<'_, EtcdFlow>) -> Decision<EtcdFlow> {
    let Input { ledger, now, .. } = *input;
    if ledger.phase == Phase::Cancelled {
        return keep(plans, spec, input);
    }
    let mut next = ledger.clone();
    next.phase = Phase::Cancelled;
    CANCELLED.clone_into(&mut next.reason);
    "no further backup is taken".clone_into(&mut next.message);
    next.completed = Some(now);
    Decision { effects: Vec::new(), records: Some(next), requeue: Some(SOON) }
}

fn own(observed: &Observed) -> BTreeMap<String, &Backup> {
    let all = observed.backups.iter();
    all.filter(|(_, b)| b.owner == observed.request.uid).map(|(name, b)| (name.clone(), b)).collect()
}

fn prune(spec: &Spec, observed: &Observed, now: Time) -> Vec<Effect> {
    let Some(retention) = spec.retention else { return Vec::new() };
    let names = expendable(retention, &own(observed), now);
    if names.is_empty() { Vec::new() } else { vec![Effect::EnsureNoBackups { names }] }
}

/// The object is being deleted, and nothing runs.
fn delete(
    plans: &Plans<EtcdFlow>,
    spec: &Spec,
    input: &Input<'_, EtcdFlow>,
    since: Time,
) -> Decision<EtcdFlow> {
    let Input { observed, ledger, now, .. } = *input;
    if !ledger.phase.is_end() {
        return stop(plans, spec, input);
    }
    let names: Vec<String> = own(observed).into_keys().collect();
    let waits = spec.delete_backups
        && !names.is_empty()
        && observed.cluster == Cluster::Present
        && now.since(since) <= DELETION_PATIENCE;
    if !waits {
        return flow::decide(plans, input);
    }
    let effects = match observed.lock {
        Lock::Ours => vec![Effect::EnsureLock { held: false }],
        Lock::Other(_) => Vec::new(),
        Lock::Free => vec![Effect::EnsureNoBackups { names }],
    };
    Decision { effects, records: None, requeue: Some(POLL) }
}
