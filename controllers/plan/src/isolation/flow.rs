//! The isolation as a flow of the engine.

use std::time::Duration;

use repot_api::conditions::Reason;

use super::{
    context::{Context, ZoneIsolationFlow},
    effect::Effect,
    garden,
    notes::Notes,
    observed::{Facts, Observed, ShootLife},
    seed,
    step::{IsolationSide, Step},
};
use crate::{
    flow::{Abort, Flow, LedgerOf, Request, StepContext},
    ledger::Phase,
};

impl Flow for ZoneIsolationFlow {
    type Side = IsolationSide;
    type Step = Step;
    type Observed = Observed;
    type Notes = Notes;
    type Effect = Effect;

    const ABORT_FIELD: &'static str = "metadata.annotations";

    /// What calls an isolation off is a row, and not an abort.
    fn request(observed: &Observed) -> Request {
        let request = &observed.request;
        Request {
            paused: false,
            abort: Abort::None,
            abandoned: never_placed(observed),
            superseded: None,
            continued: request.continued.clone(),
            retry: 0,
            step_timeout: request.step_timeout,
        }
    }

    fn cleanup(context: &StepContext<'_, Self>) -> Vec<Effect> {
        match &context.observed.facts {
            // Another isolation may go on from here.
            Facts::Seed(_) if context.ledger.phase == Phase::Succeeded => seed::left_over(context),
            Facts::Seed(_) => Vec::new(),
            // With its finalizer the object goes, so that comes last.
            Facts::Garden(_) => {
                let tell = || garden::tell(context).or_else(|| finalizer(context));
                garden::late_annotation(context).or_else(tell).into_iter().collect()
            }
        }
    }

    fn upkeep(context: &StepContext<'_, Self>) -> Vec<Effect> {
        let tell = garden::tell(context);
        garden::tell_place(context).into_iter().chain(tell).collect()
    }

    fn data_locations(notes: &Notes) -> String {
        notes.zone_code.as_ref().map_or_else(String::new, |code| format!("zone {code}"))
    }
}

/// What was cut off has to be undone also where the Shoot is gone. Nothing was, where no seed has ever taken part.
fn never_placed(observed: &Observed) -> Option<Reason> {
    let Facts::Garden(facts) = &observed.facts else { return None };
    let request = &observed.request;
    let is_removed = request.by_annotation && facts.annotation.is_none();
    let is_off = request.shoot != ShootLife::Kept || request.is_deleting || is_removed;
    let is_nowhere = facts.told_place.is_none() && facts.place.is_none();
    (is_off && is_nowhere)
        .then(|| Reason::new("NeverPlaced", "no seed has ever had the control plane".to_owned()))
}

/// How long a request of the seed may be on its way when all is over.
const LATE: Duration = Duration::from_secs(600);

/// The object stays until each side has ended, since it holds what they have left to undo, and for as long as a request may be late: the
/// seed undoes that, too.
fn finalizer(context: &Context) -> Option<Effect> {
    context.at_garden()?;
    let is_over = |(_, other): &(IsolationSide, LedgerOf<ZoneIsolationFlow>)| {
        let is_late = other.observed.is_some_and(|ended| context.now.since(ended) <= LATE);
        other.phase.is_end() && !(is_late && context.notes.begun)
    };
    let is_asked = context.observed.request.finalizer && context.others.iter().all(is_over);
    is_asked.then_some(Effect::EnsureFinalizer { present: false })
}
