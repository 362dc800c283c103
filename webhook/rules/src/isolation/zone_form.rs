//! The value looks like the id of a zone.

use repot_api::names::ISOLATED_ZONE;

use crate::{change::Change, facts::Facts, finding::Finding, isolation::path};

const LONGEST: usize = 63;

/// Whether a text looks like the id of one zone.
pub(super) fn fits(id: &str) -> bool {
    let inner =
        |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'-' | b'_' | b'.');
    let outer = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = id.as_bytes();
    id.len() <= LONGEST && id.bytes().all(inner) && outer(bytes.first()) && outer(bytes.last())
}

pub(crate) fn judge(change: &Change, _: &Facts) -> Vec<Finding> {
    if change.sets(ISOLATED_ZONE).is_none_or(fits) {
        return Vec::new();
    }
    let reason = "the value does not look like the id of one zone";
    vec![Finding::refuse(path(), reason, "name one zone by the provider's id for it, such as euc1-az1")]
}
