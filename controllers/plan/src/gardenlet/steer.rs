//! Rows of the garden in a classic migration: what is asked before the Shoot is bound, and what gardenlet reports then.

use super::{
    flow::{Context, garden},
    garden::{is_bound_elsewhere, said},
};
use crate::ledger::Check;

pub(super) fn are_seeds_ready(context: &Context) -> Check {
    garden(context, |facts| match facts.refusals.as_slice() {
        [] => Check::Met("both seeds are ready, and the binding would be accepted".to_owned()),
        some => Check::waiting("Refused", some.join("; ")),
    })
}

/// An operation that runs now would be broken off, or would go on beside the migration.
pub(super) fn is_shoot_idle(context: &Context) -> Check {
    garden(context, |facts| match &facts.shoot.last_operation {
        Some(last) if matches!(&*last.state, "Processing" | "Pending") => {
            Check::waiting("OperationRuns", said(&facts.shoot, last))
        }
        Some(_) | None => Check::Met("gardenlet does nothing with the Shoot".to_owned()),
    })
}

pub(super) fn is_bound(context: &Context) -> Check {
    let destination = &context.observed.request.destination_seed;
    garden(context, |facts| {
        let is_bound = facts.shoot.spec_seed.as_ref() == Some(destination);
        match (is_bound, facts.refusals.as_slice()) {
            (true, _) => Check::Met(format!("spec.seedName of the Shoot is {destination}")),
            (false, []) => Check::waiting("Binding", "spec.seedName of the Shoot is being written"),
            (false, some) => Check::waiting("Refused", some.join("; ")),
        }
    })
}

pub(super) fn has_migrate_succeeded(context: &Context) -> Check {
    let request = &context.observed.request;
    garden(context, |facts| {
        let shoot = &facts.shoot;
        if let Some(check) = is_bound_elsewhere(context, shoot) {
            return check;
        }
        let is_there = shoot.status_seed.as_ref() == Some(&request.destination_seed);
        let Some(last) = &shoot.last_operation else {
            return Check::waiting("NotBegun", not_begun(&request.source_seed));
        };
        match (&*last.kind, &*last.state) {
            ("Restore", _) | ("Migrate", "Succeeded" | "Aborted") => {
                Check::Met("gardenlet reports Migrate, Succeeded".to_owned())
            }
            _ if is_there => Check::Met(format!("the Shoot is at {}", request.destination_seed)),
            ("Migrate", "Failed") => Check::waiting("MigrateFailed", failed(&said(shoot, last))),
            ("Migrate", _) => Check::waiting("Migrating", said(shoot, last)),
            _ => Check::waiting("NotBegun", not_begun(&request.source_seed)),
        }
    })
}

fn not_begun(source: &str) -> String {
    format!("the gardenlet of {source} has not begun to migrate; see whether it runs")
}

fn failed(says: &str) -> String {
    format!("{says}; it tries again with annotation gardener.cloud/operation=retry on the Shoot")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gardenlet::observed::{LastOperation, ShootFacts};

    #[test]
    fn words_of_gardenlet_are_told() {
        let last = LastOperation {
            kind: "Migrate".into(),
            state: "Failed".into(),
            progress: 40,
            description: "no bucket".into(),
        };
        let shoot = ShootFacts { last_errors: vec!["denied".into()], ..ShootFacts::default() };
        let told = failed(&said(&shoot, &last));
        for word in ["Migrate, Failed, 40 %: no bucket", "errors: denied", "operation=retry"] {
            assert!(told.contains(word), "{told}");
        }
    }
}
