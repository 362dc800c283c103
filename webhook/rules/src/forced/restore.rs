//! A restore without a migrate phase: only against a source that is gone, and only on purpose.

use repot_api::{
    gardener::{shoot::Shoot, time::seconds_between},
    names::{CONFIRM_FORCE_RESTORE, FORCE_RESTORE},
};
use repot_apimachinery::value::{annotation_of, parse_bool, text_at};

use crate::{
    change::Change,
    facts::Facts,
    finding::{Finding, annotation_path},
    migration::is_dead,
};

/// After so many seconds of errors the source's half counts as failed. gardenlet itself waits for hours.
const GIVES_UP: i64 = 30 * 60;

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

/// Why the source counts as alive, if it does. Its half of the migration gives up by Failed, which gardenlet sets after hours of
/// retries, or by Error for so long that another retry hardly helps.
fn answers(facts: &Facts, source: &str, old: Shoot<'_>) -> Option<String> {
    if is_dead(facts, source) || facts.seed(source).is_none() {
        return None;
    }
    let alive = "its condition GardenletReady is True";
    match old.last_operation() {
        ("Migrate", "Failed") => None,
        ("Migrate", "Error") => {
            let since = text_at(old.0, "/status/retryCycleStartTime");
            let tried = since.and_then(|since| seconds_between(since, &facts.now));
            match tried {
                Some(tried) if tried >= GIVES_UP => None,
                Some(tried) => Some(format!(
                    "{alive}, and it has retried for {} of {} minutes",
                    tried.max(0) / 60,
                    GIVES_UP / 60
                )),
                None => Some(format!("{alive}, and the Shoot does not tell since when it retries")),
            }
        }
        _ => Some(alive.to_owned()),
    }
}
