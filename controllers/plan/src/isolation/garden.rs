//! Rows of the garden: the isolation is recorded, ends, and is closed.

use super::{
    context::{Context, garden_check},
    effect::Effect,
    notes::Notes,
    observed::{GardenFacts, ShootLife},
    shown::{self, Shown},
    step::{IsolationSide, Step},
};
use crate::ledger::Check;

pub(super) fn is_recorded(context: &Context) -> Check {
    let request = &context.observed.request;
    garden_check(context, |facts| match &facts.obstacle {
        // One that is called off before it has begun has nothing to wait for.
        _ if why_over(context, facts).is_some() => Check::Met("called off before it has begun".to_owned()),
        Some(why) => Check::waiting("NotYet", why.clone()),
        None if !request.finalizer => {
            Check::waiting("SettingFinalizer", "the finalizer is being set on the ZoneIsolation")
        }
        None if facts.place.is_none() => {
            Check::waiting("NoSeed", "no seed has the control plane of the Shoot")
        }
        None if facts.annotation.is_none() => {
            Check::waiting("Annotating", "the annotation of the Shoot is being set")
        }
        None => Check::Met(format!("zone {} is to be isolated", request.zone)),
    })
}

pub(super) fn note_begun(context: &Context, notes: &mut Notes) {
    let facts = context.at_garden();
    notes.begun = facts.is_some_and(|facts| facts.obstacle.is_none() && why_over(context, facts).is_none());
}

/// The annotation is set once: somebody who removes it later calls the isolation off.
pub(super) fn record(context: &Context) -> Vec<Effect> {
    let request = &context.observed.request;
    let Some(facts) = context.at_garden() else { return Vec::new() };
    match (&facts.obstacle, request.finalizer) {
        _ if why_over(context, facts).is_some() => Vec::new(),
        (_, false) => vec![Effect::EnsureFinalizer { present: true }],
        (Some(_), true) => facts.is_untold.then_some(Effect::TakeOver).into_iter().collect(),
        (None, true) => vec![Effect::EnsureAnnotation { zone: request.zone.clone() }],
    }
}

/// Why the isolation is over, in words. A missing annotation says so only when it was there.
fn why_over(context: &Context, facts: &GardenFacts) -> Option<String> {
    let request = &context.observed.request;
    let is_expired = request.expires.is_some_and(|expires| context.now >= expires);
    let is_other = facts.annotation.as_ref().is_some_and(|zone| *zone != request.zone);
    let was_there = request.by_annotation || context.is_settled(Step::IsolationRecorded);
    let is_removed = facts.annotation.is_none() && was_there;
    let why = match request.shoot {
        ShootLife::Gone => "the Shoot does not exist any more",
        ShootLife::Ending => "the Shoot is being deleted",
        ShootLife::Kept if request.is_deleting => "the ZoneIsolation is being deleted",
        ShootLife::Kept if is_expired => "spec.expiresAt has passed",
        ShootLife::Kept if is_other => "the annotation of the Shoot names another zone",
        ShootLife::Kept if is_removed => "the annotation of the Shoot was removed",
        ShootLife::Kept => return None,
    };
    Some(why.to_owned())
}

/// The annotation goes first: one that is there afterwards asks for the next isolation.
pub(super) fn has_ended(context: &Context) -> Check {
    garden_check(context, |facts| match why_over(context, facts) {
        None => Check::waiting("Isolated", "it lasts until the annotation of the Shoot is removed"),
        Some(_) if is_annotation_left(context, facts) => {
            Check::waiting("RemovingAnnotation", "the annotation of the Shoot is being removed")
        }
        Some(why) => Check::Met(why),
    })
}

pub(super) fn end(context: &Context) -> Vec<Effect> {
    let facts = context.at_garden();
    let is_asked =
        facts.is_some_and(|facts| why_over(context, facts).is_some() && is_annotation_left(context, facts));
    is_asked.then_some(Effect::RemoveAnnotation).into_iter().collect()
}

/// An isolation that has never begun leaves the annotation of another one alone. One that was created for the annotation owns it.
fn is_annotation_left(context: &Context, facts: &GardenFacts) -> bool {
    let request = &context.observed.request;
    let is_owned = context.notes.begun || request.by_annotation;
    let is_named = facts.annotation.as_ref() == Some(&request.zone) && is_owned;
    (is_named || facts.is_annotated_by_us) && request.shoot == ShootLife::Kept
}

/// An annotation that this isolation has set may arrive after its end; one that somebody else has set asks for the next isolation.
pub(super) fn late_annotation(context: &Context) -> Option<Effect> {
    let facts = context.at_garden()?;
    let is_kept = context.observed.request.shoot == ShootLife::Kept;
    (facts.is_annotated_by_us && is_kept).then_some(Effect::RemoveAnnotation)
}

pub(super) fn is_closed(_: &Context) -> Check {
    Check::Met("everything is as before".to_owned())
}

/// Where the control plane is, so that the controller of its seed takes part; also after the Shoot is gone.
pub(super) fn tell_place(context: &Context) -> Option<Effect> {
    let facts = context.at_garden()?;
    let place = facts.place.as_ref().filter(|_| context.observed.request.shoot != ShootLife::Gone)?;
    (facts.told_place.as_ref() != Some(place)).then(|| Effect::TellPlace { place: place.clone() })
}

/// What `status.zoneIsolation` is to show; nothing where it is there, or cannot be. Until an isolation has begun, the status may tell of the
/// one before.
pub(super) fn tell(context: &Context) -> Option<Effect> {
    let is_own = |facts: &&GardenFacts| facts.can_show && !facts.is_outdated && context.notes.begun;
    let facts = context.at_garden().filter(is_own)?;
    let request = &context.observed.request;
    if request.continued.is_some() || request.shoot == ShootLife::Gone {
        return None;
    }
    let seed = context.side(IsolationSide::Seed).map(|ledger| &ledger.notes);
    let was_isolated = seed.is_some_and(|notes| notes.isolated);
    let (direction, progress) =
        shown::progress(|step| context.record(step), was_isolated, (context.now, request.limits()));
    let code = seed.and_then(|notes| notes.zone_code.clone()).unwrap_or_default();
    let shown = Shown { zone: request.zone.clone(), code, direction, progress };
    (facts.shown.as_ref() != Some(&shown)).then_some(Effect::Tell { shown })
}
