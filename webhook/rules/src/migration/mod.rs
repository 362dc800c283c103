//! Migration (GEP-7): a change of `spec.seedName` of a Shoot that exists.

pub(crate) mod backup;
pub(crate) mod binding;
pub(crate) mod capacity;
pub(crate) mod created;
pub(crate) mod destination;
pub(crate) mod domains;
pub(crate) mod healthy;
pub(crate) mod named;
pub(crate) mod networks;
pub(crate) mod once;
pub(crate) mod resting;
pub(crate) mod rotation;
pub(crate) mod support;
pub(crate) mod taints;
pub(crate) mod version;
pub(crate) mod zones;

/// The field that all these rules are about.
pub(crate) const SEED_NAME: &str = "spec.seedName";
