//! What is filled in. Each rule is silent about an object on which it has done its work.

pub(crate) mod clear_markers;
pub(crate) mod reconcile;
pub(crate) mod requested_at;
pub(crate) mod seed_labels;
pub(crate) mod state_owner;
pub(crate) mod state_timestamp;
pub(crate) mod trigger;

use serde_json::Value;

use crate::finding::{PatchOp, set_entries};

pub(crate) fn annotate(object: &Value, key: &str, value: Option<&str>) -> Vec<PatchOp> {
    set_entries(object, "annotations", &[(key.to_owned(), value.map(str::to_owned))])
}
