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

/// How long a gardenlet has to show that it reconciles the Shoot all the same.
const TRIAL: Duration = Duration::from_secs(10);

/// A migration that an earlier version has recorded goes on without these rows.
pub(crate) fn is_not_recorded(context: &Context) -> bool {
    !context.is_settled(Step::MigrationRecorded)
}

pub(crate) fn is_gardenlet_excluded(context: &Context) -> Check {
    let passed = context.since(Step::ShootIgnored).unwrap_or_default();
    garden(context, |facts| {
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
    facts.ignored.is_by_this().then_some(Effect::EnsureIgnored { ignored: false })
}

/// Whether gardenlet may act on the Shoot again, as far as this migration has a say.
pub(crate) fn is_ignore_ended(facts: &GardenFacts) -> Option<Check> {
    let is_open = facts.ignored.is_by_this();
    is_open
        .then(|| Check::waiting("EndingIgnore", "shoot.gardener.cloud/ignore is being taken from the Shoot"))
}

impl GardenFacts {
    /// Whether the Shoot has a last operation; without one, nothing raises its generation.
    fn has_operation(&self) -> bool {
        self.last_operation.is_some()
    }

    /// Whether somebody reconciles the Shoot now. What an earlier migration has left in the middle goes on no more.
    fn is_being_reconciled(&self) -> bool {
        let is_move = |kind: &str| matches!(kind, "Migrate" | "Restore");
        let runs = self.last_operation.as_ref().is_some_and(|last| {
            matches!(last.state.as_str(), "Processing" | "Pending") && !is_move(&last.kind)
        });
        runs && self.operation == Operation::Other
    }
}

impl Ignored {
    /// Whether this migration has a say in the annotation.
    pub(crate) fn is_by_this(self) -> bool {
        match self {
            Self::ByThis | Self::Kept => true,
            Self::No | Self::ByOther => false,
        }
    }
}
