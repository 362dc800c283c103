//! The migration by gardenlet as a flow of the engine.

use std::time::Duration;

use repot_api::{
    conditions::Reason,
    gardener::gardenlet::{self, ShootView},
};

use super::{
    effect::Effect,
    notes::Notes,
    observed::{DestinationFacts, Facts, GardenFacts, Observed, ShootFacts, SourceFacts},
    step::Step,
};
use crate::{
    flow::{Flow, LedgerOf, Request, StepContext},
    ledger::Check,
    migration::{Side, retry},
};

/// The migration of a control plane by gardenlet, classic or forced.
#[derive(Clone, Debug, PartialEq)]
pub enum GardenletMigration {}

/// What a row decides on.
pub(super) type Context<'a> = StepContext<'a, GardenletMigration>;

/// The shortest time a step can be given: below it, looking twice would take longer.
const LEAST_TIMEOUT: Duration = Duration::from_secs(30);

impl Flow for GardenletMigration {
    type Side = Side;
    type Step = Step;
    type Observed = Observed;
    type Notes = Notes;
    type Effect = Effect;

    const ABORT_FIELD: &'static str = "spec.abort";
    const RETRY_FIELD: Option<&'static str> = Some("spec.retry");

    fn request(observed: &Observed) -> Request {
        let request = &observed.request;
        Request {
            paused: request.paused,
            abort: request.abort,
            abandoned: request.abandoned.clone(),
            superseded: None,
            continued: request.released.clone(),
            retry: request.retry,
            step_timeout: request.step_timeout.max(LEAST_TIMEOUT),
        }
    }

    /// The source is dead, and has no rows; in a classic migration it measures when its API ends, and nobody waits for that.
    fn takes_part(_: &Observed, side: Side) -> bool {
        side != Side::Source
    }

    fn cleanup(context: &StepContext<'_, Self>) -> Vec<Effect> {
        match &context.observed.facts {
            Facts::Garden(_) => finalizer(context).into_iter().collect(),
            Facts::Source(_) => Vec::new(),
            // A creation that was requested before the end may arrive after it.
            Facts::Destination(facts) => {
                facts.copy_namespace.then_some(Effect::RemoveCopy).into_iter().collect()
            }
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
        context.at_garden().and_then(|_| finalizer(context)).into_iter().collect()
    }

    fn data_locations(notes: &Notes) -> String {
        let loss = notes.loss.as_ref();
        loss.map_or_else(String::new, |loss| {
            format!("snapshot {} of the source holds revision {}", loss.snapshot, loss.revision)
        })
    }
}

/// The object stays until the destination has ended, since it holds what that has left to undo. The finalizer goes when a migration has
/// failed, and comes back when it is tried again.
fn finalizer(context: &Context) -> Option<Effect> {
    let (request, ledger) = (&context.observed.request, context.ledger);
    // The source has nothing to undo, and may be dead.
    let is_over =
        |(side, other): &(Side, LedgerOf<GardenletMigration>)| *side == Side::Source || other.phase.is_end();
    let present = !ledger.phase.is_end() || !context.others.iter().all(is_over);
    let change = retry::finalizer_change(request.finalizer, present, ledger.retry);
    change.map(|present| Effect::EnsureFinalizer { present })
}

impl ShootFacts {
    /// The Shoot, as a gardenlet looks at it.
    pub(super) fn view(&self) -> ShootView<'_> {
        ShootView {
            spec_seed: self.spec_seed.as_deref(),
            status_seed: self.status_seed.as_deref(),
            last_operation: self.last_operation.as_ref().map(|last| (&*last.kind, &*last.state)),
            ..ShootView::default()
        }
    }

    /// The seed whose gardenlet works on it.
    pub(super) fn responsible(&self) -> Option<&str> {
        gardenlet::responsible_seed(self.spec_seed.as_deref(), self.status_seed.as_deref())
    }
}

impl Context<'_> {
    /// Who asks in the rollback table.
    pub(super) fn rollback_fence(&self) -> String {
        format!("{}/rollback", self.observed.request.uid)
    }

    /// What the garden observes, in its own controller.
    pub(super) fn at_garden(&self) -> Option<&GardenFacts> {
        match &self.observed.facts {
            Facts::Garden(facts) => Some(facts),
            Facts::Source(_) | Facts::Destination(_) => None,
        }
    }

    /// What the source observes, in its own controller.
    pub(super) fn at_source(&self) -> Option<&SourceFacts> {
        match &self.observed.facts {
            Facts::Source(facts) => Some(facts),
            Facts::Garden(_) | Facts::Destination(_) => None,
        }
    }

    /// What the destination observes, in its own controller.
    pub(super) fn at_destination(&self) -> Option<&DestinationFacts> {
        match &self.observed.facts {
            Facts::Destination(facts) => Some(facts),
            Facts::Garden(_) | Facts::Source(_) => None,
        }
    }
}

/// Checks what the garden observes.
pub(super) fn garden(context: &Context, check: impl Fn(&GardenFacts) -> Check) -> Check {
    context.at_garden().map_or_else(of_another_side, check)
}

/// Checks what the source observes.
pub(super) fn source(context: &Context, check: impl Fn(&SourceFacts) -> Check) -> Check {
    context.at_source().map_or_else(of_another_side, check)
}

/// Checks what the destination observes.
pub(super) fn destination(context: &Context, check: impl Fn(&DestinationFacts) -> Check) -> Check {
    context.at_destination().map_or_else(of_another_side, check)
}

/// A row of one side was asked about by the controller of another one: nothing is observed of it here.
fn of_another_side() -> Check {
    Check::waiting("NotObserved", "another side observes this")
}
