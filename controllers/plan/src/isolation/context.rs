//! What rows of an isolation decide on.

use super::observed::{Facts, GardenFacts, SeedFacts};
use crate::{flow::StepContext, ledger::Check};

/// The isolation of a zone.
#[derive(Clone, Debug, PartialEq)]
pub enum ZoneIsolationFlow {}

/// What a row decides on.
pub(super) type Context<'a> = StepContext<'a, ZoneIsolationFlow>;

impl Context<'_> {
    /// What the garden observes, in its own controller.
    pub(super) fn at_garden(&self) -> Option<&GardenFacts> {
        match &self.observed.facts {
            Facts::Garden(facts) => Some(facts),
            Facts::Seed(_) => None,
        }
    }

    /// What the seed observes, in its own controller.
    pub(super) fn at_seed(&self) -> Option<&SeedFacts> {
        match &self.observed.facts {
            Facts::Seed(facts) => Some(facts),
            Facts::Garden(_) => None,
        }
    }
}

/// Checks what the garden observes.
pub(super) fn garden_check(context: &Context, check: impl Fn(&GardenFacts) -> Check) -> Check {
    context.at_garden().map_or_else(of_another_side, check)
}

/// Checks what the seed observes.
pub(super) fn seed_check(context: &Context, check: impl Fn(&SeedFacts) -> Check) -> Check {
    context.at_seed().map_or_else(of_another_side, check)
}

/// A row of one side was asked about by the controller of another one: nothing is observed of it here.
fn of_another_side() -> Check {
    Check::waiting("NotObserved", "another side observes this")
}
