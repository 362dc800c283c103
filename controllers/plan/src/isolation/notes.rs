//! What each side of an isolation remembers.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// What each side of an isolation remembers between passes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Notes {
    /// Garden: it has begun. One that is called off while it waits for another isolation has nothing to undo.
    #[serde(skip_serializing_if = "is_false")]
    pub begun: bool,
    /// Seed: the code that the zone has in the account of the Shoot.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub zone_code: Option<String>,
    /// Seed: machines of each pool before anything was changed.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub machines: BTreeMap<String, u32>,
    /// Seed: the Worker may have been changed.
    #[serde(skip_serializing_if = "is_false")]
    pub worker_changed: bool,
    /// Seed: name of the seed in which the SubnetIsolation was requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subnet_seed: Option<String>,
    /// Seed: the zone was isolated, and not only on the way to it.
    #[serde(skip_serializing_if = "is_false")]
    pub isolated: bool,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks by reference")]
fn is_false(value: &bool) -> bool {
    !value
}
