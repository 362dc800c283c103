//! A restore without a migrate phase: only against a source that is gone, and only on purpose.

use repot_api::names::{CONFIRM_FORCE_RESTORE, FORCE_RESTORE};

use crate::{
    change::{Change, annotation_of, parse_bool},
    facts::Facts,
    finding::{Finding, annotation_path},
    shoot::{Seed, Shoot},
};

pub(crate) fn judge(change: &Change, facts: &Facts) -> Vec<Finding> {
    let Some(value) = change.sets(FORCE_RESTORE) else { return Vec::new() };
    let path = annotation_path(FORCE_RESTORE);
    match parse_bool(value) {
        Some(false) => return Vec::new(),
        None => {
            let reason = "the value is neither true nor false";
            return vec![Finding::refuse(path, reason, "set it to \"true\", or remove it")];
        }
        Some(true) => {}
    }
    let old = Shoot(&change.old);
    let (Some(source), Some(to)) =
        (old.status_seed(), old.spec_seed().filter(|to| old.status_seed() != Some(to)))
    else {
        let reason = "the Shoot is not on its way to another seed";
        return vec![Finding::refuse(path, reason, "change spec.seedName first")];
    };
    let mut findings = Vec::new();
    if annotation_of(&change.new, CONFIRM_FORCE_RESTORE) != Some(source) {
        let reason = format!("what seed {source:?} wrote last may be lost, and nobody has confirmed that");
        let advice = format!("confirm by annotation {CONFIRM_FORCE_RESTORE}={source}");
        findings.push(Finding::refuse(annotation_path(CONFIRM_FORCE_RESTORE), reason, advice));
    }
    if let Some(sign) = answers(facts, source, old) {
        let reason = format!(
            "seed {source:?} answers ({sign}), and its migrate phase can do without loss what this does with loss"
        );
        let advice = format!("let the migration to {to:?} go on; if it is stuck, see status.lastErrors");
        findings.push(Finding::refuse(path, reason, advice));
    }
    findings
}

/// A sign of life of the source, unless its half of the migration has failed.
fn answers(facts: &Facts, source: &str, old: Shoot<'_>) -> Option<&'static str> {
    let seed = Seed(facts.seed(source)?);
    let gave_up = matches!(old.last_operation(), ("Migrate", "Failed"));
    (seed.condition("GardenletReady") == "True" && !gave_up).then_some("its condition GardenletReady is True")
}
