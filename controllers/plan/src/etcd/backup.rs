//! EtcdBackup: a backup, taken once or by schedule.
//!
//! Its finalizer never holds up the deletion of a cluster: without a HostedEtcd nothing is waited for, and a store that does not
//! answer is waited for one hour.

use std::{collections::BTreeMap, time::Duration};

use repot_api::schedule::Schedule;

use super::{
    EtcdFlow, PLAN_VERSION,
    effect::Effect,
    retention::{Retention, expendable},
    rows::{
        give_lock_back, is_backed_up, is_locked, is_name_free, is_unlocked, is_verified, is_well,
        name_backup, no_effects, note_lock, note_proof, note_service, nothing, take_backup, take_lock,
        verify_backup,
    },
    schedule,
    world::{Backup, Cluster, Lock, World},
};
use crate::{
    flow::{self, CANCELLED, Decision, Otherwise, POLL, Patience, Plan, Proof, Row, SOON},
    ledger::{Ledger, Phase},
    time::Time,
};

type Notes = super::Notes;

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

/// One backup.
pub static PLAN: Plan<EtcdFlow> = Plan {
    kind: "EtcdBackup",
    version: PLAN_VERSION,
    forward: FORWARD,
    // It changes nothing that would have to be put back.
    back: &[],
    no_return: None,
    touched: |_| false,
};

static FORWARD: &[Row<EtcdFlow>] = &[
    Row {
        step: "NameFree",
        does: "No other backup in the store has the name of this object; backups of a schedule get random names.",
        proof: Proof::Latched,
        patience: Patience::Steps(1),
        otherwise: Otherwise::TurnBack,
        advice: "choose another name, or delete the backup of that name",
        check: is_name_free,
        effects: no_effects,
        begin: nothing,
        met: nothing,
    },
    Row {
        step: "LockTaken",
        does: "`status.currentWorkflow` of the HostedEtcd is this backup, and its finalizer is set.",
        proof: Proof::HeldUntil("LockReleased"),
        patience: Patience::Hours(24),
        otherwise: Otherwise::TurnBack,
        advice: "end the workflow that has the lock, or wait for it",
        check: is_locked,
        effects: take_lock,
        begin: nothing,
        met: note_lock,
    },
    Row {
        step: "EtcdServes",
        does: "A quorum of the etcd answers.",
        proof: Proof::Latched,
        patience: Patience::Steps(1),
        otherwise: Otherwise::TurnBack,
        advice: "repair the etcd first",
        check: is_well,
        effects: no_effects,
        begin: nothing,
        met: note_service,
    },
    Row {
        step: "BackupTaken",
        does: "A backup with the name of this object, or a random one by a schedule, recorded in `status.backupName`, is in the store.",
        proof: Proof::Latched,
        patience: Patience::Steps(2),
        otherwise: Otherwise::TurnBack,
        advice: "see whether the store can be reached and has room",
        check: is_backed_up,
        effects: take_backup,
        begin: name_backup,
        met: nothing,
    },
    Row {
        step: "BackupVerified",
        does: "The backup was restored elsewhere.",
        proof: Proof::Latched,
        patience: Patience::Steps(2),
        otherwise: Otherwise::TurnBack,
        advice: "see the log of the etcd agent",
        check: is_verified,
        effects: verify_backup,
        begin: nothing,
        met: note_proof,
    },
    Row {
        step: "LockReleased",
        does: "`status.currentWorkflow` is cleared.",
        proof: Proof::Latched,
        patience: Patience::Steps(1),
        otherwise: Otherwise::GoOn,
        advice: "it is cleared when the HostedEtcd can be written",
        check: is_unlocked,
        effects: give_lock_back,
        begin: nothing,
        met: nothing,
    },
];

/// What to do next.
#[must_use]
pub fn decide(spec: &Spec, world: &World, ledger: &Ledger<Notes>, now: Time) -> Decision<EtcdFlow> {
    decide_by(&PLAN, spec, world, ledger, now)
}

/// The same by another table: tests plant faults in it.
pub(crate) fn decide_by(
    plan: &Plan<EtcdFlow>,
    spec: &Spec,
    world: &World,
    ledger: &Ledger<Notes>,
    now: Time,
) -> Decision<EtcdFlow> {
    let running = ledger.phase == Phase::Running;
    match (world.request.deleting, spec.schedule) {
        (Some(since), _) if !running => leave(spec, world, ledger, now, since),
        (None, Some(schedule)) if !running => wait_for(schedule, spec, world, ledger, now),
        (None, None) if ledger.phase.is_end() => rest(spec, world, ledger, now),
        _ => flow::decide(plan, world, ledger, now),
    }
}

