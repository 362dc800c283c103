//! Rows of the garden in a classic migration: what is asked before the Shoot is bound, and what gardenlet reports then.

use super::{
    effect::Effect,
    flow::{Context, GardenletMigration, garden},
    garden::{has_restore_succeeded as is_restored, is_bound_elsewhere, said},
    observed::{BindingAnswer, GardenFacts, LastOperation, ShootFacts},
    step::Step,
};
use crate::{
    flow::LedgerOf,
    ledger::{Check, State},
};

/// Whether the garden asks for the binding in this pass: not in each one while snapshots are copied, which may take hours.
#[must_use]
pub fn is_binding_asked(ledger: &LedgerOf<GardenletMigration>) -> bool {
    let is_running = |step| ledger.state(step) == State::Running;
    !ledger.is_settled(Step::SeedsReady) || is_running(Step::BindingAccepted) || is_running(Step::SeedBound)
}

/// Nothing is done for a Shoot that is not that of this migration any more.
fn ours(context: &Context, check: impl Fn(&GardenFacts) -> Check) -> Check {
    match &context.observed.request.abandoned {
        Some(why) => Check::Blocked(why.clone()),
        None => garden(context, check),
    }
}

fn refused(why: &[String]) -> Check {
    Check::waiting("Refused", why.join("; "))
}

pub(super) fn are_seeds_ready(context: &Context) -> Check {
    let was_reached = context.ledger.state(Step::SeedsReady) == State::Succeeded;
    ours(context, |facts| match (facts.refusals.as_slice(), &facts.binding) {
        ([], BindingAnswer::Refused(why)) => refused(std::slice::from_ref(why)),
        ([], BindingAnswer::Unknown) if !was_reached => asking(),
        ([], BindingAnswer::Accepted | BindingAnswer::Unknown) => {
            Check::Met("both seeds are ready, and the binding would be accepted".to_owned())
        }
        (some, _) => refused(some),
    })
}

fn asking() -> Check {
    Check::waiting("Asking", "Gardener and the webhooks are asked whether they accept the binding")
}

pub(super) fn is_binding_accepted(context: &Context) -> Check {
    ours(context, |facts| match &facts.binding {
        BindingAnswer::Accepted => Check::Met("the binding would be accepted".to_owned()),
        BindingAnswer::Refused(why) => refused(std::slice::from_ref(why)),
        BindingAnswer::Unknown => asking(),
    })
}

/// Whether gardenlet has ended what it did, and does nothing more by itself. After an error it tries again, and after a migrate it restores.
fn is_idle(last: &LastOperation) -> bool {
    match (&*last.kind, &*last.state) {
        ("Migrate" | "Delete", _) => false,
        (_, "Succeeded") | ("Reconcile", "Failed") => true,
        _ => false,
    }
}

/// Why the Shoot is not where this migration takes it from.
fn is_not_at_source(context: &Context, shoot: &ShootFacts) -> Option<Check> {
    let request = &context.observed.request;
    let (source, destination) = (&request.source_seed, &request.destination_seed);
    let spec = shoot.spec_seed.as_ref();
    let is_there =
        shoot.status_seed.as_ref() == Some(source) && (spec == Some(source) || spec == Some(destination));
    (!is_there).then(|| {
        let [spec, status] = [spec, shoot.status_seed.as_ref()].map(|seed| seed.map_or("none", |seed| seed));
        let message = format!(
            "spec.seedName of the Shoot is {spec}, and status.seedName is {status}: it is not at {source}"
        );
        Check::blocked("NotAtSource", message)
    })
}

pub(super) fn is_shoot_idle(context: &Context) -> Check {
    ours(context, |facts| match (is_not_at_source(context, &facts.shoot), &facts.shoot.last_operation) {
        (Some(check), _) => check,
        (None, Some(last)) if is_idle(last) => {
            Check::Met("the Shoot is at the source, and gardenlet does nothing with it".to_owned())
        }
        (None, Some(last)) => Check::waiting("OperationRuns", said(&facts.shoot, last)),
        (None, None) => {
            Check::waiting("NoOperation", "the Shoot has no last operation: gardenlet has not created it")
        }
    })
}

