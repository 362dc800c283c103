//! When a live migration may be called off.

use repot_api::{
    gardener::{
        progress::{Progress, Step},
        shoot::Shoot,
    },
    names::{ABORT_LIVE_MIGRATION, STEP_PEERS_JOINED, STEP_SIX_MEMBERS},
};

use crate::{
    change::Change,
    facts::Facts,
    finding::{Finding, annotation_path},
};

pub(crate) fn judge(change: &Change, _: &Facts) -> Vec<Finding> {
    let Some(value) = change.sets(ABORT_LIVE_MIGRATION) else { return Vec::new() };
    let (old, progress) = (Shoot(&change.old), Progress(&change.old));
    let path = annotation_path(ABORT_LIVE_MIGRATION);
    let (reason, advice) = match value {
        "false" => return Vec::new(),
        _ if !old.is_moving_live() => {
            ("no live migration runs that could be called off".to_owned(), "remove the annotation".to_owned())
        }
        "true" if progress.joining() == Step::Failed => return Vec::new(),
        "true" => (
            format!(
                "a live migration is called off only while its step {STEP_SIX_MEMBERS} (condition {STEP_PEERS_JOINED} \
                 in Gardener) has failed"
            ),
            "let it go on; or set the value \"force\", which works until the first source member is removed"
                .to_owned(),
        ),
        "force" if !progress.is_past_return() => return Vec::new(),
        "force" => (
            "members of the source are being removed, or are gone: the only way is forward".to_owned(),
            "let the migration come to its end, and move the Shoot back then".to_owned(),
        ),
        other => (format!("{other:?} is not a value"), "set it to \"true\" or \"force\"".to_owned()),
    };
    vec![Finding::refuse(path, reason, advice)]
}
