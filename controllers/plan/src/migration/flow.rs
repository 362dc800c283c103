//! Migrations between two seeds as a flow of the engine.

use std::time::Duration;

use repot_api::conditions::Reason;

use super::{
    effect::Effect,
    notes::Notes,
    observed::{DestinationFacts, Facts, MigrationMode, Observed, OwnerId, OwnerRecord},
    retry,
    step::{Side, Step},
};
use crate::{
    flow::{Flow, LedgerOf, Request, StepContext},
    ledger::Phase,
    live::progress,
};

/// A migration of a control plane between two seeds, in any mode.
#[derive(Clone, Debug, PartialEq)]
pub enum MigrationFlow {}

/// The shortest time a step can be given: below it, looking twice would take longer.
const LEAST_TIMEOUT: Duration = Duration::from_secs(30);

impl Flow for MigrationFlow {
    type Side = Side;
    type Step = Step;
    type Observed = Observed;
    type Notes = Notes;
    type Effect = Effect;

    const ABORT_FIELD: &'static str = "spec.abort";
    const RETRY_FIELD: Option<&'static str> = Some("spec.retry");

    fn request(observed: &Observed) -> Request {
        let request = &observed.request;
        // The source has its own part left to do, whoever goes on: its controllers are stopped, and its objects are removed.
        let is_source = matches!(observed.facts, Facts::Source(_));
        Request {
            paused: request.paused,
            abort: request.abort,
            abandoned: request.abandoned.clone(),
            superseded: request.superseded.clone(),
            continued: request.continued.as_ref().filter(|_| !is_source).map(|other| {
                let message = format!("the destination is dead, and {other} goes on from there");
                Reason::new("ContinuedByAnother", message)
            }),
            retry: request.retry,
            step_timeout: request.step_timeout.max(LEAST_TIMEOUT),
        }
    }

    /// Nobody waits for the source of a forced migration. When it comes back, its controller does the rows of its side. Nor does anybody
    /// wait for the source of a migration that a forced one supersedes. The same holds of two destinations: one from which another
    /// migration goes on, and one that never comes back. The destination of one that is superseded removes what it has, lost or not.
    fn takes_part(observed: &Observed, side: Side) -> bool {
        let request = &observed.request;
        if side == Side::Destination {
            let is_lost = request.destination_lost && request.superseded.is_none();
            return request.continued.is_none() && !is_lost;
        }
        side != Side::Source || (request.mode != MigrationMode::Forced && request.superseded.is_none())
    }

    fn cleanup(context: &StepContext<'_, Self>) -> Vec<Effect> {
        let request = &context.observed.request;
        match &context.observed.facts {
            Facts::Garden(facts) => {
                // A request that was on its way when the migration ended may set the annotation after that.
                let has_ignore = context.ledger.phase != Phase::Failed && facts.has_ignore_to_end();
                let ignore = has_ignore.then_some(Effect::EnsureIgnored { ignored: false });
                // The object goes with its finalizer, so that comes last. Without it, another migration may tell of itself.
                let is_asked = request.finalizer && request.abandoned.is_none();
                match live_progress(context).filter(|_| is_asked) {
                    Some(progress) => ignore.into_iter().chain([progress]).collect(),
                    None => finalizer(context).into_iter().chain(ignore).collect(),
                }
            }
            // A creation that was requested before the end may arrive after it.
            Facts::Destination(facts) if context.ledger.phase.is_rollback() => {
                let is_left = !facts.left.is_empty();
                is_left.then_some(Effect::RemoveDestination).into_iter().collect()
            }
            Facts::Destination(facts) if context.ledger.phase == Phase::Succeeded => {
                let entry = facts.source_backup_entry.then_some(Effect::EnsureNoSourceBackupEntry);
                let guard = facts.machine_guard.then_some(Effect::EnsureNoMachineGuard);
                entry.into_iter().chain(guard).chain(owner_written_again(context, facts)).collect()
            }
            // Machines may be deleted there again: the next migration removes them with all else.
            Facts::Destination(facts) if request.continued.is_some() && facts.machine_guard => {
                vec![Effect::EnsureNoMachineGuard]
            }
            // The same of what other seeds reach the members by.
            Facts::Source(facts)
                if context.ledger.phase.is_rollback() && facts.is_exposed_by(&context.forward_fence()) =>
            {
                vec![Effect::HideMembers { fence: context.rollback_fence() }]
            }
            Facts::Source(_) | Facts::Destination(_) => Vec::new(),
        }
    }

