//! What the rows of a migration decide on.

use super::{
    flow::MigrationFlow,
    notes::Notes,
    observed::{DestinationFacts, Facts, GardenFacts, MigrationMode, SourceFacts},
    step::Side,
};
use crate::{flow::StepContext, ledger::Check};

/// What a row decides on.
pub(crate) type Context<'a> = StepContext<'a, MigrationFlow>;

/// A row of one side was asked about by the controller of another one: nothing is observed of it here.
fn of_another_side() -> Check {
    Check::waiting("NotObserved", "another side observes this")
}

impl Context<'_> {
    /// Who asks in the forward table.
    pub(crate) fn forward_fence(&self) -> String {
        format!("{}/forward", self.observed.request.uid)
    }

    /// Who asks in the rollback table.
    pub(crate) fn rollback_fence(&self) -> String {
        format!("{}/rollback", self.observed.request.uid)
    }

    /// What the garden observes, in its own controller.
    #[must_use]
    pub fn at_garden(&self) -> Option<&GardenFacts> {
        match &self.observed.facts {
            Facts::Garden(facts) => Some(facts),
            Facts::Source(_) | Facts::Destination(_) => None,
        }
    }

    /// What the destination observes, in its own controller.
    #[must_use]
    pub fn at_destination(&self) -> Option<&DestinationFacts> {
        match &self.observed.facts {
            Facts::Destination(facts) => Some(facts),
            Facts::Garden(_) | Facts::Source(_) => None,
        }
    }

    /// What the source observes, in its own controller.
    #[must_use]
    pub fn at_source(&self) -> Option<&SourceFacts> {
        match &self.observed.facts {
            Facts::Source(facts) => Some(facts),
            Facts::Garden(_) | Facts::Destination(_) => None,
        }
    }

    /// What the garden remembers, as far as this side has read it.
    fn garden_notes(&self) -> Option<&Notes> {
        match self.observed.facts {
            Facts::Garden(_) => Some(self.notes),
            Facts::Source(_) | Facts::Destination(_) => self.side(Side::Garden).map(|ledger| &ledger.notes),
        }
    }

    /// Whether the Shoot was hibernated when the migration was recorded.
    pub(crate) fn is_hibernated(&self) -> bool {
        let noted = self.garden_notes().and_then(|notes| notes.hibernated);
        noted.unwrap_or(self.observed.request.hibernated)
    }

    /// Whether the Shoot had no workers when the migration was recorded.
    pub(crate) fn is_workerless(&self) -> bool {
        let noted = self.garden_notes().and_then(|notes| notes.workerless);
        noted.unwrap_or(self.observed.request.workerless)
    }

    /// Where the replicas of the control plane are noted: at the source, or in a forced migration at the destination.
    pub(crate) fn replica_notes(&self) -> Option<&Notes> {
        match self.observed.request.mode {
            MigrationMode::Classic | MigrationMode::Live => self.source_notes(),
            MigrationMode::Forced => Some(self.notes),
        }
    }

    /// What the source remembers, as far as this side has read it.
    pub(crate) fn source_notes(&self) -> Option<&Notes> {
        self.side(Side::Source).map(|ledger| &ledger.notes)
    }
}

/// Met where nothing is left of this list; else waiting with the first few of it.
pub(crate) fn none_left(left: &[String], reason: &'static str, what: &str, met: &str) -> Check {
    const SHOWN: usize = 5;
    match left {
        [] => Check::Met(met.to_owned()),
        some => {
            let shown = some.iter().take(SHOWN).map(String::as_str).collect::<Vec<_>>().join(", ");
            let more =
                if some.len() > SHOWN { format!(" and {} more", some.len() - SHOWN) } else { String::new() };
            Check::waiting(reason, format!("{what}: {shown}{more}"))
        }
    }
}

/// Checks what the garden observes.
pub(crate) fn garden(context: &Context, check: impl Fn(&GardenFacts) -> Check) -> Check {
    match &context.observed.facts {
        Facts::Garden(facts) => check(facts),
        Facts::Source(_) | Facts::Destination(_) => of_another_side(),
    }
}

/// Checks what the source observes.
pub(crate) fn source(context: &Context, check: impl Fn(&SourceFacts) -> Check) -> Check {
    match &context.observed.facts {
        Facts::Source(facts) => check(facts),
        Facts::Garden(_) | Facts::Destination(_) => of_another_side(),
    }
}

/// Checks what the destination observes.
pub(crate) fn destination(context: &Context, check: impl Fn(&DestinationFacts) -> Check) -> Check {
    match &context.observed.facts {
        Facts::Destination(facts) => check(facts),
        Facts::Garden(_) | Facts::Source(_) => of_another_side(),
    }
}