/// Between two backups of a schedule.
fn wait_for(
    schedule: Schedule,
    spec: &Spec,
    world: &World,
    ledger: &Ledger<Notes>,
    now: Time,
) -> Decision<EtcdFlow> {
    if world.request.cancel || world.cluster != Cluster::Present {
        return stop(spec, world, ledger, now);
    }
    let due = schedule::next(&schedule, ledger.started.unwrap_or(spec.created));
    let is_due = due.is_some_and(|due| due <= now) && !world.request.paused;
    if is_due {
        return Decision { effects: Vec::new(), records: Some(begun(ledger, now)), requeue: Some(SOON) };
    }
    let mut next = ledger.clone();
    next.phase = Phase::Scheduled;
    let effects = match world.lock {
        Lock::Ours => vec![Effect::EnsureLock { held: false }],
        // Another workflow may be about to restore one of them.
        Lock::Other(_) => Vec::new(),
        Lock::Free => prune(spec, world, now),
    };
    let wait = match due {
        Some(due) if effects.is_empty() => due.since(now).max(POLL),
        _ => POLL,
    };
    Decision { effects, records: (next != *ledger).then_some(next), requeue: Some(wait) }
}

/// A run of its own: of the one before, nothing is left but what it produced.
fn begun(ledger: &Ledger<Notes>, now: Time) -> Ledger<Notes> {
    Ledger {
        version: PLAN_VERSION,
        phase: Phase::Running,
        reason: "Started".to_owned(),
        started: Some(now),
        completed: ledger.completed,
        ..Ledger::default()
    }
}

/// After the end. The finalizer stays where the backups go together with the object.
fn rest(spec: &Spec, world: &World, ledger: &Ledger<Notes>, now: Time) -> Decision<EtcdFlow> {
    if !spec.delete_backups || world.cluster != Cluster::Present {
        return flow::decide(&PLAN, world, ledger, now);
    }
    let (effects, requeue) = match world.lock {
        Lock::Ours => (vec![Effect::EnsureLock { held: false }], Some(POLL)),
        Lock::Free | Lock::Other(_) => (Vec::new(), None),
    };
    Decision { effects, records: None, requeue }
}

fn stop(spec: &Spec, world: &World, ledger: &Ledger<Notes>, now: Time) -> Decision<EtcdFlow> {
    if ledger.phase == Phase::Cancelled {
        return rest(spec, world, ledger, now);
    }
    let mut next = ledger.clone();
    next.phase = Phase::Cancelled;
    CANCELLED.clone_into(&mut next.reason);
    "no further backup is taken".clone_into(&mut next.message);
    next.completed = Some(now);
    Decision { effects: Vec::new(), records: Some(next), requeue: Some(SOON) }
}

fn own(world: &World) -> BTreeMap<String, &Backup> {
    let all = world.backups.iter();
    all.filter(|(_, b)| b.owner == world.request.uid).map(|(name, b)| (name.clone(), b)).collect()
}

fn prune(spec: &Spec, world: &World, now: Time) -> Vec<Effect> {
    let Some(retention) = spec.retention else { return Vec::new() };
    let names = expendable(retention, &own(world), now);
    if names.is_empty() { Vec::new() } else { vec![Effect::EnsureNoBackups { names }] }
}

/// The object is being deleted, and nothing runs.
fn leave(spec: &Spec, world: &World, ledger: &Ledger<Notes>, now: Time, since: Time) -> Decision<EtcdFlow> {
    if !ledger.phase.is_end() {
        return stop(spec, world, ledger, now);
    }
    let names: Vec<String> = own(world).into_keys().collect();
    let waits = spec.delete_backups
        && !names.is_empty()
        && world.cluster == Cluster::Present
        && now.since(since) <= DELETION_PATIENCE;
    if !waits {
        return flow::decide(&PLAN, world, ledger, now);
    }
    let effects = match world.lock {
        Lock::Ours => vec![Effect::EnsureLock { held: false }],
        Lock::Other(_) => Vec::new(),
        Lock::Free => vec![Effect::EnsureNoBackups { names }],
    };
    Decision { effects, records: None, requeue: Some(POLL) }
}
