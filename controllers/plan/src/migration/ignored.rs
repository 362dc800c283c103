//! Rows of the garden that keep gardenlet away from the Shoot.
//!
//! gardenlet moves a Shoot by itself when `spec.seedName` changes, so it has to leave the Shoot alone before that is written. It does so
//! only where it is configured to honour the annotation. Whether it does is tried: the generation of the Shoot is raised, and nobody
//! may observe it.

use std::time::Duration;

use super::{
    context::{Context, garden},
    effect::Effect,
    observed::{GardenFacts, Ignored, Operation},
    step::Step,
};
use crate::ledger::Check;

/// How long a gardenlet has to show that it reconciles the Shoot all the same. One that takes its seed for unfit looks again after 15 s.
const TRIAL: Duration = Duration::from_secs(20);

/// Whether gardenlet is asked to leave the Shoot alone: not where an earlier version has recorded the migration already, and not where
/// Gardener refuses annotations of a Shoot whose seed is being deleted.
pub(crate) fn is_asked_for(context: &Context) -> bool {
    let is_refused = context.at_garden().is_some_and(|facts| facts.is_seed_deleted);
    !context.is_settled(Step::MigrationRecorded) && !is_refused
}

/// Tried where gardenlet was asked to leave the Shoot alone.
pub(crate) fn is_tried(context: &Context) -> bool {
    context.is_reached(Step::ShootIgnored) && is_asked_for(context)
}

pub(crate) fn is_gardenlet_excluded(context: &Context) -> Check {
    let passed = context.since(Step::ShootIgnored).unwrap_or_default();
    garden(context, |facts| {
        if !facts.ignored.is_in_force() {
            let message = "somebody has taken shoot.gardener.cloud/ignore from the Shoot";
            return Check::blocked("IgnoreTakenAway", message);
        }
        if facts.has_operation() && facts.observed_generation >= facts.generation {
            let message = format!(
                "generation {} of the Shoot was observed although shoot.gardener.cloud/ignore is set; gardenlet needs respectSyncPeriodOverwrite, or use executor Gardenlet",
                facts.generation
            );
            return Check::blocked("GardenletReconciles", message);
        }
        if facts.is_being_reconciled() {
            return Check::waiting("OperationRuns", "an operation of the Shoot has not ended");
        }
        if passed < TRIAL {
            let message = format!("gardenlet has {} s to observe the Shoot", TRIAL.as_secs());
            return Check::waiting("TryingGardenlet", message);
        }
        Check::Met(format!("nobody has observed generation {} of the Shoot", facts.generation))
    })
}

/// What ends the annotation, once everything else is done.
pub(crate) fn end_ignore(facts: &GardenFacts) -> Option<Effect> {
    facts.has_ignore_to_end().then_some(Effect::EnsureIgnored { ignored: false })
}

/// What is waited for until gardenlet may act on the Shoot again, as far as this migration has a say.
pub(crate) fn is_ignore_ended(facts: &GardenFacts) -> Option<Check> {
    let waits =
        || Check::waiting("EndingIgnore", "shoot.gardener.cloud/ignore is being taken from the Shoot");
    facts.has_ignore_to_end().then(waits)
}

impl GardenFacts {
    /// Whether the Shoot has a last operation; without one, nothing raises its generation.
    fn has_operation(&self) -> bool {
        self.last_operation.is_some()
    }

    /// Whether somebody reconciles the Shoot now. What a migration of Repot has left in the middle goes on no more.
    fn is_being_reconciled(&self) -> bool {
        let state = self.last_operation.as_ref().map(|last| last.state.as_str());
        matches!(state, Some("Processing" | "Pending"))
            && self.operation == Operation::Other
            && !self.is_operation_by_repot
    }
}

impl Ignored {
    /// Whether gardenlet is told to leave the Shoot alone, and this migration has a say in it.
    pub(crate) fn is_in_force(self) -> bool {
        match self {
            Self::ByThis | Self::Kept => true,
            Self::No | Self::ByOther | Self::TakenAway => false,
        }
    }
}
