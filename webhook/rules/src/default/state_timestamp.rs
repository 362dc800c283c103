//! A ShootState tells when it was written.

use repot_api::names::TIMESTAMP;
use repot_apimachinery::value::annotation_of;

use crate::{
    change::{Change, Operation},
    default::annotate,
    facts::Facts,
    finding::PatchOp,
};

pub(crate) fn judge(change: &Change, facts: &Facts) -> Vec<PatchOp> {
    if change.operation != Operation::Create || annotation_of(&change.new, TIMESTAMP).is_some() {
        return Vec::new();
    }
    annotate(&change.new, TIMESTAMP, Some(&facts.now))
}
