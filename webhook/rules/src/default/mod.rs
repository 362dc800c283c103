//! What is filled in. Each rule is silent about an object on which it has done its work.

pub(crate) mod cleanup;
pub(crate) mod isolation;
pub(crate) mod labels;
pub(crate) mod requested;
pub(crate) mod shoot_state;
pub(crate) mod trigger;

use crate::finding::{PatchOp, set_entries};
use serde_json::Value;

pub(crate) fn annotate(object: &Value, key: &str, value: Option<&str>) -> Vec<PatchOp> {
    set_entries(object, "annotations", &[(key.to_owned(), value.map(str::to_owned))])
}
