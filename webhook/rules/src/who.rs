//! Who somebody is, for rules about who may write.

use repot_api::names::{SEED_USER_PREFIX, SEEDS_GROUP};

use crate::{change::User, facts::Settings};

/// Standing of a user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Principal<'a> {
    /// The gardenlet of a seed.
    Gardenlet(&'a str),
    /// The gardenlet of a self-hosted Shoot, as `namespace:name`.
    GardenletOfShoot(&'a str),
    /// A controller by name or group, also those of Kubernetes.
    Controller,
    /// An administrator.
    Operator,
    /// Anybody else.
    Other,
}

/// Users of gardenlets of self-hosted Shoots, `<prefix><namespace>:<name>`, and their group, as Gardener's `gardenletidentity` has them.
const SHOOT_USER_PREFIX: &str = "gardener.cloud:system:shoot:";
const SHOOTS_GROUP: &str = "gardener.cloud:system:shoots";

/// Garbage collection, namespace deletion and the like must never be in need of Repot.
const KUBERNETES: &[&str] =
    &["system:kube-controller-manager", "system:apiserver", "system:serviceaccount:kube-system:*"];

/// Who a user is.
pub(crate) fn who<'a>(user: &'a User, settings: &Settings) -> Principal<'a> {
    let named = |pattern: &str| match pattern.strip_suffix('*') {
        Some(start) => user.name.starts_with(start),
        None => user.name == pattern,
    };
    if user.is_in(SEEDS_GROUP)
        && let Some(seed) = user.name.strip_prefix(SEED_USER_PREFIX)
    {
        return Principal::Gardenlet(seed);
    }
    if user.is_in(SHOOTS_GROUP)
        && let Some(shoot) = user.name.strip_prefix(SHOOT_USER_PREFIX)
    {
        return Principal::GardenletOfShoot(shoot);
    }
    let controller = KUBERNETES.iter().any(|pattern| named(pattern))
        || settings.controllers.iter().any(|pattern| named(pattern))
        || settings.controller_groups.iter().any(|group| user.is_in(group));
    if controller {
        Principal::Controller
    } else if settings.operator_groups.iter().any(|group| user.is_in(group)) {
        Principal::Operator
    } else {
        Principal::Other
    }
}