/// Only of a Shoot that is at the source, while gardenlet does nothing with it.
pub(super) fn bind(context: &Context) -> Vec<Effect> {
    let request = &context.observed.request;
    let may_bind = context.at_garden().is_some_and(|facts| {
        let shoot = &facts.shoot;
        let is_idle = shoot.last_operation.as_ref().is_some_and(is_idle);
        let is_accepted = facts.refusals.is_empty() && !matches!(facts.binding, BindingAnswer::Refused(_));
        let is_at_source = is_not_at_source(context, shoot).is_none();
        is_idle && is_accepted && is_at_source && shoot.spec_seed.as_ref() == Some(&request.source_seed)
    });
    let is_ours = request.abandoned.is_none();
    (may_bind && is_ours)
        .then(|| Effect::BindShoot { seed: request.destination_seed.clone() })
        .into_iter()
        .collect()
}

pub(super) fn is_bound(context: &Context) -> Check {
    let destination = &context.observed.request.destination_seed;
    ours(context, |facts| {
        let is_bound = facts.shoot.spec_seed.as_ref() == Some(destination);
        match (is_bound, is_not_at_source(context, &facts.shoot), facts.refusals.as_slice(), &facts.binding) {
            (true, ..) => Check::Met(format!("spec.seedName of the Shoot is {destination}")),
            (false, Some(check), ..) => check,
            (false, None, [], BindingAnswer::Refused(why)) => refused(std::slice::from_ref(why)),
            (false, None, [], _) => Check::waiting("Binding", "spec.seedName of the Shoot is being written"),
            (false, None, some, _) => refused(some),
        }
    })
}

pub(super) fn has_migrate_succeeded(context: &Context) -> Check {
    let request = &context.observed.request;
    let (source, destination) = (&request.source_seed, &request.destination_seed);
    ours(context, |facts| {
        let shoot = &facts.shoot;
        if let Some(check) = is_bound_elsewhere(context, shoot) {
            return check;
        }
        // The last operation may be that of an earlier migration as long as the Shoot is at the source.
        let is_at_source = shoot.status_seed.as_ref() == Some(source);
        let last = shoot.last_operation.as_ref();
        let says = || last.map(|last| said(shoot, last)).unwrap_or_default();
        match last.map(|last| (&*last.kind, &*last.state)) {
            Some(("Migrate", "Succeeded")) => Check::Met("gardenlet reports Migrate, Succeeded".to_owned()),
            _ if shoot.status_seed.as_ref() == Some(destination) => {
                Check::Met(format!("the Shoot is at {destination}"))
            }
            Some(("Migrate", "Failed")) => Check::waiting("MigrateFailed", failed(&says())),
            Some(("Migrate", _)) => Check::waiting("Migrating", says()),
            Some(("Restore", _)) if !is_at_source => Check::Met("gardenlet restores the Shoot".to_owned()),
            _ => Check::waiting(
                "NotBegun",
                format!("the gardenlet of {source} has not begun to migrate; see whether it runs"),
            ),
        }
    })
}

fn failed(says: &str) -> String {
    format!("{says}; it tries again with annotation gardener.cloud/operation=retry on the Shoot")
}

pub(super) fn has_restore_succeeded(context: &Context) -> Check {
    ours(context, |_| is_restored(context))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn last(kind: &str, state: &str) -> LastOperation {
        LastOperation {
            kind: kind.into(),
            state: state.into(),
            progress: 40,
            description: "no bucket".into(),
        }
    }

    #[test]
    fn words_of_gardenlet_are_told() {
        let shoot = ShootFacts { last_errors: vec!["denied".into()], ..ShootFacts::default() };
        let told = failed(&said(&shoot, &last("Migrate", "Failed")));
        for word in ["Migrate, Failed, 40 %: no bucket", "errors: denied", "operation=retry"] {
            assert!(told.contains(word), "{told}");
        }
    }

    #[test]
    fn gardenlet_is_idle_when_it_does_nothing_more_by_itself() {
        let idle = [
            ("Create", "Succeeded"),
            ("Restore", "Succeeded"),
            ("Reconcile", "Succeeded"),
            ("Reconcile", "Failed"),
        ];
        for (kind, state) in idle {
            assert!(is_idle(&last(kind, state)), "{kind}, {state}");
        }
        let busy = [
            ("Reconcile", "Processing"),
            ("Reconcile", "Error"),
            ("Reconcile", "Aborted"),
            ("Restore", "Failed"),
            ("Create", "Failed"),
            ("Migrate", "Succeeded"),
            ("Migrate", "Aborted"),
            ("Delete", "Failed"),
        ];
        for (kind, state) in busy {
            assert!(!is_idle(&last(kind, state)), "{kind}, {state}");
        }
    }
}