    /// The garden is asked first, since it sees whether another migration of the Shoot has begun meanwhile.
    fn may_retry(context: &StepContext<'_, Self>) -> Result<(), Reason> {
        match context.at_garden() {
            Some(facts) => retry::garden_allows(facts.other_migration.as_ref(), facts.followed_by.as_ref()),
            None => retry::garden_has_begun(context, context.observed.request.retry),
        }
    }

    fn upkeep(context: &StepContext<'_, Self>) -> Vec<Effect> {
        let finalizer = context.at_garden().and_then(|_| finalizer(context));
        finalizer.into_iter().chain(live_progress(context)).collect()
    }

    fn data_locations(notes: &Notes) -> String {
        let snapshot = notes.final_snapshot.as_ref();
        let snapshot =
            snapshot.map(|it| format!("the final snapshot {} holds revision {}", it.name, it.revision));
        let volumes = notes.volumes.as_ref().map(|volumes| format!("the new volumes of etcd are {volumes}"));
        snapshot.into_iter().chain(volumes).collect::<Vec<_>>().join(", ")
    }
}

/// What the status of the Shoot is to show of a live migration. Until that is recorded another migration may tell of itself.
fn live_progress(context: &StepContext<'_, MigrationFlow>) -> Option<Effect> {
    let is_live = context.observed.request.mode == MigrationMode::Live;
    let is_begun = context.ledger.is_settled(Step::MigrationRecorded);
    let facts = context.at_garden().filter(|_| is_live && is_begun)?;
    progress::tell(facts, context.ledger.phase.is_rollback(), |step| context.record(step))
}

/// The object stays until each side has ended, since it holds what they have left to undo. The finalizer goes when a migration has failed,
/// and comes back when it is tried again.
fn finalizer(context: &StepContext<'_, MigrationFlow>) -> Option<Effect> {
    let (request, ledger) = (&context.observed.request, context.ledger);
    // The source of one that is superseded, and the destination of one that is continued, have nothing to undo, and may never come back.
    let is_over = |(side, other): &(Side, LedgerOf<MigrationFlow>)| match side {
        Side::Source if request.superseded.is_some() => true,
        Side::Destination if request.continued.is_some() => true,
        Side::Garden | Side::Source | Side::Destination => other.phase.is_end(),
    };
    let present = !ledger.phase.is_end() || !context.others.iter().all(is_over);
    let change = retry::finalizer_change(request.finalizer, present, ledger.retry);
    change.map(|present| Effect::EnsureFinalizer { present })
}

/// A DNS controller of a seed that was cut off may write the record of an earlier owner, or delete the record, when it is back. The
/// members of the destination stop then, until it names them again. A later migration passes ownership on by itself, and with the Shoot
/// its record is deleted.
fn owner_written_again(context: &StepContext<'_, MigrationFlow>, facts: &DestinationFacts) -> Option<Effect> {
    let request = &context.observed.request;
    let owner = OwnerId { seed: request.destination_identity.clone(), epoch: context.notes.owner_epoch? };
    let is_asked = request.mode == MigrationMode::Forced && request.abandoned.is_none() && !facts.is_followed;
    let is_lost = match &facts.owner {
        OwnerRecord::Unknown => false,
        OwnerRecord::Absent => true,
        OwnerRecord::Present(present) => present.epoch < owner.epoch,
    };
    (is_asked && is_lost).then_some(Effect::EnsureOwner { owner })
}
