//! Whether two entries say the same. White space between tokens does not count, nor how a machine state was compressed.

use bytes::Bytes;
use repot_apimachinery::json::Raw;
use repot_extension::RawJson;

use super::{
    machines,
    model::{Entry, ExtensionEntry, GardenerEntry, ResourceEntry, TYPE_MACHINE_STATE},
};

/// Whether two entries of `spec.gardener` say the same.
#[must_use]
pub fn gardener(one: &GardenerEntry, other: &GardenerEntry) -> bool {
    let is_named = one.kind == other.kind && one.name == other.name && one.labels == other.labels;
    let is_same = match one.kind == TYPE_MACHINE_STATE {
        true => machines::is_same_state,
        false => json,
    };
    is_named && is_same(&one.data, &other.data)
}

/// Whether two entries of `spec.extensions` say the same.
#[must_use]
pub fn extension(one: &ExtensionEntry, other: &ExtensionEntry) -> bool {
    let is_same_state = match (&one.state, &other.state) {
        (Some(one), Some(other)) => json(one, other),
        (one, other) => one.is_none() && other.is_none(),
    };
    one.key() == other.key() && one.resources == other.resources && is_same_state
}

/// Whether two entries of `spec.resources` say the same.
#[must_use]
pub fn resource(one: &ResourceEntry, other: &ResourceEntry) -> bool {
    one.key() == other.key() && json(&one.data, &other.data)
}

/// Whether two texts are one JSON value but for white space between its tokens.
fn json(one: &RawJson, other: &RawJson) -> bool {
    let compact = |json: &RawJson| Raw::from_valid(Bytes::from(json.get().to_owned())).ok();
    let is_equal = || Some(compact(one)? == compact(other)?);
    one == other || is_equal() == Some(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn white_space_alone_is_no_difference() {
        let same = |one: &str, other: &str| {
            let parse = |text: &str| RawJson::parse(text).expect("JSON");
            json(&parse(one), &parse(other))
        };
        assert!(same(r#"{"a": [1, 2]}"#, r#"{"a":[1,2]}"#));
        for (one, other) in [("1", "1.0"), (r#"" ""#, r#""""#), (r#"{"a":1,"b":2}"#, r#"{"b":2,"a":1}"#)] {
            assert!(!same(one, other), "{one} {other}");
        }
    }
}
